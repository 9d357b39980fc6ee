//! Rights of the agent in a session, as flags and settings of the originals leave them. Source: docs/protocol/omp.md, Fields that
//! restrict.

use countersign_core::policy::ApprovalMode;
use countersign_runtime::tools::Registry;

use super::flags::Flags;
use crate::agent_dir::{Environment, Product, Settings};

/// Tells what restricts in an original and is not enforced here.
pub(super) fn tell(environment: &Environment, settings: &Settings, notice: &impl Fn(&str)) {
    for name in ["OMP_PROFILE", "PI_PROFILE"] {
        if environment.get(name).is_some_and(|profile| !profile.is_empty()) {
            notice(&format!(
                "{name} is set: there are no profiles here; PI_CODING_AGENT_DIR names the folder of settings"
            ));
        }
    }
    settings.restrictions.notices.iter().for_each(|told| notice(told));
}

/// Returns the stricter of the approval modes that flags and settings ask for.
pub(super) fn approval(flags: &Flags, settings: &Settings, notice: &impl Fn(&str)) -> ApprovalMode {
    let set = settings.restrictions.approval;
    let wanted = flags.approval.unwrap_or(set);
    if wanted < set {
        let (wanted, set) = (wanted.name(), set.name());
        notice(&format!("--approval-mode {wanted} loosens nothing: tools.approvalMode is {set}"));
    }
    wanted.max(set)
}

/// Returns the tools that flags and settings leave.
pub(super) fn tools(flags: &Flags, settings: &Settings, whole: &Registry, notice: &impl Fn(&str)) -> Registry {
    let names: Vec<String> = whole.specs().map(|spec| spec.name.clone()).collect();
    let withheld = &settings.restrictions.withheld;
    // Hosts of gjc pass what they like, and expect silence.
    let unknown = flags.tools.iter().flatten().filter(|name| !names.contains(name) && flags.product == Product::Omp);
    for name in unknown {
        notice(&format!("--tools: there is no tool {name:?} here; the tools are {}", names.join(", ")));
    }
    let is_left = |name: &&str| {
        !flags.no_tools
            && flags.tools.as_ref().is_none_or(|tools| tools.iter().any(|tool| tool == name))
            && !flags.excluded_tools.contains(*name)
            && !withheld.contains(*name)
    };
    whole.only(&names.iter().map(String::as_str).filter(is_left).collect::<Vec<_>>())
}
