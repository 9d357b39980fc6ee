//! Sources of spans: a run, a request to a model, a call, and the wait for people at a gate, each from the facts in which it
//! begins and ends.
//!
//! It must not hold any user text. Names from outside (of tools, of calls at a provider) are taken only if
//! they are plain; sessions, whose names can have ids of people in them, are exported as their digest.

mod span_ids;

use std::collections::HashMap;

use countersign_core::{
    call::{self, Executor},
    engine::{Event, RecordedFact},
    gate,
    id::{CallId, EntryId, GateId, RunId},
    message::{RequestUsage, StopReason},
    run, session,
    time::Millis,
};
use serde::Deserialize;

use super::labels::{call_end_label, executor_label, gate_kind_label, resolution_label, run_end_label, stop_label};
use span_ids::{conversation_id, digest_id, span_of_call, span_of_run, trace_of_call, trace_of_run};

/// Most open ones of each kind. Any beyond are not exported.
const MOST_OPEN: usize = 65_536;
/// The longest name from outside that is exported.
const LONGEST_NAME: usize = 128;

/// One span that is over.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TraceSpan {
    pub(super) trace: [u8; 16],
    pub(super) id: [u8; 8],
    pub(super) parent: Option<[u8; 8]>,
    pub(super) name: String,
    pub(super) kind: SpanKind,
    pub(super) start: Millis,
    pub(super) end: Millis,
    pub(super) attributes: Vec<(&'static str, AttributeValue)>,
    /// Why it failed, if it did.
    pub(super) error: Option<&'static str>,
}

/// Kind of a span, as OpenTelemetry calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanKind {
    /// Within this process.
    Internal,
    /// A request to another service.
    Client,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AttributeValue {
    Text(String),
    Number(u64),
    Texts(Vec<&'static str>),
}

impl From<&str> for AttributeValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for AttributeValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for AttributeValue {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

/// Parties of an open run.
#[derive(Debug)]
struct OpenRun {
    start: Millis,
    session: Option<String>,
    model: Option<(String, String)>,
    used: RequestUsage,
}

#[derive(Debug)]
struct OpenChat {
    epoch: u32,
    start: Millis,
    provider: String,
    model: String,
    most: Option<u64>,
}

#[derive(Debug)]
struct OpenCall {
    run: Option<RunId>,
    start: Millis,
    session: Option<String>,
    tool: Option<String>,
    tool_call_id: Option<String>,
    agent: Option<String>,
    door: Option<String>,
    executor: &'static str,
    is_away: bool,
    verdict: Option<&'static str>,
    gate: Option<GateId>,
}

#[derive(Debug)]
struct OpenGate {
    run: Option<RunId>,
    call: Option<CallId>,
    start: Millis,
    session: Option<String>,
    kind: &'static str,
}

/// Facts of a model's message about itself, in the entry right before the fact that it answered.
#[derive(Debug)]
struct RecordedAnswer {
    entry: EntryId,
    metadata: AnswerMetadata,
}

#[derive(Debug, Default, Deserialize)]
struct AnswerMetadata {
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    usage: RequestUsage,
}

/// Exported part of a call's content.
#[derive(Debug, Deserialize)]
struct SpanCallContent {
    tool: String,
    #[serde(default)]
    tool_call_id: String,
    #[serde(default)]
    request: Option<CallRequester>,
}

#[derive(Debug, Deserialize)]
struct CallRequester {
    principal: String,
    #[serde(default)]
    door: Option<String>,
}

/// Spans that are still open.
#[derive(Debug, Default)]
pub(super) struct SpanTracer {
    runs: HashMap<RunId, OpenRun>,
    chats: HashMap<RunId, OpenChat>,
    calls: HashMap<CallId, OpenCall>,
    gates: HashMap<GateId, OpenGate>,
    message: Option<RecordedAnswer>,
}

impl SpanTracer {
    /// Takes a fact. Gives the span that ended with it, if its beginning was seen as well.
    pub(super) fn process_fact(&mut self, recorded: &RecordedFact) -> Option<TraceSpan> {
        let at = recorded.meta.at;
        let session = recorded.fact.session.as_ref().or(recorded.meta.session.as_ref()).map(conversation_id);
        match &recorded.fact.event {
            Event::Run(event) => self.run_event(event, at, session),
            Event::Call(event) => self.call_event(event, at, session, recorded.fact.content.as_deref()),
            Event::Gate(event) => self.gate_event(event, at, session),
            Event::Session(session::Event::Entry { id, kind: session::SessionEntryKind::Assistant { .. }, .. }) => {
                let metadata = recorded.fact.content.as_deref().and_then(|text| serde_json::from_str(text).ok());
                self.message = Some(RecordedAnswer { entry: id.clone(), metadata: metadata.unwrap_or_default() });
                None
            }
            Event::Booted
            | Event::Session(_)
            | Event::Peer(_)
            | Event::Channel(_)
            | Event::Policy(_)
            | Event::Settings(_)
            | Event::Unattended(_)
            | Event::Schedule(_) => None,
        }
    }

    fn run_event(&mut self, event: &run::Event, at: Millis, session: Option<String>) -> Option<TraceSpan> {
        match event {
            run::Event::Started { run, .. } => {
                let open = OpenRun { start: at, session, model: None, used: RequestUsage::default() };
                insert_bounded(&mut self.runs, *run, open);
                None
            }
            run::Event::ModelRequested { run, epoch, model, cap, .. } => {
                let (provider, name) = (plain_name(&model.provider), plain_name(&model.id));
                if let Some(open) = self.runs.get_mut(run) {
                    open.model = Some((provider.clone(), name.clone()));
                }
                let chat = OpenChat { epoch: *epoch, start: at, provider, model: name, most: *cap };
                insert_bounded(&mut self.chats, *run, chat);
                None
            }
            run::Event::Answered { run, epoch, entry, stop, .. } => {
                let metadata =
                    self.message.take().filter(|message| message.entry == *entry).map(|message| message.metadata);
                self.finish_chat(*run, *epoch, at, session, Some(*stop), metadata.unwrap_or_default())
            }
            run::Event::Interrupted { run } => {
                let epoch = self.chats.get(run)?.epoch;
                self.finish_chat(*run, epoch, at, session, None, AnswerMetadata::default())
            }
            run::Event::Ended { run, end, .. } => {
                self.chats.remove(run);
                let open = self.runs.remove(run)?;
                let (word, error) = run_end_label(*end);
                let mut attributes = vec![
                    ("gen_ai.operation.name", "invoke_agent".into()),
                    ("countersign.run.id", run.to_string().into()),
                    ("countersign.run.end", word.into()),
                ];
                push_attribute(&mut attributes, "gen_ai.conversation.id", open.session);
                if let Some((provider, model)) = open.model {
                    attributes.push(("gen_ai.provider.name", provider.into()));
                    attributes.push(("gen_ai.request.model", model.into()));
                }
                push_usage(&mut attributes, &open.used);
                Some(TraceSpan {
                    trace: trace_of_run(*run),
                    id: span_of_run(*run),
                    parent: None,
                    name: "invoke_agent".to_owned(),
                    kind: SpanKind::Internal,
                    start: open.start,
                    end: at,
                    attributes,
                    error,
                })
            }
            run::Event::Marked { .. }
            | run::Event::TurnOpened { .. }
            | run::Event::TurnClosed { .. }
            | run::Event::BackedOff { .. }
            | run::Event::Resumed { .. }
            | run::Event::Denied { .. }
            | run::Event::DenialsForgiven { .. }
            | run::Event::Aborting { .. }
            | run::Event::ResultDropped { .. } => None,
        }
    }

    /// Ends the request to a model whose answer, or lack of one, is known now.
    fn finish_chat(
        &mut self,
        run: RunId,
        epoch: u32,
        at: Millis,
        session: Option<String>,
        stop: Option<StopReason>,
        metadata: AnswerMetadata,
    ) -> Option<TraceSpan> {
        let chat = self.chats.remove(&run).filter(|chat| chat.epoch == epoch)?;
        if let Some(open) = self.runs.get_mut(&run) {
            open.used.input += metadata.usage.input;
            open.used.output += metadata.usage.output;
            open.used.cache_read += metadata.usage.cache_read;
            open.used.cache_write += metadata.usage.cache_write;
        }
        let (word, error) = stop.map_or((None, Some("interrupted")), |stop| {
            let (word, error) = stop_label(stop);
            (Some(word), error)
        });
        let mut attributes = vec![
            ("gen_ai.operation.name", "chat".into()),
            ("gen_ai.provider.name", chat.provider.into()),
            ("gen_ai.request.model", chat.model.as_str().into()),
            ("countersign.run.id", run.to_string().into()),
        ];
        push_attribute(&mut attributes, "gen_ai.conversation.id", session);
        push_attribute(&mut attributes, "gen_ai.request.max_tokens", chat.most);
        push_attribute(&mut attributes, "gen_ai.response.model", metadata.model.map(|model| plain_name(&model)));
        if let Some(word) = word {
            attributes.push(("gen_ai.response.finish_reasons", AttributeValue::Texts(vec![word])));
        }
        push_usage(&mut attributes, &metadata.usage);
        Some(TraceSpan {
            trace: trace_of_run(run),
            id: digest_id("chat", &[run.uuid().as_bytes(), &epoch.to_be_bytes()]),
            parent: Some(span_of_run(run)),
            name: format!("chat {}", chat.model),
            kind: SpanKind::Client,
            start: chat.start,
            end: at,
            attributes,
            error,
        })
    }

    fn call_event(
        &mut self,
        event: &call::Event,
        at: Millis,
        session: Option<String>,
        content: Option<&str>,
    ) -> Option<TraceSpan> {
        match event {
            call::Event::Proposed { call, run, executor, .. } => {
                let details = content.and_then(|text| serde_json::from_str::<SpanCallContent>(text).ok());
                let request = details.as_ref().and_then(|details| details.request.as_ref());
                let open = OpenCall {
                    run: *run,
                    start: at,
                    session,
                    tool: details.as_ref().map(|details| plain_name(&details.tool)),
                    tool_call_id: details
                        .as_ref()
                        .filter(|details| !details.tool_call_id.is_empty())
                        .map(|it| plain_name(&it.tool_call_id)),
                    agent: request.map(|request| plain_name(&request.principal)),
                    door: request.and_then(|request| request.door.as_deref()).map(plain_name),
                    executor: executor_label(executor),
                    is_away: matches!(executor, Executor::Service | Executor::Peer(_)),
                    verdict: None,
                    gate: None,
                };
                insert_bounded(&mut self.calls, *call, open);
                None
            }
            call::Event::Allowed { call, by, .. } => {
                if let Some(open) = self.calls.get_mut(call) {
                    open.verdict = Some(if by.is_some() { "countersigned" } else { "allowed" });
                }
                None
            }
            call::Event::Ended { call, end, .. } => {
                let open = self.calls.remove(call)?;
                Some(call_span(*call, open, *end, at))
            }
            call::Event::Requested { .. }
            | call::Event::Received { .. }
            | call::Event::Gated { .. }
            | call::Event::Waits { .. }
            | call::Event::Started { .. }
            | call::Event::AskedAgain { .. }
            | call::Event::Aborting { .. }
            | call::Event::InDoubt { .. }
            | call::Event::LeftBehind { .. }
            | call::Event::Again { .. }
            | call::Event::ResultDropped { .. } => None,
        }
    }

    fn gate_event(&mut self, event: &gate::Event, at: Millis, session: Option<String>) -> Option<TraceSpan> {
        match event {
            gate::Event::Opened { gate, kind, run, call, .. } => {
                if let Some(open) = call.and_then(|call| self.calls.get_mut(&call)) {
                    open.gate = Some(*gate);
                }
                let kind = gate_kind_label(*kind);
                insert_bounded(&mut self.gates, *gate, OpenGate { run: *run, call: *call, start: at, session, kind });
                None
            }
            gate::Event::Resolved { gate, resolution, .. } => {
                let open = self.gates.remove(gate)?;
                let mut attributes = vec![
                    ("countersign.gate.id", gate.to_string().into()),
                    ("countersign.gate.kind", open.kind.into()),
                    ("countersign.verdict", resolution_label(resolution).into()),
                ];
                push_attribute(&mut attributes, "countersign.call.id", open.call.map(|call| call.to_string()));
                push_attribute(&mut attributes, "countersign.run.id", open.run.map(|run| run.to_string()));
                push_attribute(&mut attributes, "gen_ai.conversation.id", open.session);
                let trace = match (open.run, open.call) {
                    (Some(run), _) => trace_of_run(run),
                    (None, Some(call)) => trace_of_call(call),
                    (None, None) => digest_id("gate", &[gate.uuid().as_bytes()]),
                };
                Some(TraceSpan {
                    trace,
                    id: digest_id("gate span", &[gate.uuid().as_bytes()]),
                    parent: open.call.map(span_of_call).or_else(|| open.run.map(span_of_run)),
                    name: format!("countersign.gate {}", open.kind),
                    kind: SpanKind::Internal,
                    start: open.start,
                    end: at,
                    attributes,
                    error: None,
                })
            }
            gate::Event::Voted { .. }
            | gate::Event::Escalated { .. }
            | gate::Event::Reminded { .. }
            | gate::Event::Extended { .. }
            | gate::Event::Shown { .. }
            | gate::Event::Updated { .. } => None,
        }
    }
}

fn call_span(call: CallId, open: OpenCall, end: call::CallEnd, at: Millis) -> TraceSpan {
    let (word, error) = call_end_label(end);
    let tool = open.tool.unwrap_or_else(|| "unknown".to_owned());
    let mut attributes = vec![
        ("gen_ai.operation.name", "execute_tool".into()),
        ("gen_ai.tool.name", tool.as_str().into()),
        ("gen_ai.tool.type", "function".into()),
        ("countersign.call.id", call.to_string().into()),
        ("countersign.call.end", word.into()),
        ("countersign.executor", open.executor.into()),
    ];
    let verdict = match end {
        call::CallEnd::Denied | call::CallEnd::Refused | call::CallEnd::Expired => Some(word),
        _ => open.verdict,
    };
    push_attribute(&mut attributes, "countersign.verdict", verdict);
    push_attribute(&mut attributes, "countersign.gate.id", open.gate.map(|gate| gate.to_string()));
    push_attribute(&mut attributes, "countersign.door", open.door);
    push_attribute(&mut attributes, "countersign.run.id", open.run.map(|run| run.to_string()));
    push_attribute(&mut attributes, "gen_ai.tool.call.id", open.tool_call_id);
    push_attribute(&mut attributes, "gen_ai.agent.name", open.agent);
    push_attribute(&mut attributes, "gen_ai.conversation.id", open.session);
    TraceSpan {
        trace: open.run.map_or_else(|| trace_of_call(call), trace_of_run),
        id: span_of_call(call),
        parent: open.run.map(span_of_run),
        name: format!("execute_tool {tool}"),
        kind: if open.is_away { SpanKind::Client } else { SpanKind::Internal },
        start: open.start,
        end: at,
        attributes,
        error,
    }
}

fn insert_bounded<K: std::hash::Hash + Eq, V>(open: &mut HashMap<K, V>, id: K, value: V) {
    if open.len() < MOST_OPEN {
        open.insert(id, value);
    }
}

fn push_attribute<T: Into<AttributeValue>>(
    attributes: &mut Vec<(&'static str, AttributeValue)>,
    name: &'static str,
    value: Option<T>,
) {
    attributes.extend(value.map(|value| (name, value.into())));
}

/// Adds the usage. Input includes tokens from a cache, as the names of OpenTelemetry mean it; ours do not.
fn push_usage(attributes: &mut Vec<(&'static str, AttributeValue)>, used: &RequestUsage) {
    let input = used.input + used.cache_read + used.cache_write;
    if input + used.output == 0 {
        return;
    }
    attributes.push(("gen_ai.usage.input_tokens", input.into()));
    attributes.push(("gen_ai.usage.output_tokens", used.output.into()));
    if used.cache_read + used.cache_write > 0 {
        attributes.push(("gen_ai.usage.cache_read.input_tokens", used.cache_read.into()));
        attributes.push(("gen_ai.usage.cache_creation.input_tokens", used.cache_write.into()));
    }
}

/// Returns a name as it is if it is plain, else a placeholder.
fn plain_name(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.:/@".contains(c);
    if !name.is_empty() && name.len() <= LONGEST_NAME && name.chars().all(is_plain) {
        name.to_owned()
    } else {
        "unusual".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::plain_name;

    #[test]
    fn names_of_others_are_exported_only_if_they_are_plain() {
        for (name, want) in [
            ("read", "read"),
            ("mac__Bash", "mac__Bash"),
            ("agent:default", "agent:default"),
            ("meta-llama/Llama-3@x", "meta-llama/Llama-3@x"),
            ("", "unusual"),
            ("rm -rf", "unusual"),
            ("a\u{202e}b", "unusual"),
            ("a\nb", "unusual"),
        ] {
            assert_eq!(plain_name(name), want);
        }
        assert_eq!(plain_name(&"x".repeat(129)), "unusual");
    }
}
