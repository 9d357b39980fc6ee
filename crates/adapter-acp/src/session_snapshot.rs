//! State of a session when an editor opens it.

use countersign_acp_protocol::ToolCallStatus;
use countersign_core::{
    call::CallPhase,
    engine::{Engine, ResidencyScope},
    id::{CallId, Lsn, SessionId},
    message::StopReason,
    policy::ApprovalMode,
    session::{ModelRef, Session, SessionEntry, SessionEntryKind},
};
use countersign_runtime::{InboxLane, OwnerHandle};

use crate::call_view::CallView;

/// A session at one position of the record.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionSnapshot {
    /// The position. Facts up to it are in the snapshot.
    pub(crate) head: Lsn,
    /// The folder of the session.
    pub(crate) cwd: String,
    /// Its title.
    pub(crate) name: Option<String>,
    /// Its settings.
    pub(crate) settings: SessionChoices,
    /// Positions of the contents of its shown messages, in order.
    pub(crate) messages: Vec<Lsn>,
    /// Calls that have not ended.
    pub(crate) calls: Vec<(CallId, CallView, ToolCallStatus)>,
}

/// Settings of a session that an editor can change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionChoices {
    pub(crate) model: Option<ModelRef>,
    pub(crate) thinking: Option<String>,
    pub(crate) approval: ApprovalMode,
}

impl SessionChoices {
    pub(crate) fn of_session(session: &Session) -> Self {
        let settings = session.settings();
        Self { model: settings.model.clone(), thinking: settings.thinking.clone(), approval: settings.approval }
    }
}

/// Reads a session. `None` if there is none, or the gateway closes.
pub(crate) async fn read_snapshot(handle: &OwnerHandle, session: &SessionId) -> Option<SessionSnapshot> {
    let id = session.clone();
    let source = handle.source(InboxLane::Request);
    let read = source.read_of(ResidencyScope::Session(id.clone()), move |engine| take_snapshot(engine, &id));
    read.await?.0
}

/// Reads the settings of a session. `None` if there is none, or the gateway closes.
pub(crate) async fn read_choices(handle: &OwnerHandle, session: &SessionId) -> Option<SessionChoices> {
    let id = session.clone();
    let source = handle.source(InboxLane::Request);
    let read = source.read_of(ResidencyScope::Session(id.clone()), move |engine| {
        engine.state().session(&id).map(SessionChoices::of_session)
    });
    read.await?.0
}

fn take_snapshot(engine: &Engine, id: &SessionId) -> Option<SessionSnapshot> {
    let session = engine.state().session(id).filter(|session| !session.settings().listing.deleted)?;
    let path = session.path_entries();
    let of_session = engine.state().calls().filter(|call| call.session() == id && call.run().is_some());
    let calls = of_session.filter(|call| !call.is_over()).filter_map(|call| {
        let details = engine.admitted().call_content(call.id())?;
        let view = CallView {
            id: details.tool_call_id.to_string(),
            tool: details.tool.to_string(),
            arguments: details.arguments.clone(),
        };
        let status = match call.phase() {
            CallPhase::Proposed | CallPhase::Gated | CallPhase::Ready => ToolCallStatus::Pending,
            CallPhase::Started { .. } | CallPhase::InDoubt(_) | CallPhase::Ended(_) => ToolCallStatus::InProgress,
        };
        Some((call.id(), view, status))
    });
    Some(SessionSnapshot {
        head: engine.state().head_lsn(),
        cwd: session.cwd().to_owned(),
        name: session.name().map(str::to_owned),
        settings: SessionChoices::of_session(session),
        messages: path.into_iter().filter(|entry| is_shown(entry)).map(|entry| entry.content).collect(),
        calls: calls.collect(),
    })
}

/// Reports whether an entry is shown. An answer that failed and was repeated is no part of the conversation.
fn is_shown(entry: &SessionEntry) -> bool {
    let is_message = matches!(
        entry.kind,
        SessionEntryKind::User
            | SessionEntryKind::Assistant { .. }
            | SessionEntryKind::ToolResult { .. }
            | SessionEntryKind::Bash { .. }
            | SessionEntryKind::Compaction { .. }
    );
    is_message && (entry.shown || !matches!(entry.kind, SessionEntryKind::Assistant { stop: StopReason::Error, .. }))
}
