//! Brings the end of each request to the connection that waits for it.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use countersign_core::{
    call,
    engine::Event,
    gate,
    id::{CallId, GateId},
};
use countersign_runtime::{Handle, Released, Subscriber};
use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedSender;

use super::outcome::Outcome;

/// How many ends are kept for connections that have not said yet that they wait.
const KEPT: usize = 4096;

/// An end on its way to a connection, with the client's id.
pub(super) type Told = (Arc<str>, Outcome);

/// A connection that waits, and its client's id of the request.
type Waiting = (Arc<str>, UnboundedSender<Told>);

/// Who waits for what.
#[derive(Default)]
pub(super) struct Answers(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    waiting: HashMap<CallId, Vec<Waiting>>,
    ended: HashMap<CallId, Outcome>,
    order: VecDeque<CallId>,
    gates: HashMap<CallId, GateId>,
}

impl Answers {
    /// Follows what an owner releases, for as long as it does.
    pub(super) async fn follow(handle: &Handle) -> Option<Arc<Self>> {
        let answers = Arc::new(Self::default());
        let subscriber = handle.subscribe().await?;
        let follower = Arc::clone(&answers);
        tokio::spawn(async move { follower.run(subscriber).await });
        Some(answers)
    }

    async fn run(&self, mut subscriber: Subscriber) {
        while let Some(released) = subscriber.next().await {
            let Released::Fact(recorded) = released else { continue };
            match &recorded.fact.event {
                Event::Gate(gate::Event::Opened { gate, call: Some(call), run: None, .. }) => {
                    self.0.lock().gates.insert(*call, *gate);
                }
                Event::Call(call::Event::Ended { call, end, entry: None }) => {
                    let content = recorded.fact.content.as_deref().unwrap_or_default().to_owned();
                    self.ended(*call, *end, content);
                }
                _ => {}
            }
        }
    }

    fn ended(&self, call: CallId, end: call::End, content: String) {
        let mut inner = self.0.lock();
        let gate = inner.gates.remove(&call);
        let outcome = Outcome { call, gate, end, content };
        if let Some(waiting) = inner.waiting.remove(&call) {
            for (id, connection) in waiting {
                // A connection that is gone asks for what it missed when it comes back.
                let _ = connection.send((id, outcome.clone()));
            }
            return;
        }
        inner.ended.insert(call, outcome);
        inner.order.push_back(call);
        if inner.order.len() > KEPT
            && let Some(oldest) = inner.order.pop_front()
        {
            inner.ended.remove(&oldest);
        }
    }

    /// Has the end of a call brought to a connection under the client's id, at once if it is over.
    pub(super) fn wait(&self, call: CallId, id: Arc<str>, connection: &UnboundedSender<Told>) {
        let mut inner = self.0.lock();
        match inner.ended.remove(&call) {
            Some(outcome) => {
                let _ = connection.send((id, outcome));
            }
            None => inner.waiting.entry(call).or_default().push((id, connection.clone())),
        }
    }

    /// Forgets a connection.
    pub(super) fn gone(&self, connection: &UnboundedSender<Told>) {
        self.0.lock().waiting.retain(|_, waiting| {
            waiting.retain(|(_, of)| !of.same_channel(connection));
            !waiting.is_empty()
        });
    }
}
