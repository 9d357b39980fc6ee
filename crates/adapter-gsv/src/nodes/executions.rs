//! Executions that continue at nodes after the results of runs: the session that gets the end, once.
//!
//! An end becomes a message that begins a run of its own, before messages of users that came meanwhile.

use std::{sync::Arc, time::Duration};

use countersign_core::{
    call,
    digest::Digest,
    engine::{Command, Event},
    id::{CallId, SessionId},
    message::{self, MessageBlock, StoredMessage, estimate_tokens},
    run::RunMetadata,
    session::{self, IdempotencyKey, MessageContent},
    time::Millis,
};
use countersign_protocol::{
    RawJson,
    gsv::{
        GsvError, code,
        node::{ExecEvent, ExecReport},
        tool::AckResult,
    },
};
use countersign_runtime::{
    InboxLane,
    store::{AnyLog, Log as _, LogView, Partition, StoredRecord, ViewRows},
};
use countersign_view::protocol::{node_of, peer_of};
use serde::{Deserialize, Serialize};
use tokio::{sync::watch, time::timeout};

use super::super::{GsvAdapter, method_result::MethodResult, peer::ConnectedPeer};

/// Name of the view.
const NAME: &str = "gsv-executions";
/// Time in which an end is reported to the session that began it, in milliseconds.
const KEPT: u64 = 24 * 3600 * 1000;
/// Longest wait for the call of an event: the event may overtake the result of its call.
const PATIENCE: Duration = Duration::from_secs(5);
/// Number of executions after which expired ones are removed.
const SWEEP: u64 = 64;

/// View of the executions of nodes.
#[derive(Debug)]
pub struct ExecutionsView;

/// State of one execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ExecutionRow {
    session: SessionId,
    at: u64,
    /// Call that began it.
    #[serde(default)]
    call: Option<CallId>,
}

/// Returns the row of an execution, by the node's id for it.
fn row_of(peer: &str, execution: &str) -> String {
    // No id of a node has a line break that could be mistaken: the length says where it ends.
    format!("{}:{peer}\n{execution}", peer.len())
}

impl LogView for ExecutionsView {
    fn name(&self) -> &'static str {
        NAME
    }

    fn version(&self) -> u32 {
        2
    }

    fn reads_contents(&self) -> bool {
        false
    }

    fn fold_record(&self, record: &StoredRecord, _: Option<&str>, rows: &mut dyn ViewRows) {
        // Few records of calls contain it, and the others need not be parsed.
        if record.kind != "call" || !record.facts.starts_with("{\"left_behind\"") {
            return;
        }
        let Ok(Event::Call(call::Event::LeftBehind { call, peer, execution })) =
            Event::decode(&record.kind, record.version, &record.facts)
        else {
            return;
        };
        let Some(session) = record.session.clone().filter(|_| node_of(&peer).is_some()) else { return };
        if record.lsn.0.is_multiple_of(SWEEP) {
            for (key, row) in rows.scan_prefix("") {
                let is_old = serde_json::from_slice::<ExecutionRow>(&row).is_ok_and(|row| row.at + KEPT < record.at.0);
                if is_old {
                    rows.delete_row(&key);
                }
            }
        }
        if let Ok(row) = serde_json::to_vec(&ExecutionRow { session, at: record.at.0, call: Some(call) }) {
            rows.put_row(&row_of(peer.as_str(), &execution), &row);
        }
    }
}

/// Signal to waiters that an execution is known.
pub(super) struct ExecutionSignal(watch::Sender<u64>);

impl Default for ExecutionSignal {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl ExecutionSignal {
    pub(super) fn notify_changed(&self) {
        self.0.send_modify(|count| *count += 1);
    }
}

/// Answers `node.exec.event`. One that cannot be read is dropped: after an error the node would repeat it without end, and
/// hold back all events after it.
pub(super) async fn handle_event(door: &Arc<GsvAdapter>, peer: &ConnectedPeer, report: ExecReport) -> MethodResult {
    let node = &peer.connect.id;
    let mut event = match report {
        ExecReport::Event(event) => event,
        ExecReport::Unreadable(problem) => {
            tracing::warn!(node, problem, "dropped an invalid exec event of a node");
            return Ok(RawJson::from_wire(&AckResult::DROPPED));
        }
    };
    let Some(row) = wait_for_row(door, node, &event.session_id).await else {
        return Ok(RawJson::from_wire(&AckResult::DROPPED));
    };
    if event.event.is_end() {
        // Nodes use our id of a call of a run.
        event.call_id = event.call_id.or_else(|| row.call.map(|call| call.to_string()));
        report_end(door, row.session, node, &event).await?;
    }
    Ok(RawJson::from_wire(&AckResult::TAKEN))
}

/// Waits for the row of an execution, which may become known in a moment.
async fn wait_for_row(door: &GsvAdapter, node: &str, execution: &str) -> Option<ExecutionRow> {
    let mut changed = door.nodes.executions.0.subscribe();
    let looking = async {
        loop {
            changed.mark_unchanged();
            if let Some(row) =
                find_execution(door.context.handle.log(), node, execution, door.context.clock.now()).await
            {
                return Some(row);
            }
            // An error means that the gateway closes.
            changed.changed().await.ok()?;
        }
    };
    timeout(PATIENCE, looking).await.ok().flatten()
}

async fn find_execution(log: &AnyLog, node: &str, execution: &str, now: Millis) -> Option<ExecutionRow> {
    let key = row_of(peer_of(node).as_str(), execution);
    let page = log.read_view(Partition::ZERO, NAME, &key, None, 1).await;
    let page = page.inspect_err(|error| tracing::warn!(%error, "failed to read the executions of nodes")).ok()?;
    let row = page.into_iter().find(|(found, _)| *found == key)?.1;
    let row: ExecutionRow = serde_json::from_slice(&row).ok()?;
    (row.at + KEPT >= now.0).then_some(row)
}

/// Reports the end to a session, once for each event.
async fn report_end(door: &GsvAdapter, session: SessionId, node: &str, event: &ExecEvent) -> Result<(), GsvError> {
    let name = [node, &event.session_id, &event.event_id].map(|part| format!("{}:{part}", part.len())).concat();
    let name = Digest::hash_bytes(name.as_bytes());
    let text = event.completion_message(node);
    let message = StoredMessage::User(message::InputMessage {
        content: vec![MessageBlock::from_text(text.as_str())],
        ..message::InputMessage::default()
    });
    let content = serde_json::to_string(&message).unwrap_or_default();
    let user_message = MessageContent { content: content.into(), tokens: estimate_tokens(text.len()) };
    let reference = Some(uuid::Uuid::new_v4().to_string());
    let marks = Box::new(RunMetadata { reference, ahead: true, ..RunMetadata::default() });
    let once = session::Command::Once {
        key: IdempotencyKey { name: format!("execution:{name}"), asks: name },
        command: Box::new(session::Command::Say { message: user_message, marks }),
    };
    let result = door.context.handle.source(InboxLane::Request).send_command(Command::Session(session, once)).await;
    // The node sends it again.
    result
        .map(drop)
        .map_err(|refused| GsvError { retryable: Some(true), ..GsvError::new(code::FAILED, refused.to_string()) })
}

#[cfg(test)]
mod tests {
    use super::row_of;

    #[test]
    fn two_executions_never_have_one_row() {
        assert_ne!(row_of("node:a", "b\nc"), row_of("node:a\nb", "c"));
        assert_ne!(row_of("node:a", "1"), row_of("node:a1", ""));
    }
}
