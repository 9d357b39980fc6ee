//! Encodes facts and deltas of a turn as events for clients of hermes.
//!
//! It does no input or output. A fact does not repeat streamed text; text that a crash lost is sent with the fact.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use crate::wire::HermesEvent;
use countersign_conversations::pending_turn::{NeverBegins, PendingTurn};
use countersign_core::{
    call::{self, Executor},
    engine::Event as Happened,
    gate,
    id::CallId,
    message::{MessageBlock, StoredMessage, text_of},
    policy::{self, Constraint, DENIAL_LASTS},
    run::{self, RunOutcome},
    session::{self, SessionEntryKind},
    time::Millis,
};
use countersign_runtime::{LiveKind, LivePartKind};
use countersign_view::{LineMode, escape};
use serde_json::{Map, Value};

/// Longest part of a result that is shown with its call, in characters.
pub(super) const PREVIEW: usize = 500;

/// Text for users if the model takes no more.
const TOO_LONG: &str = "The conversation is too long for the model";

/// End of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TurnEnd {
    /// Completed.
    Done,
    /// A user stopped it.
    Cancelled,
    /// Failed.
    Failed {
        /// Kind of failure, in a word.
        kind: &'static str,
        /// Text for users.
        message: String,
    },
}

struct ActiveCall {
    tid: String,
    tool: String,
    arguments: Map<String, Value>,
    started_at: Option<Millis>,
}

/// Encoder of a turn.
#[derive(Default)]
pub(super) struct TurnEncoder {
    /// Streamed parts of the current message, by content index.
    streamed: BTreeMap<usize, (StreamedBlock, String)>,
    calls: BTreeMap<CallId, ActiveCall>,
    /// Calls with a gate, pending or decided.
    gated_calls: BTreeSet<CallId>,
    /// Result in the entry before a call's end.
    result: Option<String>,
    /// Error of the last message.
    problem: Option<String>,
    /// State while it waits for a compaction.
    waits: Option<PendingTurn>,
}

/// Kind of streamed block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamedBlock {
    Text,
    Thinking,
}

impl StreamedBlock {
    fn delta_event(self, text: &str) -> HermesEvent {
        match self {
            Self::Text => HermesEvent::token(text),
            Self::Thinking => HermesEvent::reasoning(text),
        }
    }
}

impl TurnEncoder {
    /// Encodes a live frame, which is not in the log.
    pub(super) fn encode_live(&mut self, kind: &LiveKind, events: &mut Vec<HermesEvent>) {
        match kind {
            LiveKind::MessageStarted { .. } => self.streamed.clear(),
            LiveKind::PartStarted { index, part } => {
                let kindred = match part {
                    LivePartKind::Text => StreamedBlock::Text,
                    LivePartKind::Thinking => StreamedBlock::Thinking,
                    LivePartKind::Redacted | LivePartKind::ToolCall { .. } => return,
                };
                self.streamed.insert(*index, (kindred, String::new()));
            }
            LiveKind::Delta { index, text } => {
                if let Some((kindred, sent)) = self.streamed.get_mut(index) {
                    sent.push_str(text);
                    events.push(kindred.delta_event(text));
                }
            }
            LiveKind::Idle { .. } => {
                events.extend(kind.idle_notice().map(|notice| HermesEvent::warning("idle", &notice)))
            }
            LiveKind::PartEnded { .. } | LiveKind::CallProgress { .. } => {}
        }
    }

    /// Encodes a fact, with its content or that of the entry that it points to.
    pub(super) fn encode_fact(
        &mut self,
        event: &Happened,
        at: Millis,
        content: Option<&str>,
        events: &mut Vec<HermesEvent>,
    ) -> Option<TurnEnd> {
        match event {
            Happened::Session(session::Event::Entry { kind: SessionEntryKind::Assistant { .. }, .. }) => {
                if let Some(Ok(StoredMessage::Assistant(answer))) = content.map(serde_json::from_str) {
                    self.encode_answer(&answer.content, events);
                    self.problem = answer.error_message;
                }
                None
            }
            Happened::Session(session::Event::Entry { kind: SessionEntryKind::ToolResult { .. }, .. }) => {
                if let Some(Ok(StoredMessage::ToolResult(result))) = content.map(serde_json::from_str) {
                    self.result = Some(text_of(&result.content));
                }
                None
            }
            Happened::Session(event) => {
                match event {
                    session::Event::CompactionStarted { .. } => {
                        self.waits = PendingTurn::from_event(event);
                        events.push(HermesEvent::new("compressing", serde_json::json!({})));
                    }
                    session::Event::CompactionEnded { ok, .. } => {
                        events.push(HermesEvent::new("compressed", serde_json::json!({ "ok": ok })));
                    }
                    _ => {}
                }
                Some(match self.waits.as_mut()?.never_begins(event)? {
                    NeverBegins::Stopped => TurnEnd::Cancelled,
                    NeverBegins::TooLong => self.failed_end("context_overflow", TOO_LONG),
                })
            }
            Happened::Call(event) => {
                self.encode_call(event, at, content, events);
                None
            }
            Happened::Run(event) => self.encode_run(event, events),
            Happened::Gate(gate::Event::Opened { call: Some(call), .. }) => {
                self.gated_calls.insert(*call);
                None
            }
            Happened::Policy(policy::Event::Constrained(denial)) => {
                events.push(HermesEvent::warning("denied", &denial_notice(denial)));
                None
            }
            Happened::Booted
            | Happened::Gate(_)
            | Happened::Peer(_)
            | Happened::Policy(_)
            | Happened::Settings(_)
            | Happened::Channel(_)
            | Happened::Unattended(_)
            | Happened::Schedule(_) => None,
        }
    }

    /// Encodes the part of a complete message that was not streamed.
    fn encode_answer(&mut self, blocks: &[MessageBlock], events: &mut Vec<HermesEvent>) {
        let streamed = std::mem::take(&mut self.streamed);
        for (index, block) in blocks.iter().enumerate() {
            let (kindred, whole) = match block {
                MessageBlock::Text(text) => (StreamedBlock::Text, &text.text),
                MessageBlock::Thinking(thinking) => (StreamedBlock::Thinking, &thinking.thinking),
                MessageBlock::RedactedThinking { .. } | MessageBlock::Image(_) | MessageBlock::ToolCall(_) => continue,
            };
            let sent = streamed.get(&index).filter(|(other, _)| *other == kindred).map_or("", |(_, sent)| sent);
            if let Some(rest) = whole.strip_prefix(sent).filter(|rest| !rest.is_empty()) {
                events.push(kindred.delta_event(rest));
            }
        }
    }

    fn encode_call(&mut self, event: &call::Event, at: Millis, content: Option<&str>, events: &mut Vec<HermesEvent>) {
        match event {
            call::Event::Proposed { call, run: Some(_), executor, .. } if *executor != Executor::Shell => {
                let Some(Ok(content)) = content.map(serde_json::from_str::<call::CallDetails>) else { return };
                let shown = ActiveCall {
                    tid: content.tool_call_id.to_string(),
                    tool: content.tool.to_string(),
                    arguments: content.arguments,
                    started_at: None,
                };
                let preview = escape(&preview_of(&content.signature), LineMode::Many).into_owned();
                events.push(HermesEvent::tool_started(
                    &shown_name(&shown.tool),
                    &shown.tid,
                    &shown.arguments,
                    &preview,
                ));
                self.calls.insert(*call, shown);
            }
            call::Event::Started { call, .. } => {
                if let Some(shown) = self.calls.get_mut(call) {
                    shown.started_at = Some(at);
                }
            }
            call::Event::Ended { call, end, .. } => {
                let was_gated = self.gated_calls.remove(call);
                let Some(shown) = self.calls.remove(call) else { return };
                let preview = preview_of(&self.result.take().unwrap_or_default());
                let preview = escape(&preview, LineMode::Many);
                // No card was shown: without a text the call would only seem to fail.
                if *end == call::CallEnd::Denied && !was_gated {
                    let text = format!("{} was denied without a question. {preview}", shown_name(&shown.tool));
                    events.push(HermesEvent::warning("denied", &text));
                }
                let duration = shown.started_at.map(|since| at.since(since).as_secs_f64());
                let ActiveCall { tid, tool, arguments, .. } = shown;
                events.push(HermesEvent::tool_complete(
                    &shown_name(&tool),
                    &tid,
                    &arguments,
                    &preview,
                    duration,
                    end.is_error(),
                ));
            }
            _ => {}
        }
    }

    fn encode_run(&mut self, event: &run::Event, events: &mut Vec<HermesEvent>) -> Option<TurnEnd> {
        match event {
            run::Event::Started { .. } => {
                self.waits = None;
                None
            }
            run::Event::BackedOff { attempt, max, delay, .. } => {
                let why = self.problem.as_deref().unwrap_or("The model did not answer");
                let text = format!("{why} (asked again in {} s, {attempt} of {max})", delay.as_secs());
                events.push(HermesEvent::warning("retry", &text));
                None
            }
            run::Event::Interrupted { .. } => {
                self.streamed.clear();
                events.push(HermesEvent::warning("interrupted", "The gateway was restarted; the model is asked again"));
                None
            }
            run::Event::Ended { end, .. } => Some(match end {
                RunOutcome::Completed => TurnEnd::Done,
                RunOutcome::Aborted => TurnEnd::Cancelled,
                RunOutcome::RetryCancelled | RunOutcome::Failed => self.failed_end("error", "The model failed"),
                RunOutcome::Overflowed => self.failed_end("context_overflow", TOO_LONG),
                RunOutcome::Interrupted => self.failed_end("interrupted", "The gateway was restarted"),
            }),
            _ => None,
        }
    }

    fn failed_end(&mut self, kind: &'static str, usual: &str) -> TurnEnd {
        TurnEnd::Failed { kind, message: self.problem.take().unwrap_or_else(|| usual.to_owned()) }
    }
}

/// Returns the text about a denial in force.
fn denial_notice(denial: &Constraint) -> String {
    let minutes = DENIAL_LASTS.as_secs() / 60;
    let place = match denial.session {
        Some(_) => "in this conversation and in no other",
        None => "in every conversation",
    };
    format!("Denied. The same call of {} stays denied for {minutes} minutes, {place}.", shown_name(&denial.tool))
}

/// Returns the beginning of a text.
pub(super) fn preview_of(text: &str) -> String {
    match text.char_indices().nth(PREVIEW) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Returns the name of a tool for users.
fn shown_name(tool: &str) -> Cow<'_, str> {
    escape(tool, LineMode::One)
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use countersign_core::{
        engine::Event as Happened,
        id::EntryId,
        message::StopReason,
        session::{self, SessionEntryKind},
        time::Millis,
    };
    use countersign_runtime::{LiveKind, LivePartKind};
    use serde_json::json;

    use super::TurnEncoder;

    fn names(events: &[crate::wire::HermesEvent]) -> Vec<String> {
        events
            .iter()
            .map(|event| format!("{} {}", event.name, event.data["text"].as_str().unwrap_or_default()))
            .collect()
    }

    fn answer() -> (Happened, String) {
        let kind = SessionEntryKind::Assistant { stop: StopReason::Stop, total_tokens: 3 };
        let id = EntryId::new("e");
        let entry = session::Event::Entry { id, parent: None, kind, tokens: 1, made_at: None, content_at: None };
        let content = json!({
            "role": "assistant", "api": "x", "provider": "p", "model": "m", "stopReason": "stop", "usage": {},
            "content": [{ "type": "thinking", "thinking": "hm" }, { "type": "text", "text": "hello there" }],
        });
        (Happened::Session(entry), content.to_string())
    }

    fn part(index: usize, part: LivePartKind) -> LiveKind {
        LiveKind::PartStarted { index, part }
    }

    fn delta(index: usize, text: &str) -> LiveKind {
        LiveKind::Delta { index, text: Arc::from(text) }
    }

    #[test]
    fn a_provider_that_is_alive_and_says_nothing_is_a_warning() {
        let (mut teller, mut events) = (TurnEncoder::default(), Vec::new());
        teller.encode_live(
            &LiveKind::Idle { since: Duration::from_secs(30), limit: Duration::from_secs(120) },
            &mut events,
        );
        let [warning] = &events[..] else { panic!("one event") };
        let message = "The model provider keeps the connection alive but has sent nothing of an answer for 30 s. The request fails after 120 s.";
        assert_eq!(
            (warning.name, &warning.data["type"], &warning.data["message"]),
            ("warning", &json!("idle"), &json!(message))
        );
    }

    #[test]
    fn streamed_text_is_not_repeated() {
        for (case, live, want) in [
            ("nothing was", vec![], vec!["reasoning hm", "token hello there"]),
            (
                "a part was",
                vec![part(0, LivePartKind::Thinking), delta(0, "hm"), part(1, LivePartKind::Text), delta(1, "hello")],
                vec!["reasoning hm", "token hello", "token  there"],
            ),
            (
                "all was",
                vec![
                    part(0, LivePartKind::Thinking),
                    delta(0, "hm"),
                    part(1, LivePartKind::Text),
                    delta(1, "hello "),
                    delta(1, "there"),
                ],
                vec!["reasoning hm", "token hello ", "token there"],
            ),
        ] {
            let (mut teller, mut events) = (TurnEncoder::default(), Vec::new());
            live.iter().for_each(|kind| teller.encode_live(kind, &mut events));
            let (event, content) = answer();
            assert_eq!(teller.encode_fact(&event, Millis(1), Some(&content), &mut events), None);
            assert_eq!(names(&events), want, "{case}");
        }
    }
}
