//! Reads `sandbox`: what commands of runs may touch.

use countersign_runtime::tools::sandbox::{
    HostPattern, NetworkAccess, OnMissingKernel, SandboxMode, SandboxSettings, UnlistedHosts,
};
use serde_json::{Value, json};

use super::config_field::ConfigField;

const KEYS: &[&str] = &["mode", "write", "temporary", "read", "network", "on_missing"];

/// Returns the defaults: a gateway's runs have a workspace, and people who start one on an older kernel get a
/// message rather than no shell.
pub(super) fn default_settings() -> SandboxSettings {
    SandboxSettings { mode: SandboxMode::Workspace, on_missing: OnMissingKernel::Warn, ..SandboxSettings::default() }
}

pub(super) fn read_sandbox(place: &ConfigField<'_>) -> SandboxSettings {
    if !place.check_mapping(KEYS) {
        return default_settings();
    }
    let paths = |key| place.at(key).items().iter().filter_map(ConfigField::path).collect::<Vec<_>>();
    let listed = |key| (!place.at(key).has_no_value()).then(|| paths(key));
    let usual = default_settings();
    let of_network = place.at("network");
    let unlisted =
        Some(of_network.at("unlisted")).filter(|unlisted| of_network.is_mapping() && !unlisted.has_no_value());
    SandboxSettings {
        mode: read_word(&place.at("mode"), SandboxMode::from_name, "off, guard or workspace").unwrap_or(usual.mode),
        write: paths("write"),
        temporary: listed("temporary"),
        read: listed("read"),
        network: read_network(&of_network).unwrap_or(usual.network),
        unlisted: unlisted
            .and_then(|field| read_word(&field, UnlistedHosts::from_name, "ask or refuse"))
            .unwrap_or(usual.unlisted),
        on_missing: read_word(&place.at("on_missing"), OnMissingKernel::from_name, "refuse or warn")
            .unwrap_or(usual.on_missing),
    }
}

/// Reads `on`, `off`, or hosts.
fn read_network(place: &ConfigField<'_>) -> Option<NetworkAccess> {
    if !place.is_mapping() {
        return read_word(place, NetworkAccess::from_name, "on, off or a mapping with hosts");
    }
    let hosts = place.at("hosts");
    // Nothing that was meant as a bound is read as the whole network.
    if !place.check_mapping(&["hosts", "unlisted"]) || hosts.is_absent() {
        hosts.report_refusal("expected a list of hosts; to reach none, write network: off");
        return None;
    }
    let read = |item: &ConfigField<'_>| {
        let text = item.text()?;
        text.parse::<HostPattern>().map_err(|error| item.report_refusal(error.to_string())).ok()
    };
    Some(NetworkAccess::Hosts(hosts.items().iter().filter_map(read).collect()))
}

/// Reads one of a few words. YAML reads two of them as flags.
fn read_word<T>(place: &ConfigField<'_>, named: impl Fn(&str) -> Option<T>, expected: &str) -> Option<T> {
    let text = match place.to_json() {
        Some(Value::Bool(true)) => "on".to_owned(),
        Some(Value::Bool(false)) => "off".to_owned(),
        _ => place.text()?,
    };
    let found = named(&text);
    if found.is_none() {
        place.report_refusal(format!("expected {expected}"));
    }
    found
}

/// Returns the settings as `config show` has them.
pub(super) fn shown_settings(settings: &SandboxSettings) -> Value {
    let mut shown = json!({
        "mode": settings.mode.name(),
        "write": settings.write,
        "network": match &settings.network {
            NetworkAccess::Hosts(hosts) => json!({ "hosts": hosts, "unlisted": settings.unlisted.name() }),
            NetworkAccess::On | NetworkAccess::Off => json!(settings.network.name()),
        },
        "on_missing": settings.on_missing.name(),
    });
    for (key, paths) in [("temporary", &settings.temporary), ("read", &settings.read)] {
        if let (Some(paths), Some(members)) = (paths, shown.as_object_mut()) {
            members.insert(key.to_owned(), json!(paths));
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use countersign_runtime::tools::sandbox::{
        NetworkAccess, OnMissingKernel, SandboxMode, SandboxSettings, UnlistedHosts,
    };

    use crate::{ConfigFlags, load_config};

    fn settings(text: &str) -> Result<SandboxSettings, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.yaml");
        std::fs::write(&path, text).unwrap();
        let loaded = load_config(Some(&path), &ConfigFlags::default(), &|_| None);
        let place = folder.path().to_owned();
        let relative = |paths: Vec<std::path::PathBuf>| {
            paths.iter().map(|path| path.strip_prefix(&place).unwrap_or(path).to_owned()).collect::<Vec<_>>()
        };
        loaded.map_err(|errors| errors.to_string()).map(|loaded| {
            let found = loaded.config.sandbox;
            SandboxSettings { write: relative(found.write), read: found.read.map(relative), ..found }
        })
    }

    #[test]
    fn the_sandbox_is_as_configured_and_workspace_by_default() {
        assert_eq!(settings(""), Ok(super::default_settings()));
        assert_eq!(
            settings("sandbox: { mode: off }"),
            Ok(SandboxSettings { mode: SandboxMode::Off, ..super::default_settings() })
        );
        let all = "sandbox: { mode: guard, write: [cache, /var/cache], read: [~/src], temporary: [/scratch], network: off, on_missing: refuse }";
        let want = SandboxSettings {
            mode: SandboxMode::Guard,
            write: ["cache", "/var/cache"].map(|path| Path::new(path).to_owned()).into(),
            temporary: Some(vec!["/scratch".into()]),
            read: Some(vec!["~/src".into()]),
            unlisted: UnlistedHosts::Ask,
            network: NetworkAccess::Off,
            on_missing: OnMissingKernel::Refuse,
        };
        assert_eq!(settings(all), Ok(want));
        let named = "sandbox: { network: { hosts: [crates.io, '*.Debian.org', 'a.org:8443'] } }";
        let hosts = ["crates.io", "*.debian.org", "a.org:8443"].map(|host| host.parse().unwrap());
        let named_hosts = SandboxSettings { network: NetworkAccess::Hosts(hosts.into()), ..super::default_settings() };
        assert_eq!(settings(named), Ok(named_hosts.clone()));
        let refusing = named.replace("] }", "], unlisted: refuse }");
        assert_eq!(settings(&refusing), Ok(SandboxSettings { unlisted: UnlistedHosts::Refuse, ..named_hosts }));
    }

    #[test]
    fn what_is_not_a_sandbox_is_an_error_with_its_key() {
        for (text, want) in [
            ("sandbox: { mode: most }", "sandbox.mode: expected off, guard or workspace"),
            ("sandbox: { network: some }", "sandbox.network: expected on, off or a mapping with hosts"),
            ("sandbox: { network: { host: a.org } }", "sandbox.network.host"),
            (
                "sandbox: { network: { hosts: [], unlisted: allow } }",
                "sandbox.network.unlisted: expected ask or refuse",
            ),
            ("sandbox: { network: { unlisted: ask } }", "sandbox.network.hosts: expected a list"),
            ("sandbox: { network: { hosts: a.org } }", "sandbox.network.hosts: expected a list"),
            (
                "sandbox: { network: { hosts: ['https://a.org'] } }",
                "sandbox.network.hosts[0]: invalid host \"https://a.org\"",
            ),
            ("sandbox: { network: { hosts: [a.org, 1] } }", "sandbox.network.hosts[1]: expected text"),
            ("sandbox: { on_missing: off }", "sandbox.on_missing: expected refuse or warn"),
            ("sandbox: { modus: off }", "sandbox.modus"),
            ("sandbox: { write: here }", "sandbox.write: expected a list"),
        ] {
            let message = settings(text).unwrap_err();
            assert!(message.contains(want), "{text}: {message}");
        }
    }
}
