//! Actions of operators on an MCP server.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse as _, Redirect, Response},
};
use countersign_http::web::{BodyFields, HttpCaller};
use countersign_view::mcp_server_status::McpTrial;

use super::{server_page::ServerNotice, server_path};
use crate::{ConsoleState, page::PageError};

/// Longest wait of a page for the start of a server, which continues after it.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) async fn act_on_server(
    State(console): State<Arc<ConsoleState>>,
    Extension(caller): Extension<HttpCaller>,
    Path(name): Path<String>,
    body: BodyFields,
) -> Result<Response, PageError> {
    let ctx = console.page_context(caller).await?;
    let server = console.find_server(&name).await?.name;
    let servers = || Arc::clone(&console.context.mcp_servers);
    let (done, worked) = match body.text_field("action") {
        Some("revoke") => ("revoked", servers().revoke_server(server.clone(), ctx.caller.principal.clone()).await),
        Some("request") => ("requested", servers().request_approval(server.clone()).await),
        Some("test") => ("tested", with_patience(servers().try_server(server.clone(), McpTrial::Test)).await),
        Some("restart") => ("restarted", with_patience(servers().try_server(server.clone(), McpTrial::Restart)).await),
        _ => {
            let text = "Invalid action: expected test, restart, revoke or request.";
            return Err(PageError::new(StatusCode::BAD_REQUEST, text));
        }
    };
    match worked {
        Ok(()) => Ok(Redirect::to(&format!("{}?done={done}", server_path(&server))).into_response()),
        Err(text) => console.server_page(&ctx, &server, Some(ServerNotice { is_good: false, text })).await,
    }
}

/// Waits for a start, but not as long as some servers take.
async fn with_patience(work: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    let late = || Err("The server is still starting. Reload the page to see the result.".to_owned());
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| late())
}
