//! Calls whose results nodes may still send, from any process of the gateway: a row each until its end is known,
//! and for a day if it never is.

use countersign_core::{
    call::{self, CallDetails, CallEnd, Executor},
    engine::Event,
    id::{CallId, Lsn},
};
use countersign_runtime::{
    InboxLane, LateResult,
    store::{AnyLog, Log as _, LogView, Partition, StoredContent as Kept, StoredRecord, ViewRows},
};
use countersign_view::protocol::node_of;
use serde::{Deserialize, Serialize};

use super::super::GsvAdapter;

/// Name of the view.
const NAME: &str = "gsv-node-calls";
/// Time in which the outcome of a call is of interest, in milliseconds.
const KEPT: u64 = 24 * 3600 * 1000;
/// Number of records after which expired rows are removed.
const SWEEP: u64 = 64;
/// Beginnings of the relevant facts. Few records of calls have them, and the others need not be parsed.
const BEGINNINGS: [&str; 3] = ["{\"wanted\"", "{\"ended\"", "{\"result_dropped\""];

/// View of the calls that nodes started.
#[derive(Debug)]
pub struct StartedCallsView;

/// State of one call.
#[derive(Debug, Serialize, Deserialize)]
struct NodeCallRow {
    node: String,
    /// Record of its request.
    lsn: Lsn,
    at: u64,
}

impl LogView for StartedCallsView {
    fn name(&self) -> &'static str {
        NAME
    }

    fn version(&self) -> u32 {
        1
    }

    fn reads_contents(&self) -> bool {
        false
    }

    fn fold_record(&self, record: &StoredRecord, _: Option<&str>, rows: &mut dyn ViewRows) {
        if record.kind != "call" || !BEGINNINGS.iter().any(|beginning| record.facts.starts_with(beginning)) {
            return;
        }
        let Ok(Event::Call(event)) = Event::decode(&record.kind, record.version, &record.facts) else { return };
        match event {
            call::Event::Proposed { call, executor: Executor::Peer(peer), .. } => {
                let Some(node) = node_of(&peer) else { return };
                if record.lsn.0.is_multiple_of(SWEEP) {
                    sweep_old(rows, record.at.0);
                }
                let row = NodeCallRow { node: node.to_owned(), lsn: record.lsn, at: record.at.0 };
                if let Ok(row) = serde_json::to_vec(&row) {
                    rows.put_row(&call.to_string(), &row);
                }
            }
            // Its node may come back and report the outcome.
            call::Event::Ended { end: CallEnd::Unknown, .. } => {}
            call::Event::Ended { call, .. } | call::Event::ResultDropped { call } => rows.delete_row(&call.to_string()),
            _ => {}
        }
    }
}

fn sweep_old(rows: &mut dyn ViewRows, now: u64) {
    for (key, row) in rows.scan_prefix("") {
        if serde_json::from_slice::<NodeCallRow>(&row).is_ok_and(|row| row.at + KEPT < now) {
            rows.delete_row(&key);
        }
    }
}

/// Finds a call that this process does not know any more, with its node; none if there is no such call.
pub(super) async fn find_call(door: &GsvAdapter, wire: &str) -> Option<(String, LateResult)> {
    let call = CallId::parse(wire).filter(|call| call.to_string() == wire)?;
    let log = door.context.handle.log();
    let row = read_row(log, &call.to_string()).await?;
    let content = log.read_contents(Partition::ZERO, &[row.lsn]).await;
    let content = content.inspect_err(|error| tracing::warn!(%error, "failed to read a call of a node")).ok()?;
    let Some(Kept::Text(text)) = content.into_iter().next().flatten() else { return None };
    let content: CallDetails = serde_json::from_str(&text).ok()?;
    Some((row.node, LateResult::for_call(call, &content, door.context.handle.source(InboxLane::Result))))
}

async fn read_row(log: &AnyLog, key: &str) -> Option<NodeCallRow> {
    let page = log.read_view(Partition::ZERO, NAME, key, None, 1).await;
    let page = page.inspect_err(|error| tracing::warn!(%error, "failed to read the calls of nodes")).ok()?;
    let row = page.into_iter().find(|(found, _)| found == key)?.1;
    serde_json::from_slice(&row).ok()
}
