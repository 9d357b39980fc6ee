//! Results that an agent has not received: read once, and answered under their own ids where these still mean them.

use std::{collections::BTreeSet, sync::Arc};

use countersign_core::{call::Content, engine::Scope, id::CallId, session::Counts, time::Millis};
use countersign_protocol::agent_gate::LARGEST_FRAME;
use countersign_runtime::Source;
use serde_json::{Value, json};

use super::{Door, Known, outcome::Outcome};
use crate::session_file::time::iso;

/// How many bytes of a frame are for rows.
const ROOM: usize = LARGEST_FRAME - 1024;

/// What an agent missed.
#[derive(Default)]
pub(super) struct Missed {
    /// The result of `get_pending_results`, as JSON text.
    pub(super) listed: String,
    /// Every call that is listed.
    pub(super) calls: Vec<CallId>,
    /// Replies that are sent under their own ids behind the list, with their calls.
    pub(super) replies: Vec<(CallId, String)>,
    /// Requests that are still open and whose ids still mean them.
    pub(super) open: Vec<(CallId, Arc<str>)>,
}

/// What the agent missed, for a connection that asks for it under `id` and used no lower number than `lowest`. What that
/// connection itself was told or will be, `told`, is not missed.
pub(super) async fn missed(
    door: &Door,
    agent: &Known,
    requests: &Source,
    (id, lowest): (&str, Option<u64>),
    told: &BTreeSet<CallId>,
) -> Option<Missed> {
    let session = agent.session.clone();
    let read = requests.read_of(Scope::Session(session.clone()), move |engine| {
        let requester = engine.state().session(&session)?.requester()?;
        let results: Vec<_> = requester.results().iter().map(|(call, result)| (*call, result.clone())).collect();
        Some((results, requester.open().clone(), requester.generation(), requester.clone()))
    });
    let Some((mut results, mut open, generation, requester)) = read.await?.0 else {
        return Some(Missed { listed: listed(Vec::new()), ..Missed::default() });
    };
    results.retain(|(call, _)| !told.contains(call));
    open.retain(|call, _| !told.contains(call));
    let counts = requester.counts_on(id, lowest, |call| told.contains(&call));
    let mut missed = Missed::default();
    let (mut rows, mut size) = (Vec::new(), 0);
    for (call, result) in results {
        // One by one: all of them may be far more than fits into the frame, and into memory.
        let contents = match door.handle.contents().get(&[result.wanted, result.lsn]).await {
            Ok(contents) => contents,
            Err(error) => {
                tracing::error!(%error, "results that an agent asks for cannot be read");
                break;
            }
        };
        let [wanted, ended] = contents.as_slice() else { continue };
        let Some(wanted) = wanted.as_deref().and_then(|text| serde_json::from_str::<Content>(text).ok()) else {
            continue;
        };
        let outcome =
            Outcome { call, gate: result.asked.gate, end: result.end, content: ended.clone().unwrap_or_default() };
        let is_its_own = counts == Counts::From(result.asked.generation);
        let is_known_by_id = is_its_own || counts == Counts::Anew && result.asked.generation == generation;
        let request_id = if is_known_by_id {
            text_of(&result.asked.wire)
        } else {
            result.asked.gate.map_or_else(|| call.to_string(), |gate| gate.to_string())
        };
        let mut row = row(&request_id, &wanted, &outcome, result.asked.at);
        if length(&row) > ROOM {
            // One that no client takes is told of in its place, and then no more.
            let told =
                json!({ "status": "error", "data": format!("Response too large ({} bytes)", outcome.content.len()) });
            row["result"] = Value::from(told.to_string());
        }
        size += length(&row);
        if size > ROOM && !rows.is_empty() {
            // The rest waits for the next time it is asked for.
            break;
        }
        rows.push(row);
        missed.calls.push(call);
        if is_its_own {
            missed.replies.push((call, outcome.reply(&result.asked.wire)));
        }
    }
    open.retain(|_, asked| counts == Counts::From(asked.generation));
    missed.open = open.into_iter().map(|(call, asked)| (call, asked.wire)).collect();
    missed.listed = listed(rows);
    Some(missed)
}

/// How much of a frame a row takes, in both forms.
fn length(row: &Value) -> usize {
    let result = row["result"].as_str().map_or(0, str::len);
    // In the first form the result is text inside text, which may double it.
    row.to_string().len() + result + 256
}

/// Both forms that clients know.
fn listed(rows: Vec<Value>) -> String {
    let queued: Vec<Value> = rows
        .iter()
        .map(|row| {
            let result: Value =
                row["result"].as_str().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
            json!({ "request_id": row["request_id"], "status": result["status"], "data": result["data"] })
        })
        .collect();
    json!({ "results": rows, "queued": queued }).to_string()
}

fn row(id: &str, wanted: &Content, outcome: &Outcome, at: Millis) -> Value {
    json!({
        "request_id": id,
        "tool_name": &*wanted.tool,
        "args": Value::Object(wanted.arguments.clone()).to_string(),
        "signature": wanted.signature,
        "message_id": null,
        "chat_id": null,
        "result": outcome.row().to_string(),
        "created_at": iso(at),
        "expires_at": null,
    })
}

/// The id as a text: what a text says, anything else as it was written.
fn text_of(wire: &str) -> String {
    serde_json::from_str::<String>(wire).unwrap_or_else(|_| wire.to_owned())
}
