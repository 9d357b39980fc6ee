//! The events of one turn: each made once, numbered, and read by whoever wants from wherever they were.

use std::sync::Arc;

use bytes::Bytes;
use countersign_core::id::{RunId, SessionId};
use countersign_protocol::hermes::Event;
use futures_util::{Stream, stream};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::web::sse;

/// How many bytes a reader that is behind is given at once.
const AT_ONCE: usize = 64 << 10;

/// The events of one turn.
pub(super) struct Journal {
    /// The session that it belongs to.
    pub(super) session: SessionId,
    /// The turn.
    pub(super) run: RunId,
    /// The number before the first: another process gave those up to it.
    before: u64,
    events: Mutex<Events>,
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct Events {
    frames: Vec<Bytes>,
    bytes: usize,
    last: &'static str,
    is_over: bool,
}

/// What is known of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// The number of the last event.
    pub(super) last_seq: u64,
    /// Its name.
    pub(super) last: &'static str,
    /// Whether nothing follows.
    pub(super) is_over: bool,
}

/// Where a reader was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cursor {
    /// At the beginning, or nobody knows.
    Start,
    /// It has everything up to this number.
    Behind(u64),
}

impl Journal {
    /// An empty one whose numbers come behind `before`.
    pub(super) fn new(session: SessionId, run: RunId, before: u64) -> Self {
        Self { session, run, before, events: Mutex::default(), changed: watch::Sender::new(()) }
    }

    /// The id of the stream: that of its turn.
    pub(super) fn id(&self) -> String {
        stream_id(self.run)
    }

    /// Adds an event. `is_last` closes the stream.
    pub(super) fn push(&self, event: &Event, is_last: bool) {
        {
            let mut events = self.events.lock();
            if events.is_over {
                return;
            }
            let number = self.before + events.frames.len() as u64 + 1;
            let frame = sse::frame(Some(&format!("{}:{number}", self.id())), event.name, &event.data);
            events.bytes += frame.len();
            events.frames.push(frame);
            events.last = event.name;
            events.is_over = is_last;
        }
        self.changed.send_replace(());
    }

    /// How it stands.
    pub(super) fn standing(&self) -> Standing {
        let events = self.events.lock();
        Standing { last_seq: self.before + events.frames.len() as u64, last: events.last, is_over: events.is_over }
    }

    /// How many bytes it holds.
    pub(super) fn bytes(&self) -> usize {
        self.events.lock().bytes
    }

    /// Where a cursor is among the events: one that is not of this journal is at the start.
    fn place(&self, cursor: Cursor) -> usize {
        let held = self.events.lock().frames.len();
        match cursor {
            Cursor::Behind(number) if number >= self.before => {
                usize::try_from(number - self.before).ok().filter(|at| *at <= held).unwrap_or(0)
            }
            Cursor::Start | Cursor::Behind(_) => 0,
        }
    }

    /// What follows `cursor`, and what comes until the end.
    pub(super) fn follow(self: Arc<Self>, cursor: Cursor) -> impl Stream<Item = Bytes> + Send + 'static {
        let at = self.place(cursor);
        let changed = self.changed.subscribe();
        stream::unfold((self, at, changed), |(journal, at, mut changed)| async move {
            loop {
                changed.mark_unchanged();
                match journal.after(at) {
                    Next::Some(chunk, at) => return Some((chunk, (journal, at, changed))),
                    Next::End => return None,
                    // The sender is the journal's own, which is held here.
                    Next::Wait => drop(changed.changed().await),
                }
            }
        })
    }

    fn after(&self, at: usize) -> Next {
        let events = self.events.lock();
        let (mut to, mut size) = (at, 0);
        while let Some(frame) = events.frames.get(to).filter(|frame| size == 0 || size + frame.len() <= AT_ONCE) {
            size += frame.len();
            to += 1;
        }
        match events.frames.get(at..to) {
            Some([one]) => Next::Some(one.clone(), to),
            Some(several) if !several.is_empty() => Next::Some(Bytes::from(several.concat()), to),
            _ if events.is_over => Next::End,
            _ => Next::Wait,
        }
    }
}

enum Next {
    Some(Bytes, usize),
    Wait,
    End,
}

/// What clients call the stream of a turn.
pub(super) fn stream_id(run: RunId) -> String {
    run.uuid().simple().to_string()
}

/// The turn of a stream.
pub(super) fn run_of(stream: &str) -> Option<RunId> {
    let is_plain = stream.len() == 32 && stream.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_plain.then(|| RunId::parse(&format!("run_{stream}"))).flatten()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use countersign_core::id::{RunId, SessionId};
    use countersign_protocol::hermes::Event;
    use futures_util::StreamExt as _;

    use super::{Cursor, Journal, run_of, stream_id};

    const STREAM: &str = "00000000000000000000000000000007";

    fn journal(before: u64) -> Arc<Journal> {
        let journal = Journal::new(SessionId::new("s"), run_of(STREAM).unwrap(), before);
        for (at, text) in ["a", "b", "c"].into_iter().enumerate() {
            journal.push(&Event::token(text), at == 2);
        }
        Arc::new(journal)
    }

    async fn read(journal: Arc<Journal>, cursor: Cursor) -> String {
        let chunks: Vec<_> = journal.follow(cursor).collect().await;
        let text = String::from_utf8(chunks.concat()).unwrap();
        let numbers = text.lines().filter_map(|line| line.strip_prefix("id: ")?.split(':').nth(1));
        numbers.collect::<Vec<_>>().join(" ")
    }

    #[tokio::test]
    async fn a_reader_goes_on_behind_its_cursor_or_begins_anew() {
        for (before, cursor, want) in [
            (0, Cursor::Start, "1 2 3"),
            (0, Cursor::Behind(0), "1 2 3"),
            (0, Cursor::Behind(2), "3"),
            (0, Cursor::Behind(3), ""),
            (0, Cursor::Behind(4), "1 2 3"),
            (100, Cursor::Behind(101), "102 103"),
            (100, Cursor::Behind(2), "101 102 103"),
        ] {
            assert_eq!(read(journal(before), cursor).await, want, "{cursor:?} behind {before}");
        }
    }

    #[tokio::test]
    async fn nothing_follows_the_end() {
        let journal = journal(0);
        journal.push(&Event::token("late"), false);
        assert_eq!(read(Arc::clone(&journal), Cursor::Start).await, "1 2 3");
        assert!(journal.standing().is_over);
    }

    #[tokio::test]
    async fn a_reader_waits_for_what_comes() {
        let journal = Arc::new(Journal::new(SessionId::new("s"), run_of(STREAM).unwrap(), 0));
        let mut reading = std::pin::pin!(Arc::clone(&journal).follow(Cursor::Start));
        assert!(futures_util::poll!(reading.next()).is_pending());
        journal.push(&Event::token("a"), true);
        assert!(reading.next().await.is_some());
        assert!(reading.next().await.is_none());
    }

    #[test]
    fn a_stream_is_named_after_its_turn() {
        let run: RunId = run_of(STREAM).unwrap();
        assert_eq!(stream_id(run), STREAM);
        for other in ["", "7", "zz", "00000000-0000-0000-0000-000000000007"] {
            assert_eq!(run_of(other), None, "{other}");
        }
    }
}
