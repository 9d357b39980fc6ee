//! Turns the bytes of an answer into events: frames, limits, silence, the proof of its end.
//!
//! It must not know where the bytes come from.

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::{FutureExt, Stream, StreamExt, stream};
use sse_stream::SseByteStream;
use tokio::time::{Instant, Sleep};

use self::lines::LineFilter;
use crate::{
    FailureKind, MessagePart, ModelEvent, ModelFailure, ModelUsage, PartKind,
    failure::{in_stream, no_stream},
    wire::{
        AnswerDecoder, AnswerProgress,
        unplaced::{EventJudge, EventRole, is_end_without_reason},
    },
};

mod lines;

/// The most that one server-sent event may hold, comments between events included.
pub(crate) const EVENT_LIMIT: usize = 16 << 20;

/// The most that the parts of one answer may have together, in bytes: no model writes as much, and the caller keeps all of it.
const ANSWER_LIMIT: usize = 16 << 20;

/// Size that a part counts for in addition to its text, in bytes.
const PART: usize = 256;

/// The time without content, on a live connection, after which the reader sends a notice.
const NOTICE: Duration = Duration::from_secs(30);

/// Bytes of an incomplete event that count as a sign of progress: less is a keep-alive.
const STEP: usize = 1 << 10;

/// Time that an event that grows may take until it is complete, as a multiple of the limit of silence.
const PATIENCE: u64 = 4;

/// Number of items from which on they are handed out before more frames are read, so that a long answer waits for nobody.
const BATCH: usize = 256;

/// The longest silence that is waited for: the clock cannot count for ever.
const LONGEST: Duration = Duration::from_secs(1 << 30);

/// Wait for further frames after a complete answer.
pub(crate) const TRAIL: Duration = Duration::from_secs(2);

/// Reads an answer. Without `silence` no clock is needed and nothing is too slow.
///
/// A failure is the last item; an answer without one ends with [`ModelEvent::Stop`].
pub(crate) fn read_answer<B>(
    decoder: Box<dyn AnswerDecoder>,
    bytes: B,
    silence: Option<Duration>,
) -> impl Stream<Item = Result<ModelEvent, ModelFailure>> + Send
where
    B: Stream<Item = Result<Bytes, ModelFailure>> + Send + 'static,
{
    let meter = Arc::new(ActivityMeter::new());
    let frames = SseByteStream::new(Box::pin(watch_silence(bytes, Arc::clone(&meter), silence)));
    let reading = AnswerReader {
        frames: Box::pin(frames),
        judge: EventJudge::new(decoder.known_members()),
        decoder,
        notice: silence.map(|limit| IdleNotice { limit, timer: None }),
        meter,
        ready: Vec::new(),
        held: 0,
        weight: 0,
        usage: None,
        remark: None,
        framed: false,
        over: false,
    };
    // Boxed, because it is moved with every batch.
    let batches = stream::unfold(Box::new(reading), |mut reading| async {
        reading.next_batch().await.map(|batch| (stream::iter(batch), reading))
    });
    batches.flatten()
}

type SseFrames = Pin<Box<dyn Stream<Item = Result<sse_stream::Sse, sse_stream::Error>> + Send>>;

struct AnswerReader {
    frames: SseFrames,
    judge: EventJudge,
    decoder: Box<dyn AnswerDecoder>,
    meter: Arc<ActivityMeter>,
    /// Of a provider that is alive and says nothing; none where no clock is needed.
    notice: Option<IdleNotice>,
    ready: Vec<Result<ModelEvent, ModelFailure>>,
    /// Bytes that the decoder holds and that are in no event yet.
    held: usize,
    /// Bytes of content in the events so far.
    weight: usize,
    /// Usage of the answer, as the provider reported it last.
    usage: Option<ModelUsage>,
    /// Last message outside the answer, in a form that is no part of it: the reason if the answer has no end.
    remark: Option<ModelFailure>,
    /// True if any frame came.
    framed: bool,
    over: bool,
}

impl AnswerReader {
    /// Returns all that the bytes so far say, and waits if that is nothing. `None` after the end.
    async fn next_batch(&mut self) -> Option<Vec<Result<ModelEvent, ModelFailure>>> {
        while self.ready.is_empty() {
            if self.over {
                return None;
            }
            if let Some(outcome) = self.step_or_notice().await {
                self.take_events(outcome);
            }
            while !self.over && self.ready.len() < BATCH {
                // Where this waits, the next step waits again, and is woken.
                let Some(outcome) = self.read_frame().now_or_never() else { break };
                self.take_events(outcome);
            }
        }
        self.meter.settle_content();
        // The next one is probably as long.
        let room = Vec::with_capacity(self.ready.len());
        Some(std::mem::replace(&mut self.ready, room))
    }

    /// Takes the events of a frame with its outcome.
    fn take_events(&mut self, outcome: Result<AnswerProgress, ModelFailure>) {
        let first = self.ready.len();
        self.ready.extend(self.decoder.take_events().map(Ok));
        let is_new = self.adds_usage(first);
        let weight = self.ready[first..].iter().flatten().map(event_weight).sum::<usize>();
        self.weight += weight;
        if weight > 0 {
            self.remark = None;
        }
        let held_before = std::mem::replace(&mut self.held, self.decoder.held_bytes());
        let is_whole = outcome == Ok(AnswerProgress::Whole) && !self.meter.whole.load(Ordering::Relaxed);
        self.meter.note_frame(weight > 0 || self.held > held_before || is_new || is_whole);
        if self.weight.saturating_add(self.held) > ANSWER_LIMIT {
            self.over = true;
            let message = format!("the answer is longer than {ANSWER_LIMIT} bytes (terminated)");
            self.ready.truncate(first);
            self.ready.push(Err(ModelFailure::new(FailureKind::Refused, message)));
            return;
        }
        match outcome {
            Ok(AnswerProgress::Open) => {}
            Ok(AnswerProgress::Whole) => self.meter.whole.store(true, Ordering::Relaxed),
            Ok(AnswerProgress::Ended) => self.over = true,
            Err(failure) => {
                self.over = true;
                self.ready.push(Err(failure));
            }
        }
    }

    /// Reports whether one of the events from `first` on has another usage than the one before it, after content. At its beginning an
    /// answer reports the usage of the prompt.
    fn adds_usage(&mut self, first: usize) -> bool {
        let mut is_new = false;
        for item in &self.ready[first..] {
            if let Ok(ModelEvent::Usage(usage)) = item {
                is_new |= self.weight > 0 && self.usage != Some(*usage);
                self.usage = Some(*usage);
            }
        }
        is_new
    }

    /// Returns the next step. `None` if the reader sent the notice of a silent provider instead, which happens once in an answer.
    async fn step_or_notice(&mut self) -> Option<Result<AnswerProgress, ModelFailure>> {
        let Some(IdleNotice { limit, mut timer }) = self.notice.take() else { return Some(self.read_frame().await) };
        let every = NOTICE.min(limit / 2);
        let mut at = self.meter.last_content_at() + every;
        loop {
            let outcome = tokio::select! {
                biased;
                outcome = self.read_frame() => Some(outcome),
                () = wait_until(&mut timer, at) => None,
            };
            if outcome.is_some() {
                self.notice = Some(IdleNotice { limit, timer });
                return outcome;
            }
            let last_content = self.meter.last_content_at();
            if self.meter.is_idle.load(Ordering::Relaxed) && !self.meter.whole.load(Ordering::Relaxed) {
                self.ready.push(Ok(ModelEvent::Idle { since: last_content.elapsed(), limit }));
                return None;
            }
            at += every;
        }
    }

    async fn read_frame(&mut self) -> Result<AnswerProgress, ModelFailure> {
        let whole = self.meter.whole.load(Ordering::Relaxed);
        match self.frames.next().await {
            Some(Ok(frame)) => {
                self.meter.unread.store(0, Ordering::Relaxed);
                self.meter.ends_frame();
                self.framed = true;
                match frame.data.as_deref().filter(|data| !data.trim().is_empty()) {
                    Some(data) => self.handle_event(frame.event.as_deref(), data, whole),
                    None if frame.event.as_deref() == Some("error") => {
                        self.end_or_fail(in_stream("an error event without data"), whole)
                    }
                    None => Ok(if whole { AnswerProgress::Whole } else { AnswerProgress::Open }),
                }
            }
            // A whole answer is not lost with what might have followed it.
            Some(Err(error)) if !whole => {
                let failure = stream_failure(error);
                let is_cut = matches!(failure.kind, FailureKind::Network | FailureKind::Broken);
                Err(self.remark.take().filter(|_| is_cut).unwrap_or(failure))
            }
            Some(Err(_)) | None => match self.decoder.finish_stream() {
                Ok(()) => Ok(AnswerProgress::Ended),
                Err(failure) => {
                    let remark = self.remark.take().filter(|_| !whole);
                    Err(self.other_form().or(remark).unwrap_or(failure))
                }
            },
        }
    }

    /// Reads an event. A name, a line or a member outside the wire that reports an error takes nothing from a complete
    /// answer.
    fn handle_event(&mut self, name: Option<&str>, data: &str, whole: bool) -> Result<AnswerProgress, ModelFailure> {
        let is_line = matches!(name, Some(lines::OBJECT | lines::ERROR));
        if !is_line && name != Some("error") && !whole && self.decoder.decode_text(data) {
            return Ok(AnswerProgress::Open);
        }
        let standing = self.judge.event_role(data);
        if standing == Ok(EventRole::Error) && !is_line {
            return Err(in_stream(data));
        }
        // For any form of its data.
        if matches!(name, Some("error" | lines::ERROR)) {
            return self.end_or_fail(in_stream(data), whole);
        }
        match standing? {
            EventRole::Error | EventRole::Failure => self.end_or_fail(in_stream(data), whole),
            EventRole::Remark => {
                self.remark = Some(in_stream(data));
                Ok(if whole { AnswerProgress::Whole } else { AnswerProgress::Open })
            }
            EventRole::Part => match self.remark.take_if(|_| !whole && is_end_without_reason(data)) {
                Some(remark) => Err(remark),
                None => self.decoder.decode_event(data),
            },
        }
    }

    /// Ends the answer: as it stands if it is complete, or with the last remark.
    fn end_or_fail(&mut self, failure: ModelFailure, whole: bool) -> Result<AnswerProgress, ModelFailure> {
        if !whole {
            return Err(failure);
        }
        match self.decoder.finish_stream() {
            Ok(()) => Ok(AnswerProgress::Ended),
            // That it was held back, or another end that is none and comes again.
            Err(ending) if !ending.kind.is_retryable() => Err(ending),
            Err(_) => Err(failure),
        }
    }

    /// Returns the failure of a body without any event, if it is a page or an object in place of a stream.
    fn other_form(&self) -> Option<ModelFailure> {
        if self.framed {
            return None;
        }
        let head = self.meter.head.lock().unwrap_or_else(PoisonError::into_inner);
        let body = String::from_utf8_lossy(&head);
        let body = body.trim_start_matches('\u{feff}').trim_start();
        body.starts_with(['<', '{', '[']).then(|| no_stream(None, body))
    }
}

fn event_weight(event: &ModelEvent) -> usize {
    match event {
        ModelEvent::PartStart { kind: PartKind::ToolCall { id, name }, .. } => PART + id.len() + name.len(),
        ModelEvent::PartStart { .. } => PART,
        ModelEvent::Delta { text, .. } => text.len(),
        ModelEvent::PartEnd { part: MessagePart::Redacted { data } | MessagePart::Image { data, .. }, .. } => {
            data.len()
        }
        ModelEvent::PartEnd {
            part: MessagePart::Text { signature, .. } | MessagePart::Thinking { signature, .. },
            ..
        } => signature.as_ref().map_or(0, String::len),
        ModelEvent::PartEnd { part: MessagePart::ToolCall { signature, .. }, .. } => {
            signature.as_ref().map_or(0, String::len)
        }
        ModelEvent::Payload(data) => data.len(),
        ModelEvent::Start { .. } | ModelEvent::Usage(_) | ModelEvent::Idle { .. } | ModelEvent::Stop(_) => 0,
    }
}

fn stream_failure(error: sse_stream::Error) -> ModelFailure {
    let broken = |error: &dyn fmt::Display| {
        ModelFailure::new(FailureKind::Broken, format!("malformed stream (terminated): {error}"))
    };
    match error {
        sse_stream::Error::Body(error) => match error.downcast::<ModelFailure>() {
            Ok(failure) => *failure,
            Err(error) => broken(&error),
        },
        error => broken(&error),
    }
}

/// The notice of a provider that keeps the connection alive without sending content, as long as it was not sent.
struct IdleNotice {
    /// After how long the answer counts as lost.
    limit: Duration,
    timer: KeptTimer,
}

/// A timer that is set later and later: that costs less than a new one for each wait, which wakes the thread that keeps the time.
type KeptTimer = Option<Pin<Box<Sleep>>>;

/// Waits until `at`. Dropping the future keeps the timer.
async fn wait_until(timer: &mut KeptTimer, at: Instant) {
    let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
    if timer.deadline() != at {
        timer.as_mut().reset(at);
    }
    timer.as_mut().await;
}

/// Progress that the reader of bytes and the reader of frames share.
struct ActivityMeter {
    begun: Instant,
    /// Time of the last part of the answer, in milliseconds after `begun`.
    last_content: AtomicU64,
    /// True if a part of the answer came after that.
    has_new_content: AtomicBool,
    /// Bytes since the last frame.
    unread: AtomicUsize,
    /// Bytes of the frame that is not whole, white space left out.
    grown: AtomicUsize,
    /// Time at which that frame last grew by a [`STEP`], in milliseconds after `begun`. 0 if it did not.
    in_frame: AtomicU64,
    /// True if bytes or frames came after the last part of the answer, and none of them was part of it.
    is_idle: AtomicBool,
    /// True if the answer is complete.
    whole: AtomicBool,
    /// The first bytes, to be named if they are no stream of events.
    head: Mutex<Vec<u8>>,
}

impl ActivityMeter {
    fn keep_head(&self, chunk: &[u8]) {
        const LONGEST: usize = 4096;
        let mut head = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        let room = LONGEST.saturating_sub(head.len()).min(chunk.len());
        head.extend_from_slice(&chunk[..room]);
    }

    fn new() -> Self {
        Self {
            begun: Instant::now(),
            last_content: AtomicU64::new(0),
            has_new_content: AtomicBool::new(false),
            unread: AtomicUsize::new(0),
            grown: AtomicUsize::new(0),
            in_frame: AtomicU64::new(0),
            is_idle: AtomicBool::new(false),
            whole: AtomicBool::new(false),
            head: Mutex::new(Vec::new()),
        }
    }

    fn elapsed_millis(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Notes whether a frame brought something of the answer.
    fn note_frame(&self, has_content: bool) {
        self.has_new_content.fetch_or(has_content, Ordering::Relaxed);
        self.is_idle.store(!has_content, Ordering::Relaxed);
    }

    /// Reads the clock for what came since the last time: once for all frames that came together.
    fn settle_content(&self) {
        if self.has_new_content.swap(false, Ordering::Relaxed) {
            self.last_content.store(self.elapsed_millis(), Ordering::Relaxed);
        }
    }

    /// Notes that so many bytes of a frame came. Returns whether it grew by a [`STEP`].
    fn note_bytes(&self, bytes: usize) -> bool {
        let before = self.grown.fetch_add(bytes, Ordering::Relaxed);
        let is_step = before / STEP < before.saturating_add(bytes) / STEP;
        if is_step {
            self.in_frame.store(self.elapsed_millis(), Ordering::Relaxed);
        }
        is_step
    }

    /// Notes that a frame is complete.
    fn ends_frame(&self) {
        self.grown.store(0, Ordering::Relaxed);
        self.in_frame.store(0, Ordering::Relaxed);
    }

    /// Returns the time for which nothing came of the answer, nor enough of a frame that is on its way. Such a frame breaks a silence of
    /// `limit` only so often.
    fn silent_time(&self, limit: Duration) -> Duration {
        self.settle_content();
        let last_content = self.last_content.load(Ordering::Relaxed);
        let limit = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        let grew =
            self.in_frame.load(Ordering::Relaxed).min(last_content.saturating_add(limit.saturating_mul(PATIENCE)));
        Duration::from_millis(self.elapsed_millis().saturating_sub(last_content.max(grew)))
    }

    /// Returns the time at which something of the answer last came.
    fn last_content_at(&self) -> Instant {
        self.settle_content();
        self.begun + Duration::from_millis(self.last_content.load(Ordering::Relaxed))
    }
}

/// Passes bytes on, but fails on silence and on a frame that is too long.
///
/// Comments, white space between events, frames that bring nothing of the answer and frames that hardly grow break no
/// silence: a proxy may send them for a provider that is gone.
fn watch_silence<B>(
    bytes: B,
    meter: Arc<ActivityMeter>,
    silence: Option<Duration>,
) -> impl Stream<Item = Result<Bytes, ModelFailure>> + Send
where
    B: Stream<Item = Result<Bytes, ModelFailure>> + Send + 'static,
{
    let start = (Some(Box::pin(bytes)), meter, LineFilter::default(), KeptTimer::None);
    stream::unfold(start, move |(bytes, meter, mut lines, mut timer)| async move {
        let mut bytes = bytes?;
        let next = match silence {
            None => bytes.next().await,
            Some(silence) => {
                let limit = if meter.whole.load(Ordering::Relaxed) { silence.min(TRAIL) } else { silence };
                let left = limit.saturating_sub(meter.silent_time(limit)).min(LONGEST);
                tokio::select! {
                    biased;
                    next = bytes.next() => next,
                    () = wait_until(&mut timer, Instant::now() + left) => {
                        let is_idle = meter.is_idle.load(Ordering::Relaxed);
                        Some(Err(if is_idle { idle_failure(silence) } else { silence_failure(silence) }))
                    }
                }
            }
        };
        match next {
            None => Some((Ok(lines.finish()), (None, meter, lines, timer))),
            Some(Err(failure)) => Some((Err(failure), (None, meter, lines, timer))),
            Some(Ok(chunk)) => {
                meter.keep_head(&chunk);
                let unread = meter.unread.fetch_add(chunk.len(), Ordering::Relaxed) + chunk.len();
                if unread > EVENT_LIMIT {
                    let message = format!("an event in the stream is longer than {EVENT_LIMIT} bytes (terminated)");
                    return Some((Err(ModelFailure::new(FailureKind::Broken, message)), (None, meter, lines, timer)));
                }
                let is_first = unread == chunk.len();
                let (chunk, grown) = lines.pass_chunk(chunk);
                if !meter.note_bytes(grown) && (grown == 0 || !is_first) {
                    meter.is_idle.store(true, Ordering::Relaxed);
                }
                Some((Ok(chunk), (Some(bytes), meter, lines, timer)))
            }
        }
    })
}

/// Returns the failure of an answer that stopped coming.
pub(crate) fn silence_failure(silence: Duration) -> ModelFailure {
    ModelFailure::new(FailureKind::Silence, format!("timeout: no data for {} s", silence.as_secs_f64()))
}

/// Returns the failure of an answer of which nothing comes, while the provider keeps the connection alive.
fn idle_failure(silence: Duration) -> ModelFailure {
    let seconds = silence.as_secs_f64();
    let message =
        format!("timeout: the provider keeps the connection alive but has sent no part of an answer for {seconds} s");
    ModelFailure::new(FailureKind::Silence, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FinishReason, ModelApi, wire};

    const SILENCE: Duration = Duration::from_secs(120);
    const HI: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n";
    const FIN: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}\n\n";

    /// Returns the last item of an answer whose bytes come as the script says, with the seconds before each, and then no more;
    /// and when it came.
    async fn last(script: &[(u64, &str)]) -> (Result<ModelEvent, ModelFailure>, Duration) {
        last_over(ModelApi::OpenaiCompletions, script).await
    }

    async fn last_over(api: ModelApi, script: &[(u64, &str)]) -> (Result<ModelEvent, ModelFailure>, Duration) {
        let begun = Instant::now();
        (items(api, script).await.into_iter().next_back().unwrap(), begun.elapsed())
    }

    /// Returns all of an answer whose bytes come as the script says.
    async fn items(api: ModelApi, script: &[(u64, &str)]) -> Vec<Result<ModelEvent, ModelFailure>> {
        let script: Vec<_> = script.iter().map(|(seconds, text)| (*seconds, Bytes::from((*text).to_owned()))).collect();
        let bytes = stream::iter(script).then(|(seconds, bytes)| async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok(bytes)
        });
        let decoder = wire::decoder_for(api).unwrap();
        read_answer(decoder, bytes.chain(stream::pending()), Some(SILENCE)).collect().await
    }

    #[tokio::test(start_paused = true)]
    async fn each_delta_is_an_event_of_its_own_however_many_come_together() {
        for (api, begin, delta) in [
            (ModelApi::OpenaiCompletions, "", r#"{"choices":[{"index":0,"delta":{"content":"word "}}]}"#),
            (
                ModelApi::AnthropicMessages,
                "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"word "}}"#,
            ),
        ] {
            for count in [10, 1_000, 100_000] {
                let body = format!("{begin}{}", format!("data: {delta}\n\n").repeat(count));
                let items = items(api, &[(0, &body)]).await;
                let deltas =
                    items.iter().filter(|item| matches!(item, Ok(ModelEvent::Delta { text, .. }) if text == "word "));
                assert_eq!(deltas.count(), count, "{api}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_measured_between_parts_of_an_answer() {
        assert_eq!(last(&[]).await, (Err(silence_failure(SILENCE)), SILENCE));
        assert_eq!(silence_failure(SILENCE).message, "timeout: no data for 120 s");
        let outcome = last(&[(100, HI)]).await;
        assert_eq!(outcome, (Err(silence_failure(SILENCE)), Duration::from_secs(220)));
        let pieces = [(100, "data: {\"choices\""), (100, ":[{\"delta\":{\"content\":"), (100, "\"Hi\"}}]}\n\n")];
        let outcome = last(&pieces).await;
        assert_eq!(outcome, (Err(silence_failure(SILENCE)), SILENCE), "a frame that stops");
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_that_complete_no_event_break_no_silence() {
        let wires = [
            ModelApi::AnthropicMessages,
            ModelApi::OpenaiCompletions,
            ModelApi::OpenaiResponses,
            ModelApi::GoogleGenerativeAi,
        ];
        for api in wires {
            for piece in [" ", "\t", "x", ":", "\r\n", "data: \n"] {
                let got = last_over(api, &[(1, piece); 1000]).await;
                assert_eq!(got, (Err(idle_failure(SILENCE)), SILENCE), "{api}: {piece:?}");
                if piece == "\r\n" {
                    continue;
                }
                let script: Vec<_> = [(0, "data: {\"a")].into_iter().chain([(1, piece); 1000]).collect();
                let got = last_over(api, &script).await;
                assert_eq!(got, (Err(idle_failure(SILENCE)), SILENCE), "{api}: {piece:?} in an event");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_event_may_take_some_time_but_not_for_ever() {
        let piece = "x".repeat(STEP);
        let event = |pieces| {
            let pieces = vec![(100, piece.as_str()); pieces];
            let begun = [(0, "data: {\"choices\":[{\"delta\":{\"content\":\"")];
            begun.into_iter().chain(pieces).chain([(0, "\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")])
        };
        let whole: Vec<_> = event(4).collect();
        assert_eq!(last(&whole).await, (Ok(ModelEvent::Stop(FinishReason::Stop)), Duration::from_secs(400)));
        let endless: Vec<_> = event(1000).collect();
        assert_eq!(last(&endless).await.1, Duration::from_secs(600));
    }

    #[tokio::test(start_paused = true)]
    async fn white_space_that_a_model_writes_breaks_the_silence() {
        let blank = "data: {\"choices\":[{\"delta\":{\"content\":\" \"}}]}\n\n";
        assert_eq!(last(&[(100, blank); 5]).await, (Err(silence_failure(SILENCE)), Duration::from_secs(620)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_named_error_and_a_bare_error_are_failures_in_the_providers_word() {
        let hi = [
            ModelApi::AnthropicMessages,
            ModelApi::OpenaiCompletions,
            ModelApi::OpenaiResponses,
            ModelApi::GoogleGenerativeAi,
        ];
        for api in hi {
            for (error, want) in [
                ("event: error\ndata: {\"message\":\"named err\"}\n\n", "server error: named err"),
                ("event: error\ndata: went down\n\n", "server error: went down"),
                ("event: error\ndata:\n\n", "server error: an error event without data"),
                ("error: {\"message\":\"named err\"}\n\n", "server error: named err"),
                (": x\n\n{\"error\":{\"message\":\"bare err\"}}\n\n", "server error: bare err"),
                ("{\"error\":{\"message\":\"bare err\"}}\n", "server error: bare err"),
            ] {
                let script = [(0, error), (0, "data: [DONE]\n\n")];
                let failure = ModelFailure::new(FailureKind::Server, want);
                assert_eq!(last_over(api, &script).await.0, Err(failure), "{api}: {error:?}");
            }
        }
    }

    /// A whole answer over the wires whose end is not their last event.
    const WHOLE: [(ModelApi, &str); 3] = [
        (ModelApi::OpenaiCompletions, FIN),
        (
            ModelApi::AnthropicMessages,
            concat!(
                "data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\"}}\n\n",
                "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"Hi\"}}\n\n",
                "data: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
                "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n",
            ),
        ),
        (
            ModelApi::GoogleGenerativeAi,
            "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hi\"}]},\"finishReason\":\"STOP\"}]}\n\n",
        ),
    ];

    #[tokio::test(start_paused = true)]
    async fn a_whole_answer_is_not_lost_with_an_error_behind_it_unless_the_error_is_the_wires_own() {
        for (api, whole) in WHOLE {
            for error in [
                "event: error\ndata: {\"message\":\"cleanup failed\"}\n\n",
                "event: error\ndata: null\n\n",
                "event: error\ndata:\n\n",
                "event: error\ndata: went down\n\n",
                "data: {\"message\":\"done\"}\n\n",
                "data: {\"detail\":\"worker was stopped\"}\n\n",
                "data: {\"error_msg\":\"cleanup failed\"}\n\n",
                "{\"error\":\"x\"}\n",
                "{\"error\":{\"message\":\"x\"}}\n",
                "error: {\"error\":\"x\"}\n",
            ] {
                let got = last_over(api, &[(0, whole), (0, error)]).await.0;
                assert_eq!(got, Ok(ModelEvent::Stop(FinishReason::Stop)), "{api}: {error:?}");
            }
            for error in ["data: {\"error\":{\"message\":\"x\"}}\n\n", "event: error\ndata: {\"error\":\"x\"}\n\n"] {
                let failure = ModelFailure::new(FailureKind::Server, "server error: x");
                assert_eq!(last_over(api, &[(0, whole), (0, error)]).await.0, Err(failure), "{api}: {error:?}");
            }
        }
        let filtered =
            "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"content_filter\"}]}\n\n";
        let got = last(&[(0, filtered), (0, "event: error\ndata: {\"message\":\"done\"}\n\n")]).await.0;
        assert_eq!(got.unwrap_err().kind, FailureKind::Refused);
    }

    #[tokio::test(start_paused = true)]
    async fn a_remark_next_to_an_answer_is_reported_only_if_the_answer_has_no_end() {
        const DONE: &str = "data: [DONE]\n\n";
        for remark in [
            "data: {\"message\":\"queued\"}\n\n",
            "data: {\"detail\":\"queued\"}\n\n",
            "data: {\"level\":\"info\",\"message\":\"queued\"}\n\n",
        ] {
            for script in [[remark, FIN, DONE], [HI, remark, FIN], [remark, HI, DONE]] {
                let got = last(&script.map(|text| (0, text))).await.0;
                assert_eq!(got, Ok(ModelEvent::Stop(FinishReason::Stop)), "{script:?}");
            }
            let failure = ModelFailure::new(FailureKind::Server, "server error: queued");
            assert_eq!(last(&[(0, HI), (0, remark), (0, DONE)]).await.0, Err(failure.clone()), "{remark:?}");
            let cut = stream::iter([HI, remark].map(|text| Ok(Bytes::from(text))));
            let decoder = wire::decoder_for(ModelApi::OpenaiCompletions).unwrap();
            let items: Vec<_> = read_answer(decoder, cut, None).collect().await;
            assert_eq!(items.last(), Some(&Err(failure)), "{remark:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn keep_alives_break_no_silence() {
        const COMMENT: &str = ": still here\n\n";
        const PING: &str = "event: ping\ndata: {\"type\": \"ping\", \"cost\": 0}\n\n";
        for (case, script) in [
            ("comments", [(50, COMMENT), (50, COMMENT), (50, COMMENT)]),
            ("comments in pieces", [(50, ": still"), (50, " here"), (50, "\n\n")]),
            ("pings", [(50, PING), (50, PING), (50, PING)]),
            ("frames without content", [(50, "data: {}\n\n"), (50, "data: {\"type\":\"wait\"}\n\n"), (50, COMMENT)]),
            ("frames without data", [(50, "event: wait\n\n"), (50, "id: 1\n\n"), (50, "retry: 9\n\n")]),
        ] {
            assert_eq!(last(&script).await, (Err(idle_failure(SILENCE)), SILENCE), "{case}");
        }
        let half = [(0, "data: {\"choices\":[]}\n"), (50, ": here\n"), (50, ": here\n"), (50, ": here\n")];
        assert_eq!(last(&half).await, (Err(idle_failure(SILENCE)), SILENCE), "comments behind half a frame");
        let message = "timeout: the provider keeps the connection alive but has sent no part of an answer for 120 s";
        assert_eq!(idle_failure(SILENCE).message, message);
    }

    /// Frames that begin an answer over each wire, and have nothing of it after that.
    const EMPTY: [(ModelApi, &[&str], &[&str]); 4] = [
        (
            ModelApi::AnthropicMessages,
            &[
                r#"{"type":"message_start","message":{"id":"m","usage":{"input_tokens":1}}}"#,
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}"#,
                r#"{"type":"message_delta","delta":{},"usage":{"output_tokens":1}}"#,
            ],
            &[
                r#"{"type":"ping"}"#,
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":""}}"#,
                r#"{"type":"message_start","message":{"id":"m","usage":{"input_tokens":1}}}"#,
                r#"{"type":"message_delta","delta":{},"usage":{"output_tokens":1}}"#,
                r#"{"type":"heartbeat","detail":"the model has not yet said anything, please go on waiting for it"}"#,
            ],
        ),
        (
            ModelApi::OpenaiCompletions,
            &[r#"{"id":"c","choices":[{"delta":{"role":"assistant","reasoning_content":""}}]}"#],
            &[
                r#"{"id":"c","choices":[]}"#,
                r#"{"id":"c","choices":[{"index":0,"delta":{}}]}"#,
                r#"{"id":"c","choices":[{"index":0,"delta":{"content":""},"finish_reason":null}]}"#,
                r#"{"id":"c","choices":[{"delta":{"role":"assistant","content":null,"reasoning_content":""}}]}"#,
                r#"{"id":"c","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":0}}"#,
            ],
        ),
        (
            ModelApi::OpenaiResponses,
            &[
                r#"{"type":"response.created","response":{"id":"r"}}"#,
                r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"i","type":"message"}}"#,
            ],
            &[
                r#"{"type":"response.in_progress","response":{"id":"r","status":"in_progress","instructions":"Be brief."}}"#,
                r#"{"type":"response.queued","response":{"id":"r","status":"queued"}}"#,
                r#"{"type":"keepalive","sequence_number":3}"#,
                r#"{"type":"response.output_text.delta","output_index":0,"delta":""}"#,
                r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"i","type":"message"}}"#,
            ],
        ),
        (
            ModelApi::GoogleGenerativeAi,
            &[r#"{"candidates":[{"content":{"parts":[{"text":"H"}]}}],"responseId":"r"}"#],
            &[
                r#"{"candidates":[]}"#,
                r#"{"candidates":[{"content":{"parts":[{"text":""}],"role":"model"}}],"responseId":"r"}"#,
                r#"{"usageMetadata":{"promptTokenCount":3},"responseId":"r"}"#,
                r#"{}"#,
            ],
        ),
    ];

    #[tokio::test(start_paused = true)]
    async fn frames_that_bring_nothing_of_an_answer_break_no_silence_on_any_wire() {
        for (api, begin, nothing) in EMPTY {
            for data in nothing {
                let begin = begin.iter().map(|data| (0, format!("data: {data}\n\n")));
                let nothing = std::iter::repeat_n((50, format!("data: {data}\n\n")), 9);
                let script: Vec<_> = begin.chain(nothing).collect();
                let script: Vec<_> = script.iter().map(|(seconds, text)| (*seconds, text.as_str())).collect();
                assert_eq!(last_over(api, &script).await, (Err(idle_failure(SILENCE)), SILENCE), "{api}: {data}");
            }
            let data = format!("data: {}\n\n", nothing[0]);
            let script = [(50, data.as_str()); 9];
            assert_eq!(last_over(api, &script).await, (Err(idle_failure(SILENCE)), SILENCE), "{api}: nothing began");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn every_piece_of_an_answer_breaks_the_silence() {
        let thinking = r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}"#;
        let seal = r#"{"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.text","text":"x","index":0}]}}]}"#;
        let call = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"ls","arguments":"["}}]}}]}"#;
        for (api, data) in [
            (ModelApi::AnthropicMessages, thinking),
            (ModelApi::OpenaiCompletions, r#"{"choices":[{"delta":{"content":"H"}}]}"#),
            (ModelApi::OpenaiCompletions, r#"{"choices":[{"delta":{"reasoning":"H"}}]}"#),
            (ModelApi::OpenaiCompletions, seal),
            (ModelApi::OpenaiCompletions, call),
            (ModelApi::OpenaiResponses, r#"{"type":"response.output_text.delta","delta":"H"}"#),
            (ModelApi::OpenaiResponses, r#"{"type":"response.reasoning_summary_text.delta","delta":"H"}"#),
            (ModelApi::OpenaiResponses, r#"{"type":"response.function_call_arguments.delta","delta":"H"}"#),
            (ModelApi::GoogleGenerativeAi, r#"{"candidates":[{"content":{"parts":[{"text":"H","thought":true}]}}]}"#),
            (
                ModelApi::GoogleGenerativeAi,
                r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"ls"}}]}}]}"#,
            ),
        ] {
            let data = format!("data: {data}\n\n");
            let got = last_over(api, &[(100, data.as_str()); 3]).await;
            assert_eq!(got, (Err(silence_failure(SILENCE)), Duration::from_secs(420)), "{api}: {data}");
        }
        let signature =
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"x"}}"#;
        let [thinking, signature] = [thinking, signature].map(|data| format!("data: {data}\n\n"));
        let got = last_over(ModelApi::AnthropicMessages, &[(0, &thinking), (100, &signature), (100, &signature)]).await;
        assert_eq!(got, (Err(silence_failure(SILENCE)), Duration::from_secs(320)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_provider_is_reported_once() {
        const SCRIPT: &[(u64, &str)] = &[(50, ": here\n\n"), (50, ": here\n\n"), (15, HI), (70, ": here\n\n")];
        let received = items(ModelApi::OpenaiCompletions, SCRIPT).await;
        let idle: Vec<_> = received.iter().filter(|item| matches!(item, Ok(ModelEvent::Idle { .. }))).collect();
        assert_eq!(idle, [&Ok(ModelEvent::Idle { since: Duration::from_secs(60), limit: SILENCE })]);
        assert!(
            !items(ModelApi::OpenaiCompletions, &[])
                .await
                .iter()
                .any(|item| matches!(item, Ok(ModelEvent::Idle { .. }))),
            "nothing says that it is alive"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_whole_answer_does_not_wait_long_for_what_may_follow() {
        assert_eq!(last(&[(0, FIN)]).await, (Ok(ModelEvent::Stop(FinishReason::Stop)), TRAIL));
        assert_eq!(
            last(&[(0, FIN), (1, "data: [DONE]\n\n")]).await,
            (Ok(ModelEvent::Stop(FinishReason::Stop)), Duration::from_secs(1))
        );
        for nothing in [": here\n\n", "data: {\"choices\":[]}\n\n"] {
            let script = [(0, FIN), (1, nothing), (1, nothing), (1, nothing)];
            assert_eq!(last(&script).await, (Ok(ModelEvent::Stop(FinishReason::Stop)), TRAIL), "{nothing}");
        }
    }
}
