//! Principals that call, each with its session of the engine.

use std::{collections::HashMap, sync::Arc};

use countersign_core::{
    id::{PrincipalId, SessionId},
    session::Settings as SessionSettings,
};
use countersign_http::limits::SlidingWindow;
use countersign_runtime::{CommandSource, OwnerError};
use countersign_view::Protocol;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use crate::{call_limits::CallLimits, session};

/// Most requesters that are kept without a call in progress. Another one is built anew at its next call.
const MOST_IDLE: usize = 4096;

/// Principal that calls.
pub struct Requester {
    pub(crate) protocol: Protocol,
    pub(crate) principal: PrincipalId,
    pub(crate) session: SessionId,
    pub(crate) cwd: String,
    pub(crate) window: Mutex<SlidingWindow>,
    opened: OnceCell<()>,
}

/// All principals that have called since the start.
#[derive(Default)]
pub(crate) struct Requesters(Mutex<HashMap<(PrincipalId, SessionId), Arc<Requester>>>);

impl Requesters {
    /// Returns the requester of a principal in a session, made by `new` at its first call.
    pub(crate) fn find_or_add(
        &self,
        principal: &PrincipalId,
        session: &SessionId,
        new: impl FnOnce() -> Requester,
    ) -> Arc<Requester> {
        let mut all = self.0.lock();
        let key = (principal.clone(), session.clone());
        if let Some(known) = all.get(&key) {
            return Arc::clone(known);
        }
        if all.len() >= MOST_IDLE {
            all.retain(|_, requester| Arc::strong_count(requester) > 1);
        }
        let added = Arc::new(new());
        all.insert(key, Arc::clone(&added));
        added
    }
}

impl Requester {
    /// Creates a requester with `per_minute` calls in any 60 seconds.
    pub fn new(protocol: Protocol, principal: PrincipalId, session: SessionId, cwd: String, per_minute: u32) -> Self {
        let window = Mutex::new(SlidingWindow::new(per_minute));
        Self { protocol, principal, session, cwd, window, opened: OnceCell::new() }
    }

    /// Returns the principal.
    pub const fn principal(&self) -> &PrincipalId {
        &self.principal
    }

    /// Returns the session in which its calls are kept.
    pub const fn session(&self) -> &SessionId {
        &self.session
    }

    /// Opens the session of the principal, at its first use since the start.
    ///
    /// # Errors
    /// The reason why it could not be opened. The next use tries again.
    pub(crate) async fn open_session(&self, source: &CommandSource, limits: &CallLimits) -> Result<(), OwnerError> {
        let name = match self.protocol {
            Protocol::Mcp => self.principal.to_string(),
            _ => self.session.to_string(),
        };
        let open = || self.open_as(source, limits, &self.session, &name);
        self.opened.get_or_try_init(open).await.map(|_| ())
    }

    /// Opens a session of the principal, with this name.
    pub(crate) async fn open_as(
        &self,
        source: &CommandSource,
        limits: &CallLimits,
        session: &SessionId,
        name: &str,
    ) -> Result<(), OwnerError> {
        let settings = SessionSettings {
            approval_timeout: limits.approval_timeout,
            clarify_timeout: limits.question_timeout,
            max_pending: limits.pending,
            ..SessionSettings::default()
        };
        session::open_session(source, self.protocol, session, name, &self.cwd, settings).await
    }
}
