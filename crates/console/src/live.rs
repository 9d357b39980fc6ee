//! Live frames for open windows, encoded once for all of them: one follower of the log for all windows.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use bytes::Bytes;
use countersign_core::{
    call,
    engine::{self, Engine, Event, RecordedFact},
    gate::{self, Gate},
    id::{GateId, Lsn, SessionId},
    message::text_of,
    session::{self, SessionEntryKind},
};
use countersign_http::web::sse;
use countersign_runtime::{
    Clock, CommandSource, InboxLane, LiveKind, LivePartKind, LiveUpdate as Frame, OwnerHandle, ReleasedItem,
};
use countersign_view::{GateRequest, LineMode, escape};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};

use super::console_card::{AnswerText, CardContext, CardPlace, ConsoleGate};

/// Most frames that a window may be behind before it must reload.
const BEHIND: usize = 512;
/// Most frames about gates that are kept for windows that reconnect.
const KEPT: usize = 256;
/// Most sessions whose last change is remembered.
const SESSIONS: usize = 10_000;
/// Most bytes of a message in progress that are kept for windows that open in the middle.
const OPEN: usize = 256 << 10;
/// Longest part of a call's output that is shown while it runs, in characters.
const OUTPUT: usize = 4000;

/// Receivers of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UpdateTopic {
    /// Every window.
    Gates,
    /// Windows that show this session.
    Session(SessionId),
    /// Every window: no more frames follow.
    End,
}

/// One frame.
#[derive(Clone, Debug)]
pub(super) struct ConsoleUpdate {
    pub(super) topic: UpdateTopic,
    pub(super) bytes: Bytes,
}

/// Follower, for all windows.
pub(super) struct ConsoleBroadcast {
    state: Mutex<BroadcastState>,
    updates: broadcast::Sender<ConsoleUpdate>,
    /// Last record, for lists that follow everything: a slow reader sees the newest only.
    recorded: watch::Sender<Lsn>,
}

#[derive(Default)]
struct BroadcastState {
    /// Record before which nothing is known.
    since: Lsn,
    /// Frames about gates, with the record of each.
    kept: VecDeque<(Lsn, Bytes)>,
    /// Last change of each session.
    changed: BTreeMap<SessionId, Lsn>,
    /// Messages in progress.
    open: BTreeMap<SessionId, Vec<ActivePart>>,
}

/// Part of a message in progress.
#[derive(Clone, Debug)]
struct ActivePart {
    index: usize,
    kind: &'static str,
    name: String,
    text: String,
}

/// First frames of a window, and its receivers.
pub(super) struct LiveSubscription {
    pub(super) first: Vec<Bytes>,
    pub(super) then: broadcast::Receiver<ConsoleUpdate>,
    pub(super) recorded: watch::Receiver<Lsn>,
}

impl ConsoleBroadcast {
    /// Follows everything that `handle` releases.
    pub(super) fn start_following(handle: OwnerHandle, clock: Clock) -> Arc<Self> {
        let live = Arc::new(Self {
            state: Mutex::default(),
            updates: broadcast::Sender::new(BEHIND),
            recorded: watch::Sender::default(),
        });
        let follower = Arc::clone(&live);
        tokio::spawn(async move { follower.run(handle, clock).await });
        live
    }

    /// Subscribes a window that has seen everything up to `after`.
    pub(super) fn join(&self, after: Lsn, session: Option<&SessionId>) -> LiveSubscription {
        let state = self.state.lock();
        // Under the lock, so that no frame comes between.
        let (then, recorded) = (self.updates.subscribe(), self.recorded.subscribe());
        if after < state.since || state.kept.len() == KEPT && state.kept.front().is_some_and(|(lsn, _)| after < *lsn) {
            return LiveSubscription { first: vec![reload_frame()], then, recorded };
        }
        let mut first: Vec<Bytes> =
            state.kept.iter().filter(|(lsn, _)| *lsn > after).map(|(_, frame)| frame.clone()).collect();
        if let Some(session) = session {
            if state.changed.get(session).is_some_and(|changed| *changed > after) {
                first.push(changed_frame(session, false));
            }
            first.extend(state.open.get(session).into_iter().flatten().map(ActivePart::part_frame));
        }
        LiveSubscription { first, then, recorded }
    }

    async fn run(&self, handle: OwnerHandle, clock: Clock) {
        // Not the facts alone: messages in progress are shown as they come.
        let Some(mut released) = handle.subscribe().await else { return };
        let source = handle.source(InboxLane::Request);
        let head = source.read_state(|engine| engine.state().head_lsn()).await;
        self.state.lock().since = head.map_or(Lsn(u64::MAX), |(head, _)| head);
        while let Some(next) = released.next().await {
            match next {
                ReleasedItem::Fact(recorded) => self.send_fact(&recorded, &handle, &source, &clock).await,
                ReleasedItem::Live(frame) => self.send_frame(&frame),
            }
        }
        // Windows must not keep a gateway that closes.
        self.send_update(UpdateTopic::End, Bytes::new());
    }

    async fn send_fact(&self, recorded: &RecordedFact, handle: &OwnerHandle, source: &CommandSource, clock: &Clock) {
        let lsn = recorded.meta.lsn;
        self.recorded.send_replace(lsn);
        if let Some(session) = &recorded.meta.session {
            self.note_change(session, lsn, &recorded.fact.event);
        }
        let Event::Gate(event) = &recorded.fact.event else { return };
        if matches!(event, gate::Event::Shown { .. } | gate::Event::Updated { .. }) {
            return;
        }
        if self.nobody_looks(lsn) {
            return;
        }
        let Some((console_gate, waiting)) = fetch_gate(event.gate(), handle, source).await else { return };
        let answered = match event {
            gate::Event::Resolved { .. } => AnswerText { text: recorded.fact.content.clone() },
            _ => AnswerText::default(),
        };
        let reader = CardContext { now: clock.now(), csrf: "", key: "", place: CardPlace::List, notice: None };
        let frame = sse::encode_frame(
            Some(&lsn.to_string()),
            "gate",
            &json!({
                "id": console_gate.id.to_string(),
                "state": if console_gate.is_pending() { "waiting" } else { "over" },
                "isNew": matches!(event, gate::Event::Opened { .. }),
                "waiting": waiting,
                "title": console_gate.title(),
                "html": console_gate.render_card(&reader, &answered).into_string(),
            }),
        );
        let mut state = self.state.lock();
        state.kept.push_back((lsn, frame.clone()));
        if state.kept.len() > KEPT {
            state.kept.pop_front();
        }
        self.send_update(UpdateTopic::Gates, frame);
    }

    /// Reports whether no window is open. A later window reads everything up to `lsn`, and no frame is encoded without a reader.
    fn nobody_looks(&self, lsn: Lsn) -> bool {
        let mut state = self.state.lock();
        // Under the lock, so that no window comes between.
        let nobody = !self.is_looked_at();
        if nobody {
            state.kept.clear();
            state.since = lsn;
        }
        nobody
    }

    /// Notes a recorded change of a session.
    fn note_change(&self, session: &SessionId, lsn: Lsn, event: &Event) {
        if matches!(event, Event::Call(call::Event::Received { .. })) {
            return;
        }
        let mut state = self.state.lock();
        state.changed.insert(session.clone(), lsn);
        if state.changed.len() > SESSIONS {
            // Windows on sessions that are not remembered any more must not assume that nothing happened.
            state.changed.clear();
            state.open.clear();
            state.since = lsn;
        }
        let is_said = matches!(
            event,
            Event::Session(session::Event::Entry {
                kind: SessionEntryKind::Assistant { .. } | SessionEntryKind::ToolResult { .. },
                ..
            }) | Event::Run(countersign_core::run::Event::Ended { .. })
        );
        if is_said {
            state.open.remove(session);
        }
        if self.is_looked_at() {
            self.send_update(UpdateTopic::Session(session.clone()), changed_frame(session, is_said));
        }
    }

    /// Sends a live frame, which is not recorded.
    fn send_frame(&self, frame: &Frame) {
        let session = &frame.session;
        let mut state = self.state.lock();
        let is_looked_at = self.is_looked_at();
        // The output of a call is not kept without a reader: the next frame has all of it again.
        if !is_looked_at && matches!(frame.kind, LiveKind::CallProgress { .. }) {
            return;
        }
        let open = state.open.entry(session.clone()).or_default();
        let bytes = match &frame.kind {
            LiveKind::MessageStarted { .. } => {
                open.clear();
                sse::encode_frame(None, "begin", &Value::Null)
            }
            LiveKind::PartStarted { index, part } => {
                let (kind, name) = match part {
                    LivePartKind::Text => ("text", String::new()),
                    LivePartKind::Thinking | LivePartKind::Redacted => ("thinking", String::new()),
                    LivePartKind::ToolCall { name, .. } => ("call", escape(name, LineMode::One).into_owned()),
                };
                open.push(ActivePart { index: *index, kind, name, text: String::new() });
                open.last().map(ActivePart::part_frame).unwrap_or_default()
            }
            LiveKind::Delta { index, text } => {
                let text = escape(text, LineMode::Many);
                let held: usize = open.iter().map(|part| part.text.len()).sum();
                if let Some(part) = open.iter_mut().find(|part| part.index == *index).filter(|_| held < OPEN) {
                    part.text.push_str(&text);
                }
                sse::encode_frame(None, "delta", &json!({ "index": index, "text": text }))
            }
            // The record has the result.
            LiveKind::PartEnded { .. } => return,
            LiveKind::Idle { .. } => sse::encode_frame(None, "notice", &json!({ "text": frame.kind.idle_notice() })),
            LiveKind::CallProgress { content, .. } => {
                let text = text_of(content);
                let shown = text.chars().count().saturating_sub(OUTPUT);
                let text: String = text.chars().skip(shown).collect();
                sse::encode_frame(None, "output", &json!({ "text": escape(&text, LineMode::Many) }))
            }
        };
        if is_looked_at && !bytes.is_empty() {
            self.send_update(UpdateTopic::Session(session.clone()), bytes);
        }
    }

    /// Reports whether any window is open. Call it under the lock, so that none comes between.
    fn is_looked_at(&self) -> bool {
        self.updates.receiver_count() > 0
    }

    /// Sends to every window; without any the update is dropped.
    fn send_update(&self, topic: UpdateTopic, bytes: Bytes) {
        let _ = self.updates.send(ConsoleUpdate { topic, bytes });
    }
}

impl ActivePart {
    fn part_frame(&self) -> Bytes {
        let Self { index, kind, name, text } = self;
        sse::encode_frame(None, "part", &json!({ "index": index, "kind": kind, "name": name, "text": text }))
    }
}

/// Returns the frame that makes a window reload.
pub(super) fn reload_frame() -> Bytes {
    sse::encode_frame(None, "reload", &Value::Null)
}

/// Returns the frame for windows with a list that something was recorded.
pub(super) fn stirred_frame() -> Bytes {
    sse::encode_frame(None, "stirred", &Value::Null)
}

/// Returns the frame for a recorded change of a session; `done` if it is the message in progress. It moves no cursor: the frame
/// of a gate of the same record follows it.
fn changed_frame(session: &SessionId, done: bool) -> Bytes {
    sse::encode_frame(None, "changed", &json!({ "session": session.as_str(), "done": done }))
}

/// Fetches a gate as it is now, and the number of pending gates.
async fn fetch_gate(id: GateId, handle: &OwnerHandle, source: &CommandSource) -> Option<(ConsoleGate, usize)> {
    let read = move |engine: &Engine| {
        let gate = engine.state().gate(id)?;
        Some((gate.content_lsn(), GateRequest::at_hand(engine, id)))
    };
    let (at, request) = source.read_of(engine::ResidencyScope::Gate(id), read).await?.0?;
    let request = match request {
        Some(request) => request,
        None => {
            let text = handle.contents().get(&[at]).await.ok()?.pop()??;
            GateRequest::from_record(&text)?
        }
    };
    let read = move |engine: &Engine| {
        let gate: &Gate = engine.state().gate(id)?;
        Some((ConsoleGate::new(engine, gate, request), engine.state().pending_gates().count()))
    };
    source.read_of(engine::ResidencyScope::Gate(id), read).await?.0
}

#[cfg(test)]
mod tests {
    use countersign_core::id::{Lsn, SessionId};
    use countersign_runtime::{LiveKind, LivePartKind, LiveUpdate as Frame};
    use parking_lot::Mutex;
    use tokio::sync::{broadcast, watch};

    use super::{BEHIND, BroadcastState, ConsoleBroadcast, KEPT, LiveSubscription, changed_frame, reload_frame};

    fn live() -> ConsoleBroadcast {
        ConsoleBroadcast {
            state: Mutex::default(),
            updates: broadcast::Sender::new(BEHIND),
            recorded: watch::Sender::default(),
        }
    }

    fn live_frame(kind: LiveKind) -> Frame {
        Frame { session: SessionId::new("s"), kind }
    }

    #[test]
    fn a_window_opened_after_a_gap_reloads() {
        let live = live();
        assert!(live.nobody_looks(Lsn(5)));
        assert_eq!(live.join(Lsn(4), None).first, [reload_frame()], "its page is older than what was passed over");
        let window = live.join(Lsn(5), None);
        assert!(window.first.is_empty());
        assert!(!live.nobody_looks(Lsn(6)), "what comes now is told");
        drop(window);
        assert!(live.nobody_looks(Lsn(7)));
        assert_eq!(live.join(Lsn(6), None).first, [reload_frame()]);
    }

    #[test]
    fn a_cursor_before_the_kept_frames_reloads() {
        let live = live();
        let frame = |lsn: u64| changed_frame(&SessionId::new(lsn.to_string()), false);
        let kept = (0..KEPT as u64).map(|lsn| (Lsn(lsn + 10), frame(lsn + 10))).collect();
        *live.state.lock() = BroadcastState { kept, ..BroadcastState::default() };
        assert_eq!(live.join(Lsn(9), None).first, [reload_frame()], "more may have been before");
        assert_eq!(live.join(Lsn(10), None).first.len(), KEPT - 1);
        let last = KEPT as u64 + 9;
        assert_eq!(live.join(Lsn(last - 1), None).first, [frame(last)]);
    }

    #[test]
    fn a_window_opened_during_a_message_gets_its_text_so_far() {
        let live = live();
        live.send_frame(&live_frame(LiveKind::PartStarted { index: 0, part: LivePartKind::Text }));
        live.send_frame(&live_frame(LiveKind::Delta { index: 0, text: "hello \u{202e}".into() }));
        let session = SessionId::new("s");
        let LiveSubscription { first, mut then, .. } = live.join(Lsn(0), Some(&session));
        let first: Vec<&str> = first.iter().map(|frame| std::str::from_utf8(frame).unwrap()).collect();
        let want = r#"{"index":0,"kind":"text","name":"","text":"hello \\u{202e}"}"#;
        assert!(matches!(&first[..], [frame] if frame.contains(want) && !frame.contains("id:")), "{first:?}");
        live.send_frame(&live_frame(LiveKind::Delta { index: 0, text: "you".into() }));
        let next = then.try_recv().unwrap().bytes;
        assert!(std::str::from_utf8(&next).unwrap().contains(r#"{"index":0,"text":"you"}"#), "{next:?}");
        assert!(live.join(Lsn(0), Some(&SessionId::new("t"))).first.is_empty(), "others are told nothing of it");
    }

    #[test]
    fn a_window_is_sent_the_notice_of_a_silent_provider() {
        let live = live();
        let mut updates = live.join(Lsn(0), Some(&SessionId::new("s"))).then;
        let seconds = std::time::Duration::from_secs;
        live.send_frame(&live_frame(LiveKind::Idle { since: seconds(30), limit: seconds(120) }));
        let sent = updates.try_recv().unwrap().bytes;
        let want = "event: notice\ndata: {\"text\":\"The model provider keeps the connection alive but has sent nothing of an answer for 30 s. The request fails after 120 s.\"}\n\n";
        assert_eq!(std::str::from_utf8(&sent), Ok(want));
    }
}
