//! Nodes: machines that offer tools, their calls, and their results. Source: docs/protocol/gsv.md, Nodes.

mod call_waiters;
mod executions;
mod in_flight_calls;
mod invoke;
pub(super) mod logs;
mod node_connections;
mod node_registry;
mod node_tool;
mod node_tools;
mod probes;
mod results;
mod started_calls_view;

use std::sync::Arc;

use countersign_protocol::{
    RawJson,
    gsv::{
        GsvError, GsvRequest, Method,
        tool::{self, ToolsListResult},
    },
};

use super::{
    GsvAdapter, builtin_tools,
    method_result::{MethodResult, unsupported_method},
    peer::ConnectedPeer,
};

pub use executions::ExecutionsView;
pub(super) use invoke::is_acts;
pub(super) use node_connections::{connect_node, disconnect_node};
pub use node_registry::NodeRegistryView;
pub use node_tool::assumed_call;
pub(super) use node_tools::NodeTools;
pub(super) use probes::{ProbeScope, connected_nodes as known, probe_nodes};
pub use started_calls_view::StartedCallsView;
#[allow(unused_imports, reason = "for tools of our own")]
pub(super) use {
    logs::read_node_log as read_log,
    node_registry::{KnownNode, all_nodes as registered},
};

/// State of nodes, and the waiters for their results.
#[derive(Default)]
pub(super) struct NodeState {
    connections: node_connections::NodeConnections,
    calls: in_flight_calls::InFlightCalls,
    call_waiters: call_waiters::CallWaiters,
    logs: logs::LogRequests,
    probes: probes::NodeProbes,
    executions: executions::ExecutionSignal,
}

/// Follows the record for waiters. `None` if the gateway closes.
pub(super) async fn follow_calls(door: &Arc<GsvAdapter>) -> Option<()> {
    let facts = door.context.handle.follow_facts(call_waiters::event_of_call).await?;
    tokio::spawn(call_waiters::follow_events(Arc::clone(door), facts));
    Some(())
}

/// Refuses a result that cannot be read. Its waiter gets an error: no other result will come.
pub(super) async fn refuse_result(
    door: Arc<GsvAdapter>,
    peer: Arc<ConnectedPeer>,
    method: Method,
    params: Option<RawJson>,
    fault: GsvError,
) -> MethodResult {
    match (method, params.and_then(|params| tool::call_of(&params))) {
        (Method::LogsResult, Some(call_id)) => door.nodes.logs.refuse_result(&peer.connect.id, &call_id, &fault),
        (_, Some(call_id)) => results::end_unreadable(&door, &peer, call_id, &fault).await,
        (_, None) => {}
    }
    Err(fault)
}

/// Answers a request of this group.
pub(super) async fn handle_request(
    door: &Arc<GsvAdapter>,
    peer: &Arc<ConnectedPeer>,
    method: Method,
    request: GsvRequest,
) -> MethodResult {
    match request {
        GsvRequest::ToolsList => {
            let tools = builtin_tools::wire_definitions().into_iter().chain(door.toolbox.tool_definitions()).collect();
            Ok(RawJson::from_wire(&ToolsListResult { tools }))
        }
        GsvRequest::ToolInvoke(params) => invoke::invoke_tool(door, peer, params).await,
        GsvRequest::ToolRequest(params) => invoke::request_tool(door, peer, params).await,
        GsvRequest::ToolResult(outcome) => results::handle_result(door, peer, outcome).await,
        GsvRequest::LogsGet(params) => logs::get_logs(door, params).await,
        GsvRequest::LogsResult(result) => logs::handle_result(door, peer, result),
        GsvRequest::NodeProbeResult(probed) => probes::handle_result(door, peer, probed),
        GsvRequest::NodeExecEvent(event) => executions::handle_event(door, peer, event).await,
        _ => Err(unsupported_method(method)),
    }
}
