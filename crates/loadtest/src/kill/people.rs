//! Approvers that follow the record from one cursor over all deaths, and answer pending gates. Every confirmed answer must be in the final
//! record.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::{fixture::http::AsyncHttpClient, kill::restarting_gateway::KillRunState};

/// Of how many gates one is denied.
const ONE_DENIED: u64 = 8;
/// Time for an answer, or the next event, on one connection before another is tried.
const PATIENCE: Duration = Duration::from_secs(20);
/// Number of connections for one answer before it counts as never replied to.
const TRIES: u32 = 200;
/// Pause before the next connection.
const PAUSE: Duration = Duration::from_millis(50);

/// Events that a follower saw: the position of each in the record, with its name, in the order in which they came.
pub(crate) type FollowedEvents = Vec<(u64, String)>;

/// Answers every new gate until there are no more agents, and checks every answer that counted.
pub(crate) async fn answer_gates(stage: Arc<KillRunState>, mut gates: mpsc::UnboundedReceiver<String>) {
    let mut client = None;
    let mut counted = BTreeMap::new();
    let mut number = 0_u64;
    while let Some(gate) = gates.recv().await {
        number += 1;
        let verb = if number.is_multiple_of(ONE_DENIED) { "deny" } else { "allow" };
        match answer_until_replied(&stage, &mut client, &gate, verb).await {
            Ok(()) => {
                stage.record_success("answers of approvers");
                counted.insert(gate, verb);
            }
            Err(error) => stage.record_failure(format!("{verb} of {gate}: {error:#}")),
        }
    }
    for (gate, verb) in counted {
        if let Err(error) = check_resolution(&stage, &gate, verb).await {
            stage.record_failure(format!("{verb} of {gate} was accepted: {error:#}"));
        }
    }
}

/// Posts one answer under its key until there is a reply.
async fn answer_until_replied(
    stage: &KillRunState,
    client: &mut Option<AsyncHttpClient>,
    gate: &str,
    verb: &str,
) -> anyhow::Result<()> {
    let path = format!("/api/v1/gates/{gate}/{verb}");
    let mut last = anyhow::anyhow!("no request was sent");
    for _ in 0..TRIES {
        match post_answer(stage, client, &path, &format!("p-{gate}")).await {
            Ok(()) => return Ok(()),
            Err(error) => {
                last = error;
                *client = None;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    Err(last.context("no reply"))
}

async fn post_answer(
    stage: &KillRunState,
    client: &mut Option<AsyncHttpClient>,
    path: &str,
    key: &str,
) -> anyhow::Result<()> {
    let client = match client {
        Some(client) => client,
        None => client.insert(stage.connect_client().await?),
    };
    let (status, body) = tokio::time::timeout(PATIENCE, client.post_under(path, &json!({}), key)).await??;
    if status == 200 { Ok(()) } else { bail!("{status} {body}") }
}

/// Checks that a gate is resolved as the approver was informed.
async fn check_resolution(stage: &KillRunState, gate: &str, verb: &str) -> anyhow::Result<()> {
    let (status, shown) = stage.connect_client().await?.get(&format!("/api/v1/gates/{gate}")).await?;
    let want = if verb == "allow" { "allowed" } else { "denied" };
    if status == 200 && shown["state"] == "resolved" && shown["resolution"] == want {
        return Ok(());
    }
    bail!("{status} {shown}")
}

/// Follows the record from its beginning, over all deaths, as far as the stage says in the end, and tells of gates that open.
pub(crate) async fn follow_record(stage: Arc<KillRunState>, tell: mpsc::UnboundedSender<String>) -> FollowedEvents {
    let mut after = "start".to_owned();
    let mut seen = FollowedEvents::new();
    while !stage.has_seen(&seen) {
        // A death ends the stream.
        let _ = read_stream(&stage, &mut after, &mut seen, &tell).await;
        tokio::time::sleep(PAUSE).await;
    }
    seen
}

async fn read_stream(
    stage: &KillRunState,
    after: &mut String,
    seen: &mut FollowedEvents,
    tell: &mpsc::UnboundedSender<String>,
) -> anyhow::Result<()> {
    let mut stream = RecordStream::open(stage, after).await?;
    while !stage.has_seen(seen) {
        if let Some(gate) = stream.next_gate(stage, after, seen).await? {
            tell.send(gate)?;
        }
    }
    Ok(())
}

/// Returns the record up to and with `until`, read on one connection.
pub(crate) async fn read_record(stage: &KillRunState, until: u64) -> anyhow::Result<FollowedEvents> {
    let mut seen = FollowedEvents::new();
    let mut after = "start".to_owned();
    let mut stream = RecordStream::open(stage, &after).await?;
    while seen.last().is_none_or(|(lsn, _)| *lsn < until) {
        stream.next_gate(stage, &mut after, &mut seen).await.context("the record was not sent to its end")?;
    }
    Ok(seen)
}

/// One connection to the stream of the record.
struct RecordStream {
    client: AsyncHttpClient,
    line: String,
    id: String,
}

impl RecordStream {
    async fn open(stage: &KillRunState, after: &str) -> anyhow::Result<Self> {
        let mut client = stage.connect_client().await?;
        client.open_stream(&format!("/api/v1/events?after={after}")).await?;
        Ok(Self { client, line: String::new(), id: String::new() })
    }

    /// Reads a line; returns the gate that opened, if it is such an event.
    async fn next_gate(
        &mut self,
        stage: &KillRunState,
        after: &mut String,
        seen: &mut FollowedEvents,
    ) -> anyhow::Result<Option<String>> {
        self.line.clear();
        tokio::time::timeout(PATIENCE, self.client.next_line(&mut self.line)).await??;
        if self.line.starts_with("event: reset") {
            stage.record_failure("the gateway refused a cursor that it had sent".to_owned());
        }
        if let Some(id) = self.line.strip_prefix("id: ") {
            id.trim().clone_into(&mut self.id);
        }
        let Some(data) = self.line.strip_prefix("data: ") else { return Ok(None) };
        let event: Value = serde_json::from_str(data)?;
        let Some(lsn) = event["lsn"].as_u64() else { return Ok(None) };
        let name =
            format!("{}.{}", event["kind"].as_str().unwrap_or_default(), event["event"].as_str().unwrap_or_default());
        let facts = &event["facts"];
        let gate = ["opened", "resolved"].iter().find_map(|what| facts[*what]["gate"].as_str());
        self.id.clone_into(after);
        seen.push((lsn, gate.map_or_else(|| name.clone(), |gate| format!("{name} {gate}"))));
        Ok(gate.filter(|_| name == "gate.opened").map(str::to_owned))
    }
}
