//! Agents that repeat their requests until they are answered: after an interruption under the same key, on the next connection.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{WebSocketStream, tungstenite::Message};

use crate::kill::restarting_gateway::{KillRunState, agent_credentials};

/// Time for a reply on one connection before another is tried.
const PATIENCE: Duration = Duration::from_secs(20);
/// Number of connections for one request before it counts as never answered.
const TRIES: u32 = 200;
/// Pause before the next connection.
const PAUSE: Duration = Duration::from_millis(50);
/// Number of requests that are repeated at the end: a gateway remembers the keys of the last 4,096 (docs/protocol/agent-gate.md).
const AGAIN: usize = 4_000;

/// Outcome of one request, as the agent got it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ReportedOutcome {
    Executed,
    Denied,
    Unknown,
}

type AgentSocket = WebSocketStream<TcpStream>;

/// Sends one request after the other until the end. Then repeats the last of them under their keys, which must bring the same answers and
/// have no effect.
pub(crate) async fn run_agent(stage: Arc<KillRunState>, number: usize) {
    let mut socket = None;
    let mut outcomes: Vec<(String, ReportedOutcome)> = Vec::new();
    let mut ids = 0;
    while !stage.is_over() {
        let kind = if outcomes.len().is_multiple_of(2) { "free" } else { "gated" };
        let thing = format!("{kind}_{number}_{}", outcomes.len());
        let Some(outcome) = request_until_answered(&stage, &mut socket, number, &thing, &mut ids).await else { return };
        check_outcome(&stage, &thing, &outcome);
        stage.record_success(match outcome {
            ReportedOutcome::Executed => "requests executed",
            ReportedOutcome::Denied => "requests denied",
            ReportedOutcome::Unknown => "requests in doubt",
        });
        outcomes.push((thing, outcome));
    }
    let known = outcomes.len().saturating_sub(AGAIN);
    for (thing, outcome) in outcomes.split_off(known) {
        let Some(again) = request_until_answered(&stage, &mut socket, number, &thing, &mut ids).await else { return };
        if again != outcome {
            stage.record_failure(format!("{thing} was {outcome:?}, but the repeated request returned {again:?}"));
        }
        check_outcome(&stage, &thing, &outcome);
        stage.record_success("requests repeated at the end");
    }
}

/// Checks that the reported outcome is what happened.
fn check_outcome(stage: &KillRunState, thing: &str, outcome: &ReportedOutcome) {
    let times = stage.done.times_done(thing);
    let holds = match outcome {
        ReportedOutcome::Executed => times == 1,
        ReportedOutcome::Denied => times == 0,
        ReportedOutcome::Unknown => times <= 1,
    };
    if !holds {
        stage.record_failure(format!("{thing} was reported as {outcome:?} and was done {times} times"));
    }
}

/// Asks for a thing under its key until there is an answer.
async fn request_until_answered(
    stage: &KillRunState,
    socket: &mut Option<AgentSocket>,
    number: usize,
    thing: &str,
    ids: &mut u64,
) -> Option<ReportedOutcome> {
    let mut last = String::new();
    for _ in 0..TRIES {
        match send_once(stage, socket, number, thing, ids).await {
            Ok(outcome) => return Some(outcome),
            Err(error) => {
                last = format!("{error:#}");
                *socket = None;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    stage.record_failure(format!("{thing} got no answer: {last}"));
    None
}

async fn send_once(
    stage: &KillRunState,
    socket: &mut Option<AgentSocket>,
    number: usize,
    thing: &str,
    ids: &mut u64,
) -> anyhow::Result<ReportedOutcome> {
    let socket = match socket {
        Some(socket) => socket,
        None => socket.insert(connect_agent(stage, number).await?),
    };
    *ids += 1;
    let id = format!("{thing}-{ids}");
    let params = json!({ "tool": "turn", "args": { "thing": thing }, "idempotency_key": thing });
    let request = json!({ "jsonrpc": "2.0", "method": "tool_request", "params": params, "id": id });
    socket.send(Message::text(request.to_string())).await?;
    let answer = loop {
        let frame = read_reply(socket).await?;
        // Results of requests before the last death may be sent again on their own.
        if frame["id"] == id.as_str() {
            break frame;
        }
    };
    let (status, message) = (&answer["result"]["status"], answer["error"]["message"].as_str().unwrap_or_default());
    match (status.as_str(), answer["error"]["code"].as_i64()) {
        (Some("executed"), _) => Ok(ReportedOutcome::Executed),
        (_, Some(-32003..=-32001)) => Ok(ReportedOutcome::Denied),
        (_, Some(-32004)) if message.starts_with("Outcome unknown") => Ok(ReportedOutcome::Unknown),
        // It ends, or could not write it down: nothing happened, and it says so.
        _ => bail!("unexpected answer {answer}"),
    }
}

async fn connect_agent(stage: &KillRunState, number: usize) -> anyhow::Result<AgentSocket> {
    let address = stage.now_at();
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut socket, _) = tokio_tungstenite::client_async(format!("ws://{address}/"), stream).await?;
    let (_, token) = agent_credentials(number);
    let auth = json!({ "jsonrpc": "2.0", "method": "auth", "params": { "token": token }, "id": "auth-1" });
    socket.send(Message::text(auth.to_string())).await?;
    if read_reply(&mut socket).await?["result"]["status"] != "authenticated" {
        bail!("the agent was not authenticated");
    }
    Ok(socket)
}

async fn read_reply(socket: &mut AgentSocket) -> anyhow::Result<Value> {
    loop {
        let message = tokio::time::timeout(PATIENCE, socket.next()).await.context("no reply in time")?;
        match message.context("the connection ended")?? {
            Message::Text(text) => return Ok(serde_json::from_str(&text)?),
            Message::Close(frame) => bail!("the connection was closed: {frame:?}"),
            // Pings are answered with the next read.
            Message::Ping(_) | Message::Pong(_) | Message::Binary(_) | Message::Frame(_) => {}
        }
    }
}
