//! Who waits for a call: the client that asked for it, and whoever needs to know that its end is recorded.

use std::{collections::HashMap, sync::Arc};

use countersign_core::{
    call,
    engine::{Event, RecordedFact},
    id::CallId,
};
use countersign_protocol::gsv::{GsvError, tool::ToolResultParams};
use countersign_runtime::FactFollower;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::super::{Door, peer::Peer};

/// What a client is answered.
pub(super) type Told = Result<ToolResultParams, GsvError>;

/// Everybody who waits.
#[derive(Default)]
pub(super) struct Waiting(Mutex<Waiters>);

#[derive(Default)]
struct Waiters {
    clients: HashMap<CallId, Asker>,
    ends: HashMap<CallId, Vec<oneshot::Sender<()>>>,
}

/// Who asked for a call, and of which node.
struct Asker {
    node: String,
    peer: Arc<Peer>,
    told: oneshot::Sender<Told>,
}

/// A client that waits for what a node says. Dropped, it does not any more.
pub(super) struct Client<'a> {
    waiting: &'a Waiting,
    call: CallId,
    told: oneshot::Receiver<Told>,
}

impl Client<'_> {
    /// What the node said, or why it will not.
    pub(super) async fn told(&mut self) -> Told {
        let gone = |_| Err(GsvError::new(countersign_protocol::gsv::code::UNAVAILABLE, "the gateway is closing"));
        (&mut self.told).await.unwrap_or_else(gone)
    }
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        self.waiting.0.lock().clients.remove(&self.call);
    }
}

impl Waiting {
    /// Notes that a client waits for a call at a node.
    pub(super) fn client(&self, call: CallId, node: &str, peer: &Arc<Peer>) -> Client<'_> {
        let (sender, told) = oneshot::channel();
        let asker = Asker { node: node.to_owned(), peer: Arc::clone(peer), told: sender };
        self.0.lock().clients.insert(call, asker);
        Client { waiting: self, call, told }
    }

    /// Takes the client that waits for a call, if one still does.
    pub(super) fn take(&self, call: CallId) -> Option<oneshot::Sender<Told>> {
        let asker = self.0.lock().clients.remove(&call)?;
        asker.peer.is_here().then_some(asker.told)
    }

    /// Tells every client that waits for a node that it is gone.
    pub(super) fn lose(&self, node: &str) {
        let mut waiters = self.0.lock();
        for (_, asker) in waiters.clients.extract_if(|_, asker| asker.node == node) {
            // It may have gone as well.
            let _ = asker.told.send(Err(GsvError::node_disconnected(node)));
        }
    }

    /// Waits until what a call came to is recorded. To be asked for before anything is told of it.
    pub(super) fn recorded(&self, call: CallId) -> oneshot::Receiver<()> {
        let (sender, recorded) = oneshot::channel();
        self.0.lock().ends.entry(call).or_default().push(sender);
        recorded
    }

    fn ended(&self, call: CallId) {
        let mut waiters = self.0.lock();
        for end in waiters.ends.remove(&call).unwrap_or_default() {
            let _ = end.send(());
        }
    }

    /// A call is over, and nobody told its client what it came to: it never reached its node.
    fn given_up(&self, call: CallId) {
        if let Some(asker) = self.0.lock().clients.remove(&call) {
            let _ = asker.told.send(Err(GsvError::node_disconnected(&asker.node)));
        }
    }
}

/// Returns what happened to a call, if it is that.
pub(super) fn event_of_call(recorded: &Arc<RecordedFact>) -> Option<call::Event> {
    match &recorded.fact.event {
        Event::Call(event) => Some(event.clone()),
        _ => None,
    }
}

/// Follows calls, for those who wait for what is recorded of them.
pub(super) async fn follow(door: Arc<Door>, mut events: FactFollower<call::Event>) {
    while let Some(event) = events.next().await {
        match event {
            call::Event::Ended { call, .. } => {
                door.nodes.waiting.ended(call);
                door.nodes.waiting.given_up(call);
                door.nodes.hand.release(call);
            }
            // What became of it may be asked for once more, and whoever told of it need not wait for that.
            call::Event::InDoubt { call, .. } | call::Event::ResultDropped { call } => door.nodes.waiting.ended(call),
            call::Event::LeftBehind { .. } => door.nodes.executions.changed(),
            _ => {}
        }
    }
}
