//! MCP servers with their approval, their activity and their tools. Source: docs/protocol/api.md, MCP servers.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode};
use countersign_http::reply;

use super::{ApiError, ApiResult, ApiState, wire::mcp_servers::McpServerList};

/// Handles `GET /api/v1/mcp-servers`. Starts none.
pub(super) async fn list_servers(State(api): State<Arc<ApiState>>) -> ApiResult {
    let rows = Arc::clone(&api.context.mcp_servers).list_servers().await;
    let rows = rows.map_err(|problem| ApiError::new(StatusCode::SERVICE_UNAVAILABLE, problem))?;
    Ok(reply::ok(&McpServerList { servers: rows.into_iter().map(Into::into).collect() }))
}
