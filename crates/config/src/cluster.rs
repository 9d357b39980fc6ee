//! `cluster`: the node that a gateway is, among several that share one database.
//!
//! It must not connect to any of them.

use std::{fmt, path::PathBuf, time::Duration};

use secrecy::{ExposeSecret as _, SecretString};

use super::{config_field::ConfigField, typed_values::parse_span};

/// Shortest and longest lease.
const LEASES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// Lease without a setting.
const USUAL_LEASE: Duration = Duration::from_secs(3);
/// Fewest characters of a secret.
const SHORTEST_SECRET: usize = 16;

/// Node of a cluster.
#[derive(Clone)]
pub struct ClusterConfig {
    /// `name`: distinct in the cluster.
    pub name: String,
    /// `advertise`: URL at which other nodes reach this one, without a slash at its end.
    pub advertise: String,
    /// `secret`, which all nodes share.
    pub secret: SecretString,
    /// `lease`: time after which the realm of a silent node is taken by another.
    pub lease: Duration,
    /// `ca_file`: certificates of the authorities that may sign those of nodes. Those of the machine by default.
    pub ca_file: Option<PathBuf>,
}

impl ClusterConfig {
    /// Returns true if other nodes reach this one over TLS.
    pub(super) fn is_tls(&self) -> bool {
        self.advertise.starts_with("https://")
    }

    /// Returns true if other nodes would send requests to this one in the clear over a network.
    pub fn is_plaintext(&self) -> bool {
        let Some(authority) = self.advertise.strip_prefix("http://") else { return false };
        let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host).trim_matches(['[', ']']);
        !(host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback()))
    }
}

/// Without the secret.
impl fmt::Debug for ClusterConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterConfig")
            .field("name", &self.name)
            .field("advertise", &self.advertise)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

/// Reads the node, if the file has one. `has_database` is true if the record is in a database.
pub(super) fn read_cluster(root: &ConfigField<'_>, has_database: bool) -> Option<ClusterConfig> {
    let place = root.at("cluster");
    if place.is_absent() || !place.check_mapping(&["name", "advertise", "secret", "lease", "ca_file"]) {
        return None;
    }
    // A database that is configured wrongly is reported there.
    if !has_database && !place.notes.has_fault_in("storage") {
        place.report_refusal("needs the record in a database: set storage.type to 'postgres' and storage.url");
    }
    if root.at("gateway").has_key("health_port") || root.at("gateway").has_key("health_host") {
        let gateway = root.at("gateway");
        let second = gateway.at(if gateway.has_key("health_port") { "health_port" } else { "health_host" });
        second.report_refusal("a node of a cluster has one port: use /livez and /readyz there");
    }
    if root.at("on_shutdown").text().as_deref() == Some("deny") {
        root.at("on_shutdown")
            .report_refusal("a node of a cluster leaves pending gates to the other nodes: expected keep");
    }
    let name = place.at("name").needed_text();
    if let Some(name) = &name
        && !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
    {
        place.at("name").report_refusal(format!("expected letters, digits, '-', '_' and '.', found '{name}'"));
    }
    let advertise = read_advertise(&place.at("advertise"));
    let secret = place.at("secret").needed_secret();
    if secret.as_ref().is_some_and(|secret| secret.expose_secret().chars().count() < SHORTEST_SECRET) {
        place.at("secret").report_refusal(format!("expected at least {SHORTEST_SECRET} characters"));
    }
    let lease = place.at("lease");
    let span = lease.text().and_then(|text| {
        let found = parse_span(&text).filter(|span| (LEASES[0]..=LEASES[1]).contains(span));
        if found.is_none() {
            lease.report_refusal(format!("expected a span from 1s to 60s, found '{text}'"));
        }
        found
    });
    Some(ClusterConfig {
        name: name?,
        advertise: advertise?,
        secret: secret?,
        lease: span.unwrap_or(USUAL_LEASE),
        ca_file: place.at("ca_file").path(),
    })
}

fn read_advertise(place: &ConfigField<'_>) -> Option<String> {
    let text = place.needed_text()?;
    let url = text.strip_suffix('/').unwrap_or(&text);
    let is_address = url.split_once("://").is_some_and(|(scheme, authority)| {
        matches!(scheme, "http" | "https") && !authority.is_empty() && !authority.contains(['/', '?', '#', '@'])
    });
    if !is_address {
        place.report_refusal("expected the URL of this node for the others, such as https://10.0.0.5:8443");
        return None;
    }
    Some(url.to_owned())
}
