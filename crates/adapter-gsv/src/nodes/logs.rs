//! Logs that clients request from nodes. They are not recorded.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use countersign_protocol::{
    RawJson,
    gsv::{
        GsvError, code,
        node::{LogsGet, LogsGetEvent, LogsGetResult, LogsResult},
        tool::AckResult,
    },
};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{
    super::{GsvAdapter, method_result::MethodResult, peer::ConnectedPeer},
    node_connections,
};

/// Number of abandoned requests that are remembered.
const REMEMBERED: usize = 256;

type LogsOutcome = Result<LogsResult, GsvError>;

/// Open requests.
#[derive(Default)]
pub(super) struct LogRequests(Mutex<OpenLogRequests>);

#[derive(Default)]
struct OpenLogRequests {
    open: HashMap<String, (String, oneshot::Sender<LogsOutcome>)>,
    /// Nodes of the requests that are over, the oldest first.
    over: VecDeque<(String, String)>,
}

/// Client that waits. Dropping it ends the wait.
struct LogWaiter<'a> {
    requests: &'a LogRequests,
    id: String,
    result_receiver: oneshot::Receiver<LogsOutcome>,
}

impl Drop for LogWaiter<'_> {
    fn drop(&mut self) {
        self.requests.0.lock().end_request(&self.id);
    }
}

impl OpenLogRequests {
    /// Removes a request, and remembers its id. Returns its waiter, if there is one.
    fn end_request(&mut self, id: &str) -> Option<oneshot::Sender<LogsOutcome>> {
        let (node, client) = self.open.remove(id)?;
        self.over.push_back((id.to_owned(), node));
        if self.over.len() > REMEMBERED {
            self.over.pop_front();
        }
        Some(client)
    }
}

impl LogRequests {
    fn open_request(&self, node: &str) -> LogWaiter<'_> {
        let (sender, receiver) = oneshot::channel();
        let id = uuid::Uuid::new_v4().to_string();
        self.0.lock().open.insert(id.clone(), (node.to_owned(), sender));
        LogWaiter { requests: self, id, result_receiver: receiver }
    }

    fn fail_node(&self, node: &str, why: impl Fn(&str) -> GsvError) {
        for (_, (_, client)) in self.0.lock().open.extract_if(|_, (of, _)| of == node) {
            let _ = client.send(Err(why(node)));
        }
    }

    /// Tells the waiters for a node that it disconnected.
    pub(super) fn node_disconnected(&self, node: &str) {
        self.fail_node(node, GsvError::node_disconnected);
    }

    /// Does the same for a node that another connection replaced.
    pub(super) fn node_replaced(&self, node: &str) {
        self.fail_node(node, GsvError::node_replaced);
    }

    /// Takes a node's result. Reports whether it had a waiter.
    fn take_result(&self, node: &str, result: LogsResult) -> Result<AckResult, GsvError> {
        let mut open = self.0.lock();
        let id = &result.call_id;
        let of = open.open.get(id).map(|(of, _)| of);
        match of.or_else(|| open.over.iter().find(|(over, _)| over == id).map(|(_, of)| of)) {
            None => return Err(GsvError::unknown_call()),
            Some(of) if of != node => return Err(GsvError::not_its_call()),
            Some(_) => {}
        }
        let client = open.open.remove(id);
        Ok(match client.map(|(_, client)| client.send(Ok(result))) {
            Some(Ok(())) => AckResult::TAKEN,
            Some(Err(_)) | None => AckResult::DROPPED,
        })
    }

    /// Ends a request whose result cannot be read: no other will come.
    pub(super) fn refuse_result(&self, node: &str, id: &str, fault: &GsvError) {
        let mut open = self.0.lock();
        if open.open.get(id).is_some_and(|(of, _)| of == node)
            && let Some(client) = open.end_request(id)
        {
            let why = format!("the node's result was refused: {}", fault.message);
            // The client may have gone.
            let _ = client.send(Err(GsvError::new(code::FAILED, why)));
        }
    }
}

/// Handles `logs.get`: waits for the node within the deadline of the method.
pub(super) async fn get_logs(door: &Arc<GsvAdapter>, params: LogsGet) -> MethodResult {
    let logs = read_node_log(door, &params).await?;
    Ok(RawJson::from_wire(&logs))
}

/// Reads the last lines of a node's log.
///
/// # Errors
/// 503 if the node is not connected or disconnects, 500 if it has no log. It waits for as long as the caller.
pub(crate) async fn read_node_log(door: &GsvAdapter, params: &LogsGet) -> Result<LogsGetResult, GsvError> {
    let node = node_connections::node_for_logs(door, params)?;
    let mut waits = door.nodes.logs.open_request(&node.connect.id);
    node.send_event("logs.get", &LogsGetEvent { call_id: waits.id.clone(), lines: params.lines });
    let closing = |_| Err(GsvError::new(code::UNAVAILABLE, "the gateway is closing"));
    let result = (&mut waits.result_receiver).await.unwrap_or_else(closing)?;
    match result.error {
        Some(error) => Err(GsvError::new(code::FAILED, error)),
        None => {
            let most = usize::try_from(params.lines).unwrap_or(usize::MAX);
            let lines = newest_lines(result.lines, most, usize::MAX);
            let (node_id, count) = (node.connect.id.clone(), lines.kept.len());
            Ok(LogsGetResult { node_id, lines: lines.kept, count, truncated: result.truncated || lines.is_cut })
        }
    }
}

/// Kept lines of a log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NewestLines {
    /// Whole lines, the oldest first.
    pub(crate) kept: Vec<String>,
    /// True if there were more.
    pub(crate) is_cut: bool,
}

/// Returns the last lines of a log, as many as fit: a node may send more than requested.
pub(crate) fn newest_lines(mut lines: Vec<String>, most: usize, bytes: usize) -> NewestLines {
    let mut left = bytes;
    let fits = |line: &&String| {
        let is_room = left >= line.len();
        left = left.saturating_sub(line.len());
        is_room
    };
    let kept = lines.iter().rev().take(most).take_while(fits).count();
    let surplus = lines.len() - kept;
    lines.drain(..surplus);
    NewestLines { kept: lines, is_cut: surplus > 0 }
}

/// Handles `logs.result`.
pub(super) fn handle_result(door: &GsvAdapter, peer: &ConnectedPeer, result: LogsResult) -> MethodResult {
    door.nodes.logs.take_result(&peer.connect.id, result).map(|ack| RawJson::from_wire(&ack))
}

#[cfg(test)]
mod tests {
    use super::{NewestLines, newest_lines};

    #[test]
    fn a_long_log_is_cut_to_its_newest_lines() {
        let lines = || ["aa", "bb", "cc"].map(str::to_owned).to_vec();
        let want =
            |kept: &[&str], is_cut| NewestLines { kept: kept.iter().map(|line| (*line).to_owned()).collect(), is_cut };
        for (case, got, want) in [
            ("all", newest_lines(lines(), 3, 6), want(&["aa", "bb", "cc"], false)),
            ("too many", newest_lines(lines(), 2, 6), want(&["bb", "cc"], true)),
            ("too long", newest_lines(lines(), 3, 5), want(&["bb", "cc"], true)),
            ("the last too long", newest_lines(lines(), 3, 1), want(&[], true)),
            ("none", newest_lines(Vec::new(), 3, 6), want(&[], false)),
        ] {
            assert_eq!(got, want, "{case}");
        }
    }
}
