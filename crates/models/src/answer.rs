//! Turns the bytes of an answer into events: frames, limits, silence, the proof of its end.
//!
//! It must not know where the bytes come from.

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use sse_stream::SseByteStream;

use crate::{
    Event, Failure, FailureKind, Part, PartKind,
    wire::{Decode, Progress},
};

/// The most that one server-sent event may hold, comments between events included.
pub(crate) const EVENT_LIMIT: usize = 16 << 20;

/// The most that the parts of one answer may have together, in bytes: no model writes as much, and whoever asks keeps all of it.
const ANSWER_LIMIT: usize = 16 << 20;

/// What a part counts for beside its text.
const PART: usize = 256;

/// How long to wait for what may follow a whole answer.
pub(crate) const TRAIL: Duration = Duration::from_secs(2);

/// Reads an answer. Without `silence` no clock is needed and nothing is too slow.
///
/// A failure is the last item; an answer without one ends with [`Event::Stop`].
pub(crate) fn answer<B>(
    decoder: Box<dyn Decode>,
    bytes: B,
    silence: Option<Duration>,
) -> impl Stream<Item = Result<Event, Failure>> + Send
where
    B: Stream<Item = Result<Bytes, Failure>> + Send + 'static,
{
    let meter = Arc::new(Meter::default());
    let frames = SseByteStream::new(Box::pin(watched(bytes, Arc::clone(&meter), silence)));
    let reading = Reading { frames: Box::pin(frames), decoder, meter, ready: VecDeque::new(), weight: 0, over: false };
    stream::unfold(reading, |mut reading| async { reading.next().await.map(|item| (item, reading)) })
}

type Frames = Pin<Box<dyn Stream<Item = Result<sse_stream::Sse, sse_stream::Error>> + Send>>;

struct Reading {
    frames: Frames,
    decoder: Box<dyn Decode>,
    meter: Arc<Meter>,
    ready: VecDeque<Result<Event, Failure>>,
    /// What came so far.
    weight: usize,
    over: bool,
}

impl Reading {
    async fn next(&mut self) -> Option<Result<Event, Failure>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(item);
            }
            if self.over {
                return None;
            }
            let outcome = self.step().await;
            let events = self.decoder.take();
            self.weight += events.iter().map(weight).sum::<usize>();
            if self.weight > ANSWER_LIMIT {
                self.over = true;
                let message = format!("the answer is longer than {ANSWER_LIMIT} bytes (terminated)");
                return Some(Err(Failure::new(FailureKind::Refused, message)));
            }
            self.ready.extend(events.into_iter().map(Ok));
            match outcome {
                Ok(Progress::Open) => {}
                Ok(Progress::Whole) => self.meter.whole.store(true, Ordering::Relaxed),
                Ok(Progress::Ended) => self.over = true,
                Err(failure) => {
                    self.over = true;
                    self.ready.push_back(Err(failure));
                }
            }
        }
    }

    async fn step(&mut self) -> Result<Progress, Failure> {
        let whole = self.meter.whole.load(Ordering::Relaxed);
        match self.frames.next().await {
            Some(Ok(frame)) => {
                self.meter.unread.store(0, Ordering::Relaxed);
                match frame.data.as_deref().filter(|data| !data.trim().is_empty()) {
                    Some(data) => self.decoder.event(data),
                    None => Ok(if whole { Progress::Whole } else { Progress::Open }),
                }
            }
            // A whole answer is not lost with what might have followed it.
            Some(Err(error)) if !whole => Err(failure(error)),
            Some(Err(_)) | None => self.decoder.end().map(|()| Progress::Ended),
        }
    }
}

fn weight(event: &Event) -> usize {
    match event {
        Event::PartStart { kind: PartKind::ToolCall { id, name }, .. } => PART + id.len() + name.len(),
        Event::PartStart { .. } => PART,
        Event::Delta { text, .. } => text.len(),
        Event::PartEnd { part: Part::Redacted { data } | Part::Image { data, .. }, .. } => data.len(),
        Event::PartEnd { part: Part::Text { signature, .. } | Part::Thinking { signature, .. }, .. } => {
            signature.as_ref().map_or(0, String::len)
        }
        Event::Start { .. } | Event::PartEnd { .. } | Event::Usage(_) | Event::Stop(_) => 0,
    }
}

fn failure(error: sse_stream::Error) -> Failure {
    let broken =
        |error: &dyn fmt::Display| Failure::new(FailureKind::Broken, format!("malformed stream (terminated): {error}"));
    match error {
        sse_stream::Error::Body(error) => match error.downcast::<Failure>() {
            Ok(failure) => *failure,
            Err(error) => broken(&error),
        },
        error => broken(&error),
    }
}

/// What the reader of bytes and the reader of frames know of each other.
#[derive(Default)]
struct Meter {
    /// Bytes since the last frame.
    unread: AtomicUsize,
    /// Whether the answer is whole.
    whole: AtomicBool,
}

/// Passes bytes on, but fails on silence and on a frame that is too long. A clean end gets the blank line that servers
/// forget behind their last event.
fn watched<B>(
    bytes: B,
    meter: Arc<Meter>,
    silence: Option<Duration>,
) -> impl Stream<Item = Result<Bytes, Failure>> + Send
where
    B: Stream<Item = Result<Bytes, Failure>> + Send + 'static,
{
    let start = (Some(Box::pin(bytes)), meter);
    stream::unfold(start, move |(bytes, meter)| async move {
        let mut bytes = bytes?;
        let next = match silence {
            None => bytes.next().await,
            Some(silence) => {
                let patience = if meter.whole.load(Ordering::Relaxed) { silence.min(TRAIL) } else { silence };
                match tokio::time::timeout(patience, bytes.next()).await {
                    Ok(next) => next,
                    Err(_) => Some(Err(silent(silence))),
                }
            }
        };
        match next {
            None => Some((Ok(Bytes::from_static(b"\n\n")), (None, meter))),
            Some(Err(failure)) => Some((Err(failure), (None, meter))),
            Some(Ok(chunk)) => {
                let unread = meter.unread.fetch_add(chunk.len(), Ordering::Relaxed) + chunk.len();
                if unread > EVENT_LIMIT {
                    let message = format!("an event in the stream is longer than {EVENT_LIMIT} bytes (terminated)");
                    return Some((Err(Failure::new(FailureKind::Broken, message)), (None, meter)));
                }
                Some((Ok(chunk), (Some(bytes), meter)))
            }
        }
    })
}

/// The failure of an answer that stopped coming.
pub(crate) fn silent(silence: Duration) -> Failure {
    Failure::new(FailureKind::Silence, format!("timeout: no data for {} s", silence.as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::{Api, Stop, wire};

    const SILENCE: Duration = Duration::from_secs(120);
    const FIN: &str = "data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\n";

    /// The last item of an answer whose bytes come as the script says, with the seconds before each, and then no more;
    /// and when it came.
    async fn last(script: &'static [(u64, &'static str)]) -> (Result<Event, Failure>, Duration) {
        let bytes = stream::iter(script).then(|(seconds, text)| async move {
            tokio::time::sleep(Duration::from_secs(*seconds)).await;
            Ok(Bytes::from(*text))
        });
        let decoder = wire::decoder(Api::OpenaiCompletions).unwrap();
        let begun = Instant::now();
        let items: Vec<_> = answer(decoder, bytes.chain(stream::pending()), Some(SILENCE)).collect().await;
        (items.into_iter().next_back().unwrap(), begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_measured_between_bytes_and_comments_break_it() {
        assert_eq!(last(&[]).await, (Err(silent(SILENCE)), SILENCE));
        let keep_alive = last(&[(100, ": still here\n\n"), (100, "data: {}\n\n")]).await;
        assert_eq!(keep_alive, (Err(silent(SILENCE)), Duration::from_secs(320)));
        assert_eq!(silent(SILENCE).message, "timeout: no data for 120 s");
    }

    #[tokio::test(start_paused = true)]
    async fn a_whole_answer_does_not_wait_long_for_what_may_follow() {
        assert_eq!(last(&[(0, FIN)]).await, (Ok(Event::Stop(Stop::Stop)), TRAIL));
        assert_eq!(
            last(&[(0, FIN), (1, "data: [DONE]\n\n")]).await,
            (Ok(Event::Stop(Stop::Stop)), Duration::from_secs(1))
        );
    }
}
