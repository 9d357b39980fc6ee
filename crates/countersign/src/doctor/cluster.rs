//! The cluster of a node: whether its tables are there, who serves the realm, and whether nodes reach each other.

use std::time::Duration;

use countersign_config::{ClusterConfig, Config};
use countersign_core::time::Millis;
use countersign_gateway::checkup::{self, NodeReach};
use countersign_runtime::Clock;
use countersign_store::{ClusterRows, ClusterTables, NodeRow};

use super::DoctorCheck;
use crate::{audit::block_on, cluster::next_step, record_location::database_options};

/// Name of these checks.
const CHECK: &str = "cluster";
/// Difference of clocks that confuses people and certificates.
const APART: Duration = Duration::from_secs(60);

/// Findings about the cluster of a node.
#[derive(Default)]
pub(super) struct ClusterFindings {
    pub(super) checks: Vec<DoctorCheck>,
    /// This node, if it is alive.
    pub(super) own_node: Option<NodeRow>,
}

/// Checks the cluster; nothing without one.
pub(super) fn check_cluster(config: &Config) -> ClusterFindings {
    let (Some(cluster), Some(database)) = (&config.cluster, &config.storage.database) else {
        return ClusterFindings::default();
    };
    let read = block_on(async {
        let tables = ClusterTables::new(&database_options(database))?;
        let rows = tables.read().await?;
        let clocks = check_clocks(tables.time().await?, Clock::system().now());
        let alive = rows.nodes.iter().filter(|node| node.is_alive);
        let reached = alive.map(|node| async move { check_reach(node, &checkup::check_node(cluster, node).await) });
        Ok((futures_util::future::join_all(reached).await, clocks, rows))
    });
    let Ok((reached, clocks, rows)) = read else {
        // The check of the record has the reason.
        let what = "not checked: the database cannot be read";
        return ClusterFindings { checks: vec![DoctorCheck::note(CHECK, what)], own_node: None };
    };
    let mut checks = check_rows(cluster, &rows);
    checks.extend(reached);
    checks.extend(clocks);
    let own_node = rows.nodes.into_iter().find(|node| node.name == cluster.name && node.is_alive);
    ClusterFindings { checks, own_node }
}

/// Checks the nodes and leases that the database has.
fn check_rows(cluster: &ClusterConfig, rows: &ClusterRows) -> Vec<DoctorCheck> {
    if rows.leases.is_empty() {
        let what = "no node was started with this database yet; the first one makes the tables of the cluster";
        return vec![DoctorCheck::note(CHECK, what)];
    }
    let name = &cluster.name;
    let mut checks = vec![match rows.nodes.iter().find(|node| node.name == *name) {
        None => DoctorCheck::note(CHECK, format!("node {name}, which this configuration is for, does not run")),
        Some(node) if !node.is_alive => {
            let seen = node.seen.as_secs();
            DoctorCheck::note(
                CHECK,
                format!("node {name} was last seen {seen} s ago: it has ended, or cannot reach the database"),
            )
        }
        Some(node) if !cluster.advertise.ends_with(":0") && node.advertise != cluster.advertise => DoctorCheck::warn(
            CHECK,
            format!("node {name} runs with cluster.advertise {}, not {}", node.advertise, cluster.advertise),
            "restart it if the configuration was changed; otherwise give each node a cluster.name of its own",
        ),
        Some(node) if node.is_draining => DoctorCheck::warn(
            CHECK,
            format!("node {name} drains: it takes no realm until its next start"),
            "restart it when it may serve the realm again",
        ),
        Some(_) => DoctorCheck::ok(CHECK, format!("node {name} is alive")),
    }];
    for lease in &rows.leases {
        let realm = &lease.realm;
        checks.push(match rows.owner_of(realm) {
            Some(owner) => DoctorCheck::ok(CHECK, format!("node {} serves the realm {realm}", owner.name)),
            None if rows.nodes.iter().any(|node| node.is_alive) => {
                let usual = "see the log of the nodes: it says why none takes the realm";
                DoctorCheck::fix(CHECK, format!("no node serves the realm {realm}"), next_step(rows).unwrap_or(usual))
            }
            None => DoctorCheck::note(CHECK, format!("no node runs, so none serves the realm {realm}")),
        });
    }
    checks
}

fn check_reach(node: &NodeRow, reach: &NodeReach) -> DoctorCheck {
    let (name, url) = (&node.name, &node.advertise);
    match reach {
        NodeReach::Accepts => DoctorCheck::ok(CHECK, format!("node {name} accepts the secret of the cluster at {url}")),
        NodeReach::Answers => DoctorCheck::ok(CHECK, format!("node {name} answers at {url}")),
        NodeReach::OtherSecret => DoctorCheck::fix(
            CHECK,
            format!("node {name} refuses the secret of the cluster at {url}"),
            "set the same cluster.secret at all nodes",
        ),
        NodeReach::Unreached(problem) => DoctorCheck::fix(
            CHECK,
            format!("node {name} is not reached at {url} (its cluster.advertise): {problem}"),
            "correct its cluster.advertise, let this machine reach that address, or set cluster.ca_file to the authority of its certificate",
        ),
    }
}

/// Compares the clock of this machine with that of the database. None if they agree.
fn check_clocks(database: Duration, here: Millis) -> Option<DoctorCheck> {
    let apart = database.abs_diff(Duration::from_millis(here.0));
    let what = format!("the clocks of this machine and of the database are {} s apart", apart.as_secs());
    let advice =
        "set both clocks, for example with NTP: leases do not depend on them, but times of entries and certificates do";
    (apart > APART).then(|| DoctorCheck::fix(CHECK, what, advice))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use countersign_core::time::Millis;
    use countersign_gateway::checkup::NodeReach;
    use countersign_store::NodeRow;

    use super::{super::CheckState, check_clocks, check_reach};

    #[test]
    fn clocks_that_are_more_than_a_minute_apart_are_a_finding() {
        let here = Millis(1_800_000_000_000);
        for (database, want) in
            [(1_800_000_000, false), (1_800_000_060, false), (1_800_000_061, true), (1_799_999_000, true)]
        {
            assert_eq!(check_clocks(Duration::from_secs(database), here).is_some(), want, "{database}");
        }
    }

    #[test]
    fn a_node_that_others_do_not_reach_is_a_finding() {
        let node = NodeRow {
            name: "a".to_owned(),
            process: "p".to_owned(),
            advertise: "https://10.0.0.5:8443".to_owned(),
            program: "0.1.0".to_owned(),
            addresses: Vec::new(),
            seen: Duration::ZERO,
            is_alive: true,
            is_draining: false,
        };
        for (reach, want) in [
            (NodeReach::Accepts, CheckState::Ok),
            (NodeReach::Answers, CheckState::Ok),
            (NodeReach::OtherSecret, CheckState::Fix),
            (NodeReach::Unreached("Connection refused".to_owned()), CheckState::Fix),
        ] {
            assert_eq!(check_reach(&node, &reach).state, want, "{reach:?}");
        }
    }
}
