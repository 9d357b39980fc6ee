//! Broadcast of one session to its open streams: always the newest state, encoded once for all of them.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use countersign_core::id::{GateId, Lsn};
use countersign_http::web::sse;
use serde_json::Value;
use tokio::sync::{broadcast, watch};

use super::{
    prompt_card::PromptCard,
    queue::{PromptKind, PromptQueues, QueueDepth},
};

/// Most notices that a slow reader may be behind, before it gets the whole state instead.
const NOTICES: usize = 32;

/// Frames of one session.
pub(crate) struct PromptBroadcast {
    at: Lsn,
    /// True if a state was ever shown: before that only the position is known up to which states may be wrong.
    is_shown: bool,
    waiting: BTreeSet<GateId>,
    approvals: watch::Sender<Bytes>,
    questions: watch::Sender<Bytes>,
    /// Notices of the session's own stream.
    notices: broadcast::Sender<SessionNotice>,
    /// Number of the last of them.
    last_number: u64,
    /// Last notice about the turn, and last count of messages: no reader may miss those.
    newest: [Option<SessionNotice>; 2],
    /// Every pending approval as that stream shows it, oldest first. Empty without readers: each reads the state after it came.
    required: Vec<(GateId, Value)>,
}

/// Notice of the stream of a session.
#[derive(Clone)]
pub(crate) struct SessionNotice {
    /// Number among all of them.
    pub(crate) number: u64,
    /// Frame.
    pub(crate) frame: Bytes,
}

/// Difference to a newer state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueChange {
    /// No pending gate is new, and none is gone.
    Nothing,
    /// A new gate is pending.
    Pending,
    /// A gate is gone, and another is still pending.
    Resolved,
    /// No gate is pending any more.
    Cleared,
}

impl PromptBroadcast {
    /// Creates one without pending gates, as of `at`.
    pub(super) fn new(at: Lsn) -> Self {
        let nothing = PromptQueues::default();
        Self {
            at,
            is_shown: false,
            waiting: BTreeSet::new(),
            approvals: watch::Sender::new(nothing.state_frame(PromptKind::Approvals)),
            questions: watch::Sender::new(nothing.state_frame(PromptKind::Questions)),
            notices: broadcast::Sender::new(NOTICES),
            last_number: 0,
            newest: [None, None],
            required: Vec::new(),
        }
    }

    /// Returns how much of the pending gates its readers need.
    pub(crate) fn depth(&self) -> QueueDepth {
        if self.has_listeners() { QueueDepth::Approvals } else { QueueDepth::Oldest }
    }

    /// Shows a newer state. An older one than that on view changes nothing. `None` if the state has to be read again: it is too old
    /// to be shown and no state is on view, or it was read before a reader came who needs more of it.
    pub(crate) fn show_queues(&mut self, queues: &PromptQueues) -> Option<QueueChange> {
        if queues.at < self.at {
            return self.is_shown.then_some(QueueChange::Nothing);
        }
        if self.has_listeners() && queues.approval_cards().is_none() {
            return None;
        }
        self.at = queues.at;
        self.is_shown = true;
        for (kind, sender) in [(PromptKind::Approvals, &self.approvals), (PromptKind::Questions, &self.questions)] {
            let frame = queues.state_frame(kind);
            sender.send_if_modified(|shown| {
                let is_new = *shown != frame;
                if is_new {
                    *shown = frame;
                }
                is_new
            });
        }
        let waiting = queues.waiting_gates();
        let is_new = !waiting.is_subset(&self.waiting);
        let is_less = !self.waiting.is_subset(&waiting);
        self.announce_approvals(queues.approval_cards().unwrap_or_default());
        self.waiting = waiting;
        Some(match (is_new, is_less) {
            (true, _) => QueueChange::Pending,
            (false, true) if self.waiting.is_empty() => QueueChange::Cleared,
            (false, true) => QueueChange::Resolved,
            (false, false) => QueueChange::Nothing,
        })
    }

    /// Sends each approval that is new, if the session's stream has readers.
    fn announce_approvals(&mut self, approvals: &[PromptCard]) {
        let mut before: BTreeMap<GateId, Value> = std::mem::take(&mut self.required).into_iter().collect();
        if !self.has_listeners() {
            return;
        }
        for prompt in approvals {
            let gate = prompt.id();
            let notice = before.remove(&gate).unwrap_or_else(|| prompt.notification(&prompt.to_json()));
            if !self.waiting.contains(&gate) {
                self.send_notice("approval_required", &with_count(&notice, approvals.len()));
            }
            self.required.push((gate, notice));
        }
    }

    /// Sends a notice to the session's streams.
    pub(crate) fn send_notice(&mut self, event: &str, data: &Value) {
        if !self.has_listeners() {
            return;
        }
        self.last_number += 1;
        let notice = SessionNotice { number: self.last_number, frame: sse::encode_frame(None, event, data) };
        let place = match event {
            "turn_started" | "server_turn_started" | "turn_completed" | "turn_failed" => self.newest.first_mut(),
            "session-updated" => self.newest.last_mut(),
            _ => None,
        };
        if let Some(place) = place {
            *place = Some(notice.clone());
        }
        // There need not be a reader.
        let _ = self.notices.send(notice);
    }

    /// Reports whether the session's stream has readers.
    pub(crate) fn has_listeners(&self) -> bool {
        self.notices.receiver_count() > 0
    }

    /// Counts the open streams of the session.
    pub(crate) fn stream_count(&self) -> usize {
        self.approvals.receiver_count() + self.questions.receiver_count() + self.notices.receiver_count()
    }

    /// Reports whether the session has any reader, or a pending gate.
    pub(crate) fn is_needed(&self) -> bool {
        self.stream_count() > 0 || !self.waiting.is_empty()
    }

    /// Returns the position of the state on view.
    pub(super) const fn shown_lsn(&self) -> Lsn {
        self.at
    }

    /// Follows one of the two queues.
    pub(super) fn watch_queue(&self, kind: PromptKind) -> watch::Receiver<Bytes> {
        match kind {
            PromptKind::Approvals => self.approvals.subscribe(),
            PromptKind::Questions => self.questions.subscribe(),
        }
    }

    /// Follows the session: every notice after the returned number.
    pub(super) fn subscribe_notices(&self) -> (broadcast::Receiver<SessionNotice>, u64) {
        (self.notices.subscribe(), self.last_number)
    }

    /// Returns the state for a reader that got no notice after `last`: the turn, the number of messages, and the pending gates.
    pub(crate) fn missed_frames(&self, last: u64) -> Bytes {
        let mut missed: Vec<&SessionNotice> =
            self.newest.iter().flatten().filter(|notice| notice.number > last).collect();
        missed.sort_unstable_by_key(|notice| notice.number);
        let mut frames: Vec<u8> = missed.iter().flat_map(|notice| notice.frame.iter().copied()).collect();
        frames.extend(self.approval_frames());
        frames.into()
    }

    /// Returns every pending approval as the session's stream shows it, oldest first.
    pub(crate) fn approval_frames(&self) -> Bytes {
        let count = self.required.len();
        let frames = self
            .required
            .iter()
            .map(|(_, notice)| sse::encode_frame(None, "approval_required", &with_count(notice, count)));
        frames.flatten().collect()
    }
}

fn with_count(notice: &Value, count: usize) -> Value {
    let mut notice = notice.clone();
    notice["pending_count"] = count.into();
    notice
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use countersign_core::id::Lsn;
    use serde_json::json;
    use tokio::sync::broadcast::error::TryRecvError;

    use super::{
        super::queue::tests::{session, waiting_engine},
        NOTICES, PromptBroadcast, PromptQueues, QueueChange, QueueDepth,
    };

    fn names(frames: &[u8]) -> Vec<String> {
        let text = String::from_utf8_lossy(frames);
        text.lines().filter_map(|line| line.strip_prefix("event: ")).map(str::to_owned).collect()
    }

    #[test]
    fn a_slow_reader_gets_the_end_of_each_turn_exactly_once() {
        let mut board = PromptBroadcast::new(Lsn(0));
        let (mut notices, last) = board.subscribe_notices();
        board.send_notice("turn_started", &json!({}));
        board.send_notice("turn_completed", &json!({}));
        board.send_notice("session-updated", &json!({ "message_count": 2 }));
        for _ in 0..NOTICES {
            board.send_notice("activity_summary", &json!({}));
        }
        assert!(matches!(notices.try_recv(), Err(TryRecvError::Lagged(3))));
        assert_eq!(names(&board.missed_frames(last)), ["turn_completed", "session-updated"]);
        let (_, last) = board.subscribe_notices();
        assert_eq!(names(&board.missed_frames(last)), Vec::<String>::new());
        board.send_notice("turn_started", &json!({}));
        assert_eq!(names(&board.missed_frames(last)), ["turn_started"]);
    }

    /// Reads the queues of an engine in which `count` approvals wait.
    fn queues(count: usize, depth: QueueDepth) -> PromptQueues {
        let wanted = BTreeMap::from([(session(), depth)]);
        PromptQueues::for_sessions(&waiting_engine(count), &wanted).remove(&session()).unwrap()
    }

    #[test]
    fn approvals_are_encoded_for_readers_only() {
        let mut board = PromptBroadcast::new(Lsn(0));
        assert_eq!(board.depth(), QueueDepth::Oldest);
        assert_eq!(board.show_queues(&queues(2, QueueDepth::Oldest)), Some(QueueChange::Pending));
        assert_eq!(names(&board.approval_frames()), Vec::<String>::new());

        let (mut notices, _) = board.subscribe_notices();
        assert_eq!(board.depth(), QueueDepth::Approvals);
        assert_eq!(board.show_queues(&queues(3, QueueDepth::Oldest)), None, "read before the reader came");
        assert_eq!(board.show_queues(&queues(2, QueueDepth::Approvals)), Some(QueueChange::Nothing));
        assert_eq!(names(&board.approval_frames()), ["approval_required"; 2]);
        assert!(matches!(notices.try_recv(), Err(TryRecvError::Empty)), "the reader gets those as the state");

        assert_eq!(board.show_queues(&queues(3, QueueDepth::Approvals)), Some(QueueChange::Pending));
        assert_eq!(names(&notices.try_recv().unwrap().frame), ["approval_required"]);
        assert!(matches!(notices.try_recv(), Err(TryRecvError::Empty)));
        assert_eq!(names(&board.approval_frames()), ["approval_required"; 3]);
    }
}
