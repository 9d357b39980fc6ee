//! Authentication of an agent, before anything else.

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::extract::ws::{Message, WebSocket};
use countersign_protocol::agent_gate::{self as wire, AgentGateRequest, JsonRpcError, close, code};
use tokio::time::timeout;

use super::{
    AgentGateAdapter,
    agents::RegisteredAgent,
    connection_end::{ConnectionEnd, end_for_error, wait_for_close},
};

/// Time in which a client must authenticate.
const AUTH: Duration = Duration::from_secs(10);

/// Agent that authenticated, and the id of its request.
pub(super) struct AuthenticatedAgent {
    pub(super) known: Arc<RegisteredAgent>,
    pub(super) id: String,
}

/// Waits for the first frame. Each failure is answered, and then the connection is closed.
pub(super) async fn authenticate_agent(
    adapter: &Arc<AgentGateAdapter>,
    socket: &mut WebSocket,
    from: IpAddr,
) -> Result<AuthenticatedAgent, ConnectionEnd> {
    let mut closing = adapter.closing.subscribe();
    let refuse = |id: &str, code: i32, message: &str| wire::encode_error(id, &JsonRpcError::new(code, message));
    let first = tokio::select! {
        first = timeout(AUTH, next_text(socket)) => first,
        () = wait_for_close(&mut closing) => return Err(ConnectionEnd::Close(close::RESTART, "restarting")),
    };
    let refusal = match first {
        Err(_) => refuse("null", code::UNAUTHENTICATED, "Authentication timeout"),
        Ok(Err(end)) => return Err(end),
        Ok(Ok(frame)) => {
            let incoming = wire::read_frame(&frame);
            let now = adapter.clock.now();
            match incoming.request {
                Ok(AgentGateRequest::Auth { token }) => {
                    match token.and_then(|token| adapter.agents.with_token(&token).cloned()) {
                        // An agent with the right token is never limited: a bad client behind the same address must not
                        // keep a good one out. A token has too much in it to be found by trying.
                        Some(known) => {
                            adapter.failed.lock().record_success(from);
                            return Ok(AuthenticatedAgent { known, id: incoming.id });
                        }
                        None if adapter.failed.lock().is_limited(from, now) => {
                            refuse(&incoming.id, code::LIMITED, "Too many failed authentications")
                        }
                        None => {
                            adapter.failed.lock().record_failure(from, now);
                            refuse(&incoming.id, code::UNAUTHENTICATED, "Invalid token")
                        }
                    }
                }
                Ok(_) => refuse(&incoming.id, code::UNAUTHENTICATED, "Not authenticated"),
                Err(fault) if fault.code == code::NO_METHOD => {
                    refuse(&incoming.id, code::UNAUTHENTICATED, "Not authenticated")
                }
                Err(fault) => wire::encode_error(&incoming.id, &fault),
            }
        }
    };
    let _ = socket.send(Message::Text(refusal.into())).await;
    Err(ConnectionEnd::Close(close::NORMAL, ""))
}

/// Returns the next text frame.
async fn next_text(socket: &mut WebSocket) -> Result<String, ConnectionEnd> {
    loop {
        match socket.recv().await {
            Some(Ok(Message::Text(text))) => return Ok(text.to_string()),
            // Clients send JSON in binary frames too; other bytes are no JSON.
            Some(Ok(Message::Binary(bytes))) => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(Message::Close(_))) | None => return Err(ConnectionEnd::Gone),
            Some(Err(error)) => return Err(end_for_error(&error)),
        }
    }
}
