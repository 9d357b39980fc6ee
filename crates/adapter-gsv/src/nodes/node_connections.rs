//! Connections of nodes: their offers, their links for calls, and the tasks that serve the links.

use std::{collections::HashMap, sync::Arc};

use countersign_core::{
    engine::Command,
    peer::{self, PeerMemory},
};
use countersign_protocol::{
    RawJson,
    gsv::{
        connect::{NodeJournal, PeerDetails as Kind},
        node as wire, tool,
    },
};
use countersign_runtime::{InboxLane, PeerCall, PeerLink, PeerOrder, PeerTexts};
use countersign_view::protocol::peer_of;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::{
    super::{GsvAdapter, peer::ConnectedPeer},
    in_flight_calls::CallPurpose,
    invoke,
    node_registry::{self, NodeRegistration},
};

/// Connections of nodes.
#[derive(Default)]
pub(super) struct NodeConnections {
    /// Lock for connects and disconnects, so that their records are in the order in which they happened.
    changing: tokio::sync::Mutex<()>,
    by_node: Mutex<HashMap<String, NodeConnection>>,
}

struct NodeConnection {
    connection: u64,
    /// Token that ends the task of the link.
    ended: CancellationToken,
}

/// Connects a node: it gets calls from now on.
pub(crate) async fn connect_node(door: &Arc<GsvAdapter>, peer: &Arc<ConnectedPeer>) {
    let Kind::Node { tools, runtime, journal } = &peer.connect.peer else { return };
    let node = &peer.connect.id;
    let seats = &door.nodes.connections;
    let _turn = seats.changing.lock().await;
    if !door.roster.is_seated(peer) {
        return;
    }
    if let Some(before) = seats.by_node.lock().remove(node) {
        lose_calls(door, node, before.connection);
        door.nodes.logs.node_replaced(node);
    }
    let source = door.context.handle.source(InboxLane::Result);
    let registration = NodeRegistration::from_connect(&peer.connect, tools, runtime.as_ref(), journal.is_some());
    if node_registry::find_node(door.context.handle.log(), node)
        .await
        .is_none_or(|known| known.registration != registration)
    {
        let text = RawJson::from_wire(&registration).as_text().into();
        let registered = source
            .send_command(Command::Peer(peer::Command::Registered { peer: peer_of(node), description: text }))
            .await;
        if let Err(error) = registered {
            tracing::warn!(node, %error, "failed to record the registration of a node");
        }
    }
    door.toolbox.set_offer(node, tools, runtime.as_ref());
    let memory = match journal {
        None => PeerMemory::Forgets,
        Some(NodeJournal::Nameless) => PeerMemory::Keeps,
        Some(NodeJournal::Of(id)) => PeerMemory::Journal(*id),
    };
    let link = door.toolbox.peer_registry().open_to(peer_of(node), memory, source.clone()).await;
    // A client that learns of it can call its tools at once.
    source.read_state(|_| ()).await;
    let ended = CancellationToken::new();
    let seat = NodeConnection { connection: peer.number, ended: ended.clone() };
    seats.by_node.lock().insert(node.clone(), seat);
    tokio::spawn(serve_link(Arc::clone(door), Arc::clone(peer), link, ended));
    door.nodes.probes.node_connected(door, peer, runtime.as_ref());
}

/// Disconnects a connection of a node.
pub(crate) async fn disconnect_node(door: &Arc<GsvAdapter>, peer: &ConnectedPeer) {
    let node = &peer.connect.id;
    let seats = &door.nodes.connections;
    let _turn = seats.changing.lock().await;
    let seat = {
        let mut seats = seats.by_node.lock();
        let is_its = seats.get(node).is_some_and(|seat| seat.connection == peer.number);
        if is_its { seats.remove(node) } else { None }
    };
    let Some(seat) = seat else { return };
    door.toolbox.take_back(node);
    seat.ended.cancel();
    lose_calls(door, node, peer.number);
    door.nodes.logs.node_disconnected(node);
    door.nodes.probes.node_gone(node);
}

/// Marks the calls of a connection as lost, and tells their waiters at once.
fn lose_calls(door: &GsvAdapter, node: &str, connection: u64) {
    door.nodes.call_waiters.lose_node(node);
    door.nodes.calls.lose_connection(connection);
}

/// Gives calls to a node, until its connection is gone or replaced.
async fn serve_link(door: Arc<GsvAdapter>, peer: Arc<ConnectedPeer>, mut link: PeerLink, ended: CancellationToken) {
    loop {
        let order = tokio::select! {
            biased;
            () = ended.cancelled() => break,
            order = link.next() => order,
        };
        match order {
            Some(PeerOrder::Do(errand)) => send_call(&door, &peer, *errand),
            Some(PeerOrder::Ask(errand)) => send_resume(&door, &peer, *errand),
            Some(PeerOrder::Stop(call)) => door.nodes.calls.stop_call(call),
            None => break,
        }
    }
    // Calls that were given in the moment in which the connection went.
    door.nodes.calls.lose_connection(peer.number);
    link.close().await;
}

/// Sends a call to its node.
fn send_call(door: &GsvAdapter, peer: &ConnectedPeer, errand: PeerCall) {
    let node = &peer.connect.id;
    let name = Arc::clone(&errand.content.tool);
    let Some(tool) = door.toolbox.tool_of_node(node, &name) else {
        return errand.refuse(format!("Error: No node provides tool: {name}"));
    };
    if door.nodes.calls.is_full() {
        return errand.refuse("Error: Too many calls wait for nodes");
    }
    let args = serde_json::Value::Object(errand.content.arguments.clone()).into();
    let (call_id, purpose) = wire_call_id(&errand);
    let Some(exchange) = errand.with_patience(door.settings.tool_timeout()).mark_sent(node_texts(node)) else { return };
    door.nodes.calls.insert_call(&call_id, node, peer.number, purpose, exchange);
    peer.send_event("tool.invoke", &tool::ToolInvokeEvent { call_id, tool: tool.definition().name.clone(), args });
}

/// Asks a node about the outcome of a call that it had on an earlier connection.
fn send_resume(door: &GsvAdapter, peer: &ConnectedPeer, errand: PeerCall) {
    let (call_id, purpose) = wire_call_id(&errand);
    let node = &peer.connect.id;
    let Some(exchange) = errand.with_patience(door.settings.tool_timeout()).mark_sent(node_texts(node)) else { return };
    door.nodes.calls.insert_call(&call_id, node, peer.number, purpose, exchange);
    peer.send_event(countersign_protocol::gsv::connect::RESUME, &tool::ToolResumeEvent { call_id });
}

/// Returns the id of a call on the wire, and its purpose. Ids of a run's calls come from models, and need not
/// be unique.
fn wire_call_id(errand: &PeerCall) -> (String, CallPurpose) {
    let own = errand.call.to_string();
    let given = &*errand.content.tool_call_id;
    match invoke::is_acts(&errand.session) {
        false => (own, CallPurpose::Run),
        true if given == own => (own, CallPurpose::Invoke),
        true => (given.to_owned(), CallPurpose::Request),
    }
}

fn node_texts(node: &str) -> PeerTexts {
    PeerTexts {
        stopped: "Error: Tool execution was stopped. It may or may not have taken effect.".to_owned(),
        gone: format!(
            "Error: Node disconnected: {node}. It is not known whether the call took effect, and it was not sent again."
        ),
        silent: format!("Error: {}", countersign_protocol::gsv::GsvError::timed_out().message),
    }
}

/// Returns the connected nodes, by id.
pub(super) fn connected_peers(door: &GsvAdapter) -> Vec<Arc<ConnectedPeer>> {
    door.roster.all_nodes()
}

/// Finds the node whose log is requested.
///
/// # Errors
/// As [`wire::LogsGet::node`] says.
pub(super) fn node_for_logs(
    door: &GsvAdapter,
    params: &wire::LogsGet,
) -> Result<Arc<ConnectedPeer>, countersign_protocol::gsv::GsvError> {
    let nodes = connected_peers(door);
    let ids: Vec<&str> = nodes.iter().map(|node| node.connect.id.as_str()).collect();
    let id = params.select_node(&ids)?.to_owned();
    let found = nodes.into_iter().find(|node| node.connect.id == id);
    found.ok_or_else(|| countersign_protocol::gsv::GsvError::node_disconnected(&id))
}
