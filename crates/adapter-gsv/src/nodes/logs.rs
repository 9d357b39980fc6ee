//! Logs that clients ask nodes for. Nothing of them is recorded.

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
    super::{Door, answer::Answer, peer::Peer},
    seats,
};

/// How many requests that nobody waits for any more are remembered.
const REMEMBERED: usize = 256;

type Told = Result<LogsResult, GsvError>;

/// Requests that are open.
#[derive(Default)]
pub(super) struct Requests(Mutex<Open>);

#[derive(Default)]
struct Open {
    open: HashMap<String, (String, oneshot::Sender<Told>)>,
    /// Which node was asked for those that are over, the oldest first.
    over: VecDeque<(String, String)>,
}

/// A client that waits. Dropped, it does not any more.
struct Waits<'a> {
    requests: &'a Requests,
    id: String,
    told: oneshot::Receiver<Told>,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.requests.0.lock().end(&self.id);
    }
}

impl Open {
    /// Takes a request out, and remembers that it was there. Whoever waits for it, if anybody does.
    fn end(&mut self, id: &str) -> Option<oneshot::Sender<Told>> {
        let (node, client) = self.open.remove(id)?;
        self.over.push_back((id.to_owned(), node));
        if self.over.len() > REMEMBERED {
            self.over.pop_front();
        }
        Some(client)
    }
}

impl Requests {
    fn wait(&self, node: &str) -> Waits<'_> {
        let (sender, told) = oneshot::channel();
        let id = uuid::Uuid::new_v4().to_string();
        self.0.lock().open.insert(id.clone(), (node.to_owned(), sender));
        Waits { requests: self, id, told }
    }

    fn fail(&self, node: &str, why: impl Fn(&str) -> GsvError) {
        for (_, (_, client)) in self.0.lock().open.extract_if(|_, (of, _)| of == node) {
            let _ = client.send(Err(why(node)));
        }
    }

    /// Tells whoever waits for a node that it is gone.
    pub(super) fn disconnected(&self, node: &str) {
        self.fail(node, GsvError::node_disconnected);
    }

    /// The same of one whose place another connection took.
    pub(super) fn replaced(&self, node: &str) {
        self.fail(node, GsvError::node_replaced);
    }

    /// Takes what a node says. Whether somebody waited for it.
    fn answer(&self, node: &str, result: LogsResult) -> Result<AckResult, GsvError> {
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
    pub(super) fn unreadable(&self, node: &str, id: &str, fault: &GsvError) {
        let mut open = self.0.lock();
        if open.open.get(id).is_some_and(|(of, _)| of == node)
            && let Some(client) = open.end(id)
        {
            let why = format!("the node's result was refused: {}", fault.message);
            // It may have gone.
            let _ = client.send(Err(GsvError::new(code::FAILED, why)));
        }
    }
}

/// `logs.get`: waits for the node, for as long as its method has.
pub(super) async fn get(door: &Arc<Door>, wanted: LogsGet) -> Answer {
    let logs = read(door, &wanted).await?;
    Ok(RawJson::from_wire(&logs))
}

/// The last lines of a node's log.
///
/// # Errors
/// 503 if it is not there or goes, 500 if it has none. It waits for as long as whoever asks.
pub(crate) async fn read(door: &Door, wanted: &LogsGet) -> Result<LogsGetResult, GsvError> {
    let node = seats::wanted(door, wanted)?;
    let mut waits = door.nodes.logs.wait(&node.connect.id);
    node.tell("logs.get", &LogsGetEvent { call_id: waits.id.clone(), lines: wanted.lines });
    let closing = |_| Err(GsvError::new(code::UNAVAILABLE, "the gateway is closing"));
    let result = (&mut waits.told).await.unwrap_or_else(closing)?;
    match result.error {
        Some(error) => Err(GsvError::new(code::FAILED, error)),
        None => {
            let most = usize::try_from(wanted.lines).unwrap_or(usize::MAX);
            let lines = newest(result.lines, most, usize::MAX);
            let (node_id, count) = (node.connect.id.clone(), lines.kept.len());
            Ok(LogsGetResult { node_id, lines: lines.kept, count, truncated: result.truncated || lines.is_cut })
        }
    }
}

/// The lines that are kept of a log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Newest {
    /// Whole lines, the oldest first.
    pub(crate) kept: Vec<String>,
    /// Whether there were more.
    pub(crate) is_cut: bool,
}

/// The last lines of a log, as many as fit: a node may give more than it was asked for.
pub(crate) fn newest(mut lines: Vec<String>, most: usize, bytes: usize) -> Newest {
    let mut left = bytes;
    let fits = |line: &&String| {
        let is_room = left >= line.len();
        left = left.saturating_sub(line.len());
        is_room
    };
    let kept = lines.iter().rev().take(most).take_while(fits).count();
    let surplus = lines.len() - kept;
    lines.drain(..surplus);
    Newest { kept: lines, is_cut: surplus > 0 }
}

/// `logs.result`.
pub(super) fn result(door: &Door, peer: &Peer, result: LogsResult) -> Answer {
    door.nodes.logs.answer(&peer.connect.id, result).map(|ack| RawJson::from_wire(&ack))
}

#[cfg(test)]
mod tests {
    use super::{Newest, newest};

    #[test]
    fn of_a_log_that_is_longer_than_was_asked_for_the_newest_lines_stay() {
        let lines = || ["aa", "bb", "cc"].map(str::to_owned).to_vec();
        let want =
            |kept: &[&str], is_cut| Newest { kept: kept.iter().map(|line| (*line).to_owned()).collect(), is_cut };
        for (case, got, want) in [
            ("all", newest(lines(), 3, 6), want(&["aa", "bb", "cc"], false)),
            ("too many", newest(lines(), 2, 6), want(&["bb", "cc"], true)),
            ("too long", newest(lines(), 3, 5), want(&["bb", "cc"], true)),
            ("the last too long", newest(lines(), 3, 1), want(&[], true)),
            ("none", newest(Vec::new(), 3, 6), want(&[], false)),
        ] {
            assert_eq!(got, want, "{case}");
        }
    }
}
