//! Sessions in which the MCP servers of the gateway ask people: each server has its own.

use std::time::Duration;

use countersign_core::{id::SessionId, session::Settings as SessionSettings};
use countersign_foreign_calls::open_session;
use countersign_mcp_client::{QuestionPlace, QuestionPlaces};
use countersign_runtime::{CommandSource, OwnerError};
use countersign_view::{Protocol, principals};
use futures_util::future::BoxFuture;

/// Most questions of one server that wait at once.
const MOST_PENDING: u32 = 20;

/// Sessions of servers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerSessions {
    /// Time for which a question is open.
    pub(crate) timeout: Duration,
}

impl QuestionPlaces for ServerSessions {
    fn open<'a>(
        &'a self,
        requests: &'a CommandSource,
        server: &'a str,
    ) -> BoxFuture<'a, Result<QuestionPlace, OwnerError>> {
        Box::pin(async move {
            let principal = principals::of_mcp_server(server);
            let session = SessionId::new(principal.as_str());
            let settings = SessionSettings {
                clarify_timeout: self.timeout,
                max_pending: MOST_PENDING,
                ..SessionSettings::default()
            };
            let name = format!("MCP server {server}");
            open_session(requests, Protocol::Mcp, &session, &name, "", settings).await?;
            Ok(QuestionPlace { session, principal, door: Protocol::Mcp.name().into() })
        })
    }
}
