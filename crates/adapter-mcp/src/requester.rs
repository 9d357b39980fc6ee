//! Principals that call tools, each with its session of the engine.

use std::{collections::HashMap, sync::Arc};

use countersign_core::{
    engine::{Command, CommandError, ResidencyScope},
    id::{PrincipalId, SessionId},
    session::{self, SessionSetting, Settings as SessionSettings},
};
use countersign_http::limits::SlidingWindow;
use countersign_runtime::{CommandSource, OwnerError};
use countersign_view::{Protocol, principals};
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use crate::limits::McpLimits;

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
    let id = &requester.session;
    let open = session::Command::Open {
        cwd: String::new(),
        name: Some(requester.principal.to_string()),
        parent: None,
        door: Some(Protocol::Mcp.name().to_owned()),
        settings: Box::new(settings.clone()),
    };
    match source.send_command(Command::Session(id.clone(), open)).await {
        Ok(_) => return Ok(()),
        Err(OwnerError::Refusal(CommandError::SessionExists(_))) => {}
        Err(refused) => return Err(refused),
    }
    // A setting that has not changed is no fact: otherwise each start would record one for every principal.
    let (known, wanted) = (id.clone(), settings.clone());
    let differs = source.read_of(ResidencyScope::Session(id.clone()), move |engine| {
        engine.state().session(&known).is_none_or(|session| *session.settings() != wanted)
    });
    let (differs, _) = differs.await.ok_or(OwnerError::Closed)?;
    if differs {
        let set = session::Command::Set { setting: SessionSetting::All(Box::new(settings)), entry: None };
        source.send_command(Command::Session(id.clone(), set)).await?;
    }
    Ok(())
}
