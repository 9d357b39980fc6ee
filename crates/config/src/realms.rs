//! `realms`: several gateways in one process, each with a configuration of its own.
//!
//! It must not know how a request finds its realm.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::{Path, PathBuf},
};

use super::{
    config_field::ConfigField,
    diagnostics::FileDiagnostics,
    exposure,
    problem::ConfigErrors,
    settings::{Config, ConfigFlags, GatewayConfig, RealmConfig},
    typed_values::host_name,
    value::{self, VariableLookup, config_text},
};

/// Sections of a configuration with realms: the settings of the process.
const OF_PROCESS: &[&str] = &["realms", "gateway", "log", "rate_limit"];
/// Settings that the configuration of a realm leaves to that of the process.
const NOT_OF_REALM: &[&[&str]] = &[
    &["realms"],
    &["log"],
    &["gateway", "host"],
    &["gateway", "port"],
    &["gateway", "tls"],
    &["gateway", "health_port"],
    &["gateway", "health_host"],
    &["rate_limit", "max_connections"],
];
/// Refusal of a node with several realms.
const NO_CLUSTER: &str = "a node of a cluster serves one realm: run a node of its own for each realm";
/// Longest name of a realm.
const LONGEST_NAME: usize = 63;

/// Reads the sections of the configuration of one gateway.
pub(super) type SectionReader = fn(&ConfigField<'_>, Option<&Path>, &ConfigFlags, VariableLookup<'_>) -> Config;

/// Reads the realms and their files, each with `read`. `process` is the configuration that lists them.
pub(super) fn read_realms(
    root: &ConfigField<'_>,
    process: &Config,
    flags: &ConfigFlags,
    environment: VariableLookup<'_>,
    read: SectionReader,
) -> Vec<RealmConfig> {
    let place = root.at("realms");
    place.not_empty("the realms, such as home: realms/home/config.yaml");
    if place.is_absent() {
        return Vec::new();
    }
    for (key, limit) in root.at("rate_limit").members().unwrap_or_default() {
        if key != "max_connections" {
            limit.report_refusal("belongs to the configuration of a realm: this file lists realms");
        }
    }
    for (key, section) in root.members().unwrap_or_default() {
        if key == "cluster" {
            section.report_refusal(NO_CLUSTER);
        } else if !OF_PROCESS.contains(&key) {
            section.report_refusal("belongs to the configuration of a realm: this file lists realms");
        }
    }
    for (flag, is_given) in [
        ("--data", flags.data.is_some()),
        ("--permissions", flags.permissions.is_some()),
        ("--webui", flags.webui.is_some()),
    ] {
        if is_given {
            place.report_refusal(format!("{flag} is of one gateway: this file lists realms"));
        }
    }
    let members = place.members().unwrap_or_default();
    if members.is_empty() {
        place.report_refusal("expected at least one realm, such as home: realms/home/config.yaml");
    }
    let of_process = hosts_of(Vec::new(), &process.gateway);
    let mut realms = Vec::new();
    for (name, place) in members {
        check_name(name, &place);
        let (file, named) = if place.is_mapping() {
            place.check_mapping(&["config", "hosts"]);
            if place.at("config").is_absent() {
                place.at("config").report_missing();
            }
            let hosts = place.at("hosts").items().iter().filter_map(realm_host).collect();
            (place.at("config").path(), hosts)
        } else {
            if place.has_no_value() {
                place.report_refusal("expected the path of the realm's configuration");
            }
            (place.path(), Vec::new())
        };
        let Some(file) = file else { continue };
        let mut config = read_realm(place.notes, &file, process, flags, environment, read);
        let hosts = hosts_of(named, &config.gateway);
        for host in hosts.iter().filter(|host| of_process.contains(host)) {
            place.report_refusal(format!("the host name {host} is that of the process, whose realms have paths"));
        }
        // It answers below its path under the names of the process, too.
        config.gateway.allowed_hosts = hosts.iter().chain(&of_process).cloned().collect();
        let below = || process.gateway.public_url.as_ref().map(|url| format!("{url}/realms/{name}"));
        config.gateway.public_url = config.gateway.public_url.take().or_else(below);
        realms.push((place, RealmConfig { name: name.to_owned(), hosts, config }));
    }
    check_distinct(&realms);
    let mut realms: Vec<RealmConfig> = realms.into_iter().map(|(_, realm)| realm).collect();
    separate(&mut realms, process);
    realms
}

/// Refuses a file with realms where the configuration of one gateway is expected.
pub(super) fn refuse_as_gateway(root: &ConfigField<'_>, flags: &ConfigFlags) {
    let place = root.at("realms");
    if place.is_absent() || flags.data.is_some() {
        return;
    }
    let files = place.members().unwrap_or_default().into_iter().filter_map(|(_, place)| {
        let file = if place.is_mapping() { place.at("config").path() } else { place.path() };
        file.map(|file| file.display().to_string())
    });
    let files = files.collect::<Vec<_>>().join(", ");
    place.report_refusal(format!("this file lists realms; name the configuration of one with --config: {files}"));
}

/// Returns a host name as browsers send it.
fn realm_host(place: &ConfigField<'_>) -> Option<String> {
    let host = host_name(place)?;
    if !host.is_ascii() {
        place.report_refusal("expected the ASCII form of the host name, which begins with xn--");
    }
    Some(host)
}

/// Checks that the file at `path` is the configuration of one gateway, as far as it can be read.
///
/// # Errors
/// The file lists realms, and has no agents or rules of its own.
pub fn check_one_gateway(path: &Path) -> Result<(), ConfigErrors> {
    let notes = FileDiagnostics::for_file(path);
    let any = |_: &str| Some("-".to_owned());
    let value = value::read_value(&config_text(Some(path), &notes), &notes, Some(&any));
    // Other problems are those of its readers.
    notes.take_problems();
    refuse_as_gateway(&ConfigField::root(&notes, value.as_ref()), &ConfigFlags::default());
    let problems = notes.take_problems();
    if problems.is_empty() { Ok(()) } else { Err(ConfigErrors(problems)) }
}

fn check_name(name: &str, place: &ConfigField<'_>) {
    let is_name = (1..=LONGEST_NAME).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !name.starts_with('-');
    if !is_name {
        place.report_refusal("expected a name of 1 to 63 small letters, digits and '-'");
    }
}

/// Reads the configuration of a realm. Its problems are added to those of the file that lists it.
fn read_realm(
    listing: &FileDiagnostics,
    file: &Path,
    process: &Config,
    flags: &ConfigFlags,
    environment: VariableLookup<'_>,
    read: SectionReader,
) -> Config {
    let notes = FileDiagnostics::for_file(file);
    let value = value::read_value(&config_text(Some(file), &notes), &notes, Some(environment));
    let root = ConfigField::root(&notes, value.as_ref());
    if root.has_key("cluster") {
        root.at("cluster").report_refusal(NO_CLUSTER);
    }
    for path in NOT_OF_REALM {
        let is_there = path.iter().try_fold(root.clone(), |place, key| place.has_key(key).then(|| place.at(key)));
        if let Some(place) = is_there {
            place.report_refusal(format!("belongs to the process: set it in {}", listing.file.display()));
        }
    }
    let port = GatewayConfig { public_url: None, allowed_hosts: Vec::new(), health: None, ..process.gateway.clone() };
    let flags = ConfigFlags {
        host: Some(port.host.clone()),
        port: Some(port.port),
        insecure: flags.insecure,
        ..ConfigFlags::default()
    };
    let mut config = read(&root, Some(file), &flags, environment);
    config.gateway.tls = port.tls;
    config.gateway.health = None;
    config.limits.max_connections = process.limits.max_connections;
    config.log = process.log.clone();
    exposure::warn_exposed(file, &config, &notes);
    listing.problems.borrow_mut().append(&mut notes.take_problems());
    listing.warnings.borrow_mut().append(&mut notes.warnings.take());
    config
}

fn hosts_of(named: Vec<String>, gateway: &GatewayConfig) -> Vec<String> {
    let public = gateway.public_url.as_deref().and_then(host_of_url).map(str::to_owned);
    let all = named.into_iter().chain(public).chain(gateway.allowed_hosts.iter().cloned());
    let mut hosts: Vec<String> = all.map(|host| canonical_host(&host)).collect();
    hosts.sort();
    hosts.dedup();
    hosts
}

/// Returns the one spelling of a host name or an address.
fn canonical_host(host: &str) -> String {
    let bare = host.trim_matches(['[', ']']).trim_end_matches('.').to_lowercase();
    bare.parse::<IpAddr>().map_or(bare, |address| address.to_canonical().to_string())
}

fn host_of_url(url: &str) -> Option<&str> {
    let authority = url.split_once("://")?.1.split('/').next()?;
    match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map(|(host, _)| host),
        None => Some(authority.rsplit_once(':').map_or(authority, |(host, _)| host)),
    }
}

/// Refuses realms that would share anything.
fn check_distinct(realms: &[(ConfigField<'_>, RealmConfig)]) {
    let (mut hosts, mut files) = (BTreeMap::new(), BTreeMap::new());
    for (at, (place, realm)) in realms.iter().enumerate() {
        for host in &realm.hosts {
            if let Some(other) = hosts.insert(host.clone(), &realm.name) {
                place.report_refusal(format!("the host name {host} belongs to the realm {other} already"));
            }
        }
        for (what, file) in
            [("configuration", realm.config.file.as_ref()), ("rules file", Some(&realm.config.permissions))]
        {
            let Some(file) = file else { continue };
            if let Some(other) = files.insert((what, whole_path(file)), &realm.name) {
                let remedy = "give each realm a folder of its own";
                place.report_refusal(format!("has the {what} of the realm {other}, {}: {remedy}", file.display()));
            }
        }
        for (_, other) in &realms[..at] {
            let is_same = realm.config.storage.database.as_ref().zip(other.config.storage.database.as_ref());
            if is_same.is_some_and(|(one, other)| one == other) {
                place.report_refusal(format!("has the database of the realm {}: expected another", other.name));
            }
            if let Some(folder) = shared_folder(&realm.config, &other.config) {
                let folder = folder.display();
                place.report_refusal(format!(
                    "shares the folder {folder} with the realm {}: expected another",
                    other.name
                ));
            }
        }
    }
}

/// Returns a folder of the first that is one of the second, within one or around one.
fn shared_folder(one: &Config, other: &Config) -> Option<PathBuf> {
    let folders = |config: &Config| [&config.storage.folder, &config.agents_dir].map(|folder| whole_path(folder));
    let theirs = folders(other);
    let is_shared =
        |folder: &PathBuf| theirs.iter().any(|other| folder.starts_with(other) || other.starts_with(folder));
    folders(one).into_iter().find(is_shared)
}

/// Closes the files of each realm, and those of the process, to the commands of the others.
fn separate(realms: &mut [RealmConfig], process: &Config) {
    let own = process.file.iter().chain(process.gateway.tls.as_ref().map(|tls| &tls.key)).cloned();
    let own: Vec<PathBuf> = own.collect();
    let all: Vec<Vec<PathBuf>> = realms.iter().map(|realm| realm_paths(&realm.config)).collect();
    for (at, realm) in realms.iter_mut().enumerate() {
        let others = all.iter().enumerate().filter(|(other, _)| *other != at).flat_map(|(_, paths)| paths.clone());
        let mut closed: Vec<PathBuf> = own.iter().cloned().chain(others).collect();
        // The folder of a realm is closed as a whole, unless something of this one is in it.
        let needed: Vec<PathBuf> = realm_paths(&realm.config).iter().map(|path| whole_path(path)).collect();
        let folders: Vec<PathBuf> = closed.iter().filter_map(|path| path.parent()).map(Path::to_owned).collect();
        closed.extend(folders.into_iter().filter(|folder| {
            let folder = whole_path(folder);
            !needed.iter().any(|path| path.starts_with(&folder))
        }));
        closed.sort();
        closed.dedup();
        realm.config.other_paths = closed;
    }
}

fn realm_paths(config: &Config) -> Vec<PathBuf> {
    let folders = [config.storage.folder.clone(), config.agents_dir.clone(), config.permissions.clone()];
    folders.into_iter().chain(config.file.clone()).collect()
}

/// Returns a path by which two names of one place are equal, as far as it exists.
fn whole_path(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut missing = Vec::new();
    let mut at = absolute.as_path();
    loop {
        if let Ok(found) = at.canonicalize() {
            return missing.iter().rev().fold(found, |path, name| path.join(name));
        }
        let (Some(parent), Some(name)) = (at.parent(), at.file_name()) else { return absolute };
        missing.push(name.to_owned());
        at = parent;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::{ConfigFlags, LoadedConfig, load_config, load_storage};

    fn load(folder: &Path, files: &[(&str, &str)]) -> Result<LoadedConfig, String> {
        for (name, text) in files {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let loaded = load_config(Some(&folder.join("config.yaml")), &ConfigFlags::default(), &|_| None);
        loaded.map_err(|errors| errors.to_string())
    }

    const TWO: &str = "gateway: { port: 9000 }\nrealms:\n  home: home/config.yaml\n  office: { config: office/config.yaml, hosts: [Office.example] }\n";

    #[test]
    fn each_realm_has_its_own_folders_and_the_port_of_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let files = [
            ("config.yaml", TWO),
            ("home/config.yaml", "gateway: { public_url: 'https://home.example/' }\nagent: { token: a-token }\n"),
            ("office/config.yaml", "approval_timeout: 7\n"),
        ];
        let config = load(folder.path(), &files).unwrap().config;
        let [home, office] = &config.realms[..] else { panic!("{:?}", config.realms) };
        assert_eq!((home.name.as_str(), office.name.as_str()), ("home", "office"));
        assert_eq!(
            (home.hosts.clone(), office.hosts.clone()),
            (vec!["home.example".to_owned()], vec!["office.example".to_owned()])
        );
        assert_eq!((home.config.gateway.port, office.config.gateway.port), (9000, 9000));
        assert_eq!(home.config.storage.folder, folder.path().join("home/data"));
        assert_eq!(office.config.permissions, folder.path().join("office/permissions.yaml"));
        assert_eq!((home.config.agents.len(), office.config.agents.len()), (1, 0));
        assert_eq!(office.config.approval_timeout.as_secs(), 7);
        for name in ["config.yaml", "home/config.yaml", "home/permissions.yaml", "home/data", "home/data/agents"] {
            assert!(office.config.gateway_paths().others.contains(&folder.path().join(name)), "{name}");
        }
        assert!(!office.config.gateway_paths().others.contains(&folder.path().join("office/data")));
    }

    #[test]
    fn realms_that_share_anything_and_settings_of_the_wrong_file_are_refused() {
        for (files, want) in [
            (&[("config.yaml", "realms: {}\n")][..], "config.yaml:1: realms: expected at least one realm"),
            (&[("config.yaml", "realms:\n  Home: a.yaml\n"), ("a.yaml", "")], "realms.Home: expected a name of"),
            (&[("config.yaml", "realms:\n")], "config.yaml:1: realms: expected the realms"),
            (&[("config.yaml", "realms:\n  a:\n")], "realms.a: expected the path of the realm's configuration"),
            (&[("config.yaml", "realms:\n  a: { hosts: [x] }\n")], "realms.a.config: Missing required config"),
            (
                &[("config.yaml", "realms:\n  a: { config: a.yaml, host: x }\n"), ("a.yaml", "")],
                "realms.a.host: unknown key",
            ),
            (
                &[("config.yaml", "realms:\n  a: { config: a.yaml, hosts: ['https://x'] }\n"), ("a.yaml", "")],
                "expected a host name or address",
            ),
            (&[("config.yaml", "realms:\n  a: missing.yaml\n")], "missing.yaml: cannot be read: file not found"),
            (
                &[("config.yaml", "realms:\n  a: a/c.yaml\n"), ("a/c.yaml", "gateway: { prot: 1 }\n")],
                "a/c.yaml:1: gateway.prot: unknown key",
            ),
            (
                &[("config.yaml", "realms:\n  a: a/c.yaml\nagents: []\n"), ("a/c.yaml", "")],
                "config.yaml:3: agents: belongs to the configuration of a realm",
            ),
            (
                &[("config.yaml", "realms:\n  a: a/c.yaml\n"), ("a/c.yaml", "gateway: { port: 1 }\n")],
                "a/c.yaml:1: gateway.port: belongs to the process: set it in",
            ),
            (
                &[("config.yaml", "realms:\n  a: a/c.yaml\n"), ("a/c.yaml", "log: { level: info }\n")],
                "a/c.yaml:1: log: belongs to the process",
            ),
            (
                &[("config.yaml", "realms:\n  a: a/c.yaml\n"), ("a/c.yaml", "realms: { b: x.yaml }\n")],
                "a/c.yaml:1: realms: belongs to the process",
            ),
            (
                &[("config.yaml", "realms:\n  a: a/c.yaml\n  b: a/../a/c.yaml\n"), ("a/c.yaml", "")],
                "realms.b: has the configuration of the realm a",
            ),
            (
                &[("config.yaml", "realms:\n  a: a.yaml\n  b: b.yaml\n"), ("a.yaml", ""), ("b.yaml", "")],
                "realms.b: has the rules file of the realm a",
            ),
            (
                &[
                    ("config.yaml", "realms:\n  a: a/c.yaml\n  b: b/c.yaml\n"),
                    ("a/c.yaml", "storage: { path: ../x/l.db }\n"),
                    ("b/c.yaml", "storage: { path: ../x/k.db }\n"),
                ],
                "shares the folder",
            ),
            (
                &[
                    ("config.yaml", "realms:\n  a: a/c.yaml\n  b: b/c.yaml\n"),
                    ("a/c.yaml", ""),
                    ("b/c.yaml", "agents_dir: ../a/data/x\n"),
                ],
                "shares the folder",
            ),
            (
                &[
                    ("config.yaml", "realms:\n  a: { config: a/c.yaml, hosts: [X.example] }\n  b: b/c.yaml\n"),
                    ("a/c.yaml", ""),
                    ("b/c.yaml", "gateway: { allowed_hosts: [x.EXAMPLE] }\n"),
                ],
                "the host name x.example belongs to the realm a already",
            ),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let error = load(folder.path(), files).unwrap_err();
            assert!(error.contains(want), "{want}: {error}");
        }
    }

    #[test]
    fn a_command_for_one_gateway_names_the_files_of_the_realms() {
        let folder = tempfile::tempdir().unwrap();
        load(folder.path(), &[("config.yaml", TWO), ("home/config.yaml", ""), ("office/config.yaml", "")]).unwrap();
        let file = folder.path().join("config.yaml");
        let error = load_storage(Some(&file), &ConfigFlags::default(), &|_| None).unwrap_err().to_string();
        let home = folder.path().join("home/config.yaml");
        assert!(
            error.contains("name the configuration of one with --config")
                && error.contains(&home.display().to_string()),
            "{error}"
        );
    }
}
