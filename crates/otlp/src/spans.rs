//! What becomes a span: a run, a request to a model, a call, and the wait for people at a gate, each from the facts in which it
//! begins and ends.
//!
//! It must not hold what anybody said. Names that somebody else gives (of tools, of calls at a provider) are taken only where
//! they are plain; sessions, whose names can have ids of people in them, are told by their digest.

use std::collections::HashMap;

use countersign_core::{
    call::{self, Executor},
    engine::{Event, RecordedFact},
    gate,
    id::{CallId, EntryId, GateId, RunId, SessionId},
    message::{RequestUsage, StopReason},
    run, session,
    time::Millis,
};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::words::{of_call, of_executor, of_kind, of_resolution, of_run, of_stop};

/// How many of each kind may be open. What is beyond is not told.
const MOST_OPEN: usize = 65_536;
/// The longest name of somebody else's that is told.
const LONGEST_NAME: usize = 128;

/// One span that is over.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Span {
    pub(super) trace: [u8; 16],
    pub(super) id: [u8; 8],
    pub(super) parent: Option<[u8; 8]>,
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) start: Millis,
    pub(super) end: Millis,
    pub(super) attributes: Vec<(&'static str, Value)>,
    /// Why it failed, if it did.
    pub(super) error: Option<&'static str>,
}

/// What OpenTelemetry calls the kind of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Within this process.
    Internal,
    /// Somebody else is asked.
    Client,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    Number(u64),
    Texts(Vec<&'static str>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

/// Who asks whom, of a run that goes on.
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

/// What a model's message says of itself, in the entry right before the fact that it answered.
#[derive(Debug)]
struct Message {
    entry: EntryId,
    said: Answer,
}

#[derive(Debug, Default, Deserialize)]
struct Answer {
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    usage: RequestUsage,
}

/// What of a call's content is told.
#[derive(Debug, Deserialize)]
struct Wanted {
    tool: String,
    #[serde(default)]
    tool_call_id: String,
    #[serde(default)]
    request: Option<Requested>,
}

#[derive(Debug, Deserialize)]
struct Requested {
    principal: String,
    #[serde(default)]
    door: Option<String>,
}

/// Everything that goes on.
#[derive(Debug, Default)]
pub(super) struct Tracer {
    runs: HashMap<RunId, OpenRun>,
    chats: HashMap<RunId, OpenChat>,
    calls: HashMap<CallId, OpenCall>,
    gates: HashMap<GateId, OpenGate>,
    message: Option<Message>,
}

impl Tracer {
    /// Takes a fact. Gives the span that ended with it, if its beginning was seen as well.
    pub(super) fn take(&mut self, recorded: &RecordedFact) -> Option<Span> {
        let at = recorded.meta.at;
        let session = recorded.fact.session.as_ref().or(recorded.meta.session.as_ref()).map(conversation);
        match &recorded.fact.event {
            Event::Run(event) => self.run(event, at, session),
            Event::Call(event) => self.call(event, at, session, recorded.fact.content.as_deref()),
            Event::Gate(event) => self.gate(event, at, session),
            Event::Session(session::Event::Entry { id, kind: session::SessionEntryKind::Assistant { .. }, .. }) => {
                let said = recorded.fact.content.as_deref().and_then(|text| serde_json::from_str(text).ok());
                self.message = Some(Message { entry: id.clone(), said: said.unwrap_or_default() });
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

    fn run(&mut self, event: &run::Event, at: Millis, session: Option<String>) -> Option<Span> {
        match event {
            run::Event::Started { run, .. } => {
                let open = OpenRun { start: at, session, model: None, used: RequestUsage::default() };
                keep(&mut self.runs, *run, open);
                None
            }
            run::Event::ModelRequested { run, epoch, model, cap, .. } => {
                let (provider, name) = (plain(&model.provider), plain(&model.id));
                if let Some(open) = self.runs.get_mut(run) {
                    open.model = Some((provider.clone(), name.clone()));
                }
                let chat = OpenChat { epoch: *epoch, start: at, provider, model: name, most: *cap };
                keep(&mut self.chats, *run, chat);
                None
            }
            run::Event::Answered { run, epoch, entry, stop, .. } => {
                let said = self.message.take().filter(|message| message.entry == *entry).map(|message| message.said);
                self.answered(*run, *epoch, at, session, Some(*stop), said.unwrap_or_default())
            }
            run::Event::Interrupted { run } => {
                let epoch = self.chats.get(run)?.epoch;
                self.answered(*run, epoch, at, session, None, Answer::default())
            }
            run::Event::Ended { run, end, .. } => {
                self.chats.remove(run);
                let open = self.runs.remove(run)?;
                let (word, error) = of_run(*end);
                let mut attributes = vec![
                    ("gen_ai.operation.name", "invoke_agent".into()),
                    ("countersign.run.id", run.to_string().into()),
                    ("countersign.run.end", word.into()),
                ];
                about(&mut attributes, "gen_ai.conversation.id", open.session);
                if let Some((provider, model)) = open.model {
                    attributes.push(("gen_ai.provider.name", provider.into()));
                    attributes.push(("gen_ai.request.model", model.into()));
                }
                usage(&mut attributes, &open.used);
                Some(Span {
                    trace: trace_of_run(*run),
                    id: span_of_run(*run),
                    parent: None,
                    name: "invoke_agent".to_owned(),
                    kind: Kind::Internal,
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

    /// The request to a model of which the answer, or that there will be none, is known now.
    fn answered(
        &mut self,
        run: RunId,
        epoch: u32,
        at: Millis,
        session: Option<String>,
        stop: Option<StopReason>,
        said: Answer,
    ) -> Option<Span> {
        let chat = self.chats.remove(&run).filter(|chat| chat.epoch == epoch)?;
        if let Some(open) = self.runs.get_mut(&run) {
            open.used.input += said.usage.input;
            open.used.output += said.usage.output;
            open.used.cache_read += said.usage.cache_read;
            open.used.cache_write += said.usage.cache_write;
        }
        let (word, error) = stop.map_or((None, Some("interrupted")), |stop| {
            let (word, error) = of_stop(stop);
            (Some(word), error)
        });
        let mut attributes = vec![
            ("gen_ai.operation.name", "chat".into()),
            ("gen_ai.provider.name", chat.provider.into()),
            ("gen_ai.request.model", chat.model.as_str().into()),
            ("countersign.run.id", run.to_string().into()),
        ];
        about(&mut attributes, "gen_ai.conversation.id", session);
        about(&mut attributes, "gen_ai.request.max_tokens", chat.most);
        about(&mut attributes, "gen_ai.response.model", said.model.map(|model| plain(&model)));
        if let Some(word) = word {
            attributes.push(("gen_ai.response.finish_reasons", Value::Texts(vec![word])));
        }
        usage(&mut attributes, &said.usage);
        Some(Span {
            trace: trace_of_run(run),
            id: number("chat", &[run.uuid().as_bytes(), &epoch.to_be_bytes()]),
            parent: Some(span_of_run(run)),
            name: format!("chat {}", chat.model),
            kind: Kind::Client,
            start: chat.start,
            end: at,
            attributes,
            error,
        })
    }

    fn call(
        &mut self,
        event: &call::Event,
        at: Millis,
        session: Option<String>,
        content: Option<&str>,
    ) -> Option<Span> {
        match event {
            call::Event::Proposed { call, run, executor, .. } => {
                let wanted = content.and_then(|text| serde_json::from_str::<Wanted>(text).ok());
                let request = wanted.as_ref().and_then(|wanted| wanted.request.as_ref());
                let open = OpenCall {
                    run: *run,
                    start: at,
                    session,
                    tool: wanted.as_ref().map(|wanted| plain(&wanted.tool)),
                    tool_call_id: wanted
                        .as_ref()
                        .filter(|wanted| !wanted.tool_call_id.is_empty())
                        .map(|it| plain(&it.tool_call_id)),
                    agent: request.map(|request| plain(&request.principal)),
                    door: request.and_then(|request| request.door.as_deref()).map(plain),
                    executor: of_executor(executor),
                    is_away: matches!(executor, Executor::Service | Executor::Peer(_)),
                    verdict: None,
                    gate: None,
                };
                keep(&mut self.calls, *call, open);
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
                Some(done(*call, open, *end, at))
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

    fn gate(&mut self, event: &gate::Event, at: Millis, session: Option<String>) -> Option<Span> {
        match event {
            gate::Event::Opened { gate, kind, run, call, .. } => {
                if let Some(open) = call.and_then(|call| self.calls.get_mut(&call)) {
                    open.gate = Some(*gate);
                }
                let kind = of_kind(*kind);
                keep(&mut self.gates, *gate, OpenGate { run: *run, call: *call, start: at, session, kind });
                None
            }
            gate::Event::Resolved { gate, resolution, .. } => {
                let open = self.gates.remove(gate)?;
                let mut attributes = vec![
                    ("countersign.gate.id", gate.to_string().into()),
                    ("countersign.gate.kind", open.kind.into()),
                    ("countersign.verdict", of_resolution(resolution).into()),
                ];
                about(&mut attributes, "countersign.call.id", open.call.map(|call| call.to_string()));
                about(&mut attributes, "countersign.run.id", open.run.map(|run| run.to_string()));
                about(&mut attributes, "gen_ai.conversation.id", open.session);
                let trace = match (open.run, open.call) {
                    (Some(run), _) => trace_of_run(run),
                    (None, Some(call)) => trace_of_call(call),
                    (None, None) => number("gate", &[gate.uuid().as_bytes()]),
                };
                Some(Span {
                    trace,
                    id: number("gate span", &[gate.uuid().as_bytes()]),
                    parent: open.call.map(span_of_call).or_else(|| open.run.map(span_of_run)),
                    name: format!("countersign.gate {}", open.kind),
                    kind: Kind::Internal,
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

fn done(call: CallId, open: OpenCall, end: call::CallEnd, at: Millis) -> Span {
    let (word, error) = of_call(end);
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
    about(&mut attributes, "countersign.verdict", verdict);
    about(&mut attributes, "countersign.gate.id", open.gate.map(|gate| gate.to_string()));
    about(&mut attributes, "countersign.door", open.door);
    about(&mut attributes, "countersign.run.id", open.run.map(|run| run.to_string()));
    about(&mut attributes, "gen_ai.tool.call.id", open.tool_call_id);
    about(&mut attributes, "gen_ai.agent.name", open.agent);
    about(&mut attributes, "gen_ai.conversation.id", open.session);
    Span {
        trace: open.run.map_or_else(|| trace_of_call(call), trace_of_run),
        id: span_of_call(call),
        parent: open.run.map(span_of_run),
        name: format!("execute_tool {tool}"),
        kind: if open.is_away { Kind::Client } else { Kind::Internal },
        start: open.start,
        end: at,
        attributes,
        error,
    }
}

fn keep<K: std::hash::Hash + Eq, V>(open: &mut HashMap<K, V>, id: K, value: V) {
    if open.len() < MOST_OPEN {
        open.insert(id, value);
    }
}

fn about<T: Into<Value>>(attributes: &mut Vec<(&'static str, Value)>, name: &'static str, value: Option<T>) {
    attributes.extend(value.map(|value| (name, value.into())));
}

/// Input counts what came from a cache, as the names of OpenTelemetry mean it; ours do not.
fn usage(attributes: &mut Vec<(&'static str, Value)>, used: &RequestUsage) {
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

/// A name as it is where it is plain, else that it is not.
fn plain(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.:/@".contains(c);
    if !name.is_empty() && name.len() <= LONGEST_NAME && name.chars().all(is_plain) {
        name.to_owned()
    } else {
        "unusual".to_owned()
    }
}

/// A session by its digest.
fn conversation(session: &SessionId) -> String {
    hex::encode(number::<16>("session", &[session.as_str().as_bytes()]))
}

fn trace_of_run(run: RunId) -> [u8; 16] {
    number("run", &[run.uuid().as_bytes()])
}

fn span_of_run(run: RunId) -> [u8; 8] {
    number("run span", &[run.uuid().as_bytes()])
}

fn trace_of_call(call: CallId) -> [u8; 16] {
    number("call", &[call.uuid().as_bytes()])
}

fn span_of_call(call: CallId) -> [u8; 8] {
    number("call span", &[call.uuid().as_bytes()])
}

/// A number that follows from what it is of, so that a later process tells of the same by the same.
fn number<const N: usize>(what: &str, of: &[&[u8]]) -> [u8; N] {
    let mut digest = Sha256::new();
    digest.update(what.as_bytes());
    digest.update([0]);
    of.iter().for_each(|part| digest.update(part));
    let mut number = [0; N];
    number.iter_mut().zip(digest.finalize()).for_each(|(to, from)| *to = from);
    number
}

#[cfg(test)]
mod tests {
    use super::{number, plain};

    #[test]
    fn names_of_others_are_told_only_where_they_are_plain() {
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
            assert_eq!(plain(name), want);
        }
        assert_eq!(plain(&"x".repeat(129)), "unusual");
    }

    #[test]
    fn numbers_follow_from_what_they_are_of() {
        let [one, again, other]: [[u8; 8]; 3] = [number("a", &[b"x"]), number("a", &[b"x"]), number("b", &[b"x"])];
        assert!(one == again && one != other && one != [0; 8]);
    }
}
