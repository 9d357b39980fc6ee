//! Eligibility of skills on machines.

use countersign_protocol::gsv::runtime::{HostRole, MachineCapability};
use countersign_protocol::gsv::skill::{SkillEligibility, SkillHost, SkillRequirements, skill_eligibility};

use super::text;

#[test]
fn a_skill_can_be_used_where_one_machine_has_all_that_it_needs() {
    let host = |node: &str, bins: &[&str], env: &[&str]| SkillHost {
        node: text(node),
        role: Some(HostRole::Execution),
        capabilities: vec![MachineCapability::ShellExec],
        os: Some(text("linux")),
        env: env.iter().map(|name| text(name)).collect(),
        bins: bins.iter().map(|name| text(name)).collect(),
    };
    let hosts = [host("a", &["git"], &[]), host("b", &["gh"], &["TOKEN"])];
    let none = SkillRequirements::default();
    let bins = |bins: &[&str]| SkillRequirements {
        bins: bins.iter().map(|it| text(it)).collect(),
        ..SkillRequirements::default()
    };
    let fine = |nodes: &[&str]| SkillEligibility {
        eligible: true,
        hosts: nodes.iter().map(|it| text(it)).collect(),
        reasons: Vec::new(),
    };
    let not = |reason: &str| SkillEligibility { eligible: false, hosts: Vec::new(), reasons: vec![text(reason)] };
    let both = SkillRequirements { env: vec![text("TOKEN")], ..bins(&["git"]) };
    let config = SkillRequirements { config: vec![text("apiKeys.x")], ..SkillRequirements::default() };
    for (case, always, needs, hosts, want) in [
        ("no needs", false, &none, &hosts[..], fine(&["a", "b"])),
        ("always", true, &bins(&["fly"]), &[][..], fine(&[])),
        ("one has it", false, &bins(&["git"]), &hosts[..], fine(&["a"])),
        ("nobody has it", false, &bins(&["fly", "git"]), &hosts[..], not("requires bins: fly, git")),
        ("nobody has both", false, &both, &hosts[..], not("requires bins: git")),
        ("nobody is there", false, &bins(&["git"]), &[][..], not("no connected hosts")),
        ("a setting", false, &config, &hosts[..], not("requires config: apiKeys.x")),
        (
            "any of them",
            false,
            &SkillRequirements { any_bins: vec![text("gh"), text("hub")], ..SkillRequirements::default() },
            &hosts[..],
            fine(&["b"]),
        ),
        (
            "another system",
            false,
            &SkillRequirements { os: vec![text("macos")], ..none.clone() },
            &hosts[..],
            not("requires os: macos"),
        ),
        (
            "a capability",
            false,
            &SkillRequirements { capabilities: vec![MachineCapability::TextSearch], ..none.clone() },
            &hosts[..],
            not("requires capabilities: text.search"),
        ),
    ] {
        assert_eq!(skill_eligibility(always, Some(needs), hosts, |_| false), want, "{case}");
    }
    assert!(skill_eligibility(false, Some(&config), &[], |path| path == "apiKeys.x").eligible);
}
