//! What a turn's facts and deltas are to hermes' clients.
//!
//! It does no input or output. What was streamed is not said again by the fact behind it; what a crash cut is made up for.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

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
use countersign_protocol::hermes::HermesEvent;
use countersign_runtime::{LiveKind, LivePartKind};
use countersign_view::{Lines, escape};
use serde_json::{Map, Value};

use super::awaited::{Awaited, NeverBegins};

/// How much of a result is shown beside its call, in characters.
pub(super) const PREVIEW: usize = 500;

/// What people are told where the model takes no more.
const TOO_LONG: &str = "The conversation is too long for the model";

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// It did what it could.
    Done,
    /// Somebody stopped it.
    Cancelled,
    /// It failed.
    Failed {
        /// In a word.
        kind: &'static str,
        /// For people.
        message: String,
    },
}

struct Shown {
    tid: String,
    tool: String,
    arguments: Map<String, Value>,
    started_at: Option<Millis>,
}

/// A turn that is being told.
#[derive(Default)]
pub(super) struct Teller {
    /// What was streamed of the message that is being said, by content index.
    streamed: BTreeMap<usize, (Kindred, String)>,
    calls: BTreeMap<CallId, Shown>,
    /// Calls that a person is, or was, asked about.
    asked: BTreeSet<CallId>,
    /// The result in the entry before a call's end.
    result: Option<String>,
    /// Why the last message failed.
    problem: Option<String>,
    /// What it is while it waits for what came before to be summed up.
    waits: Option<Awaited>,
}

/// Which blocks are streamed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kindred {
    Text,
    Thinking,
}

impl Kindred {
    fn event(self, text: &str) -> HermesEvent {
        match self {
            Self::Text => HermesEvent::token(text),
            Self::Thinking => HermesEvent::reasoning(text),
        }
    }
}

impl Teller {
    /// A frame that is not in the log.
    pub(super) fn live(&mut self, kind: &LiveKind, told: &mut Vec<HermesEvent>) {
        match kind {
            LiveKind::MessageStarted { .. } => self.streamed.clear(),
            LiveKind::PartStarted { index, part } => {
                let kindred = match part {
                    LivePartKind::Text => Kindred::Text,
                    LivePartKind::Thinking => Kindred::Thinking,
                    LivePartKind::Redacted | LivePartKind::ToolCall { .. } => return,
                };
                self.streamed.insert(*index, (kindred, String::new()));
            }
            LiveKind::Delta { index, text } => {
                if let Some((kindred, said)) = self.streamed.get_mut(index) {
                    said.push_str(text);
                    told.push(kindred.event(text));
                }
            }
            LiveKind::Idle { .. } => {
                told.extend(kind.idle_notice().map(|notice| HermesEvent::warning("idle", &notice)))
            }
            LiveKind::PartEnded { .. } | LiveKind::CallProgress { .. } => {}
        }
    }

    /// A fact, with its content or that of the entry that it points to.
    pub(super) fn fact(
        &mut self,
        event: &Happened,
        at: Millis,
        content: Option<&str>,
        told: &mut Vec<HermesEvent>,
    ) -> Option<Over> {
        match event {
            Happened::Session(session::Event::Entry { kind: SessionEntryKind::Assistant { .. }, .. }) => {
                if let Some(Ok(StoredMessage::Assistant(answer))) = content.map(serde_json::from_str) {
                    self.answered(&answer.content, told);
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
                        self.waits = Awaited::of(event);
                        told.push(HermesEvent::new("compressing", serde_json::json!({})));
                    }
                    session::Event::CompactionEnded { ok, .. } => {
                        told.push(HermesEvent::new("compressed", serde_json::json!({ "ok": ok })));
                    }
                    _ => {}
                }
                Some(match self.waits.as_mut()?.never_begins(event)? {
                    NeverBegins::Stopped => Over::Cancelled,
                    NeverBegins::TooLong => self.failed("context_overflow", TOO_LONG),
                })
            }
            Happened::Call(event) => {
                self.call(event, at, content, told);
                None
            }
            Happened::Run(event) => self.run(event, told),
            Happened::Gate(gate::Event::Opened { call: Some(call), .. }) => {
                self.asked.insert(*call);
                None
            }
            Happened::Policy(policy::Event::Constrained(denial)) => {
                told.push(HermesEvent::warning("denied", &binding(denial)));
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

    /// Says what was not streamed of a message that is whole now.
    fn answered(&mut self, blocks: &[MessageBlock], told: &mut Vec<HermesEvent>) {
        let streamed = std::mem::take(&mut self.streamed);
        for (index, block) in blocks.iter().enumerate() {
            let (kindred, whole) = match block {
                MessageBlock::Text(text) => (Kindred::Text, &text.text),
                MessageBlock::Thinking(thinking) => (Kindred::Thinking, &thinking.thinking),
                MessageBlock::RedactedThinking { .. } | MessageBlock::Image(_) | MessageBlock::ToolCall(_) => continue,
            };
            let said = streamed.get(&index).filter(|(other, _)| *other == kindred).map_or("", |(_, said)| said);
            if let Some(rest) = whole.strip_prefix(said).filter(|rest| !rest.is_empty()) {
                told.push(kindred.event(rest));
            }
        }
    }

    fn call(&mut self, event: &call::Event, at: Millis, content: Option<&str>, told: &mut Vec<HermesEvent>) {
        match event {
            call::Event::Proposed { call, run: Some(_), executor, .. } if *executor != Executor::Shell => {
                let Some(Ok(content)) = content.map(serde_json::from_str::<call::CallDetails>) else { return };
                let shown = Shown {
                    tid: content.tool_call_id.to_string(),
                    tool: content.tool.to_string(),
                    arguments: content.arguments,
                    started_at: None,
                };
                let preview = escape(&beginning(&content.signature), Lines::Many).into_owned();
                told.push(HermesEvent::tool_started(&named(&shown.tool), &shown.tid, &shown.arguments, &preview));
                self.calls.insert(*call, shown);
            }
            call::Event::Started { call, .. } => {
                if let Some(shown) = self.calls.get_mut(call) {
                    shown.started_at = Some(at);
                }
            }
            call::Event::Ended { call, end, .. } => {
                let was_asked = self.asked.remove(call);
                let Some(shown) = self.calls.remove(call) else { return };
                let preview = beginning(&self.result.take().unwrap_or_default());
                let preview = escape(&preview, Lines::Many);
                // Nobody was shown a card: without a word the call would only seem to fail.
                if *end == call::CallEnd::Denied && !was_asked {
                    let text = format!("{} was denied without a question. {preview}", named(&shown.tool));
                    told.push(HermesEvent::warning("denied", &text));
                }
                let duration = shown.started_at.map(|since| at.since(since).as_secs_f64());
                let Shown { tid, tool, arguments, .. } = shown;
                told.push(HermesEvent::tool_complete(
                    &named(&tool),
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

    fn run(&mut self, event: &run::Event, told: &mut Vec<HermesEvent>) -> Option<Over> {
        match event {
            run::Event::Started { .. } => {
                self.waits = None;
                None
            }
            run::Event::BackedOff { attempt, max, delay, .. } => {
                let why = self.problem.as_deref().unwrap_or("The model did not answer");
                let text = format!("{why} (asked again in {} s, {attempt} of {max})", delay.as_secs());
                told.push(HermesEvent::warning("retry", &text));
                None
            }
            run::Event::Interrupted { .. } => {
                self.streamed.clear();
                told.push(HermesEvent::warning("interrupted", "The gateway was restarted; the model is asked again"));
                None
            }
            run::Event::Ended { end, .. } => Some(match end {
                RunOutcome::Completed => Over::Done,
                RunOutcome::Aborted => Over::Cancelled,
                RunOutcome::RetryCancelled | RunOutcome::Failed => self.failed("error", "The model failed"),
                RunOutcome::Overflowed => self.failed("context_overflow", TOO_LONG),
                RunOutcome::Interrupted => self.failed("interrupted", "The gateway was restarted"),
            }),
            _ => None,
        }
    }

    fn failed(&mut self, kind: &'static str, usual: &str) -> Over {
        Over::Failed { kind, message: self.problem.take().unwrap_or_else(|| usual.to_owned()) }
    }
}

/// What a person is told of a denial that binds.
fn binding(denial: &Constraint) -> String {
    let minutes = DENIAL_LASTS.as_secs() / 60;
    let place = match denial.session {
        Some(_) => "in this conversation and in no other",
        None => "in every conversation",
    };
    format!("Denied. The same call of {} stays denied for {minutes} minutes, {place}.", named(&denial.tool))
}

/// The beginning of a text.
pub(super) fn beginning(text: &str) -> String {
    match text.char_indices().nth(PREVIEW) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// The name of a tool, as people see it.
fn named(tool: &str) -> Cow<'_, str> {
    escape(tool, Lines::One)
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

    use super::Teller;

    fn names(told: &[countersign_protocol::hermes::HermesEvent]) -> Vec<String> {
        told.iter().map(|event| format!("{} {}", event.name, event.data["text"].as_str().unwrap_or_default())).collect()
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
        let (mut teller, mut told) = (Teller::default(), Vec::new());
        teller.live(&LiveKind::Idle { since: Duration::from_secs(30), limit: Duration::from_secs(120) }, &mut told);
        let [warning] = &told[..] else { panic!("one event") };
        let message = "The model provider keeps the connection alive but has sent nothing of an answer for 30 s. The request fails after 120 s.";
        assert_eq!(
            (warning.name, &warning.data["type"], &warning.data["message"]),
            ("warning", &json!("idle"), &json!(message))
        );
    }

    #[test]
    fn what_was_streamed_is_not_said_again() {
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
            let (mut teller, mut told) = (Teller::default(), Vec::new());
            live.iter().for_each(|kind| teller.live(kind, &mut told));
            let (event, content) = answer();
            assert_eq!(teller.fact(&event, Millis(1), Some(&content), &mut told), None);
            assert_eq!(names(&told), want, "{case}");
        }
    }
}
