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

use super::super::{GsvAdapter, peer::ConnectedPeer};

/// What a client is answered.
pub(super) type InvokeResult = Result<ToolResultParams, GsvError>;

/// Everybody who waits.
#[derive(Default)]
pub(super) struct CallWaiters(Mutex<WaiterTable>);

#[derive(Default)]
struct WaiterTable {
    clients: HashMap<CallId, ClientEntry>,
    ends: HashMap<CallId, Vec<oneshot::Sender<()>>>,
}

/// Who asked for a call, and of which node.
struct ClientEntry {
    node: String,
    peer: Arc<ConnectedPeer>,
    result_sender: oneshot::Sender<InvokeResult>,
}

/// A client that waits for what a node says. Dropped, it does not any more.
pub(super) struct ClientWait<'a> {
    waiting: &'a CallWaiters,
    call: CallId,
    result_receiver: oneshot::Receiver<InvokeResult>,
}

impl ClientWait<'_> {
    /// What the node said, or why it will not.
    pub(super) async fn wait_result(&mut self) -> InvokeResult {
        let gone = |_| Err(GsvError::new(countersign_protocol::gsv::code::UNAVAILABLE, "the gateway is closing"));
        (&mut self.result_receiver).await.unwrap_or_else(gone)
    }
}

impl Drop for ClientWait<'_> {
    fn drop(&mut self) {
        self.waiting.0.lock().clients.remove(&self.call);
    }
}

impl CallWaiters {
    /// Notes that a client waits for a call at a node.
    pub(super) fn wait_for_call(&self, call: CallId, node: &str, peer: &Arc<ConnectedPeer>) -> ClientWait<'_> {
        let (sender, receiver) = oneshot::channel();
        let asker = ClientEntry { node: node.to_owned(), peer: Arc::clone(peer), result_sender: sender };
        self.0.lock().clients.insert(call, asker);
        ClientWait { waiting: self, call, result_receiver: receiver }
    }

    /// Takes the client that waits for a call, if one still does.
    pub(super) fn take_client(&self, call: CallId) -> Option<oneshot::Sender<InvokeResult>> {
        let asker = self.0.lock().clients.remove(&call)?;
        asker.peer.is_here().then_some(asker.result_sender)
    }

    /// Tells every client that waits for a node that it is gone.
    pub(super) fn lose_node(&self, node: &str) {
        let mut waiters = self.0.lock();
        for (_, asker) in waiters.clients.extract_if(|_, asker| asker.node == node) {
            // It may have gone as well.
            let _ = asker.result_sender.send(Err(GsvError::node_disconnected(node)));
        }
    }

    /// Waits until what a call came to is recorded. To be asked for before anything is told of it.
    pub(super) fn wait_recorded(&self, call: CallId) -> oneshot::Receiver<()> {
        let (sender, recorded) = oneshot::channel();
        self.0.lock().ends.entry(call).or_default().push(sender);
        recorded
    }

    fn notify_ended(&self, call: CallId) {
        let mut waiters = self.0.lock();
        for end in waiters.ends.remove(&call).unwrap_or_default() {
            let _ = end.send(());
        }
    }

    /// A call is over, and nobody told its client what it came to: it never reached its node.
    fn given_up(&self, call: CallId) {
        if let Some(asker) = self.0.lock().clients.remove(&call) {
            let _ = asker.result_sender.send(Err(GsvError::node_disconnected(&asker.node)));
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
pub(super) async fn follow_events(door: Arc<GsvAdapter>, mut events: FactFollower<call::Event>) {
    while let Some(event) = events.next().await {
        match event {
            call::Event::Ended { call, .. } => {
                door.nodes.call_waiters.notify_ended(call);
                door.nodes.call_waiters.given_up(call);
                door.nodes.calls.release_id(call);
            }
            // What became of it may be asked for once more, and whoever told of it need not wait for that.
            call::Event::InDoubt { call, .. } | call::Event::ResultDropped { call } => {
                door.nodes.call_waiters.notify_ended(call)
            }
            call::Event::LeftBehind { .. } => door.nodes.executions.notify_changed(),
            _ => {}
        }
    }
}
