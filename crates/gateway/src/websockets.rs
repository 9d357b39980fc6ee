//! WebSockets of a gateway: the path selects the adapter.

use std::sync::Arc;

use axum::{
    extract::{FromRequest as _, WebSocketUpgrade},
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use countersign_adapter_agent_gate as agent_gate;
use countersign_adapter_gsv as peers;
use countersign_http::{
    listen::{FOREIGN, WebSocketRequest},
    open_connections::OpenConnections,
};
use countersign_protocol::{agent_gate::LARGEST_FRAME, gsv};

/// Buffer of a connection for reading and writing, in bytes. The library's own default is a hundred times that.
const BUFFER: usize = 4096;
/// Read buffer at the gsv adapter, which has the most connections and mostly small frames, in bytes.
const GSV_BUFFER: usize = 1024;
/// Path for clients, nodes and channels. Every other path is for agents.
const PEERS: &str = "/ws";

/// Gives a WebSocket to its adapter: to agent-gate for any path except that of gsv.
pub(super) async fn serve_websocket(
    agents: Arc<agent_gate::AgentGateAdapter>,
    peers: Arc<peers::GsvAdapter>,
    open_connections: OpenConnections,
    WebSocketRequest { request, guest: connection, is_own_page }: WebSocketRequest,
) -> Response {
    let is_peers = request.uri().path() == PEERS;
    let word = request.headers().get(gsv::greeting::HEADER).and_then(|word| word.to_str().ok()).map(str::to_owned);
    // Without a required token a page of another program on this machine would have full access.
    let is_strange = is_peers && !peers.asks_for_token() && !is_own_page;
    let upgrade = match WebSocketUpgrade::from_request(request, &()).await {
        Ok(upgrade) => upgrade,
        Err(refused) => return refused.into_response(),
    };
    let upgrade = upgrade.read_buffer_size(BUFFER).write_buffer_size(BUFFER);
    if is_peers {
        if !peers.is_open() {
            let why = "No clients.token is configured: this door is open on loopback only.\n";
            return (StatusCode::FORBIDDEN, why).into_response();
        }
        if is_strange {
            return (StatusCode::FORBIDDEN, FOREIGN).into_response();
        }
        connection.hand_over();
        let door = Arc::clone(&peers);
        return upgrade
            .max_write_buffer_size(2 * gsv::LARGEST_FRAME)
            .max_message_size(gsv::LARGEST_FRAME)
            .max_frame_size(gsv::LARGEST_FRAME)
            .read_buffer_size(GSV_BUFFER)
            .on_upgrade(move |socket| {
                let serving = door.serve_socket(socket, connection, word);
                async move {
                    let _open = open_connections.gsv.increment_guard();
                    serving.await;
                }
            });
    }
    if !agents.is_open() {
        return (StatusCode::FORBIDDEN, "No agent is configured: this door is closed.\n").into_response();
    }
    // It has a timeout of its own for peers that do not read.
    connection.hand_over();
    let door = Arc::clone(&agents);
    upgrade
        .max_write_buffer_size(2 * LARGEST_FRAME)
        .max_message_size(LARGEST_FRAME)
        .max_frame_size(LARGEST_FRAME)
        .on_upgrade(move |socket| async move {
            let _open = open_connections.agent_gate.increment_guard();
            door.serve_socket(socket, connection.from.ip(), connection.place).await;
        })
}
