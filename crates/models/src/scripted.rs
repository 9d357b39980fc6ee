//! A model that answers what it was told to, for tests.
//!
//! It must not look at what it is asked, nor wait by itself: time stands still unless the script says what to wait for.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::{StreamExt, stream, stream::BoxStream};
use tokio::sync::Notify;

use crate::{Event, Failure, FailureKind, Model, Part, PartKind, Request, Stop, Usage};

/// One step of a reply.
#[derive(Clone, Debug)]
pub enum Step {
    /// Says an event.
    Say(Event),
    /// Fails, which ends the reply.
    Fail(Failure),
    /// Waits until it is notified. A notification that came before counts.
    Wait(Arc<Notify>),
    /// Says nothing more and does not end.
    Hang,
}

/// What one request gets, step by step. The parts are numbered as they are added.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    steps: Vec<Step>,
    parts: usize,
    called: bool,
    usage: Usage,
}

impl Reply {
    /// A reply that begins and says nothing yet.
    pub fn new() -> Self {
        let start = Step::Say(Event::Start { response_id: None });
        Self {
            steps: vec![start],
            parts: 0,
            called: false,
            usage: Usage { input: 100, output: 50, ..Usage::default() },
        }
    }

    /// A reply that is one text.
    pub fn say(text: &str) -> Self {
        Self::new().text([text]).end()
    }

    /// A reply that is one call. `arguments` is JSON text.
    pub fn use_tool(id: &str, name: &str, arguments: &str) -> Self {
        Self::new().call(id, name, arguments).end()
    }

    /// A reply that fails before it begins.
    pub fn fail(failure: Failure) -> Self {
        Self { steps: vec![Step::Fail(failure)], ..Self::default() }
    }

    /// Adds a text, one delta each.
    #[must_use]
    pub fn text<'a>(self, deltas: impl IntoIterator<Item = &'a str>) -> Self {
        let deltas: Vec<_> = deltas.into_iter().map(str::to_owned).collect();
        let text = deltas.concat();
        self.part(PartKind::Text, deltas, Part::Text { text, signature: None })
    }

    /// Adds thinking, one delta each.
    #[must_use]
    pub fn thinking<'a>(self, deltas: impl IntoIterator<Item = &'a str>) -> Self {
        let deltas: Vec<_> = deltas.into_iter().map(str::to_owned).collect();
        let text = deltas.concat();
        self.part(PartKind::Thinking, deltas, Part::Thinking { text, signature: None })
    }

    /// Adds a call whose arguments come in pieces of seven characters.
    #[must_use]
    pub fn call(mut self, id: &str, name: &str, arguments: &str) -> Self {
        self.called = true;
        let characters: Vec<_> = arguments.chars().collect();
        let deltas = characters.chunks(7).map(|piece| piece.iter().collect()).collect();
        let (id, name, arguments) = (id.to_owned(), name.to_owned(), arguments.to_owned());
        let kind = PartKind::ToolCall { id: id.clone(), name: name.clone() };
        self.part(kind, deltas, Part::ToolCall { id, name, arguments, signature: None })
    }

    /// Adds any step.
    #[must_use]
    pub fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// Sets what the reply used, said by [`Reply::end`].
    #[must_use]
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// Ends the reply: for the results of its calls, if it has any.
    #[must_use]
    pub fn end(self) -> Self {
        let stop = if self.called { Stop::ToolUse } else { Stop::Stop };
        self.stop(stop)
    }

    /// Ends the reply for a reason.
    #[must_use]
    pub fn stop(mut self, stop: Stop) -> Self {
        self.steps.extend([Step::Say(Event::Usage(self.usage)), Step::Say(Event::Stop(stop))]);
        self
    }

    fn part(mut self, kind: PartKind, deltas: Vec<String>, part: Part) -> Self {
        let index = self.parts;
        self.parts += 1;
        self.steps.push(Step::Say(Event::PartStart { index, kind }));
        self.steps.extend(deltas.into_iter().map(|text| Step::Say(Event::Delta { index, text })));
        self.steps.push(Step::Say(Event::PartEnd { index, part }));
        self
    }
}

/// Answers each request with the next reply of its script and remembers what it was asked.
///
/// A request that the script has no reply for is refused. Clones share the script.
#[derive(Clone, Debug, Default)]
pub struct Scripted(Arc<Mutex<Script>>);

#[derive(Debug, Default)]
struct Script {
    replies: VecDeque<Reply>,
    requests: Vec<Request>,
    open: usize,
}

impl Scripted {
    /// A model with a script.
    pub fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        let scripted = Self::default();
        scripted.lock().replies.extend(replies);
        scripted
    }

    /// Adds a reply to the end of the script.
    pub fn push(&self, reply: Reply) {
        self.lock().replies.push_back(reply);
    }

    /// What it was asked so far.
    pub fn requests(&self) -> Vec<Request> {
        self.lock().requests.clone()
    }

    /// How many answers are neither finished nor dropped.
    pub fn open(&self) -> usize {
        self.lock().open
    }

    /// How many replies are left.
    pub fn left(&self) -> usize {
        self.lock().replies.len()
    }

    fn lock(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Model for Scripted {
    /// The reply is taken at once, so that the order of calls is the order of replies.
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Event, Failure>> {
        let reply = {
            let mut script = self.lock();
            script.requests.push(request);
            script.open += 1;
            script.replies.pop_front()
        };
        let missing = || Reply::fail(Failure::new(FailureKind::Refused, "the script has no more replies"));
        let steps = reply.unwrap_or_else(missing).steps.into_iter();
        stream::unfold((steps, Open(self.clone())), |(mut steps, open)| async {
            loop {
                match steps.next()? {
                    Step::Say(event) => return Some((Ok(event), (steps, open))),
                    Step::Fail(failure) => return Some((Err(failure), (Vec::new().into_iter(), open))),
                    Step::Wait(notify) => notify.notified().await,
                    Step::Hang => std::future::pending().await,
                }
            }
        })
        .boxed()
    }
}

/// Counts an answer until it is dropped.
struct Open(Scripted);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.lock().open -= 1;
    }
}
