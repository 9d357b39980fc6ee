//! A model that gives scripted answers, for tests.
//!
//! It must not look at its requests, nor wait by itself: time stands still unless the script has a wait.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::{StreamExt, stream, stream::BoxStream};
use tokio::sync::Notify;

use crate::{
    FailureKind, FinishReason, LanguageModel, MessagePart, ModelEvent, ModelFailure, ModelRequest, ModelUsage, PartKind,
};

/// One step of a reply.
#[derive(Clone, Debug)]
pub enum ReplyStep {
    /// Sends an event.
    Say(ModelEvent),
    /// Fails, which ends the reply.
    Fail(ModelFailure),
    /// Waits until it is notified. A notification that came before counts.
    Wait(Arc<Notify>),
    /// Sends nothing more and does not end.
    Hang,
}

/// Reply to one request, step by step. The parts are numbered as they are added.
#[derive(Clone, Debug, Default)]
pub struct ScriptedReply {
    steps: Vec<ReplyStep>,
    parts: usize,
    called: bool,
    usage: ModelUsage,
}

impl ScriptedReply {
    /// Makes a reply that begins and has no event yet.
    pub fn new() -> Self {
        let start = ReplyStep::Say(ModelEvent::Start { response_id: None });
        Self {
            steps: vec![start],
            parts: 0,
            called: false,
            usage: ModelUsage { input: 100, output: 50, ..ModelUsage::default() },
        }
    }

    /// Makes a reply that is one text.
    pub fn from_text(text: &str) -> Self {
        Self::new().add_text([text]).end()
    }

    /// Makes a reply that is one call. `arguments` is JSON text.
    pub fn use_tool(id: &str, name: &str, arguments: &str) -> Self {
        Self::new().add_call(id, name, arguments).end()
    }

    /// Makes a reply that fails before it begins.
    pub fn from_failure(failure: ModelFailure) -> Self {
        Self { steps: vec![ReplyStep::Fail(failure)], ..Self::default() }
    }

    /// Adds a text, one delta each.
    #[must_use]
    pub fn add_text<'a>(self, deltas: impl IntoIterator<Item = &'a str>) -> Self {
        let deltas: Vec<_> = deltas.into_iter().map(str::to_owned).collect();
        let text = deltas.concat();
        self.add_part(PartKind::Text, deltas, MessagePart::Text { text, signature: None })
    }

    /// Adds thinking, one delta each.
    #[must_use]
    pub fn add_thinking<'a>(self, deltas: impl IntoIterator<Item = &'a str>) -> Self {
        let deltas: Vec<_> = deltas.into_iter().map(str::to_owned).collect();
        let text = deltas.concat();
        self.add_part(PartKind::Thinking, deltas, MessagePart::Thinking { text, signature: None })
    }

    /// Adds a call whose arguments come in pieces of seven characters.
    #[must_use]
    pub fn add_call(mut self, id: &str, name: &str, arguments: &str) -> Self {
        self.called = true;
        let characters: Vec<_> = arguments.chars().collect();
        let deltas = characters.chunks(7).map(|piece| piece.iter().collect()).collect();
        let (id, name, arguments) = (id.to_owned(), name.to_owned(), arguments.to_owned());
        let kind = PartKind::ToolCall { id: id.clone(), name: name.clone() };
        self.add_part(kind, deltas, MessagePart::ToolCall { id, name, arguments, signature: None })
    }

    /// Adds any step.
    #[must_use]
    pub fn add_step(mut self, step: ReplyStep) -> Self {
        self.steps.push(step);
        self
    }

    /// Sets the usage of the reply, reported by [`ScriptedReply::end`].
    #[must_use]
    pub fn with_usage(mut self, usage: ModelUsage) -> Self {
        self.usage = usage;
        self
    }

    /// Ends the reply: for the results of its calls, if it has any.
    #[must_use]
    pub fn end(self) -> Self {
        let stop = if self.called { FinishReason::ToolUse } else { FinishReason::Stop };
        self.end_with(stop)
    }

    /// Ends the reply for a reason.
    #[must_use]
    pub fn end_with(mut self, stop: FinishReason) -> Self {
        self.steps.extend([ReplyStep::Say(ModelEvent::Usage(self.usage)), ReplyStep::Say(ModelEvent::Stop(stop))]);
        self
    }

    fn add_part(mut self, kind: PartKind, deltas: Vec<String>, part: MessagePart) -> Self {
        let index = self.parts;
        self.parts += 1;
        self.steps.push(ReplyStep::Say(ModelEvent::PartStart { index, kind }));
        self.steps.extend(deltas.into_iter().map(|text| ReplyStep::Say(ModelEvent::Delta { index, text })));
        self.steps.push(ReplyStep::Say(ModelEvent::PartEnd { index, part }));
        self
    }
}

/// Answers each request with the next reply of its script and remembers the requests.
///
/// A request that the script has no reply for is refused. Clones share the script.
#[derive(Clone, Debug, Default)]
pub struct ScriptedModel(Arc<Mutex<ModelScript>>);

#[derive(Debug, Default)]
struct ModelScript {
    replies: VecDeque<ScriptedReply>,
    requests: Vec<ModelRequest>,
    open: usize,
}

impl ScriptedModel {
    /// Makes a model with a script.
    pub fn new(replies: impl IntoIterator<Item = ScriptedReply>) -> Self {
        let scripted = Self::default();
        scripted.lock_script().replies.extend(replies);
        scripted
    }

    /// Adds a reply to the end of the script.
    pub fn push_reply(&self, reply: ScriptedReply) {
        self.lock_script().replies.push_back(reply);
    }

    /// Returns the requests so far.
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.lock_script().requests.clone()
    }

    /// Returns the number of answers that are neither finished nor dropped.
    pub fn open_count(&self) -> usize {
        self.lock_script().open
    }

    /// Returns the number of replies left.
    pub fn replies_left(&self) -> usize {
        self.lock_script().replies.len()
    }

    fn lock_script(&self) -> MutexGuard<'_, ModelScript> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LanguageModel for ScriptedModel {
    /// Takes the reply at once, so that the order of calls is the order of replies.
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<ModelEvent, ModelFailure>> {
        let reply = {
            let mut script = self.lock_script();
            script.requests.push(request);
            script.open += 1;
            script.replies.pop_front()
        };
        let missing =
            || ScriptedReply::from_failure(ModelFailure::new(FailureKind::Refused, "the script has no more replies"));
        let steps = reply.unwrap_or_else(missing).steps.into_iter();
        stream::unfold((steps, OpenAnswer(self.clone())), |(mut steps, open)| async {
            loop {
                match steps.next()? {
                    ReplyStep::Say(event) => return Some((Ok(event), (steps, open))),
                    ReplyStep::Fail(failure) => return Some((Err(failure), (Vec::new().into_iter(), open))),
                    ReplyStep::Wait(notify) => notify.notified().await,
                    ReplyStep::Hang => std::future::pending().await,
                }
            }
        })
        .boxed()
    }
}

/// Counts an answer until it is dropped.
struct OpenAnswer(ScriptedModel);

impl Drop for OpenAnswer {
    fn drop(&mut self) {
        self.0.lock_script().open -= 1;
    }
}
