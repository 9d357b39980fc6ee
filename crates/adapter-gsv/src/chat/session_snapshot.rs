//! Snapshot of a session, for an answer.

use std::{
    collections::BTreeSet,
    ops::{Deref, Range},
    sync::Arc,
};

use countersign_core::{
    channel::MessageOrigin,
    digest::Digest,
    engine::{Engine, ResidencyScope, State},
    gate::{self, Gate, GatePhase},
    id::{EntryId, GateId, Lsn, PrincipalId, RunId, SessionId},
    run::RunMetadata,
    session::{Session, SessionEntry, SessionEntryKind, SessionProfile, Settings},
    time::Millis,
};
use countersign_protocol::gsv::{GsvError, code, directive::ModelSelector, key};
use countersign_runtime::InboxLane;

use super::super::{
    GsvAdapter,
    registry::{self, SessionRow},
};

/// Message of the conversation, with the position of its content.
#[derive(Clone, Debug)]
pub(super) struct MessageRef {
    pub(super) id: EntryId,
    pub(super) content: Lsn,
    pub(super) at: Millis,
    /// True if a kept conversation may begin with it: a result needs its call.
    pub(super) may_begin: bool,
}

/// Gate of the session that is pending, or that was decided last.
#[derive(Clone, Debug)]
pub(super) struct SessionGate {
    pub(super) id: GateId,
    pub(super) run: Option<RunId>,
    pub(super) is_question: bool,
    /// Chat whose message began its run, and its sender: only that sender may answer there.
    pub(super) origin: Option<MessageOrigin>,
    /// True if its card was sent to that chat.
    pub(super) is_in_chat: bool,
    /// Decision.
    pub(super) decided: Option<GateDecision>,
    /// Position of its content.
    pub(super) content: Lsn,
    /// Scopes that an approval may have.
    pub(super) scopes: Vec<gate::ApprovalScope>,
    pub(super) opened_at: Millis,
}

impl SessionGate {
    /// Reports whether the sender of a message from a chat network may answer: only the one who began the run may, where it began.
    pub(super) fn may_be_answered_by(&self, here: &MessageOrigin) -> bool {
        self.origin.as_ref().is_some_and(|there| there.by == here.by && there.from == here.from)
    }
}

/// Message that waits for a run of its own.
#[derive(Clone, Debug)]
pub(super) struct QueuedMessage {
    /// Name of its run on the wire.
    pub(super) run: String,
    /// Chat of the message and its sender, if it came from a chat network.
    pub(super) origin: Option<MessageOrigin>,
}

/// Decision of a gate.
#[derive(Clone, Debug)]
pub(super) struct GateDecision {
    pub(super) at: Millis,
    /// Approver, if there was one.
    pub(super) by: Option<PrincipalId>,
    /// Text for it.
    pub(super) text: String,
}

/// Run that works in the session.
#[derive(Clone, Debug)]
pub(super) struct WorkingRun {
    pub(super) run: RunId,
    /// Name on the wire.
    pub(super) called: String,
    /// Number of its calls that have not ended.
    pub(super) calls: usize,
}

/// State of a session. The cost of reading it does not grow with the conversation.
#[derive(Clone, Debug)]
pub(super) struct SessionSnapshot {
    pub(super) key: String,
    /// True if the session exists.
    pub(super) exists: bool,
    pub(super) id: String,
    /// Number of renewals.
    pub(super) renewals: u32,
    pub(super) opened_at: Millis,
    pub(super) last_at: Millis,
    pub(super) renewed_at: Option<Millis>,
    /// Model that answers in it.
    pub(super) model: Option<ModelSelector>,
    /// Recorded settings, if it exists.
    pub(super) settings: Option<Box<Settings>>,
    pub(super) thinking: Option<String>,
    pub(super) profile: SessionProfile,
    pub(super) working: Option<WorkingRun>,
    /// Name on the wire of the run that begins once a summary is made.
    pub(super) awaited: Option<String>,
    pub(super) is_at_rest: bool,
    pub(super) queued: usize,
    /// Messages that wait for runs of their own.
    pub(super) behind: Vec<QueuedMessage>,
    /// Gate that is shown.
    pub(super) waiting: Option<SessionGate>,
    /// Number of gates that wait after it.
    pub(super) waiting_behind: usize,
    /// Folder in which the agent works.
    pub(super) cwd: String,
    pub(super) decided: Option<SessionGate>,
    /// Keys of recent answers that counted.
    pub(super) answers: Vec<String>,
    pub(super) row: SessionRow,
}

/// Snapshot with all messages of the conversation.
#[derive(Clone, Debug)]
pub(super) struct SessionDetail {
    pub(super) seen: SessionSnapshot,
    pub(super) lines: Vec<MessageRef>,
}

impl Deref for SessionDetail {
    type Target = SessionSnapshot;

    fn deref(&self) -> &SessionSnapshot {
        &self.seen
    }
}

impl SessionSnapshot {
    /// Returns its earlier ids, the oldest first, for a range of renewals.
    pub(super) fn previous_ids(&self, which: Range<u32>) -> Vec<String> {
        which.map(|count| id_of(&self.key, self.opened_at, count)).collect()
    }
}

/// Returns the id of a session after so many renewals. It is computed, so it need not be stored.
fn id_of(key: &str, opened_at: Millis, renewals: u32) -> String {
    let digest = Digest::hash_bytes(format!("{key}\n{}\n{renewals}", opened_at.0).as_bytes()).to_string();
    let part = |from: usize, to: usize| digest.get(from..to).unwrap_or_default();
    // The form of a UUID of version 8.
    format!("{}-{}-8{}-a{}-{}", part(0, 8), part(8, 12), part(13, 16), part(17, 20), part(20, 32))
}

/// Surface of a gate that stores the chat in which it was shown.
pub(crate) const CHAT: &str = "chat";

fn session_gate(state: &State, gate: &Gate) -> SessionGate {
    let decided = match gate.phase() {
        GatePhase::Pending => None,
        GatePhase::Resolved { at, .. } => {
            Some(GateDecision { at: *at, by: gate.resolved_by().cloned(), text: super::chat_card::decision_text(gate) })
        }
    };
    let is_question = gate.kind() == gate::Kind::Question;
    let of_run = || state.run(gate.run()?)?.run_metadata().origin.as_deref().cloned();
    let in_chat = gate.shown_surfaces().iter().find(|showing| showing.surface == CHAT);
    let origin = of_run().or_else(|| serde_json::from_str(&in_chat?.reference).ok());
    SessionGate {
        id: gate.id(),
        run: gate.run(),
        is_question,
        origin,
        is_in_chat: in_chat.is_some(),
        decided,
        content: gate.content_lsn(),
        scopes: gate.scopes().to_vec(),
        opened_at: gate.opened_at(),
    }
}

fn is_shown(entry: &SessionEntry) -> bool {
    let is_message = matches!(
        entry.kind,
        SessionEntryKind::User
            | SessionEntryKind::Assistant { .. }
            | SessionEntryKind::ToolResult { .. }
            | SessionEntryKind::Compaction { .. }
    );
    // Clients get an answer that failed before its first text as an error, and conversations do not contain it.
    let is_empty = matches!(entry.kind, SessionEntryKind::Assistant { .. }) && entry.tokens == 0;
    entry.shown && is_message && !is_empty
}

/// Returns the messages of the current conversation: a summary stands first, in place of the messages that it sums up.
fn message_refs(session: &Session) -> Vec<MessageRef> {
    let pieces = session.model_context();
    let entries = pieces.iter().map(|piece| piece.entry()).filter(|entry| is_shown(entry));
    let line = |entry: &SessionEntry| MessageRef {
        id: entry.id.clone(),
        content: entry.content,
        at: entry.at,
        may_begin: !matches!(entry.kind, SessionEntryKind::ToolResult { .. }),
    };
    entries.map(line).collect()
}

/// Returns the messages that a compaction removes which keeps `first_kept` and later ones.
///
/// # Errors
/// 500 if the record cannot be read.
pub(super) async fn messages_before(
    door: &Arc<GsvAdapter>,
    key: &str,
    first_kept: EntryId,
) -> Result<Vec<MessageRef>, GsvError> {
    let id = registry::session_of(key);
    let scope = ResidencyScope::Session(id.clone());
    let read = move |engine: &Engine| {
        let Some(session) = engine.state().session(&id) else { return Vec::new() };
        let path = session.path_entries();
        let kept = path.iter().skip_while(|entry| entry.id != first_kept);
        let stays: BTreeSet<&EntryId> = kept
            .filter(|entry| !matches!(entry.kind, SessionEntryKind::Compaction { .. }))
            .map(|entry| &entry.id)
            .collect();
        message_refs(session).into_iter().filter(|line| !stays.contains(&line.id)).collect()
    };
    let read = door.context.handle.source(InboxLane::Request).read_of(scope, read).await;
    Ok(read.ok_or_else(|| read_error("the gateway is closing"))?.0)
}

/// Returns the pending gates of a session, in the order in which they are shown.
fn pending_gates<'a>(state: &'a State, session: &Session) -> Vec<&'a Gate> {
    let mut gates: Vec<&Gate> = state.gates_of(session.id()).filter(|gate| gate.is_pending()).collect();
    gates.sort_by_key(|gate| (gate.ordinal(), gate.content_lsn()));
    gates
}

fn queued_messages<'a>(waiting: impl Iterator<Item = &'a RunMetadata>) -> Vec<QueuedMessage> {
    let named = waiting.filter_map(|marks| {
        Some(QueuedMessage { run: marks.reference.clone()?, origin: marks.origin.as_deref().cloned() })
    });
    named.collect()
}

/// Reads the gate of a session that is shown, and the messages of people and agents that wait. `None` if the session does not exist, or
/// the gateway closes.
pub(super) async fn read_queue(
    door: &GsvAdapter,
    session: &SessionId,
) -> Option<(Option<SessionGate>, Vec<QueuedMessage>)> {
    let id = session.clone();
    let source = door.context.handle.source(InboxLane::Request);
    let read = source.read_of(ResidencyScope::Session(id.clone()), move |engine| {
        let state = engine.state();
        let session = state.session(&id)?;
        let gate = pending_gates(state, session).first().map(|gate| session_gate(state, gate));
        Some((gate, queued_messages(session.waiting_metadata().filter(|marks| marks.firing.is_none()))))
    });
    read.await?.0
}

fn take_snapshot(engine: &Engine, session: &Session, key: &str) -> SessionSnapshot {
    let state = engine.state();
    let run = session.run().and_then(|run| state.run(run));
    let gates = pending_gates(state, session);
    let decided = state.gates_of(session.id()).filter(|gate| !gate.is_pending());
    let decided = decided
        .map(|gate| session_gate(state, gate))
        .max_by_key(|gate| gate.decided.as_ref().map(|decided| decided.at));
    let answers = state.gates_of(session.id()).flat_map(|gate| {
        let resolved = match gate.phase() {
            GatePhase::Resolved { key, .. } => key.clone(),
            GatePhase::Pending => None,
        };
        resolved.into_iter().chain(gate.votes().iter().filter_map(|vote| vote.key.clone()))
    });
    let renewals = session.renewal_count();
    let settings = session.settings();
    SessionSnapshot {
        key: key.to_owned(),
        exists: true,
        id: id_of(key, session.opened_at(), renewals),
        renewals,
        opened_at: session.opened_at(),
        last_at: session.last_at(),
        renewed_at: session.renewed_at(),
        model: settings
            .profile
            .model
            .as_ref()
            .map(|(provider, id)| ModelSelector { provider: provider.clone(), id: id.clone() }),
        settings: Some(Box::new(settings.clone())),
        thinking: settings.thinking.clone(),
        profile: settings.profile.clone(),
        working: run.map(|run| WorkingRun {
            run: run.id(),
            called: run.run_metadata().reference.clone().unwrap_or_else(|| run.id().to_string()),
            calls: run.calls().iter().filter(|call| state.call(**call).is_some_and(|call| !call.is_over())).count(),
        }),
        awaited: awaited_run(session),
        is_at_rest: session.is_at_rest(),
        queued: session.queued_count(),
        behind: queued_messages(session.waiting_metadata()),
        waiting: gates.first().map(|gate| session_gate(state, gate)),
        waiting_behind: gates.len().saturating_sub(1),
        cwd: session.cwd().to_owned(),
        answers: answers.collect(),
        decided,
        row: SessionRow::default(),
    }
}

/// Returns the name of the run that begins after the current summary, or repeats its request.
fn awaited_run(session: &Session) -> Option<String> {
    let of_next = session.behind_compaction().and_then(|next| next.marks.as_ref());
    let marks = of_next.or_else(|| session.active_compaction()?.marks.as_ref())?;
    marks.reference.clone()
}

/// Returns the error of a failed read.
pub(super) fn read_error(why: impl std::fmt::Display) -> GsvError {
    GsvError::new(code::FAILED, why.to_string())
}

/// Reads a session. One that does not exist has its default values.
///
/// # Errors
/// 500 if the record cannot be read.
pub(super) async fn read_session(door: &Arc<GsvAdapter>, key: &str) -> Result<SessionSnapshot, GsvError> {
    read_session_with(door, key, |_| ()).await.map(|(seen, _)| seen)
}

/// Reads a session and all its messages.
///
/// # Errors
/// 500 if the record cannot be read.
pub(super) async fn read_session_detail(door: &Arc<GsvAdapter>, key: &str) -> Result<SessionDetail, GsvError> {
    let (seen, lines) = read_session_with(door, key, message_refs).await?;
    Ok(SessionDetail { seen, lines: lines.unwrap_or_default() })
}

async fn read_session_with<T: Send + 'static>(
    door: &Arc<GsvAdapter>,
    key: &str,
    more: impl FnOnce(&Session) -> T + Send + 'static,
) -> Result<(SessionSnapshot, Option<T>), GsvError> {
    let row = registry::session_row(door.context.handle.log(), key).await.map_err(read_error)?;
    let (id, of) = (registry::session_of(key), key.to_owned());
    let source = door.context.handle.source(InboxLane::Request);
    let scope = ResidencyScope::Session(id.clone());
    let read = source.read_of(scope, move |engine| {
        engine.state().session(&id).map(|session| (take_snapshot(engine, session, &of), more(session)))
    });
    let (found, _) = read.await.ok_or_else(|| read_error("the gateway is closing"))?;
    let (seen, more) = found.unzip();
    let now = door.context.clock.now();
    let agent = key::agent_of(key).map_or_else(|| door.settings.default_agent(), key::agent_id);
    let model = door.settings.agent_model(&agent);
    let mut seen = seen.unwrap_or_else(|| SessionSnapshot {
        key: key.to_owned(),
        exists: false,
        id: id_of(key, Millis(0), 0),
        renewals: 0,
        opened_at: now,
        last_at: now,
        renewed_at: None,
        model: None,
        settings: None,
        thinking: None,
        profile: SessionProfile { renewal: Some(door.settings.default_renewal()), ..SessionProfile::default() },
        working: None,
        awaited: None,
        is_at_rest: true,
        queued: 0,
        behind: Vec::new(),
        waiting: None,
        waiting_behind: 0,
        cwd: String::new(),
        decided: None,
        answers: Vec::new(),
        row: SessionRow::default(),
    });
    seen.model.get_or_insert(model);
    seen.row = row;
    Ok((seen, more))
}
