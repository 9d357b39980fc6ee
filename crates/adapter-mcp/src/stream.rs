//! Connections with JSON lines, such as the control socket of a gateway.

use std::sync::Arc;

use countersign_core::id::PrincipalId;
use rmcp::{service::serve_server_with_ct, transport::TransportAdapterIdentity};
use tokio::io::{AsyncRead, AsyncWrite, BufReader};

use crate::{adapter::McpAdapter, server::McpServer, stream_transport::StreamTransport};

impl McpAdapter {
    /// Serves one connection of a principal to its end.
    ///
    /// *Cancellation*: requests stay open; the same call repeated continues to wait.
    pub async fn serve_stream<R, W>(self: &Arc<Self>, reader: BufReader<R>, writer: W, principal: &PrincipalId)
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let transport = StreamTransport::new(reader, writer, self.requester(principal));
        let end = self.end.child_token();
        let serving = serve_server_with_ct::<_, _, _, TransportAdapterIdentity>(McpServer::new(self), transport, end);
        match Box::pin(serving).await {
            Ok(running) => drop(running.waiting().await),
            Err(error) => tracing::debug!(%error, "a client of MCP began with no valid request"),
        }
    }
}

#[cfg(test)]
mod tests;
