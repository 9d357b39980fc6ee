//! Rights of the agent in a session, as flags and settings of the originals leave them. Source: docs/protocol/omp.md, Fields that
//! restrict.

use countersign_agent_dir::{
    AgentDir, AgentProduct, AgentSettings, ProcessEnvironment,
    restrictions::{is_named, nearest_tool},
};
use countersign_core::policy::ApprovalMode;
use countersign_runtime::tools::ToolRegistry;

use super::flags::AdapterFlags;

/// Tells what restricts in an original and is not enforced here.
pub(super) fn report_settings(
    folder: &AgentDir,
    environment: &ProcessEnvironment,
    settings: &AgentSettings,
    notice: &impl Fn(&str),
) {
    let other = folder.root().join("settings.json");
    if other.exists() && !folder.config_path().exists() {
        notice(&format!("{} is ignored: settings are read from config.yml", other.display()));
    }
    for name in ["OMP_PROFILE", "PI_PROFILE"] {
        if environment.get(name).is_some_and(|profile| !profile.is_empty()) {
            notice(&format!(
                "{name} is ignored: profiles are not supported; set PI_CODING_AGENT_DIR to the folder of settings"
            ));
        }
    }
    settings.restrictions.notices.iter().for_each(|text| notice(text));
}

/// Returns the stricter of the approval modes that flags and settings ask for.
pub(super) fn approval_mode(flags: &AdapterFlags, settings: &AgentSettings, notice: &impl Fn(&str)) -> ApprovalMode {
    let set = settings.restrictions.approval;
    let requested = flags.approval.unwrap_or(set);
    if requested < set {
        let (requested_name, set) = (requested.name(), set.name());
        notice(&format!(
            "--approval-mode {requested_name} has no effect: tools.approvalMode is {set}, which is stricter"
        ));
    }
    requested.max(set)
}

/// Returns the tools that flags and settings leave.
///
/// # Errors
/// A name of `--exclude-tools` that no tool has and that is a slip in one.
pub(super) fn allowed_tools(
    flags: &AdapterFlags,
    settings: &AgentSettings,
    whole: &ToolRegistry,
    notice: &impl Fn(&str),
) -> Result<ToolRegistry, String> {
    let names: Vec<String> = whole.tool_specs().map(|spec| spec.name.clone()).collect();
    let is_unknown = |pattern: &&String| !names.iter().any(|name| is_named(pattern, name));
    // Hosts of gjc name tools that only the original has, and expect silence about some of them, but not about all.
    let leaves_none = flags.tools.as_ref().is_some_and(|listed| listed.iter().all(|name| is_unknown(&name)));
    let listed = flags.tools.iter().flatten().filter(|_| flags.product == AgentProduct::Omp || leaves_none);
    // Tools of MCP servers are known only while the session is open.
    let listed = listed.filter(|name| !is_server_tool(name));
    for name in listed.filter(is_unknown) {
        notice(&format!("--tools: unknown tool {name:?}; the tools are {}", names.join(", ")));
    }
    for name in flags.excluded_tools.iter().filter(is_unknown).filter(|name| !is_server_tool(name)) {
        let all = names.join(", ");
        if let Some(meant) = nearest_tool(name, &names) {
            return Err(format!("--exclude-tools: unknown tool {name:?}; did you mean {meant}? The tools are {all}"));
        }
        notice(&format!(
            "--exclude-tools: {name:?} matches no built-in tool and applies to tools of the host only; the tools are {all}"
        ));
    }
    let is_left = |name: &&str| is_tool_left(flags, settings, name);
    Ok(whole.only_named(&names.iter().map(String::as_str).filter(is_left).collect::<Vec<_>>()))
}

/// Reports whether flags and settings leave a tool to the agent.
pub(super) fn is_tool_left(flags: &AdapterFlags, settings: &AgentSettings, name: &str) -> bool {
    !flags.no_tools
        && flags.tools.as_ref().is_none_or(|tools| tools.iter().any(|tool| is_named(tool, name)))
        && !flags.excluded_tools.iter().any(|excluded| is_named(excluded, name))
        && !settings.restrictions.withheld.contains(name)
}

/// Reports whether a name or a pattern can only be that of a tool for MCP servers.
fn is_server_tool(pattern: &str) -> bool {
    pattern.to_lowercase().starts_with("mcp_")
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, fs};

    use countersign_core::policy::ApprovalMode;
    use countersign_runtime::tools::ToolRegistry;

    use super::{allowed_tools, approval_mode, is_tool_left, report_settings};
    use crate::flags;
    use countersign_agent_dir::{AgentDir, AgentProduct, AgentSettings, ProcessEnvironment};

    #[test]
    fn other_places_of_settings_are_reported() {
        let root = tempfile::tempdir().unwrap();
        let agent = root.path().to_str().unwrap();
        let environment: ProcessEnvironment =
            [("PI_CODING_AGENT_DIR", agent), ("OMP_PROFILE", "work")].into_iter().collect();
        let folder = AgentDir::resolve(AgentProduct::Omp, &environment, root.path(), |_| false).unwrap();
        let notices = RefCell::new(Vec::new());
        let notice = |line: &str| notices.borrow_mut().push(line.replace(agent, "~"));
        fs::write(root.path().join("settings.json"), "{}").unwrap();
        report_settings(&folder, &environment, &AgentSettings::default(), &notice);
        fs::write(folder.config_path(), "").unwrap();
        report_settings(&folder, &environment, &AgentSettings::default(), &notice);
        let profile =
            "OMP_PROFILE is ignored: profiles are not supported; set PI_CODING_AGENT_DIR to the folder of settings";
        let other = "~/settings.json is ignored: settings are read from config.yml";
        assert_eq!(notices.take(), [other, profile, profile]);
    }

    #[test]
    fn the_stricter_of_flags_and_settings_counts() {
        for (flags, set, want, is_noticed) in [
            (&[][..], ApprovalMode::Yolo, ApprovalMode::Yolo, false),
            (&["--approval-mode", "write"], ApprovalMode::Yolo, ApprovalMode::Write, false),
            (&["--approval-mode", "write"], ApprovalMode::AlwaysAsk, ApprovalMode::AlwaysAsk, true),
            (&["--yolo"], ApprovalMode::Write, ApprovalMode::Write, true),
        ] {
            let flags = flags::parse(flags.iter().map(|flag| (*flag).to_owned())).unwrap();
            let mut settings = AgentSettings::default();
            settings.restrictions.approval = set;
            let notice_count = RefCell::new(0);
            let got = approval_mode(&flags, &settings, &|_: &str| *notice_count.borrow_mut() += 1);
            assert_eq!((got, notice_count.take() > 0), (want, is_noticed), "{flags:?}");
        }
    }

    #[test]
    fn no_flag_gives_back_a_tool_that_another_takes() {
        for (flags, withheld, want) in [
            (&["--tools", "read,bash", "--no-tools"][..], "", &[][..]),
            (&["--tools", "read,bash", "--exclude-tools", "bash"], "", &["read"]),
            (&["--tools", "read,bash"], "bash", &["read"]),
            (&["--tools", "nothing"], "", &[]),
            (&["--tools", "Read,B*,todo"], "", &["read", "bash", "todo_write"]),
            (&["--tools", "read,bash,glob", "--exclude-tools", "B*,gl*"], "", &["read"]),
            (&["--exclude-tools", "*"], "", &[]),
        ] {
            let flags = flags::parse(flags.iter().map(|flag| (*flag).to_owned())).unwrap();
            let mut settings = AgentSettings::default();
            settings.restrictions.withheld = [withheld.to_owned()].into();
            let left = allowed_tools(&flags, &settings, &ToolRegistry::standard(), &|_: &str| {}).unwrap();
            let names: Vec<&str> = left.tool_specs().map(|spec| spec.name.as_str()).collect();
            assert_eq!(names, want, "{flags:?} {withheld}");
        }
    }

    #[test]
    fn flags_and_settings_hold_for_tools_of_servers_without_a_notice() {
        for (flags, withheld, want) in [
            (&[][..], "", true),
            (&["--tools", "read,bash"], "", false),
            (&["--tools", "read,mcp__files__*"], "", true),
            (&["--no-tools"], "", false),
            (&["--exclude-tools", "mcp__*"], "", false),
            (&["--exclude-tools", "mcp__other__*"], "", true),
            (&[], "mcp__files__read", false),
        ] {
            let flags = flags::parse(flags.iter().map(|flag| (*flag).to_owned())).unwrap();
            let mut settings = AgentSettings::default();
            settings.restrictions.withheld = [withheld.to_owned()].into();
            allowed_tools(&flags, &settings, &ToolRegistry::standard(), &|line: &str| {
                assert!(line.is_empty(), "{line}");
            })
            .unwrap();
            assert_eq!(is_tool_left(&flags, &settings, "mcp__files__read"), want, "{flags:?} {withheld}");
        }
    }

    #[test]
    fn a_list_of_tools_that_leaves_none_is_told_at_every_adapter() {
        for (product, list, want) in [
            (AgentProduct::Omp, "read,lsp", 1),
            (AgentProduct::Gjc, "read,lsp", 0),
            (AgentProduct::Omp, "bogus,lsp", 2),
            (AgentProduct::Gjc, "bogus,lsp", 2),
            (AgentProduct::Gjc, "mcp__files__read", 0),
        ] {
            let notices = RefCell::new(Vec::new());
            let flags = flags::parse_for(product, ["--tools", list].map(str::to_owned)).unwrap();
            let notice = |line: &str| notices.borrow_mut().push(line.to_owned());
            allowed_tools(&flags, &AgentSettings::default(), &ToolRegistry::standard(), &notice).unwrap();
            let notices = notices.take();
            assert_eq!(notices.len(), want, "{product:?} {list}: {notices:?}");
            assert!(notices.iter().all(|line| line.contains("the tools are read, write")), "{notices:?}");
        }
    }

    #[test]
    fn an_unknown_tool_name_is_an_error_or_a_notice() {
        let notices = RefCell::new(Vec::new());
        let of = |product, list: &str| {
            let flags = ["--exclude-tools", list].map(str::to_owned);
            let flags = flags::parse_for(product, flags).unwrap();
            let notice = |line: &str| notices.borrow_mut().push(line.to_owned());
            allowed_tools(&flags, &AgentSettings::default(), &ToolRegistry::standard(), &notice).map(|_| ())
        };
        for product in [AgentProduct::Omp, AgentProduct::Gjc] {
            let problem = of(product, "bsah").unwrap_err();
            assert!(problem.starts_with("--exclude-tools: unknown tool \"bsah\"; did you mean bash?"), "{problem}");
            for unknown in ["shell", "lsp", "x*"] {
                of(product, unknown).unwrap();
                let line = notices.take().remove(0);
                assert!(line.starts_with(&format!("--exclude-tools: {unknown:?} matches no built-in tool")), "{line}");
            }
        }
    }
}
