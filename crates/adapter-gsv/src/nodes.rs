//! Machines that offer tools: what they offer, what is asked of them, and what they give. Source: docs/protocol/gsv.md, Nodes.

mod begun;
mod executions;
mod hand;
mod invoke;
pub(super) mod logs;
mod node_tool;
mod probes;
mod register;
mod results;
mod seats;
mod toolbox;
mod waiting;

use std::sync::Arc;

use countersign_protocol::{
    RawJson,
    gsv::{
        GsvError, GsvRequest, Method,
        tool::{self, ToolsListResult},
    },
};

use super::{
    Door,
    answer::{Answer, missing},
    native,
    peer::Peer,
};

pub use begun::NodeCalls;
pub use executions::Executions;
pub(super) use invoke::is_acts;
pub use node_tool::supposed;
pub(super) use probes::{Anew, nodes as known, probe};
pub use register::NodeRegister;
pub(super) use seats::{enter, leave};
pub(super) use toolbox::Toolbox;
#[allow(unused_imports, reason = "for tools of our own")]
pub(super) use {
    logs::read as read_log,
    register::{Known, all as registered},
};

/// What nodes have to do, and who waits for it.
#[derive(Default)]
pub(super) struct Nodes {
    seats: seats::Seats,
    hand: hand::Hand,
    waiting: waiting::Waiting,
    logs: logs::Requests,
    probes: probes::Probes,
    executions: executions::Known,
}

/// Follows the record for those who wait. `None` if the gateway closes.
pub(super) async fn follow(door: &Arc<Door>) -> Option<()> {
    let facts = door.context.handle.follow_facts(waiting::event_of_call).await?;
    tokio::spawn(waiting::follow(Arc::clone(door), facts));
    Some(())
}

/// Refuses a result that cannot be read. Whoever waits for it is told: no other will come.
pub(super) async fn refuse(
    door: Arc<Door>,
    peer: Arc<Peer>,
    method: Method,
    params: Option<RawJson>,
    fault: GsvError,
) -> Answer {
    match (method, params.and_then(|params| tool::call_of(&params))) {
        (Method::LogsResult, Some(call_id)) => door.nodes.logs.unreadable(&peer.connect.id, &call_id, &fault),
        (_, Some(call_id)) => results::unreadable(&door, &peer, call_id, &fault).await,
        (_, None) => {}
    }
    Err(fault)
}

/// Answers a request of this group.
pub(super) async fn answer(door: &Arc<Door>, peer: &Arc<Peer>, method: Method, request: GsvRequest) -> Answer {
    match request {
        GsvRequest::ToolsList => {
            let tools = native::definitions().into_iter().chain(door.toolbox.listed()).collect();
            Ok(RawJson::from_wire(&ToolsListResult { tools }))
        }
        GsvRequest::ToolInvoke(wanted) => invoke::invoke(door, peer, wanted).await,
        GsvRequest::ToolRequest(wanted) => invoke::request(door, peer, wanted).await,
        GsvRequest::ToolResult(outcome) => results::result(door, peer, outcome).await,
        GsvRequest::LogsGet(wanted) => logs::get(door, wanted).await,
        GsvRequest::LogsResult(result) => logs::result(door, peer, result),
        GsvRequest::NodeProbeResult(probed) => probes::result(door, peer, probed),
        GsvRequest::NodeExecEvent(event) => executions::event(door, peer, event).await,
        _ => Err(missing(method)),
    }
}
