//! `cluster`: the nodes that share a database, and which of them serves the realm.
//!
//! It asks the database, so it works without any node.

use std::{
    io::Write as _,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::bail;
use countersign_store::{ClusterRows, ClusterTables, LeaseRow, NodeRow};
use serde_json::{Value, json};

use crate::{
    audit::{OutputFormat, block_on},
    data_dir::DataDir,
    exit::print_notice,
    record_location::database_options,
    style::{ColourMode, TextStyle},
};

/// Time in which no other node takes a realm that moves.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two looks at the cluster.
const PAUSE: Duration = Duration::from_millis(200);

/// Prints nodes and realms.
pub(crate) fn print_status(place: &DataDir, form: OutputFormat) -> anyhow::Result<ExitCode> {
    let tables = open_tables(place)?;
    let rows = block_on(async { Ok(tables.read().await?) })?;
    let mut out = std::io::stdout().lock();
    if form == OutputFormat::Json {
        writeln!(out, "{}", status_json(&rows))?;
        return Ok(ExitCode::SUCCESS);
    }
    if rows.nodes.is_empty() {
        writeln!(out, "no nodes: start one with a section `cluster` in its configuration")?;
    }
    let width = rows.nodes.iter().map(|node| node.name.len()).max().unwrap_or_default();
    for node in &rows.nodes {
        let name = ColourMode::for_stdout().apply_style(TextStyle::Strong, format!("{:<width$}", node.name));
        writeln!(out, "node   {name}  {}  {}  version {}", node_text(node), node.advertise, node.program)?;
    }
    for lease in &rows.leases {
        writeln!(out, "realm  {}  {}", lease.realm, lease_text(&rows, lease))?;
    }
    if let Some(step) = next_step(&rows) {
        print_notice(step);
    }
    Ok(ExitCode::SUCCESS)
}

/// Tells a node to give its realms up, and waits until other nodes serve them.
pub(crate) fn drain_node(place: &DataDir, node: &str, form: OutputFormat) -> anyhow::Result<ExitCode> {
    let tables = open_tables(place)?;
    let rows = block_on(async {
        let before = tables.read().await?;
        let others = before.nodes.iter().any(|other| other.name != node && other.is_alive && !other.is_draining);
        if !others {
            bail!("no other node is alive that could serve the realms of {node}");
        }
        if !tables.drain(node).await? {
            bail!("there is no node {node}; `countersign cluster status` lists the nodes");
        }
        wait_until(&tables, |rows, realm| rows.owner_of(realm).is_some_and(|owner| owner.name != node)).await
    })?;
    print_owners(&rows, form)
}

/// Gives a realm to a node, and waits until the node serves it.
pub(crate) fn move_realm(place: &DataDir, realm: &str, node: &str, form: OutputFormat) -> anyhow::Result<ExitCode> {
    let tables = open_tables(place)?;
    let rows = block_on(async {
        let before = tables.read().await?;
        match before.nodes.iter().find(|row| row.name == node) {
            None => bail!("there is no node {node}; `countersign cluster status` lists the nodes"),
            Some(row) if !row.is_alive => {
                bail!("node {node} was last seen {} s ago: start it first", row.seen.as_secs())
            }
            Some(row) if row.is_draining => bail!("node {node} is draining: start it again first"),
            Some(_) => {}
        }
        if before.owner_of(realm).is_some_and(|owner| owner.name == node) {
            return Ok(before);
        }
        if !tables.move_realm(realm, node, PATIENCE).await? {
            bail!("there is no realm {realm}; `countersign cluster status` lists the realms");
        }
        wait_until(&tables, |rows, of| of != realm || rows.owner_of(realm).is_some_and(|owner| owner.name == node))
            .await
    })?;
    print_owners(&rows, form)
}

fn open_tables(place: &DataDir) -> anyhow::Result<ClusterTables> {
    let Some(settings) = &place.database else {
        bail!("the configuration names no database: set storage.type to 'postgres', or name the file with --config");
    };
    Ok(ClusterTables::new(&database_options(settings))?)
}

/// Waits until `is_done` holds for every realm.
async fn wait_until(
    tables: &ClusterTables,
    is_done: impl Fn(&ClusterRows, &str) -> bool,
) -> anyhow::Result<ClusterRows> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let rows = tables.read().await?;
        if rows.leases.iter().all(|lease| is_done(&rows, &lease.realm)) {
            return Ok(rows);
        }
        if Instant::now() >= deadline {
            bail!("no other node has taken the realm within {} s; see the log of the nodes", PATIENCE.as_secs());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn print_owners(rows: &ClusterRows, form: OutputFormat) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    if form == OutputFormat::Json {
        writeln!(out, "{}", status_json(rows))?;
        return Ok(ExitCode::SUCCESS);
    }
    for lease in &rows.leases {
        writeln!(out, "realm  {}  {}", lease.realm, lease_text(rows, lease))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the next step for an operator whose cluster has no node that could serve its realms.
pub(crate) fn next_step(rows: &ClusterRows) -> Option<&'static str> {
    let alive: Vec<&NodeRow> = rows.nodes.iter().filter(|node| node.is_alive).collect();
    if rows.nodes.is_empty() {
        return None;
    }
    if alive.is_empty() {
        return Some("no node is alive: start one with `countersign serve`, or see the log of one that runs");
    }
    let is_stuck = alive.iter().all(|node| node.is_draining);
    is_stuck.then_some("all nodes that are alive drain, so none takes the realm: restart one, or start another")
}

fn node_text(node: &NodeRow) -> String {
    match (node.is_alive, node.is_draining) {
        (true, false) => "alive".to_owned(),
        (true, true) => "draining".to_owned(),
        (false, _) => format!("silent for {} s", node.seen.as_secs()),
    }
}

fn lease_text(rows: &ClusterRows, lease: &LeaseRow) -> String {
    let next_owner = lease.next_owner.as_ref().map_or_else(String::new, |node| format!(", moving to {node}"));
    match rows.owner_of(&lease.realm) {
        Some(owner) => {
            format!("served by {} for {} s, term {}{next_owner}", owner.name, lease.age.as_secs(), lease.term)
        }
        None => format!("served by no node{next_owner}"),
    }
}

fn status_json(rows: &ClusterRows) -> Value {
    let nodes = rows.nodes.iter().map(|node| {
        json!({ "name": node.name, "advertise": node.advertise, "version": node.program, "alive": node.is_alive,
            "draining": node.is_draining, "seen": node.seen.as_secs_f64() })
    });
    let realms = rows.leases.iter().map(|lease| {
        let owner = rows.owner_of(&lease.realm).map(|node| &node.name);
        json!({ "name": lease.realm, "owner": owner, "term": lease.term, "age": lease.age.as_secs_f64(),
            "remaining": lease.remaining.as_secs_f64(), "moving_to": lease.next_owner })
    });
    json!({ "nodes": nodes.collect::<Vec<_>>(), "realms": realms.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use countersign_store::{ClusterRows, NodeRow};

    use super::next_step;

    fn rows(nodes: &[(bool, bool)]) -> ClusterRows {
        let to_row = |(is_alive, is_draining): &(bool, bool)| NodeRow {
            name: "a".to_owned(),
            process: "p".to_owned(),
            advertise: "http://127.0.0.1:1".to_owned(),
            program: "0.1.0".to_owned(),
            addresses: Vec::new(),
            seen: Duration::ZERO,
            is_alive: *is_alive,
            is_draining: *is_draining,
        };
        ClusterRows { nodes: nodes.iter().map(to_row).collect(), leases: Vec::new() }
    }

    #[test]
    fn a_cluster_that_nobody_can_serve_has_a_next_step() {
        for (case, nodes, want) in [
            ("no nodes", &[][..], None),
            ("alive", &[(true, false), (true, true)], None),
            ("none alive", &[(false, false), (false, true)], Some("no node is alive")),
            ("all drain", &[(true, true), (false, false)], Some("all nodes that are alive drain")),
        ] {
            let step = next_step(&rows(nodes));
            assert_eq!(step.is_some(), want.is_some(), "{case}: {step:?}");
            assert!(want.is_none_or(|want| step.is_some_and(|step| step.starts_with(want))), "{case}: {step:?}");
        }
    }
}
