//! What is shown of one session to those who hold a stream open: always the newest state, made once for all of them.

use std::collections::BTreeMap;

use bytes::Bytes;
use countersign_core::id::{GateId, Lsn};
use countersign_http::web::sse;
use serde_json::Value;
use tokio::sync::{broadcast, watch};

use super::{
    card::Asked,
    queue::{Line, Queues},
};

/// How many notices one who reads slowly may be behind, before it is told how things stand instead.
const NOTICES: usize = 32;

/// The frames of one session.
pub(crate) struct Board {
    at: Lsn,
    /// Whether it was ever shown anything: before that it only knows that what is older may be wrong.
    is_shown: bool,
    waiting: BTreeMap<GateId, Line>,
    approvals: watch::Sender<Bytes>,
    questions: watch::Sender<Bytes>,
    /// What the session's own stream tells.
    notices: broadcast::Sender<Notice>,
    /// The number of the last of them.
    told: u64,
    /// The last of them that said how the turn stands, and the last that counted messages: nobody is to miss those.
    newest: [Option<Notice>; 2],
    /// Every approval that waits, as that stream tells of it, oldest first.
    required: Vec<(GateId, Value)>,
}

/// One thing that the stream of a session tells.
#[derive(Clone)]
pub(crate) struct Notice {
    /// Its place among all of them.
    pub(crate) number: u64,
    /// Its frame.
    pub(crate) frame: Bytes,
}

/// What changed with a newer state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing that waits is new, and nothing is gone.
    Nothing,
    /// Something new waits.
    Pending,
    /// Something is gone, and something else still waits.
    Resolved,
    /// Nothing waits any more.
    Cleared,
}

impl Board {
    /// With nothing that waits, as of `at`.
    pub(super) fn new(at: Lsn) -> Self {
        let nothing = Queues::default();
        Self {
            at,
            is_shown: false,
            waiting: BTreeMap::new(),
            approvals: watch::Sender::new(nothing.frame(Line::Approvals)),
            questions: watch::Sender::new(nothing.frame(Line::Questions)),
            notices: broadcast::Sender::new(NOTICES),
            told: 0,
            newest: [None, None],
            required: Vec::new(),
        }
    }

    /// Shows a newer state. One that is older than what is shown comes too late; `None` if it is too old to be shown and
    /// nothing else is.
    pub(crate) fn show(&mut self, queues: &Queues) -> Option<Change> {
        if queues.at < self.at {
            return self.is_shown.then_some(Change::Nothing);
        }
        self.at = queues.at;
        self.is_shown = true;
        for (line, sender) in [(Line::Approvals, &self.approvals), (Line::Questions, &self.questions)] {
            let frame = queues.frame(line);
            sender.send_if_modified(|shown| {
                let is_new = *shown != frame;
                if is_new {
                    *shown = frame;
                }
                is_new
            });
        }
        let waiting = queues.ids();
        let is_new = waiting.keys().any(|gate| !self.waiting.contains_key(gate));
        let is_less = self.waiting.keys().any(|gate| !waiting.contains_key(gate));
        self.require(queues.line(Line::Approvals));
        self.waiting = waiting;
        Some(match (is_new, is_less) {
            (true, _) => Change::Pending,
            (false, true) if self.waiting.is_empty() => Change::Cleared,
            (false, true) => Change::Resolved,
            (false, false) => Change::Nothing,
        })
    }

    /// Tells of each approval that is new.
    fn require(&mut self, approvals: &[Asked]) {
        let before = std::mem::take(&mut self.required);
        for asked in approvals {
            let known = before.iter().find(|(gate, _)| *gate == asked.id());
            let notice = known.map_or_else(|| asked.notice(&asked.told()), |(_, notice)| notice.clone());
            if known.is_none() {
                self.tell("approval_required", &with_count(&notice, approvals.len()));
            }
            self.required.push((asked.id(), notice));
        }
    }

    /// Tells those who hold the session's stream something.
    pub(crate) fn tell(&mut self, event: &str, data: &Value) {
        if !self.is_heard() {
            return;
        }
        self.told += 1;
        let notice = Notice { number: self.told, frame: sse::encode_frame(None, event, data) };
        let place = match event {
            "turn_started" | "server_turn_started" | "turn_completed" | "turn_failed" => self.newest.first_mut(),
            "session-updated" => self.newest.last_mut(),
            _ => None,
        };
        if let Some(place) = place {
            *place = Some(notice.clone());
        }
        // Nobody has to listen any more.
        let _ = self.notices.send(notice);
    }

    /// Whether anybody holds the session's stream.
    pub(crate) fn is_heard(&self) -> bool {
        self.notices.receiver_count() > 0
    }

    /// How many streams of the session are held open.
    pub(crate) fn audience(&self) -> usize {
        self.approvals.receiver_count() + self.questions.receiver_count() + self.notices.receiver_count()
    }

    /// Whether anybody holds any stream of the session, or something waits in it.
    pub(crate) fn is_needed(&self) -> bool {
        self.audience() > 0 || !self.waiting.is_empty()
    }

    /// The position of what is shown.
    pub(super) const fn at(&self) -> Lsn {
        self.at
    }

    /// Follows one of the two queues.
    pub(super) fn watch(&self, line: Line) -> watch::Receiver<Bytes> {
        match line {
            Line::Approvals => self.approvals.subscribe(),
            Line::Questions => self.questions.subscribe(),
        }
    }

    /// Follows the session: every notice behind the one of this number.
    pub(super) fn listen(&self) -> (broadcast::Receiver<Notice>, u64) {
        (self.notices.subscribe(), self.told)
    }

    /// How things stand, for one that heard no notice behind `last`: how the turn does, how many messages there are, and what waits.
    pub(crate) fn standing(&self, last: u64) -> Bytes {
        let mut missed: Vec<&Notice> = self.newest.iter().flatten().filter(|notice| notice.number > last).collect();
        missed.sort_unstable_by_key(|notice| notice.number);
        let mut frames: Vec<u8> = missed.iter().flat_map(|notice| notice.frame.iter().copied()).collect();
        frames.extend(self.required());
        frames.into()
    }

    /// Every approval that waits, as the session's stream tells of it, oldest first.
    pub(crate) fn required(&self) -> Bytes {
        let count = self.required.len();
        let frames = self
            .required
            .iter()
            .map(|(_, told)| sse::encode_frame(None, "approval_required", &with_count(told, count)));
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
    use countersign_core::id::Lsn;
    use serde_json::json;
    use tokio::sync::broadcast::error::TryRecvError;

    use super::{Board, NOTICES};

    fn names(frames: &[u8]) -> Vec<String> {
        let text = String::from_utf8_lossy(frames);
        text.lines().filter_map(|line| line.strip_prefix("event: ")).map(str::to_owned).collect()
    }

    #[test]
    fn whoever_reads_slowly_misses_no_end_of_a_turn_and_is_told_none_twice() {
        let mut board = Board::new(Lsn(0));
        let (mut notices, last) = board.listen();
        board.tell("turn_started", &json!({}));
        board.tell("turn_completed", &json!({}));
        board.tell("session-updated", &json!({ "message_count": 2 }));
        for _ in 0..NOTICES {
            board.tell("activity_summary", &json!({}));
        }
        assert!(matches!(notices.try_recv(), Err(TryRecvError::Lagged(3))));
        assert_eq!(names(&board.standing(last)), ["turn_completed", "session-updated"]);
        let (_, last) = board.listen();
        assert_eq!(names(&board.standing(last)), Vec::<String>::new());
        board.tell("turn_started", &json!({}));
        assert_eq!(names(&board.standing(last)), ["turn_started"]);
    }
}
