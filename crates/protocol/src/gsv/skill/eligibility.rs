//! Decides on which machines a skill can be used, and gives the reasons if there are none.

use std::collections::BTreeSet;

use super::SkillRequirements;
use crate::gsv::runtime::{HostRole, MachineCapability};

/// A machine, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkillHost {
    /// The node.
    pub node: String,
    /// Role of the machine.
    pub role: Option<HostRole>,
    /// Capabilities.
    pub capabilities: Vec<MachineCapability>,
    /// Its operating system.
    pub os: Option<String>,
    /// The names of its environment variables.
    pub env: BTreeSet<String>,
    /// Programs that it has.
    pub bins: BTreeSet<String>,
}

/// Eligibility of a skill.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkillEligibility {
    /// True if it can be used.
    pub eligible: bool,
    /// Nodes on which it can be used.
    pub hosts: Vec<String>,
    /// Reasons that it cannot be used.
    pub reasons: Vec<String>,
}

/// Decides whether a skill can be used. `has_setting` reports whether a setting is there and not empty.
pub fn skill_eligibility(
    always: bool,
    requirements: Option<&SkillRequirements>,
    hosts: &[SkillHost],
    has_setting: impl Fn(&str) -> bool,
) -> SkillEligibility {
    let all = || hosts.iter().map(|host| host.node.clone()).collect();
    let Some(needs) = requirements.filter(|needs| !always && **needs != SkillRequirements::default()) else {
        return SkillEligibility { eligible: true, hosts: all(), reasons: Vec::new() };
    };
    let mut reasons = Vec::new();
    let unset: Vec<&str> = needs.config.iter().filter(|path| !has_setting(path)).map(String::as_str).collect();
    if !unset.is_empty() {
        reasons.push(format!("requires config: {}", unset.join(", ")));
    }
    let of_host = SkillRequirements { config: Vec::new(), ..needs.clone() };
    if of_host == SkillRequirements::default() {
        let eligible = reasons.is_empty();
        return SkillEligibility { eligible, hosts: if eligible { all() } else { Vec::new() }, reasons };
    }
    if hosts.is_empty() {
        reasons.push("no connected hosts".to_owned());
        return SkillEligibility { eligible: false, hosts: Vec::new(), reasons };
    }
    let mut left: Vec<&SkillHost> = hosts.iter().collect();
    for (kind, names, is_met) in host_filters(needs) {
        let met: Vec<&SkillHost> = left.iter().copied().filter(|host| is_met(host)).collect();
        if met.is_empty() {
            reasons.push(format!("requires {kind}: {}", names.join(", ")));
            return SkillEligibility { eligible: false, hosts: Vec::new(), reasons };
        }
        left = met;
    }
    let eligible = reasons.is_empty();
    let nodes = left.into_iter().map(|host| host.node.clone()).collect();
    SkillEligibility { eligible, hosts: if eligible { nodes } else { Vec::new() }, reasons }
}

type HostFilter<'a> = (&'static str, Vec<String>, Box<dyn Fn(&SkillHost) -> bool + 'a>);

/// Returns the requirements on one and the same machine, in this order.
fn host_filters(needs: &SkillRequirements) -> Vec<HostFilter<'_>> {
    let names = |capabilities: &[MachineCapability]| capabilities.iter().map(|it| it.name().to_owned()).collect();
    let role = |role: &HostRole| match role {
        HostRole::Execution => "execution".to_owned(),
        HostRole::Specialized => "specialized".to_owned(),
    };
    let filters: Vec<HostFilter<'_>> = vec![
        (
            "hostRoles",
            needs.host_roles.iter().map(role).collect(),
            Box::new(|host| host.role.is_some_and(|role| needs.host_roles.contains(&role))),
        ),
        (
            "capabilities",
            names(&needs.capabilities),
            Box::new(|host| needs.capabilities.iter().all(|it| host.capabilities.contains(it))),
        ),
        (
            "anyCapabilities",
            names(&needs.any_capabilities),
            Box::new(|host| needs.any_capabilities.iter().any(|it| host.capabilities.contains(it))),
        ),
        (
            "os",
            needs.os.clone(),
            Box::new(|host| host.os.as_ref().is_some_and(|os| needs.os.iter().any(|it| it.eq_ignore_ascii_case(os)))),
        ),
        ("env", needs.env.clone(), Box::new(|host| needs.env.iter().all(|it| host.env.contains(it)))),
        ("bins", needs.bins.clone(), Box::new(|host| needs.bins.iter().all(|it| host.bins.contains(it)))),
        ("anyBins", needs.any_bins.clone(), Box::new(|host| needs.any_bins.iter().any(|it| host.bins.contains(it)))),
    ];
    filters.into_iter().filter(|(_, names, _)| !names.is_empty()).collect()
}
