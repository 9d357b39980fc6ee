//! Events of one turn: each encoded once, numbered, and read from any position.
//!
//! It is no ring: if it would hold too much, older events are merged first, and the oldest are dropped only if that is not enough.

use std::{collections::VecDeque, sync::Arc};

use crate::wire::HermesEvent;
use bytes::Bytes;
use countersign_core::id::{RunId, SessionId};
use countersign_http::web::sse;
use futures_util::{Stream, stream};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::{sync::watch, time::Instant};

/// Most bytes that a reader gets at once.
const AT_ONCE: usize = 64 << 10;
/// Most bytes of one turn, except its end. Beyond that its older half is shortened.
const MOST: usize = 4 << 20;
/// Approximate overhead of a stream and each of its frames, in bytes.
const WHOLE: usize = 512;
const EACH: usize = 96;

/// Events of one turn.
pub(super) struct TurnStream {
    /// Session that it belongs to.
    pub(super) session: SessionId,
    /// Turn.
    pub(super) run: RunId,
    /// Number before the first: another process used those up to it.
    before: u64,
    most: usize,
    events: Mutex<BufferedEvents>,
    changed: watch::Sender<()>,
}

/// One event, or one that replaces several.
struct StreamFrame {
    /// Number of the last of them.
    last: u64,
    name: &'static str,
    bytes: Bytes,
}

#[derive(Default)]
struct BufferedEvents {
    frames: VecDeque<StreamFrame>,
    bytes: usize,
    /// Size of the final events, in bytes, in addition to `bytes`: all of the conversation may be in them, whatever the turn was.
    of_end: usize,
    /// Number of events so far.
    count: u64,
    last: &'static str,
    is_over: bool,
    end: StreamEnd,
}

/// End of a stream, as far as it has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StreamEnd {
    /// Time of the last event.
    pub(super) at: Option<Instant>,
    /// True if a reader has everything up to it.
    pub(super) is_read: bool,
}

/// Status of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamStatus {
    /// Number of the last event.
    pub(super) last_seq: u64,
    /// Name of the last event.
    pub(super) last: &'static str,
    /// True if the stream is complete.
    pub(super) is_over: bool,
}

/// Position of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamCursor {
    /// The beginning, or unknown.
    Start,
    /// The reader has everything up to this number.
    Behind(u64),
}

impl TurnStream {
    /// Creates an empty one whose numbers follow `before`.
    pub(super) fn new(session: SessionId, run: RunId, before: u64) -> Self {
        Self { session, run, before, most: MOST, events: Mutex::default(), changed: watch::Sender::new(()) }
    }

    /// Returns the id of the stream: that of its turn.
    pub(super) fn id(&self) -> String {
        stream_id(self.run)
    }

    /// Adds an event. `is_last` closes the stream.
    pub(super) fn push(&self, event: &HermesEvent, is_last: bool) {
        {
            let mut events = self.events.lock();
            if events.is_over {
                return;
            }
            events.count += 1;
            let last = self.before + events.count;
            let frame = self.encode_frame(last, event);
            let is_end = is_last || event.name == HermesEvent::DONE || events.of_end > 0;
            *(if is_end { &mut events.of_end } else { &mut events.bytes }) += frame.bytes.len();
            events.frames.push_back(frame);
            events.last = event.name;
            events.is_over = is_last;
            if is_last {
                events.end.at.get_or_insert_with(Instant::now);
            }
            if !is_end && events.bytes > self.most {
                self.shorten_older(&mut events);
            }
        }
        self.changed.send_replace(());
    }

    fn encode_frame(&self, last: u64, event: &HermesEvent) -> StreamFrame {
        let bytes = sse::encode_frame(Some(&format!("{}:{last}", self.id())), event.name, &event.data);
        StreamFrame { last, name: event.name, bytes }
    }

    /// Shortens the older half: pieces of a text become one. If that is not enough, the oldest events are dropped and a
    /// warning is sent; the session has the whole text. The newest event is never changed.
    fn shorten_older(&self, events: &mut BufferedEvents) {
        let older = events.frames.len() / 2;
        let newer = events.frames.split_off(older);
        let mut kept: VecDeque<StreamFrame> = VecDeque::new();
        let mut piece: Option<(u64, &'static str, String)> = None;
        for frame in std::mem::take(&mut events.frames) {
            match (text_of(&frame), &mut piece) {
                (Some(text), Some((last, name, merged))) if *name == frame.name => {
                    merged.push_str(&text);
                    *last = frame.last;
                }
                (text, _) => {
                    kept.extend(piece.take().map(|piece| self.text_frame(piece)));
                    match text {
                        Some(text) => piece = Some((frame.last, frame.name, text)),
                        None => kept.push_back(frame),
                    }
                }
            }
        }
        kept.extend(piece.map(|piece| self.text_frame(piece)));
        let of_newer: usize = newer.iter().map(|frame| frame.bytes.len()).sum();
        let mut size = of_newer + kept.iter().map(|frame| frame.bytes.len()).sum::<usize>();
        // With room to spare, so that this is not done for every event.
        let enough = if size > self.most / 8 * 7 { self.most / 2 } else { size };
        let mut left_out = None;
        while size > enough
            && let Some(oldest) = kept.pop_front()
        {
            size -= oldest.bytes.len();
            left_out = Some(oldest.last);
        }
        if let Some(last) = left_out {
            let warning = self.encode_frame(last, &HermesEvent::warning("shortened", SHORTENED));
            size += warning.bytes.len();
            kept.push_front(warning);
        }
        kept.extend(newer);
        events.frames = kept;
        events.bytes = size;
    }

    fn text_frame(&self, (last, name, text): (u64, &'static str, String)) -> StreamFrame {
        self.encode_frame(last, &HermesEvent::new(name, serde_json::json!({ "text": text })))
    }

    /// Returns its status.
    pub(super) fn current_status(&self) -> StreamStatus {
        let events = self.events.lock();
        StreamStatus { last_seq: self.before + events.count, last: events.last, is_over: events.is_over }
    }

    /// Returns when it ended and whether that was read.
    pub(super) fn end_state(&self) -> StreamEnd {
        self.events.lock().end
    }

    /// Notes that it gets no more events, also if it has no last event.
    pub(super) fn close(&self) {
        self.events.lock().end.at.get_or_insert_with(Instant::now);
    }

    /// Returns its approximate size in bytes.
    pub(super) fn size_bytes(&self) -> usize {
        let events = self.events.lock();
        WHOLE + events.bytes + events.of_end + events.frames.len() * EACH
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.events.lock().bytes
    }

    /// Returns the number after which a cursor continues: one that is not of this stream, or that was merged meanwhile, is
    /// at the start.
    fn resume_number(&self, cursor: StreamCursor) -> u64 {
        match cursor {
            StreamCursor::Behind(number) if self.events.lock().frame_index(number).is_some() => number,
            StreamCursor::Start | StreamCursor::Behind(_) => START,
        }
    }

    /// Streams the events after `cursor`, to the end. A reader whose next events were shortened
    /// meanwhile is closed: it reconnects, and starts from the beginning.
    pub(super) fn follow_from(self: Arc<Self>, cursor: StreamCursor) -> impl Stream<Item = Bytes> + Send + 'static {
        let at = self.resume_number(cursor);
        let changed = self.changed.subscribe();
        stream::unfold((self, at, changed), |(journal, at, mut changed)| async move {
            loop {
                changed.mark_unchanged();
                let next = journal.events.lock().read_after(at);
                match next {
                    NextChunk::Some(chunk, at) => return Some((chunk, (journal, at, changed))),
                    NextChunk::End => return None,
                    // The sender belongs to the stream, which is held here.
                    NextChunk::Wait => drop(changed.changed().await),
                }
            }
        })
    }
}

/// Position of a reader that has nothing yet. No event has this number.
const START: u64 = 0;

/// Text in place of the oldest events of a long turn.
const SHORTENED: &str = "The beginning of this turn is left out here; the conversation has it";

/// Returns the text of a piece. Other events are not merged.
fn text_of(frame: &StreamFrame) -> Option<String> {
    #[derive(Deserialize)]
    struct TextPiece {
        text: String,
    }
    if !matches!(frame.name, "token" | "reasoning") {
        return None;
    }
    let text = std::str::from_utf8(&frame.bytes).ok()?;
    let data = text.lines().find_map(|line| line.strip_prefix("data: "))?;
    serde_json::from_str::<TextPiece>(data).ok().map(|piece| piece.text)
}

impl BufferedEvents {
    /// Returns the index of the first frame after `number`. `None` if that is no number between two frames.
    fn frame_index(&self, number: u64) -> Option<usize> {
        let at = self.frames.partition_point(|frame| frame.last <= number);
        let before = at.checked_sub(1).and_then(|at| self.frames.get(at)).map(|frame| frame.last);
        match before {
            Some(before) => (before == number).then_some(at),
            // Before the first, if nothing was merged.
            None => self.frames.front().is_some_and(|first| first.last == number + 1).then_some(0),
        }
    }

    /// Reads the frames after a number, for a reader: one that is at the end has read it.
    fn read_after(&mut self, number: u64) -> NextChunk {
        let next = self.chunk_after(number);
        self.end.is_read |=
            matches!(next, NextChunk::End) && self.frames.back().is_none_or(|frame| frame.last == number);
        next
    }

    fn chunk_after(&self, number: u64) -> NextChunk {
        let at = match number {
            START => 0,
            number => match self.frame_index(number) {
                Some(at) => at,
                None => return NextChunk::End,
            },
        };
        let (mut size, mut chunk) = (0, Vec::new());
        for frame in self.frames.iter().skip(at) {
            if size > 0 && size + frame.bytes.len() > AT_ONCE {
                break;
            }
            size += frame.bytes.len();
            chunk.push(frame);
        }
        match chunk.as_slice() {
            [] if self.is_over => NextChunk::End,
            [] => NextChunk::Wait,
            [one] => NextChunk::Some(one.bytes.clone(), one.last),
            [.., last] => {
                let whole: Vec<u8> = chunk.iter().flat_map(|frame| frame.bytes.iter().copied()).collect();
                NextChunk::Some(Bytes::from(whole), last.last)
            }
        }
    }
}

enum NextChunk {
    /// Frames, and the number of the last of them.
    Some(Bytes, u64),
    Wait,
    End,
}

/// Returns the name of a turn's stream for clients.
pub(super) fn stream_id(run: RunId) -> String {
    run.uuid().simple().to_string()
}

/// Returns the turn of a stream.
pub(super) fn run_of(stream: &str) -> Option<RunId> {
    let is_plain = stream.len() == 32 && stream.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_plain.then(|| RunId::parse(&format!("run_{stream}"))).flatten()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::wire::HermesEvent;
    use countersign_core::id::{RunId, SessionId};
    use futures_util::StreamExt as _;

    use super::{StreamCursor, TurnStream, run_of, stream_id};

    const STREAM: &str = "00000000000000000000000000000007";

    fn journal(before: u64) -> Arc<TurnStream> {
        let journal = TurnStream::new(SessionId::new("s"), run_of(STREAM).unwrap(), before);
        for (at, text) in ["a", "b", "c"].into_iter().enumerate() {
            journal.push(&HermesEvent::token(text), at == 2);
        }
        Arc::new(journal)
    }

    async fn read(journal: Arc<TurnStream>, cursor: StreamCursor) -> String {
        let chunks: Vec<_> = journal.follow_from(cursor).collect().await;
        let text = String::from_utf8(chunks.concat()).unwrap();
        let numbers = text.lines().filter_map(|line| line.strip_prefix("id: ")?.split(':').nth(1));
        numbers.collect::<Vec<_>>().join(" ")
    }

    #[tokio::test]
    async fn a_reader_continues_after_its_cursor_or_starts_over() {
        for (before, cursor, want) in [
            (0, StreamCursor::Start, "1 2 3"),
            (0, StreamCursor::Behind(0), "1 2 3"),
            (0, StreamCursor::Behind(2), "3"),
            (0, StreamCursor::Behind(3), ""),
            (0, StreamCursor::Behind(4), "1 2 3"),
            (100, StreamCursor::Behind(101), "102 103"),
            (100, StreamCursor::Behind(2), "101 102 103"),
        ] {
            assert_eq!(read(journal(before), cursor).await, want, "{cursor:?} behind {before}");
        }
    }

    /// Creates a small one, with ten pieces of a text, a call and ten more.
    fn long(most: usize) -> Arc<TurnStream> {
        let journal = TurnStream { most, ..TurnStream::new(SessionId::new("s"), run_of(STREAM).unwrap(), 0) };
        let pieces = || (0..10).map(|at| HermesEvent::token(&format!("{at}")));
        let call = HermesEvent::new("tool", serde_json::json!({ "tid": "c" }));
        pieces().chain([call]).chain(pieces()).for_each(|event| journal.push(&event, false));
        journal.push(&HermesEvent::stream_end("s"), true);
        Arc::new(journal)
    }

    async fn whole(journal: &Arc<TurnStream>) -> (String, Vec<String>) {
        let chunks: Vec<_> = Arc::clone(journal).follow_from(StreamCursor::Start).collect().await;
        let text = String::from_utf8(chunks.concat()).unwrap();
        let texts = text.lines().filter_map(|line| line.strip_prefix("data: {\"text\":\"")?.strip_suffix("\"}"));
        let names = text.lines().filter_map(|line| line.strip_prefix("event: ")).map(str::to_owned);
        (texts.collect(), names.collect())
    }

    #[tokio::test]
    async fn a_long_turn_says_the_same_text_in_fewer_pieces() {
        let (all, short) = (long(usize::MAX), long(1100));
        assert!(short.bytes() <= 1100, "{}", short.bytes());
        let ((full_text, names), (again, fewer)) = (whole(&all).await, whole(&short).await);
        assert_eq!(again, full_text);
        assert!(fewer.len() < names.len() && fewer.contains(&"tool".to_owned()), "{fewer:?}");
        assert_eq!(short.current_status(), all.current_status());
    }

    #[tokio::test]
    async fn a_very_long_turn_reports_its_omissions() {
        let short = TurnStream { most: 3000, ..TurnStream::new(SessionId::new("s"), run_of(STREAM).unwrap(), 0) };
        (0..100).for_each(|_| short.push(&HermesEvent::token(&"x".repeat(100)), false));
        short.push(&HermesEvent::stream_end("s"), true);
        assert!(short.bytes() <= 3000, "{}", short.bytes());
        let (_, names) = whole(&Arc::new(short)).await;
        assert_eq!((names[0].as_str(), names.last().map(String::as_str)), ("warning", Some("stream_end")));
    }

    #[tokio::test]
    async fn how_a_turn_ended_makes_it_no_longer() {
        let journal = TurnStream { most: 1000, ..TurnStream::new(SessionId::new("s"), run_of(STREAM).unwrap(), 0) };
        journal.push(&HermesEvent::token("a"), false);
        journal.push(&HermesEvent::new("tool", serde_json::json!({ "tid": "c" })), false);
        journal.push(&HermesEvent::token("b"), false);
        journal.push(&HermesEvent::new(HermesEvent::DONE, serde_json::json!({ "session": "x".repeat(5000) })), false);
        journal.push(&HermesEvent::stream_end("s"), true);
        assert!(
            journal.bytes() <= 1000 && journal.size_bytes() > 5000,
            "{} of {}",
            journal.bytes(),
            journal.size_bytes()
        );
        let (_, names) = whole(&Arc::new(journal)).await;
        assert_eq!(names, ["token", "tool", "token", "done", "stream_end"]);
    }

    #[tokio::test]
    async fn a_cursor_within_the_omitted_part_starts_over_and_a_waiting_reader_is_closed() {
        let journal =
            Arc::new(TurnStream { most: 400, ..TurnStream::new(SessionId::new("s"), run_of(STREAM).unwrap(), 0) });
        let mut slow = std::pin::pin!(Arc::clone(&journal).follow_from(StreamCursor::Start));
        journal.push(&HermesEvent::token("a"), false);
        assert!(slow.next().await.is_some());
        (0..20).for_each(|_| journal.push(&HermesEvent::token("b"), false));
        assert_eq!(slow.next().await, None);
        journal.push(&HermesEvent::stream_end("s"), true);
        let from_start = read(Arc::clone(&journal), StreamCursor::Start).await;
        assert_eq!(read(Arc::clone(&journal), StreamCursor::Behind(1)).await, from_start);
        assert_eq!(read(journal, StreamCursor::Behind(21)).await, "22");
    }

    #[tokio::test]
    async fn nothing_follows_the_end() {
        let journal = journal(0);
        journal.push(&HermesEvent::token("late"), false);
        assert_eq!(read(Arc::clone(&journal), StreamCursor::Start).await, "1 2 3");
        assert!(journal.current_status().is_over);
    }

    #[tokio::test]
    async fn a_reader_waits_for_what_comes() {
        let journal = Arc::new(TurnStream::new(SessionId::new("s"), run_of(STREAM).unwrap(), 0));
        let mut reading = std::pin::pin!(Arc::clone(&journal).follow_from(StreamCursor::Start));
        assert!(futures_util::poll!(reading.next()).is_pending());
        journal.push(&HermesEvent::token("a"), true);
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
