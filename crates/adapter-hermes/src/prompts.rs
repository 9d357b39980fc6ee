//! Prompts of clients of hermes: approvals and questions of one session at a time, oldest first.
//!
//! One task follows the log for all of them. After each change in a session it reads the engine and publishes the
//! newest state on the session's [`PromptBroadcast`], from which every open stream gets it.

mod answer_dedup;
mod approvals;
mod clarify;
mod follower;
mod form;
mod prompt_broadcast;
pub(crate) mod prompt_card;
mod queue;
mod streams;
mod yolo;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::wire::HermesEvent;
use axum::{
    Router,
    http::{StatusCode, Uri},
    response::Response,
};
use bytes::Bytes;
use countersign_core::{
    engine::{Command, Engine, EngineReply, ResidencyScope as At},
    gate::{self, Gate, GateReply},
    id::{GateId, Lsn, PrincipalId, SessionId},
};
use countersign_http::{
    reply::HttpProblem,
    web::{GuardedRoutes, HttpCaller, sse},
};
use countersign_runtime::{InboxLane, OwnerError, OwnerHandle};
use countersign_view::GateRequest;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{broadcast, watch};

use self::{
    answer_dedup::AnswerDeduplicator,
    approvals::ApprovalAnswer,
    clarify::QuestionAnswer,
    prompt_broadcast::{PromptBroadcast, QueueChange},
    queue::{PromptKind, PromptQueues, QueueDepth},
    yolo::CoverChange,
};
use super::HermesContext;

/// Most changes of the list that a slow reader may be behind.
const CHANGES: usize = 256;

/// Prompts of a gateway.
pub(crate) struct SessionPrompts {
    handle: OwnerHandle,
    broadcasts: Mutex<PromptBroadcasts>,
    /// Covered sessions, and who covered them. Lost with the process, by design.
    covered: Mutex<BTreeMap<SessionId, PrincipalId>>,
    /// Recent answers that named no gate: choices and texts.
    choice_answers: AnswerDeduplicator<Result<approvals::ApprovalOutcome, OwnerClosed>>,
    text_answers: AnswerDeduplicator<Result<Result<(), clarify::AnswerRejection>, OwnerClosed>>,
}

/// Broadcasts that have readers.
struct PromptBroadcasts {
    by_session: BTreeMap<SessionId, PromptBroadcast>,
    /// Changes of the list of sessions. None once nothing will be shown any more.
    changes: Option<broadcast::Sender<Bytes>>,
    /// No state older than this creates a broadcast: an earlier one may have had a newer state.
    floor: Lsn,
    /// Newest position that the list of sessions has.
    version: u64,
}

/// Target of an answer.
#[derive(Debug)]
enum PromptLookup {
    /// This gate of the session, which may be resolved, and its content, if that is in memory.
    Gate(Box<Gate>, Option<GateRequest>),
    /// The session has no gate of that name, or no pending gate at all. With the number of pending gates.
    Nothing(usize),
}

/// The owner has ended, so that nothing can be read.
#[derive(Clone, Copy)]
struct OwnerClosed;

impl SessionPrompts {
    /// Starts to follow the log. `None` if it cannot be followed any more.
    pub(crate) async fn open(context: &HermesContext) -> Option<Arc<Self>> {
        let handle = context.handle.clone();
        let facts = handle.follow_facts(follower::fact_of_session).await?;
        let prompts = Arc::new(Self {
            handle,
            broadcasts: Mutex::new(PromptBroadcasts::new()),
            covered: Mutex::default(),
            choice_answers: AnswerDeduplicator::default(),
            text_answers: AnswerDeduplicator::default(),
        });
        let (waiting, _) = prompts.handle.source(InboxLane::Result).read_state(PromptQueues::waiting_sessions).await?;
        prompts.refresh_sessions(&waiting).await.ok()?;
        tokio::spawn(follower::follow_log(Arc::clone(&prompts), facts));
        Some(prompts)
    }

    /// Reads the current queues of a session.
    async fn read_queues(&self, session: &SessionId) -> Result<PromptQueues, OwnerClosed> {
        let session = session.clone();
        let read = self
            .handle
            .source(InboxLane::Request)
            .read_state(move |engine| PromptQueues::for_session(engine, &session))
            .await;
        read.map(|(queues, _)| queues).ok_or(OwnerClosed)
    }

    /// Reads the engine and publishes the state of these sessions.
    async fn refresh_sessions(&self, sessions: &BTreeSet<SessionId>) -> Result<(), OwnerClosed> {
        let mut left = sessions.clone();
        // A removed broadcast may have had a newer state than the one that was read, and a reader who came meanwhile may need more of
        // it: then it is read again.
        while !left.is_empty() {
            let requested = self.depths_of(left);
            let read = self
                .handle
                .source(InboxLane::Result)
                .read_state(move |engine| PromptQueues::for_sessions(engine, &requested))
                .await;
            let (all, _) = read.ok_or(OwnerClosed)?;
            left = self.publish_queues(all);
        }
        Ok(())
    }

    /// Returns how much of each session the open streams need.
    fn depths_of(&self, sessions: BTreeSet<SessionId>) -> BTreeMap<SessionId, QueueDepth> {
        let boards = self.broadcasts.lock();
        let with_depth = |session: SessionId| {
            let depth = boards.by_session.get(&session).map_or(QueueDepth::Oldest, PromptBroadcast::depth);
            (session, depth)
        };
        sessions.into_iter().map(with_depth).collect()
    }

    /// Publishes states, and returns the sessions whose state has to be read again.
    fn publish_queues(&self, all: BTreeMap<SessionId, PromptQueues>) -> BTreeSet<SessionId> {
        let mut boards = self.broadcasts.lock();
        let mut old = BTreeSet::new();
        for (session, queues) in all {
            let floor = boards.floor;
            let board = boards.by_session.entry(session.clone()).or_insert_with(|| PromptBroadcast::new(floor));
            let reason = match board.show_queues(&queues) {
                Some(QueueChange::Nothing) => None,
                Some(QueueChange::Pending) => Some("attention_pending"),
                Some(QueueChange::Resolved) => Some("attention_resolved"),
                Some(QueueChange::Cleared) => Some("attention_cleared"),
                None => {
                    old.insert(session.clone());
                    None
                }
            };
            if let Some(reason) = reason {
                boards.announce_change(reason, &session, queues.at);
            }
            boards.remove_unneeded(&session);
        }
        old
    }

    /// Joins the broadcast of a session, which stays for as long as it has a reader.
    fn join_broadcast<T>(
        self: &Arc<Self>,
        session: &SessionId,
        follow: impl FnOnce(&PromptBroadcast) -> T,
    ) -> Result<(T, BroadcastGuard), OwnerClosed> {
        let mut boards = self.broadcasts.lock();
        if boards.changes.is_none() {
            return Err(OwnerClosed);
        }
        let floor = boards.floor;
        let board = boards.by_session.entry(session.clone()).or_insert_with(|| PromptBroadcast::new(floor));
        let followed = follow(board);
        Ok((followed, BroadcastGuard { prompts: Arc::clone(self), session: session.clone() }))
    }

    /// Follows one queue of a session: its state, and every later one.
    async fn watch_queue(
        self: &Arc<Self>,
        session: &SessionId,
        kind: PromptKind,
    ) -> Result<((Bytes, watch::Receiver<Bytes>), BroadcastGuard), OwnerClosed> {
        self.refresh_sessions(&BTreeSet::from([session.clone()])).await?;
        self.join_broadcast(session, |board| {
            let mut states = board.watch_queue(kind);
            let first = states.borrow_and_update().clone();
            (first, states)
        })
    }

    /// Notes that the caller is about to see a queue: their next answer without a name is for the gates on view.
    fn mark_shown(&self, kind: PromptKind, caller: &HttpCaller, session: &SessionId) {
        match kind {
            PromptKind::Approvals => self.choice_answers.forget_shown(caller, session),
            PromptKind::Questions => self.text_answers.forget_shown(caller, session),
        }
    }

    /// Finds the target of an answer: the named gate, or the oldest.
    async fn find_gate(
        &self,
        session: &SessionId,
        named: Option<&str>,
        kind: PromptKind,
    ) -> Result<PromptLookup, OwnerClosed> {
        let of = session.clone();
        let id = named.map(GateId::parse);
        let look = move |engine: &Engine| {
            let is_here = |gate: &&Gate| {
                gate.session() == Some(&of) && prompt_card::is_question(gate) == (kind == PromptKind::Questions)
            };
            let found = match id {
                None => engine.state().pending_gates().find(is_here),
                Some(id) => id.and_then(|id| engine.state().gate(id)).filter(is_here),
            };
            match found {
                Some(gate) => PromptLookup::Gate(Box::new(gate.clone()), GateRequest::at_hand(engine, gate.id())),
                None => PromptLookup::Nothing(engine.state().pending_gates().filter(is_here).count()),
            }
        };
        // Answers take precedence over requests.
        let source = self.handle.source(InboxLane::Result);
        let read = match id.flatten() {
            Some(id) => source.read_of(At::Gate(id), look).await,
            None => source.read_state(look).await,
        };
        let (found, _) = read.ok_or(OwnerClosed)?;
        let is_resolved = matches!(&found, PromptLookup::Gate(gate, _) if !gate.is_pending());
        // A session that was deleted has no gates any more.
        if is_resolved && !self.has_session(session).await {
            return Ok(PromptLookup::Nothing(0));
        }
        Ok(found)
    }

    /// Answers a gate. Reads after this returns no longer have it; the open streams get the change from
    /// the follower of the log, because ten thousand of them take longer than an answer may take.
    async fn answer_gate(
        &self,
        gate: &Gate,
        answer: GateReply,
        by: &PrincipalId,
        key: String,
    ) -> Result<EngineReply, OwnerError> {
        let answer = gate::Command::Answer { gate: gate.id(), answer, by: by.clone(), key: Some(key) };
        self.handle.source(InboxLane::Result).send_command(Command::Gate(answer)).await.map(|reply| reply.outcome)
    }

    /// Stops showing states, and ends all streams.
    fn close(&self) {
        let mut boards = self.broadcasts.lock();
        boards.changes = None;
        boards.by_session.clear();
    }
}

impl PromptBroadcasts {
    fn new() -> Self {
        let changes = Some(broadcast::Sender::new(CHANGES));
        Self { by_session: BTreeMap::new(), changes, floor: Lsn(0), version: 0 }
    }

    /// Publishes a change of the list of sessions.
    fn announce_change(&mut self, reason: &str, session: &SessionId, at: Lsn) {
        self.version = self.version.max(at.0);
        if let Some(changes) = self.changes.as_ref().filter(|changes| changes.receiver_count() > 0) {
            // There need not be a reader.
            let _ = changes.send(list_change_frame(reason, self.version, Some(session)));
        }
    }

    /// Removes a broadcast without readers.
    fn remove_unneeded(&mut self, session: &SessionId) {
        if let Some(board) = self.by_session.get(session)
            && !board.is_needed()
        {
            self.floor = self.floor.max(board.shown_lsn());
            self.by_session.remove(session);
        }
    }
}

/// Membership of a broadcast. Drop it after the receivers that were taken there.
struct BroadcastGuard {
    prompts: Arc<SessionPrompts>,
    session: SessionId,
}

impl Drop for BroadcastGuard {
    fn drop(&mut self) {
        self.prompts.broadcasts.lock().remove_unneeded(&self.session);
    }
}

impl From<OwnerClosed> for HttpProblem {
    fn from(_: OwnerClosed) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "The gateway is closing")
    }
}

/// Returns a pending gate as an event of the stream of its turn.
pub(super) async fn pending_gate_event(handle: &OwnerHandle, gate: GateId) -> Option<HermesEvent> {
    let source = handle.source(InboxLane::Request);
    let read = source.read_state(move |engine| {
        let gate = engine.state().gate(gate).filter(|gate| gate.is_pending())?;
        prompt_card::gate_event(engine, gate)
    });
    let (name, data) = read.await?.0?;
    Some(HermesEvent::new(name, data))
}

/// Returns the routes.
pub(crate) fn routes(context: &HermesContext, prompts: &Arc<SessionPrompts>) -> Router {
    GuardedRoutes::new(&context.auth)
        .add_route("GET", "/api/approval/pending", streams::poll_queue::<ApprovalAnswer>)
        .add_route("GET", "/api/approval/stream", streams::stream_queue::<ApprovalAnswer>)
        .add_route("POST", "/api/approval/respond", form::handle_form::<ApprovalAnswer>)
        .add_route("GET", "/api/session/yolo", yolo::is_on)
        .add_route("POST", "/api/session/yolo", form::handle_form::<CoverChange>)
        .add_route("GET", "/api/clarify/pending", streams::poll_queue::<QuestionAnswer>)
        .add_route("GET", "/api/clarify/stream", streams::stream_queue::<QuestionAnswer>)
        .add_route("POST", "/api/clarify/respond", form::handle_form::<QuestionAnswer>)
        .add_route("GET", "/api/session/stream", streams::stream_session)
        .add_route("GET", "/api/sessions/events", streams::stream_list)
        .add_route("GET", "/api/sessions/gateway/stream", streams::gateway_status)
        .with_state(Arc::clone(prompts))
}

/// Returns the frame for a change of the list of sessions.
fn list_change_frame(reason: &str, version: u64, session: Option<&SessionId>) -> Bytes {
    let data = json!({ "type": "sessions_changed", "version": version, "reason": reason, "session_id": session });
    sse::encode_frame(None, "sessions_changed", &data)
}

/// Returns a query parameter, trimmed; none if it is empty.
fn query_parameter(uri: &Uri, name: &str) -> Option<String> {
    let pairs = serde_urlencoded::from_str::<Vec<(String, String)>>(uri.query()?).ok()?;
    let value = pairs.into_iter().find(|(found, _)| found == name)?.1;
    Some(value.trim().to_owned()).filter(|value| !value.is_empty())
}

/// Returns the session that a URI names.
fn session_in(uri: &Uri) -> Option<SessionId> {
    query_parameter(uri, "session_id").map(SessionId::new)
}

fn without_session(uri: &Uri) -> Response {
    HttpProblem::new(StatusCode::BAD_REQUEST, "session_id is required").response_for(uri.path())
}
