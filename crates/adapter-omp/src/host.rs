//! What a host lends the agent: its tools, and what it has behind URIs of its own.

use std::sync::Arc;

use countersign_protocol::{
    gjc::{
        host_tool::{HostTool, HostToolAnswer, ToolNames},
        host_uri::{HostScheme, HostUriResult, SchemeNames},
    },
    omp::{OmpRequestId, OmpResponse},
};
use countersign_runtime::PeerOrder;

use super::{
    door::Door,
    frame::Frame,
    host_call_table::{HostCallTable, Told},
};

/// Takes over the tools of the host.
pub(super) async fn set_tools(door: &mut Door, id: Option<OmpRequestId>, tools: Vec<HostTool>) {
    const NAME: &str = "set_host_tools";
    let lent = Arc::clone(&door.shelf.common.lent);
    match lent.set_tools(tools) {
        Ok(tool_names) => {
            door.dialect.hooks.on_tools_changed(door).await;
            lends(door, HostCallTable::lends_tools).await;
            door.write(&OmpResponse::success(id, NAME, &ToolNames { tool_names }));
        }
        Err(error) => door.write(&OmpResponse::failure(id, NAME, error.to_string())),
    }
}

/// Takes over the URI schemes of the host.
pub(super) async fn set_uri_schemes(door: &mut Door, id: Option<OmpRequestId>, schemes: Vec<HostScheme>) {
    let names = SchemeNames { schemes: schemes.iter().map(|scheme| scheme.scheme.clone()).collect() };
    let lent = Arc::clone(&door.shelf.common.lent);
    lent.set_schemes(schemes);
    lends(door, HostCallTable::lends_uris).await;
    door.write(&OmpResponse::success(id, "set_host_uri_schemes", &names));
}

/// Notes that whoever is there lends something, and gives it the calls that waited for that.
async fn lends(door: &mut Door, note: impl FnOnce(&mut HostCallTable)) {
    note(&mut door.desk);
    serve(door).await;
}

/// Has the host be given the calls of the session that is open, if it lends anything.
pub(super) async fn serve(door: &mut Door) {
    let Some(seat) = &door.seat else { return };
    door.desk.serve(door.shelf.common.lent.peers(), &seat.id, &seat.answers).await;
}

/// Tells the host.
pub(super) fn tell(door: &mut Door, order: PeerOrder) {
    match door.desk.take(order, &door.shelf.common.lent) {
        Some(Told::Tool(frame)) => door.write(Frame::HostTool(&frame)),
        Some(Told::Uri(frame)) => door.write(Frame::HostUri(&frame)),
        None => {}
    }
}

/// Takes what the host says of a call of its tool. Whether it was asked for that.
pub(super) async fn tool_answered(door: &mut Door, id: &str, answer: HostToolAnswer) -> bool {
    door.desk.tool_answered(id, answer).await
}

/// Takes what the host says of a request at one of its URIs. Whether it was asked for that.
pub(super) async fn uri_answered(door: &mut Door, id: &str, result: HostUriResult) -> bool {
    door.desk.uri_answered(id, result).await
}

/// Ends what the host has in hand: it has gone. Calls of what it lent wait for the next.
pub(super) async fn left(door: &mut Door) {
    door.desk.left().await;
}

/// Another client is there, with nothing in hand. Frames behind the one that says so are for it.
pub(super) async fn arrived(door: &mut Door, client: u64) {
    door.desk.arrived().await;
    door.dialect.hooks.on_client(door);
    door.write(Frame::Client(client));
    serve(door).await;
}

/// The client that is there was there before: what is lent is lent by it.
pub(super) async fn resumed(door: &mut Door) {
    let (has_tools, has_uris) = door.shelf.common.lent.has();
    lends(door, |desk| {
        if has_tools {
            desk.lends_tools();
        }
        if has_uris {
            desk.lends_uris();
        }
    })
    .await;
}
