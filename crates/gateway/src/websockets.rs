//! WebSockets of a gateway: which adapter serves one is told by its path.

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

/// What a connection keeps ready for reading and writing, in bytes. The library's own default is a hundred times that.
const BUFFER: usize = 4096;
/// What is kept ready for reading at the gsv door, where there are the most of them and most frames are small.
const GSV_BUFFER: usize = 1024;
/// Where clients, nodes and channels connect. Every other path is for agents.
const PEERS: &str = "/ws";

/// Hands a WebSocket to its adapter: it is an agent's whatever path it names but one; the rest is for others.
pub(super) async fn serve_websocket(
    agents: Arc<agent_gate::AgentGateAdapter>,
    peers: Arc<peers::GsvAdapter>,
    open_connections: OpenConnections,
    WebSocketRequest { request, guest: connection, is_own_page }: WebSocketRequest,
) -> Response {
    let is_peers = request.uri().path() == PEERS;
    let word = request.headers().get(gsv::greeting::HEADER).and_then(|word| word.to_str().ok()).map(str::to_owned);
    // Where nobody has to show anything a page of another program on this machine would have all of the door.
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
    // It has a time of its own for those who take nothing.
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
