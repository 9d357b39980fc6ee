//! Programs that started the gateway for themselves and speak with it over standard input and output.

use std::sync::Arc;

use countersign_adapter_acp::ConnectionOptions;
use countersign_view::principals;
use tokio::io::{AsyncRead, AsyncWrite, BufReader};

use super::GatewayRealm;

impl GatewayRealm {
    /// Serves an MCP host of a user of this machine, over streams of this process, to its end.
    pub fn serve_mcp_host<R, W>(
        &self,
        reader: BufReader<R>,
        writer: W,
        user: u32,
    ) -> impl Future<Output = ()> + Send + 'static
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (mcp, open_connections) = (Arc::clone(&self.mcp), self.doors.open_connections.clone());
        async move {
            let _open = open_connections.mcp.increment_guard();
            mcp.serve_stream(reader, writer, &principals::of_mcp_host(user)).await;
        }
    }

    /// Serves an editor of a user of this machine, over streams of this process, until it and every other editor has gone.
    pub fn serve_editor<R, W>(
        &self,
        reader: R,
        writer: W,
        options: ConnectionOptions,
        user: u32,
    ) -> impl Future<Output = ()> + Send + 'static
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (acp, open_connections) = (Arc::clone(&self.acp), self.doors.open_connections.clone());
        async move {
            let open = open_connections.acp.increment_guard();
            acp.serve_stream(reader, writer, options, &principals::of_machine(user)).await;
            drop(open);
            // Another window of the editor uses the same gateway.
            acp.wait_until_unused().await;
        }
    }
}
