//! Deciders for calls: what comes back from whoever ran one, and a person's own commands.

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value};

use super::{answered::want, find, requests};
use crate::{
    call::{self, Act, End, Event as Happened, Executor, Known, Phase, Progress, Returned},
    call_subject,
    decision::{
        BranchBuilder, CommandError, DecisionContext, DecisionResult, DecisionView, EngineReply, Event, Fact, texts,
    },
    id::{CallId, SessionId},
    peer::{self, Memory},
    policy::Verdict,
    principal,
    run::Wanted,
    session::{self, Kind, Queue},
    settle,
    tool::{Effect, Lane, Repeat},
};

/// A folder with a longer name is not followed: what runs in it is refused by the shell's own check.
const LONGEST_FOLDER: usize = 4096;

/// How long a peer has to come back and say what became of a call.
pub(super) const ASKED_WITHIN: Duration = Duration::from_secs(60);

/// How often a call is sent or asked for, at most: a peer that goes whenever it is asked must not keep a run for ever.
const MOST_ASKED: u32 = 20;

/// A command that a person runs beside the run.
pub(super) struct Own {
    pub(super) tool: Arc<str>,
    pub(super) arguments: Map<String, Value>,
    pub(super) signature: String,
    pub(super) executor: Executor,
}

/// A person's command needs nobody's approval, but what rules deny stays denied.
pub(super) fn run_own(
    view: DecisionView<'_>,
    id: &SessionId,
    own: Own,
    context: &mut DecisionContext,
) -> Result<DecisionResult, CommandError> {
    if view.closing {
        return Err(CommandError::OutOfPlace("the session is closing"));
    }
    let session = find(view, id)?;
    let view = view.for_session(session).ok_or_else(|| CommandError::WaitsForHost(id.clone()))?;
    let call = CallId::new(context.fresh.uuid(context.now));
    let wanted = Wanted {
        tool_call_id: call.to_string().into(),
        tool: own.tool,
        arguments: own.arguments,
        intent: None,
        signature: own.signature,
        named: vec!["command".to_owned()],
        lane: Lane::Exclusive,
        repeat: Repeat::Once,
        effect: Effect::Changes,
        executor: own.executor,
        class: None,
        shell: None,
        problem: None,
        pins: None,
        leads_to: None,
    };
    let (event, content) = want(call, None, wanted);
    let parsed: call::Content = serde_json::from_str(&content).expect("it was written a line ago");
    let subject = call_subject::subject(session, &parsed, Effect::Changes, principal::host());
    if let Verdict::Deny(why) = settle::evaluate(view, session, &subject, context.now) {
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
    let started = Happened::Started { call, boot: view.state.boot_count(), line: None, memory: Memory::Forgets };
    branch.push_event(Event::Call(started));
    Ok(DecisionResult { facts: branch.into_facts(), reply: EngineReply::Running(call) })
}

/// What a person has a peer do begins at once, on the line that the peer has.
pub(super) fn act(
    view: DecisionView<'_>,
    act: Act,
    context: &mut DecisionContext,
) -> Result<DecisionResult, CommandError> {
    if view.closing {
        return Err(CommandError::OutOfPlace("the gateway is closing"));
    }
    let session = find(view, &act.session)?;
    let view = view.for_session(session).ok_or_else(|| CommandError::WaitsForHost(act.session.clone()))?;
    let wanted = Wanted {
        tool_call_id: act.wire.unwrap_or_else(|| act.call.to_string().into()),
        tool: act.tool,
        arguments: act.arguments,
        intent: act.intent,
        signature: act.signature,
        named: act.named,
        lane: Lane::Shared,
        repeat: Repeat::Once,
        effect: Effect::Changes,
        executor: Executor::Peer(act.peer.clone()),
        class: Some(act.class),
        shell: Some(act.shell),
        problem: None,
        pins: None,
        leads_to: None,
    };
    let (event, content) = want(act.call, None, wanted);
    let parsed: call::Content = serde_json::from_str(&content).expect("it was written a line ago");
    let subject = call_subject::subject(session, &parsed, Effect::Changes, act.by.clone());
    if let Verdict::Deny(why) = settle::evaluate(view, session, &subject, context.now) {
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

pub(super) fn ended(
    view: DecisionView<'_>,
    id: CallId,
    progress: Progress,
    context: &mut DecisionContext,
) -> DecisionResult {
    let is_awaited = |call: &&call::Call| match &progress {
        Progress::Unsent { start } => *start == call.starts(),
        Progress::Returned(_) | Progress::NotBegun(_) | Progress::Left { .. } | Progress::Broke => true,
    };
    let is_open = |call: &&call::Call| match call.phase() {
        Phase::Started { .. } => true,
        // A peer that is back may say so by itself.
        Phase::InDoubt(_) => call.may_be_asked() && matches!(progress, Progress::Returned(_)),
        Phase::Wanted | Phase::Gated | Phase::Ready | Phase::Ended(_) => false,
    };
    let call = view.state.call(id).filter(is_open).filter(is_awaited);
    let session = call.and_then(|call| view.state.session(call.session()));
    let (Some(call), Some(session)) = (call, session) else {
        let content = match progress {
            Progress::Returned(returned) => Some(returned.said.content),
            Progress::NotBegun(text) | Progress::Left { text, .. } => Some(text),
            Progress::Broke | Progress::Unsent { .. } => None,
        };
        let session = view.state.call(id).map(|call| call.session().clone());
        let event = Event::Call(Happened::ResultDropped { call: id });
        return DecisionResult { facts: vec![Fact { event, session, content }], reply: EngineReply::Dropped };
    };
    let mut branch = BranchBuilder::new(session);
    if may_ask_again(call, &progress) {
        if let Progress::Unsent { .. } = progress {
            line_gone(view, &mut branch, call);
        }
        let until = Some(context.now + ASKED_WITHIN);
        branch.push_event(Event::Call(Happened::InDoubt { call: id, since: Known::LineGone, until }));
        return DecisionResult { facts: branch.into_facts(), reply: EngineReply::Done };
    }
    if *call.executor() == Executor::Service || call.is_act() {
        requests::ended(&mut branch, id, progress);
        return DecisionResult { facts: branch.into_facts(), reply: EngineReply::Done };
    }
    if let Progress::Unsent { .. } = progress {
        unsent(view, &mut branch, call);
        return DecisionResult { facts: branch.into_facts(), reply: EngineReply::Done };
    }
    settle::withdraw_gate(view, &mut branch, call);
    let content = view.admitted.call_content(id);
    let mut problem: Arc<str> = Arc::from("");
    let (end, returned) = match progress {
        Progress::Returned(returned) => (End::Done { error: returned.error }, *returned),
        Progress::NotBegun(text) => {
            let result = plain(texts::tool_result(content, &text, true));
            problem = text;
            (End::Failed, result)
        }
        Progress::Left { text, since } => {
            branch.push_event(Event::Call(Happened::InDoubt { call: id, since, until: None }));
            (End::Unknown, plain(texts::tool_result(content, &text, true)))
        }
        Progress::Broke | Progress::Unsent { .. } => {
            branch.push_event(Event::Call(Happened::InDoubt { call: id, since: Known::TaskBroke, until: None }));
            (End::Unknown, plain(texts::tool_result(content, texts::UNKNOWN, true)))
        }
    };
    let open_tasks = returned.open_tasks;
    let left_behind = returned.left_behind.clone().zip(call.peer().cloned());
    let folder = returned.folder.clone().filter(|folder| folder != session.folder() && folder.len() <= LONGEST_FOLDER);
    if call.run().is_some() {
        let entry = branch.push_message(Kind::ToolResult { prunable: returned.prunable }, returned.said, context);
        branch.push_event(Event::Call(Happened::Ended { call: id, end, entry: Some(entry) }));
    } else {
        let said = match end {
            End::Done { .. } => returned.said,
            End::Failed => texts::command_failed(content, &problem, call.aborting),
            End::Denied | End::Refused | End::Expired | End::Limited | End::Skipped | End::Cancelled | End::Unknown => {
                texts::command_unknown(content)
            }
        };
        let kind = Kind::Bash { in_context: true };
        if session.run().is_some() {
            let queued =
                session::Event::Queued { queue: Queue::Held, tokens: said.tokens, kind, marks: None, behind: None };
            branch.push_with(Event::Session(queued), Some(said.content));
            branch.push_event(Event::Call(Happened::Ended { call: id, end, entry: None }));
        } else {
            let entry = branch.push_message(kind, said, context);
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

/// Whether the peer of a call whose line broke can say over another one what became of it.
fn may_ask_again(call: &call::Call, progress: &Progress) -> bool {
    let is_lost = match progress {
        // A process that ends stops what nobody asked it to stop.
        Progress::Left { since, .. } => matches!(since, Known::LineGone | Known::Stopped),
        // What was only asked may have been done before.
        Progress::Unsent { .. } => call.is_asking(),
        Progress::Returned(_) | Progress::NotBegun(_) | Progress::Broke => false,
    };
    is_lost && call.memory.keeps() && !call.aborting && call.starts() < MOST_ASKED
}

/// A call that its peer never saw may start again, over another line.
fn unsent(view: DecisionView<'_>, branch: &mut BranchBuilder<'_>, call: &call::Call) {
    line_gone(view, branch, call);
    branch.push_event(Event::Call(Happened::Again { call: call.id() }));
}

fn line_gone(view: DecisionView<'_>, branch: &mut BranchBuilder<'_>, call: &call::Call) {
    // The line is gone whether or not its door has said so yet; else the call would be started on it once more.
    if let Some(peer) = call.peer().filter(|peer| call.line().is_some() && view.state.line_of(peer) == call.line()) {
        branch.push_event(Event::Peer(peer::Event::Gone { peer: peer.clone() }));
    }
}

fn plain(said: session::Said) -> Returned {
    Returned { said, error: true, open_tasks: None, folder: None, prunable: false, left_behind: None }
}
