//! Deciders for calls: results from executors, and a person's own commands.

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value};

use super::{find_session, model_answer::proposed_call, requests};
use crate::{
    call::{self, CallEnd, CallPhase, CallProgress, CallResult, DoubtCause, Event as Happened, Executor, PeerAction},
    call_subject,
    decision::{
        BranchBuilder, CommandError, DecisionContext, DecisionResult, DecisionView, EngineReply, Event, Fact, texts,
    },
    id::{CallId, SessionId},
    peer::{self, PeerMemory},
    policy::Verdict,
    principal,
    run::ResolvedCall,
    session::{self, MessageQueue, SessionEntryKind},
    settle,
    tool::{CallConcurrency, RepeatMode, ToolEffect},
};

/// Maximum length of a folder that is followed: a command in a longer one is refused by the shell's own check.
const LONGEST_FOLDER: usize = 4096;

/// Time for a peer to reconnect and report the outcome of a call.
pub(super) const ASKED_WITHIN: Duration = Duration::from_secs(60);

/// Maximum number of times a call is sent or asked for: a peer that disconnects at each request must not block a run for ever.
const MOST_ASKED: u32 = 20;

/// A command that a person runs outside of the run.
pub(super) struct OwnCommand {
    pub(super) tool: Arc<str>,
    pub(super) arguments: Map<String, Value>,
    pub(super) signature: String,
    pub(super) executor: Executor,
}

/// Runs a person's command: it needs no approval, but what rules deny stays denied.
pub(super) fn run_own(
    view: DecisionView<'_>,
    id: &SessionId,
    own: OwnCommand,
    context: &mut DecisionContext,
) -> Result<DecisionResult, CommandError> {
    if view.closing {
        return Err(CommandError::OutOfPlace("the session is closing"));
    }
    let session = find_session(view, id)?;
    let view = view.for_session(session).ok_or_else(|| CommandError::WaitsForHost(id.clone()))?;
    let call = CallId::new(context.fresh.next_uuid(context.now));
    let requested = ResolvedCall {
        tool_call_id: call.to_string().into(),
        tool: own.tool,
        arguments: own.arguments,
        intent: None,
        signature: own.signature,
        named: vec!["command".to_owned()],
        concurrency: CallConcurrency::Exclusive,
        repeat: RepeatMode::Once,
        effect: ToolEffect::Changes,
        executor: own.executor,
        class: None,
        shell: None,
        problem: None,
        pins: None,
        leads_to: None,
    };
    let (event, content) = proposed_call(call, None, requested);
    let parsed: call::CallDetails = serde_json::from_str(&content).expect("it was written a line ago");
    let subject = call_subject::subject_of_call(session, &parsed, ToolEffect::Changes, principal::host_principal());
    if let Verdict::Deny(why) = settle::evaluate_policy(view, session, &subject, context.now) {
        return Err(CommandError::Denied(format!("Denied by policy: {why}")));
    }
    let mut branch = BranchBuilder::new(session);
    branch.push_with(Event::Call(event), Some(content.into()));
    branch.push_event(Event::Call(Happened::Allowed {
        call,
        why: "a person's own command".to_owned(),
        policy: view.rules.digest(),
        by: None,
    }));
    let started = Happened::Started { call, boot: view.state.boot_count(), line: None, memory: PeerMemory::Forgets };
    branch.push_event(Event::Call(started));
    Ok(DecisionResult { facts: branch.into_facts(), reply: EngineReply::Running(call) })
}

/// Starts a person's action of a peer at once, on the peer's connection.
pub(super) fn start_peer_action(
    view: DecisionView<'_>,
    act: PeerAction,
    context: &mut DecisionContext,
) -> Result<DecisionResult, CommandError> {
    if view.closing {
        return Err(CommandError::OutOfPlace("the gateway is closing"));
    }
    let session = find_session(view, &act.session)?;
    let view = view.for_session(session).ok_or_else(|| CommandError::WaitsForHost(act.session.clone()))?;
    let requested = ResolvedCall {
        tool_call_id: act.wire.unwrap_or_else(|| act.call.to_string().into()),
        tool: act.tool,
        arguments: act.arguments,
        intent: act.intent,
        signature: act.signature,
        named: act.named,
        concurrency: CallConcurrency::Shared,
        repeat: RepeatMode::Once,
        effect: ToolEffect::Changes,
        executor: Executor::Peer(act.peer.clone()),
        class: Some(act.class),
        shell: Some(act.shell),
        problem: None,
        pins: None,
        leads_to: None,
    };
    let (event, content) = proposed_call(act.call, None, requested);
    let parsed: call::CallDetails = serde_json::from_str(&content).expect("it was written a line ago");
    let subject = call_subject::subject_of_call(session, &parsed, ToolEffect::Changes, act.by.clone());
    if let Verdict::Deny(why) = settle::evaluate_policy(view, session, &subject, context.now) {
        return Err(CommandError::Denied(format!("Denied by policy: {why}")));
    }
    let line = view.state.line_of(&act.peer);
    let line = Some(line.ok_or_else(|| CommandError::PeerAway(act.peer.clone()))?);
    let mut branch = BranchBuilder::new(session);
    branch.push_with(Event::Call(event), Some(content.into()));
    branch.push_event(Event::Call(Happened::Allowed {
        call: act.call,
        why: "a person's own act".to_owned(),
        policy: view.rules.digest(),
        by: Some(act.by),
    }));
    let (boot, memory) = (view.state.boot_count(), view.state.memory_of(&act.peer));
    branch.push_event(Event::Call(Happened::Started { call: act.call, boot, line, memory }));
    Ok(DecisionResult { facts: branch.into_facts(), reply: EngineReply::Running(act.call) })
}

pub(super) fn end_call(
    view: DecisionView<'_>,
    id: CallId,
    progress: CallProgress,
    context: &mut DecisionContext,
) -> DecisionResult {
    let is_awaited = |call: &&call::Call| match &progress {
        CallProgress::Unsent { start } => *start == call.start_count(),
        CallProgress::Returned(_) | CallProgress::NotBegun(_) | CallProgress::Left { .. } | CallProgress::Broke => true,
    };
    let is_open = |call: &&call::Call| match call.phase() {
        CallPhase::Started { .. } => true,
        // A peer that is back may report the outcome unasked.
        CallPhase::InDoubt(_) => call.may_be_asked() && matches!(progress, CallProgress::Returned(_)),
        CallPhase::Proposed | CallPhase::Gated | CallPhase::Ready | CallPhase::Ended(_) => false,
    };
    let call = view.state.call(id).filter(is_open).filter(is_awaited);
    let session = call.and_then(|call| view.state.session(call.session()));
    let (Some(call), Some(session)) = (call, session) else {
        let content = match progress {
            CallProgress::Returned(returned) => Some(returned.message.content),
            CallProgress::NotBegun(text) | CallProgress::Left { text, .. } => Some(text),
            CallProgress::Broke | CallProgress::Unsent { .. } => None,
        };
        let session = view.state.call(id).map(|call| call.session().clone());
        let event = Event::Call(Happened::ResultDropped { call: id });
        return DecisionResult { facts: vec![Fact { event, session, content }], reply: EngineReply::Dropped };
    };
    let mut branch = BranchBuilder::new(session);
    if may_ask_again(call, &progress) {
        if let CallProgress::Unsent { .. } = progress {
            line_gone(view, &mut branch, call);
        }
        let until = Some(context.now + ASKED_WITHIN);
        branch.push_event(Event::Call(Happened::InDoubt { call: id, since: DoubtCause::LineGone, until }));
        return DecisionResult { facts: branch.into_facts(), reply: EngineReply::Done };
    }
    if *call.executor() == Executor::Service || call.is_act() {
        requests::end_request(&mut branch, id, progress);
        return DecisionResult { facts: branch.into_facts(), reply: EngineReply::Done };
    }
    if let CallProgress::Unsent { .. } = progress {
        restart_unsent(view, &mut branch, call);
        return DecisionResult { facts: branch.into_facts(), reply: EngineReply::Done };
    }
    settle::withdraw_gate(view, &mut branch, call);
    let content = view.admitted.call_content(id);
    let mut problem: Arc<str> = Arc::from("");
    let (end, returned) = match progress {
        CallProgress::Returned(returned) => (CallEnd::Done { error: returned.error }, *returned),
        CallProgress::NotBegun(text) => {
            let result = failed_result(texts::tool_result(content, &text, true));
            problem = text;
            (CallEnd::Failed, result)
        }
        CallProgress::Left { text, since } => {
            branch.push_event(Event::Call(Happened::InDoubt { call: id, since, until: None }));
            (CallEnd::Unknown, failed_result(texts::tool_result(content, &text, true)))
        }
        CallProgress::Broke | CallProgress::Unsent { .. } => {
            branch.push_event(Event::Call(Happened::InDoubt { call: id, since: DoubtCause::TaskBroke, until: None }));
            (CallEnd::Unknown, failed_result(texts::tool_result(content, texts::UNKNOWN, true)))
        }
    };
    let open_tasks = returned.open_tasks;
    let left_behind = returned.left_behind.clone().zip(call.peer().cloned());
    let folder = returned.folder.clone().filter(|folder| folder != session.folder() && folder.len() <= LONGEST_FOLDER);
    if call.run().is_some() {
        let entry = branch.push_message(
            SessionEntryKind::ToolResult { prunable: returned.prunable },
            returned.message,
            context,
        );
        branch.push_event(Event::Call(Happened::Ended { call: id, end, entry: Some(entry) }));
    } else {
        let message = match end {
            CallEnd::Done { .. } => returned.message,
            CallEnd::Failed => texts::command_failed(content, &problem, call.aborting),
            CallEnd::Denied
            | CallEnd::Refused
            | CallEnd::Expired
            | CallEnd::Limited
            | CallEnd::Skipped
            | CallEnd::Cancelled
            | CallEnd::Unknown => texts::command_unknown(content),
        };
        let kind = SessionEntryKind::Bash { in_context: true };
        if session.run().is_some() {
            let queued = session::Event::Queued {
                queue: MessageQueue::Held,
                tokens: message.tokens,
                kind,
                marks: None,
                behind: None,
            };
            branch.push_with(Event::Session(queued), Some(message.content));
            branch.push_event(Event::Call(Happened::Ended { call: id, end, entry: None }));
        } else {
            let entry = branch.push_message(kind, message, context);
            branch.push_event(Event::Call(Happened::Ended { call: id, end, entry: Some(entry) }));
        }
    }
    if let Some((execution, peer)) = left_behind {
        branch.push_event(Event::Call(Happened::LeftBehind { call: id, peer, execution }));
    }
    if let Some(path) = folder {
        branch.push_event(Event::Session(session::Event::Folder { path }));
    }
    if let Some(open) = open_tasks {
        branch.push_event(Event::Session(session::Event::Tasks { open }));
    }
    DecisionResult { facts: branch.into_facts(), reply: EngineReply::Done }
}

/// Reports whether the peer of a call whose connection broke can report the outcome over another one.
fn may_ask_again(call: &call::Call, progress: &CallProgress) -> bool {
    let is_lost = match progress {
        // A process that ends stops calls that no user asked it to stop.
        CallProgress::Left { since, .. } => matches!(since, DoubtCause::LineGone | DoubtCause::Stopped),
        // A call whose outcome was only asked for may have been executed before.
        CallProgress::Unsent { .. } => call.is_asking(),
        CallProgress::Returned(_) | CallProgress::NotBegun(_) | CallProgress::Broke => false,
    };
    is_lost && call.memory.keeps_record() && !call.aborting && call.start_count() < MOST_ASKED
}

/// Restarts a call that its peer never received, over another connection.
fn restart_unsent(view: DecisionView<'_>, branch: &mut BranchBuilder<'_>, call: &call::Call) {
    line_gone(view, branch, call);
    branch.push_event(Event::Call(Happened::Again { call: call.id() }));
}

fn line_gone(view: DecisionView<'_>, branch: &mut BranchBuilder<'_>, call: &call::Call) {
    // The connection is gone whether or not its adapter has reported so yet; else the call would be started on it once more.
    if let Some(peer) =
        call.peer().filter(|peer| call.peer_line().is_some() && view.state.line_of(peer) == call.peer_line())
    {
        branch.push_event(Event::Peer(peer::Event::Gone { peer: peer.clone() }));
    }
}

fn failed_result(message: session::MessageContent) -> CallResult {
    CallResult { message, error: true, open_tasks: None, folder: None, prunable: false, left_behind: None }
}
