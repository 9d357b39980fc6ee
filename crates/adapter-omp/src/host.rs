//! Capabilities that a host lends the agent: its tools, and its URIs.

use std::sync::Arc;

use countersign_core::{
    call::{Call, CallPhase},
    engine::{Engine, State},
};
use countersign_protocol::{
    gjc::{
        host_tool::{HostTool, HostToolAnswer, ToolNames},
        host_uri::{HostScheme, HostUriResult, SchemeNames},
    },
    omp::{OmpRequestId, OmpResponse},
};
use countersign_runtime::PeerOrder;
use futures_util::FutureExt as _;

use super::{
    adapter::OmpAdapter,
    frame::OutgoingFrame,
    host_call_table::{CallPlace, HostCallFrame, HostCallTable},
};

/// Takes over the tools of the host.
pub(super) async fn set_tools(adapter: &mut OmpAdapter, id: Option<OmpRequestId>, tools: Vec<HostTool>) {
    const NAME: &str = "set_host_tools";
    let capabilities = Arc::clone(&adapter.store.common.host_capabilities);
    match capabilities.set_tools(tools) {
        Ok(tool_names) => {
            adapter.dialect.hooks.on_tools_changed(adapter).await;
            update_offers(adapter, HostCallTable::offer_tools).await;
            adapter.write_frame(&OmpResponse::success(id, NAME, &ToolNames { tool_names }));
        }
        Err(error) => adapter.write_frame(&OmpResponse::failure(id, NAME, error.to_string())),
    }
}

/// Takes over the URI schemes of the host.
pub(super) async fn set_uri_schemes(adapter: &mut OmpAdapter, id: Option<OmpRequestId>, schemes: Vec<HostScheme>) {
    let names = SchemeNames { schemes: schemes.iter().map(|scheme| scheme.scheme.clone()).collect() };
    let capabilities = Arc::clone(&adapter.store.common.host_capabilities);
    capabilities.set_schemes(schemes);
    update_offers(adapter, HostCallTable::offer_uris).await;
    adapter.write_frame(&OmpResponse::success(id, "set_host_uri_schemes", &names));
}

/// Notes that the current client lends a capability, and gives it the calls that waited for that.
async fn update_offers(adapter: &mut OmpAdapter, note: impl FnOnce(&mut HostCallTable)) {
    note(&mut adapter.host_calls);
    serve_calls(adapter).await;
}

/// Has the host be given the calls of the session that is open, if it lends anything.
pub(super) async fn serve_calls(adapter: &mut OmpAdapter) {
    let Some(seat) = &adapter.seat else { return };
    adapter
        .host_calls
        .open_links(adapter.store.common.host_capabilities.peer_registry(), &seat.id, &seat.answers)
        .await;
}

/// Takes an order, and those that are at hand after it. A stop is sent at once. A call follows the message that holds it, so it waits
/// until the host has all that is recorded now; and it follows the calls before it in its message, which are started together with it
/// and whose orders come in any sequence.
pub(super) async fn take_order(adapter: &mut OmpAdapter, order: PeerOrder) {
    let mut next = Some(order);
    while let Some(order) = next {
        match order {
            PeerOrder::Do(call) => {
                let id = call.call;
                let place = move |engine: &Engine| engine.state().call(id).map(|call| place_of(engine.state(), call));
                let read = match &adapter.seat {
                    Some(seat) => seat.requests.read_state(place).await,
                    None => None,
                };
                let (place, position) = read.unwrap_or((None, 0));
                adapter.host_calls.hold_call(position, place.unwrap_or_default(), call);
            }
            order => send_order(adapter, order),
        }
        next = adapter.host_calls.next().now_or_never();
    }
}

/// Returns the place of a call in its message.
fn place_of(state: &State, call: &Call) -> CallPlace {
    let run = call.run().and_then(|run| state.run(run));
    let siblings = run.into_iter().flat_map(|run| run.calls().iter().filter_map(|call| state.call(*call)));
    let is_awaited = |before: &&Call| {
        before.content_lsn() < call.content_lsn()
            && before.executor() == call.executor()
            && matches!(before.phase(), CallPhase::Started { .. })
    };
    CallPlace { lsn: call.content_lsn(), awaited: siblings.filter(is_awaited).map(Call::id).collect() }
}

/// Sends the next call whose message the host has, at `position`. Returns whether there was one.
pub(super) fn send_due_call(adapter: &mut OmpAdapter, position: u64) -> bool {
    let call = adapter.host_calls.take_due_call(position);
    call.map(|call| send_order(adapter, PeerOrder::Do(call))).is_some()
}

fn send_order(adapter: &mut OmpAdapter, order: PeerOrder) {
    match adapter.host_calls.take_order(order, &adapter.store.common.host_capabilities) {
        Some(HostCallFrame::Tool(frame)) => adapter.write_frame(OutgoingFrame::HostTool(&frame)),
        Some(HostCallFrame::Uri(frame)) => adapter.write_frame(OutgoingFrame::HostUri(&frame)),
        None => {}
    }
}

/// Takes the host's answer to a call of its tool. Returns whether there was such a request.
pub(super) async fn tool_answered(adapter: &mut OmpAdapter, id: &str, answer: HostToolAnswer) -> bool {
    adapter.host_calls.tool_answered(id, answer).await
}

/// Takes the host's answer to a request at one of its URIs. Returns whether there was such a request.
pub(super) async fn uri_answered(adapter: &mut OmpAdapter, id: &str, result: HostUriResult) -> bool {
    adapter.host_calls.uri_answered(id, result).await
}

/// Ends what the host has in hand: it has gone. Calls of what it lent wait for the next.
pub(super) async fn host_left(adapter: &mut OmpAdapter) {
    adapter.host_calls.host_left().await;
}

/// Handles a new client, which has no calls yet. Frames after the one that announces it are for it.
pub(super) async fn host_arrived(adapter: &mut OmpAdapter, client: u64) {
    adapter.host_calls.host_arrived().await;
    adapter.dialect.hooks.on_client(adapter);
    adapter.write_frame(OutgoingFrame::Client(client));
    serve_calls(adapter).await;
}

/// Handles a client that is back: it still lends what it lent.
pub(super) async fn host_resumed(adapter: &mut OmpAdapter) {
    let (has_tools, has_uris) = adapter.store.common.host_capabilities.has_tools_and_schemes();
    update_offers(adapter, |calls| {
        if has_tools {
            calls.offer_tools();
        }
        if has_uris {
            calls.offer_uris();
        }
    })
    .await;
}
