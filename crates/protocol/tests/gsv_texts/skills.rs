//! Which skill can be used where.

use countersign_protocol::gsv::runtime::{Capability, HostRole};
use countersign_protocol::gsv::skill::{Eligibility, Host, Requirements, eligibility};

use super::text;

#[test]
fn a_skill_can_be_used_where_one_machine_has_all_that_it_needs() {
    let host = |node: &str, bins: &[&str], env: &[&str]| Host {
        node: text(node),
        role: Some(HostRole::Execution),
        capabilities: vec![Capability::ShellExec],
        os: Some(text("linux")),
        env: env.iter().map(|name| text(name)).collect(),
        bins: bins.iter().map(|name| text(name)).collect(),
    };
    let hosts = [host("a", &["git"], &[]), host("b", &["gh"], &["TOKEN"])];
    let none = Requirements::default();
    let bins =
        |bins: &[&str]| Requirements { bins: bins.iter().map(|it| text(it)).collect(), ..Requirements::default() };
    let fine = |nodes: &[&str]| Eligibility {
        eligible: true,
        hosts: nodes.iter().map(|it| text(it)).collect(),
        reasons: Vec::new(),
    };
    let not = |reason: &str| Eligibility { eligible: false, hosts: Vec::new(), reasons: vec![text(reason)] };
    let both = Requirements { env: vec![text("TOKEN")], ..bins(&["git"]) };
    let config = Requirements { config: vec![text("apiKeys.x")], ..Requirements::default() };
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
            &Requirements { any_bins: vec![text("gh"), text("hub")], ..Requirements::default() },
            &hosts[..],
            fine(&["b"]),
        ),
        (
            "another system",
            false,
            &Requirements { os: vec![text("macos")], ..none.clone() },
            &hosts[..],
            not("requires os: macos"),
        ),
        (
            "a capability",
            false,
            &Requirements { capabilities: vec![Capability::TextSearch], ..none.clone() },
            &hosts[..],
            not("requires capabilities: text.search"),
        ),
    ] {
        assert_eq!(eligibility(always, Some(needs), hosts, |_| false), want, "{case}");
    }
    assert!(eligibility(false, Some(&config), &[], |path| path == "apiKeys.x").eligible);
}
