//! The unit for systemd holds the gateway, and leaves it what it takes to hold commands.

use std::fs;

/// Returns the values of a setting in the unit.
fn setting_values(unit: &str, setting: &str) -> Vec<String> {
    let lines = unit.lines().filter_map(|line| line.strip_prefix(setting)?.strip_prefix('='));
    lines.flat_map(str::split_ascii_whitespace).map(str::to_owned).collect()
}

#[test]
fn the_packaged_unit_lets_the_gateway_make_its_sandbox() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/systemd/countersign.service");
    let unit = fs::read_to_string(path).unwrap();
    // An allow list that lacks one of these leaves commands without the sandbox, or without their network.
    let calls = setting_values(&unit, "SystemCallFilter");
    for call in ["landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", "seccomp"] {
        assert!(calls.iter().any(|given| given == call), "{call}: {calls:?}");
    }
    assert!(!calls.iter().any(|given| given.starts_with('~')), "{calls:?}");
    assert_eq!(setting_values(&unit, "RestrictNamespaces"), ["user", "net"]);
    for family in ["AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK"] {
        assert!(setting_values(&unit, "RestrictAddressFamilies").iter().any(|given| given == family), "{family}");
    }
    assert_eq!(setting_values(&unit, "NoNewPrivileges"), ["true"]);
    assert_eq!(setting_values(&unit, "CapabilityBoundingSet"), Vec::<String>::new());
    assert_eq!(setting_values(&unit, "OOMPolicy"), ["continue"]);
}
