//! Writes what happens as frames of this dialect: events in envelopes with one count for all, everything else flat.
//!
//! It must not know what a frame tells, nor where it goes. Source: docs/protocol/gjc.md, Events.

use bytes::Bytes;
use countersign_adapter_omp::OutgoingFrame;
use countersign_core::id::SessionId;
use countersign_protocol::{
    RawJson, encode_line,
    gjc::{
        GjcEnvelope, GjcEvent,
        bridge::ClientMarker,
        event::{CompactUpdate, EventPayload, FrameType, OwnEvent, RunEnd},
        state::{AcceptedCapabilities, shown_level},
    },
    omp,
};

/// Writer of the frames of one adapter.
#[derive(Default)]
pub(crate) struct EnvelopeWriter {
    /// The number of the last envelope; the first has 1.
    seq: u64,
    /// The session that is current, or was last.
    session: String,
    /// True if the host requested small updates.
    is_compact: bool,
    /// Number of updates of messages so far.
    updates: u64,
    /// Thinking level that was sent last.
    level: Option<Option<String>>,
    /// The breach of a budget for which the run is being ended.
    breach: Option<RawJson>,
    /// Representation of the end of such a run.
    reasons: StopReasons,
}

/// Representation of the end of a run that used up its budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum StopReasons {
    /// By the breach.
    #[default]
    Named,
    /// Not at all: the original's last Python client ends at a word that it does not know.
    None,
}

impl EnvelopeWriter {
    /// Names the session that envelopes are about from here on.
    pub(crate) fn set_session(&mut self, session: &SessionId) {
        if self.session != session.as_str() {
            session.as_str().clone_into(&mut self.session);
        }
    }

    /// Returns the number of the last event.
    pub(crate) const fn last_seq(&self) -> u64 {
        self.seq
    }

    /// Continues the count after `seq`.
    pub(crate) const fn continue_after(&mut self, seq: u64) {
        self.seq = seq;
    }

    /// Does from here on what `capabilities` say.
    pub(crate) fn set_capabilities(&mut self, capabilities: &AcceptedCapabilities) {
        self.is_compact = capabilities.compact_updates();
    }

    /// Sets the way in which the host reads ends of runs.
    pub(crate) fn with_reasons(self, reasons: StopReasons) -> Self {
        Self { reasons, ..self }
    }

    /// Has the next end of a run name the breach for which it is ended.
    pub(crate) fn set_breach(&mut self, error: RawJson) {
        self.breach = Some(error);
    }

    /// Returns the line of a frame; none for one that this dialect has not.
    pub(crate) fn encode_frame(&mut self, frame: OutgoingFrame<'_>) -> Option<Bytes> {
        match frame {
            OutgoingFrame::Ready => Some(encode_line(&omp::OmpEvent::Ready)),
            OutgoingFrame::Response(response) => Some(encode_line(response)),
            OutgoingFrame::Dialog(dialog) => Some(encode_line(dialog)),
            OutgoingFrame::Permission(permission) => Some(encode_line(permission)),
            OutgoingFrame::HostTool(frame) => Some(encode_line(frame)),
            OutgoingFrame::HostUri(frame) => Some(encode_line(frame)),
            OutgoingFrame::Level(level) => {
                let level = level.and_then(shown_level).map(str::to_owned);
                (self.level.as_ref() != Some(&level)).then(|| {
                    self.level = Some(level.clone());
                    self.encode_event(GjcEvent::Own(OwnEvent::ThinkingLevelChanged { thinking_level: level }))
                })
            }
            OutgoingFrame::Gate(gate) => Some(encode_line(gate)),
            OutgoingFrame::Client(number) => Some(encode_line(&ClientMarker { number })),
            OutgoingFrame::Event(event @ omp::OmpEvent::ExtensionError { .. }) => Some(encode_line(event)),
            OutgoingFrame::Event(omp::OmpEvent::AgentEnd { messages }) if self.breach.is_some() => {
                let error = self.breach.take()?;
                let reason = (self.reasons == StopReasons::Named).then_some(RunEnd::BudgetExceeded);
                Some(self.encode_event(GjcEvent::budget_breached(messages.clone(), reason, error)))
            }
            OutgoingFrame::Event(event) => {
                let event = GjcEvent::from_omp(event.clone(), RunEnd::Completed)?;
                Some(self.encode_event(event))
            }
            OutgoingFrame::Pause { messages } => {
                let event = omp::OmpEvent::AgentEnd { messages: messages.to_vec() };
                let event = GjcEvent::from_omp(event, RunEnd::Paused)?;
                Some(self.encode_event(event))
            }
        }
    }

    fn encode_event(&mut self, event: GjcEvent) -> Bytes {
        let payload = match event.into_update() {
            Ok((change, message)) => {
                self.updates += 1;
                if self.is_compact {
                    EventPayload::Compact(Box::new(CompactUpdate::new(None, change, self.updates, &message)))
                } else {
                    let event = omp::OmpEvent::message_update(change, message);
                    EventPayload::from(GjcEvent::Shared(Box::new(event)))
                }
            }
            Err(event) => EventPayload::from(event),
        };
        self.seq += 1;
        encode_line(&GjcEnvelope::new(FrameType::Event, self.session.clone(), self.seq, frame_id(), payload))
    }
}

/// Returns a name for a frame: a UUID of version 4.
pub(crate) fn frame_id() -> String {
    let mut bits = [0; 16];
    // Nothing depends on it: a system without randomness has names that are alike.
    let _ = getrandom::fill(&mut bits);
    uuid::Builder::from_random_bytes(bits).into_uuid().to_string()
}

/// Moves the end of a run after the events of its attempts: it is the last event of the run. A run that ended in the wait for its next
/// attempt gets one, because the last one that was sent says that it is paused.
pub(crate) fn order_run_end(events: &mut Vec<omp::OmpEvent>) {
    let mut at = 0;
    while at < events.len() {
        if matches!(events[at], omp::OmpEvent::AutoRetryEnd { success: false, .. }) {
            match at.checked_sub(1).filter(|before| matches!(events[*before], omp::OmpEvent::AgentEnd { .. })) {
                Some(before) => events.swap(before, at),
                None => events.insert(at + 1, omp::OmpEvent::AgentEnd { messages: Vec::new() }),
            }
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::id::SessionId;
    use countersign_protocol::{
        RawJson,
        gjc::state::{AcceptedCapabilities, COMPACT_MESSAGE_UPDATE},
        omp::{BlockChange, OmpEvent, OmpResponse},
    };
    use serde_json::Value;

    use super::{EnvelopeWriter, OutgoingFrame, StopReasons, order_run_end};

    fn read(voice: &mut EnvelopeWriter, frame: OutgoingFrame<'_>) -> Value {
        serde_json::from_slice(&voice.encode_frame(frame).unwrap()).unwrap()
    }

    fn update() -> OmpEvent {
        let change = BlockChange::TextDelta { content_index: 0, delta: "x".to_owned() };
        OmpEvent::message_update(change, RawJson::parse(r#"{"role":"assistant"}"#.to_owned()).unwrap())
    }

    #[test]
    fn events_are_counted_and_nothing_else_is() {
        let mut voice = EnvelopeWriter::default();
        voice.set_session(&SessionId::new("s1"));
        let first = read(&mut voice, OutgoingFrame::Event(&OmpEvent::AgentStart));
        assert!(voice.encode_frame(OutgoingFrame::Event(&OmpEvent::AgentSettled)).is_none());
        let response = read(&mut voice, OutgoingFrame::Response(&OmpResponse::ack(None, "abort")));
        voice.set_session(&SessionId::new("s2"));
        let second = read(&mut voice, OutgoingFrame::Event(&OmpEvent::TurnStart));
        assert!(response.get("seq").is_none());
        assert_eq!((&first["seq"], &first["session_id"]), (&1.into(), &"s1".into()));
        assert_eq!((&second["seq"], &second["session_id"]), (&2.into(), &"s2".into()));
        assert_eq!(second["payload"], serde_json::json!({"event_type": "turn_start", "event": {"type": "turn_start"}}));
        assert_ne!(first["frame_id"], second["frame_id"]);
    }

    #[test]
    fn small_updates_hold_the_message_every_32nd_time() {
        let mut voice = EnvelopeWriter::default();
        let whole = read(&mut voice, OutgoingFrame::Event(&update()));
        assert_eq!(whole["payload"]["event"]["assistantMessageEvent"]["partial"]["role"], "assistant");
        voice.set_capabilities(&AcceptedCapabilities::for_requested(vec![COMPACT_MESSAGE_UPDATE.to_owned()]));
        for number in 2..=64 {
            let payload = read(&mut voice, OutgoingFrame::Event(&update()))["payload"].take();
            assert_eq!((&payload["compact"], &payload["message_id"]), (&true.into(), &Value::Null));
            assert_eq!(payload.get("checkpoint_message").is_some(), number % 32 == 0, "{number}");
        }
        voice.set_capabilities(&AcceptedCapabilities::for_requested(Vec::new()));
        assert_eq!(read(&mut voice, OutgoingFrame::Event(&update()))["payload"]["event_type"], "message_update");
    }

    #[test]
    fn a_level_is_sent_when_it_changes() {
        let mut voice = EnvelopeWriter::default();
        let frame = read(&mut voice, OutgoingFrame::Level(Some("high")));
        assert_eq!(
            frame["payload"]["event"],
            serde_json::json!({"type": "thinking_level_changed", "thinkingLevel": "high"})
        );
        assert!(voice.encode_frame(OutgoingFrame::Level(Some("high"))).is_none());
        let frame = read(&mut voice, OutgoingFrame::Level(None));
        assert_eq!(frame["payload"]["event"], serde_json::json!({"type": "thinking_level_changed"}));
    }

    #[test]
    fn the_end_of_a_run_names_its_breach_once() {
        let mut voice = EnvelopeWriter::default();
        let end = OmpEvent::AgentEnd { messages: Vec::new() };
        voice.set_breach(RawJson::parse(r#"{"code":"budget_exceeded"}"#.to_owned()).unwrap());
        let run_end = read(&mut voice, OutgoingFrame::Event(&end))["payload"]["event"].take();
        let want = serde_json::json!({"type": "agent_end", "messages": [], "stopReason": "budget_exceeded",
                                      "error": {"code": "budget_exceeded"}});
        assert_eq!(run_end, want);
        let run_end = read(&mut voice, OutgoingFrame::Event(&end))["payload"]["event"].take();
        assert_eq!(run_end, serde_json::json!({"type": "agent_end", "messages": [], "stopReason": "completed"}));
        let mut old = EnvelopeWriter::default().with_reasons(StopReasons::None);
        old.set_breach(RawJson::parse("{}".to_owned()).unwrap());
        let run_end = read(&mut old, OutgoingFrame::Event(&end))["payload"]["event"].take();
        assert_eq!(run_end, serde_json::json!({"type": "agent_end", "messages": [], "error": {}}));
    }

    #[test]
    fn the_end_of_a_run_is_its_last_event() {
        let end = OmpEvent::AgentEnd { messages: Vec::new() };
        let retry = OmpEvent::AutoRetryEnd { success: false, attempt: 3, final_error: None };
        let mut events = vec![OmpEvent::TurnStart, end.clone(), retry.clone()];
        order_run_end(&mut events);
        assert_eq!(events, [OmpEvent::TurnStart, retry.clone(), end]);
        let mut in_a_wait = vec![retry.clone()];
        order_run_end(&mut in_a_wait);
        assert_eq!(in_a_wait, [retry, OmpEvent::AgentEnd { messages: Vec::new() }]);
    }
}
