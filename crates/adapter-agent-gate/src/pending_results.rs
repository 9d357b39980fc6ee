//! Results that an agent has not received: read once, and answered under their own ids where these still mean them.

use std::{collections::BTreeSet, sync::Arc};

use countersign_core::{
    call::{CallDetails, CallEnd},
    engine::ResidencyScope,
    id::{CallId, GateId, Lsn},
    session::{ProgramGeneration, RequestRecord},
    time::Millis,
};
use countersign_protocol::agent_gate::LARGEST_FRAME;
use countersign_runtime::CommandSource;
use countersign_view::time::format_iso;
use serde_json::{Value, json};

use super::{AgentGateAdapter, RegisteredAgent, outcome::ToolCallOutcome};

/// Bytes of a frame for rows.
const ROOM: usize = LARGEST_FRAME - 1024;

/// Results that an agent missed.
#[derive(Default)]
pub(super) struct MissedResults {
    /// Result of `get_pending_results`, as JSON text.
    pub(super) listed: String,
    /// Every call that is listed.
    pub(super) calls: Vec<CallId>,
    /// Results that are sent under their own ids after the list, whether or not the list had room for them.
    pub(super) owed: Vec<OwnReply>,
    /// Open requests whose ids still mean them.
    pub(super) open: Vec<(CallId, Arc<str>)>,
}

/// Result that the requesting program can get under its own id.
pub(super) struct OwnReply {
    pub(super) call: CallId,
    /// The program's own id, as JSON text.
    wire: Arc<str>,
    gate: Option<GateId>,
    end: CallEnd,
    lsn: Lsn,
}

impl OwnReply {
    /// Reads the ordinary reply; `None` if the record cannot be read.
    pub(super) async fn read_reply(&self, adapter: &AgentGateAdapter) -> Option<String> {
        let contents = adapter.handle.contents().get(&[self.lsn]).await;
        let content = contents.inspect_err(|error| tracing::error!(%error, "failed to read a result")).ok()?.pop()?;
        let (call, content) = (self.call, content.unwrap_or_default());
        Some(ToolCallOutcome { call, gate: self.gate, end: self.end, content }.to_reply(&self.wire))
    }
}

/// Collects the results that the agent missed, for a connection that requests them under `id` and used no lower number than `lowest`.
/// Results in `sent_calls`, which the connection itself got or will get, are not missed.
pub(super) async fn missed_results(
    adapter: &AgentGateAdapter,
    agent: &RegisteredAgent,
    requests: &CommandSource,
    (id, lowest): (&str, Option<u64>),
    sent_calls: &BTreeSet<CallId>,
) -> Option<MissedResults> {
    let session = agent.session.clone();
    let read = requests.read_of(ResidencyScope::Session(session.clone()), move |engine| {
        let requester = engine.state().session(&session)?.agent_requests()?;
        let results: Vec<_> = requester.results().iter().map(|(call, result)| (*call, result.clone())).collect();
        Some((results, requester.open_requests().clone(), requester.generation(), requester.clone()))
    });
    let Some((mut results, mut open, generation, requester)) = read.await?.0 else {
        return Some(MissedResults { listed: ResultList::default().to_json_text(), ..MissedResults::default() });
    };
    results.retain(|(call, _)| !sent_calls.contains(call));
    open.retain(|call, _| !sent_calls.contains(call));
    let counts = requester.counts_on(id, lowest, |call| sent_calls.contains(&call));
    let mut missed = MissedResults::default();
    let is_its_own = |generation: u32| counts == ProgramGeneration::From(generation);
    for (call, result) in results.iter().filter(|(_, result)| is_its_own(result.request.generation)) {
        let request = &result.request;
        let owed = OwnReply {
            call: *call,
            wire: Arc::clone(&request.wire),
            gate: request.gate,
            end: result.end,
            lsn: result.lsn,
        };
        missed.owed.push(owed);
    }
    let mut listed = ResultList::default();
    for (call, result) in results {
        // One by one: all of them may be far more than fits into the frame, and into memory.
        let contents = match adapter.handle.contents().get(&[result.proposed_lsn, result.lsn]).await {
            Ok(contents) => contents,
            Err(error) => {
                tracing::error!(%error, "failed to read the results that an agent requested");
                break;
            }
        };
        let [request_text, ended] = contents.as_slice() else { continue };
        let Some(requested) = request_text.as_deref().and_then(|text| serde_json::from_str::<CallDetails>(text).ok())
        else {
            continue;
        };
        let outcome = ToolCallOutcome {
            call,
            gate: result.request.gate,
            end: result.end,
            content: ended.clone().unwrap_or_default(),
        };
        let row = ResultRow {
            ids: RowIds::for_program(counts, generation, call, &result.request),
            request: &requested,
            outcome: outcome.result_row(),
            at: result.request.at,
        };
        let too_large =
            || json!({ "status": "error", "data": format!("Response too large ({} bytes)", outcome.content.len()) });
        if !listed.add_row(row, too_large) {
            // The rest waits for the next request.
            break;
        }
        missed.calls.push(call);
    }
    open.retain(|_, request| is_its_own(request.generation));
    missed.open = open.into_iter().map(|(call, request)| (call, request.wire)).collect();
    missed.listed = listed.to_json_text();
    Some(missed)
}

/// Ids of a result in each of the two forms.
struct RowIds {
    results: String,
    queued: String,
}

impl RowIds {
    /// Returns the ids for a program of generation `counts`. Its own id identifies it to the program that requested it.
    /// In `results` it does so only if nothing follows under that id: clients of the original take such a row for the answer,
    /// and it is less than the ordinary reply (no data, and an expiry reads as a denial).
    fn for_program(counts: ProgramGeneration, generation: u32, call: CallId, request: &RequestRecord) -> Self {
        let ours = || request.gate.map_or_else(|| call.to_string(), |gate| gate.to_string());
        let own = || id_text(&request.wire);
        match counts {
            ProgramGeneration::From(of) if of == request.generation => Self { results: ours(), queued: own() },
            ProgramGeneration::Anew if request.generation == generation => Self { results: own(), queued: own() },
            ProgramGeneration::From(_) | ProgramGeneration::Anew | ProgramGeneration::Unclear => {
                Self { results: ours(), queued: ours() }
            }
        }
    }
}

/// Result that is listed.
struct ResultRow<'a> {
    ids: RowIds,
    request: &'a CallDetails,
    outcome: Value,
    at: Millis,
}

impl ResultRow<'_> {
    /// Returns the row in both forms.
    fn json_forms(&self) -> [Value; 2] {
        let (RowIds { results, queued }, request) = (&self.ids, self.request);
        let row = json!({
            "request_id": results,
            "tool_name": &*request.tool,
            "args": Value::Object(request.arguments.clone()).to_string(),
            "signature": request.signature,
            "message_id": null,
            "chat_id": null,
            "result": self.outcome.to_string(),
            "created_at": format_iso(self.at),
            "expires_at": null,
        });
        let queued_row =
            json!({ "request_id": queued, "status": self.outcome["status"], "data": self.outcome["data"] });
        [row, queued_row]
    }
}

/// Result of `get_pending_results`, in both forms that clients know, as far as it fits into a frame.
#[derive(Default)]
struct ResultList {
    results: Vec<String>,
    queued: Vec<String>,
    size: usize,
}

impl ResultList {
    /// Adds a row, if there is room for it. One that is too large for any client is replaced by `too_large`.
    fn add_row(&mut self, mut row: ResultRow<'_>, too_large: impl Fn() -> Value) -> bool {
        let text = |row: &ResultRow<'_>| row.json_forms().map(|form| form.to_string());
        // A comma stands between two rows.
        let length = |[row, queued_row]: &[String; 2]| row.len() + queued_row.len() + 2;
        let mut forms = text(&row);
        if length(&forms) > ROOM {
            row.outcome = too_large();
            forms = text(&row);
        }
        let size = self.size + length(&forms);
        if size > ROOM && !self.results.is_empty() {
            return false;
        }
        self.size = size;
        let [row, queued_row] = forms;
        self.results.push(row);
        self.queued.push(queued_row);
        true
    }

    fn to_json_text(&self) -> String {
        format!(r#"{{"results":[{}],"queued":[{}]}}"#, self.results.join(","), self.queued.join(","))
    }
}

/// Returns the id as a text: the value of a JSON string, any other JSON as it was written.
fn id_text(wire: &str) -> String {
    serde_json::from_str::<String>(wire).unwrap_or_else(|_| wire.to_owned())
}
