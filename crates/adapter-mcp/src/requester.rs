//! Principals that call tools, each with its session of the engine.

use std::{collections::HashMap, sync::Arc};

use countersign_core::{
    id::{PrincipalId, SessionId},
    session::Settings as SessionSettings,
};
use countersign_http::limits::SlidingWindow;
use countersign_runtime::{CommandSource, OwnerError};
use countersign_view::principals;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use crate::{limits::McpLimits, session};

/// Principal that calls tools.
pub(super) struct Requester {
    pub(super) principal: PrincipalId,
    pub(super) session: SessionId,
    pub(super) window: Mutex<SlidingWindow>,
    opened: OnceCell<()>,
}

/// All principals that have called since the start.
#[derive(Default)]
pub(super) struct Requesters(Mutex<HashMap<PrincipalId, Arc<Requester>>>);

impl Requesters {
    /// Returns the requester of a principal.
    pub(super) fn for_principal(&self, principal: &PrincipalId, per_minute: u32) -> Arc<Requester> {
        let mut all = self.0.lock();
        let new = || {
            Arc::new(Requester {
                principal: principal.clone(),
                session: principals::mcp_session(principal),
                window: Mutex::new(SlidingWindow::new(per_minute)),
                opened: OnceCell::new(),
            })
        };
        Arc::clone(all.entry(principal.clone()).or_insert_with(new))
    }
}

impl Requester {
    /// Opens the session of the principal, at its first use since the start.
    ///
    /// # Errors
    /// The reason why it could not be opened. The next use tries again.
    pub(super) async fn open_session(&self, source: &CommandSource, limits: &McpLimits) -> Result<(), OwnerError> {
        self.opened.get_or_try_init(|| open_session(source, self, limits)).await.map(|_| ())
    }
}

async fn open_session(source: &CommandSource, requester: &Requester, limits: &McpLimits) -> Result<(), OwnerError> {
    let settings = SessionSettings {
        approval_timeout: limits.approval_timeout,
        clarify_timeout: limits.question_timeout,
        max_pending: limits.pending,
        ..SessionSettings::default()
    };
    let name = requester.principal.to_string();
    session::open_session(source, &requester.session, &name, settings).await
}
