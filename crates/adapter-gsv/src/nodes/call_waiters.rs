//! Waiters for calls: the client that asked for a call, and callers that need its end to be recorded.

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

/// Result for a client.
pub(super) type InvokeResult = Result<ToolResultParams, GsvError>;

/// Table of all waiters.
#[derive(Default)]
pub(super) struct CallWaiters(Mutex<WaiterTable>);

#[derive(Default)]
struct WaiterTable {
    clients: HashMap<CallId, ClientEntry>,
    ends: HashMap<CallId, Vec<oneshot::Sender<()>>>,
}

/// Client of a call, and the node of the call.
struct ClientEntry {
    node: String,
    peer: Arc<ConnectedPeer>,
    result_sender: oneshot::Sender<InvokeResult>,
}

/// Client that waits for a node's result. Dropping it ends the wait.
pub(super) struct ClientWait<'a> {
    waiting: &'a CallWaiters,
    call: CallId,
    result_receiver: oneshot::Receiver<InvokeResult>,
}

impl ClientWait<'_> {
    /// Waits for the node's result, or the reason why there is none.
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

    /// Removes the client that waits for a call, if one still does.
    pub(super) fn take_client(&self, call: CallId) -> Option<oneshot::Sender<InvokeResult>> {
        let asker = self.0.lock().clients.remove(&call)?;
        asker.peer.is_here().then_some(asker.result_sender)
    }

    /// Tells every client that waits for a node that the node disconnected.
    pub(super) fn lose_node(&self, node: &str) {
        let mut waiters = self.0.lock();
        for (_, asker) in waiters.clients.extract_if(|_, asker| asker.node == node) {
            // The client may have gone as well.
            let _ = asker.result_sender.send(Err(GsvError::node_disconnected(node)));
        }
    }

    /// Returns a receiver for the moment in which the end of a call is recorded. Call it before the end can be reported.
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

    /// Ends the wait for a call that never reached its node, and whose client got no result.
    fn given_up(&self, call: CallId) {
        if let Some(asker) = self.0.lock().clients.remove(&call) {
            let _ = asker.result_sender.send(Err(GsvError::node_disconnected(&asker.node)));
        }
    }
}

/// Returns the event of a call, if the fact is one that waiters are notified of.
pub(super) fn event_of_call(recorded: &Arc<RecordedFact>) -> Option<call::Event> {
    match &recorded.fact.event {
        Event::Call(
            event @ (call::Event::Ended { .. }
            | call::Event::InDoubt { .. }
            | call::Event::ResultDropped { .. }
            | call::Event::LeftBehind { .. }),
        ) => Some(event.clone()),
        _ => None,
    }
}

/// Follows calls, for waiters of what is recorded about them.
pub(super) async fn follow_events(door: Arc<GsvAdapter>, mut events: FactFollower<call::Event>) {
    while let Some(event) = events.next().await {
        match event {
            call::Event::Ended { call, .. } => {
                door.nodes.call_waiters.notify_ended(call);
                door.nodes.call_waiters.given_up(call);
                door.nodes.calls.release_id(call);
            }
            // The node may be asked about its outcome once more, and the reporter need not wait for that.
            call::Event::InDoubt { call, .. } | call::Event::ResultDropped { call } => {
                door.nodes.call_waiters.notify_ended(call)
            }
            call::Event::LeftBehind { .. } => door.nodes.executions.notify_changed(),
            _ => {}
        }
    }
}
