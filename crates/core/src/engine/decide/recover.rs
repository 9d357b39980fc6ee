//! Decides the outcome of work that was unfinished when the last process ended.

use std::time::Duration;

use super::{calls::ASKED_WITHIN, requests};
use crate::{
    call::{self, DoubtCause},
    decision::{
        BranchBuilder, CommandError, DecisionContext, DecisionResult, DecisionView, EngineReply, Event, Fact,
        ResumeMode, texts,
    },
    gate,
    id::CallId,
    policy,
    run::{self, RunOutcome, RunPhase},
    session::{self, MessageQueue, Session, SessionEntryKind},
    settle,
    time::Millis,
    tool::RepeatMode,
};

/// Extra time for an answer if its deadline passed while no process could take it.
const GRACE: Duration = Duration::from_secs(60);

pub(super) fn recover_work(
    view: DecisionView<'_>,
    resume: ResumeMode,
    context: &mut DecisionContext,
) -> Result<DecisionResult, CommandError> {
    let mut facts = vec![Fact::without_content(Event::Booted, None)];
    facts.extend(extend_deadlines(view, context.now));
    if view.state.policy().is_untidy(context.now) {
        facts.push(Fact::without_content(Event::Policy(policy::Event::Tidied { at: context.now }), None));
    }
    for session in view.state.sessions() {
        let mut branch = BranchBuilder::new(session);
        // Sessions with a host of their own wait for it, in any mode.
        let resume = if session.hosted_state().is_some() { ResumeMode::Wait } else { resume };
        recover_session(view, session, resume, &mut branch, context);
        facts.extend(branch.into_facts());
    }
    Ok(DecisionResult { facts, reply: EngineReply::Done })
}

/// Extends gates, and calls that wait for their peer, whose deadline passed, or is about to, while no answer could be received.
pub(super) fn extend_deadlines(view: DecisionView<'_>, now: Millis) -> Vec<Fact> {
    let deadline = now + GRACE;
    let due = view.state.pending_gates().filter(|gate| gate.deadline().is_some_and(|at| at < deadline));
    let gates = due.map(|gate| {
        let event = gate::Event::Extended { gate: gate.id(), deadline };
        Fact::without_content(Event::Gate(event), gate.session().cloned())
    });
    let waiting = view.state.calls().filter(|call| call.until.is_some_and(|at| at < deadline));
    let calls = waiting.map(|call| {
        let event = match call.phase() {
            call::CallPhase::InDoubt(since) => {
                call::Event::InDoubt { call: call.id(), since: *since, until: Some(deadline) }
            }
            _ => call::Event::Waits { call: call.id(), until: deadline },
        };
        Fact::without_content(Event::Call(event), Some(call.session().clone()))
    });
    gates.chain(calls).collect()
}

fn recover_session(
    view: DecisionView<'_>,
    session: &Session,
    resume: ResumeMode,
    branch: &mut BranchBuilder<'_>,
    context: &mut DecisionContext,
) {
    // A new process has a new shell, which starts in the folder of the session.
    if session.folder() != session.cwd() {
        branch.push_event(Event::Session(session::Event::Folder { path: session.cwd().to_owned() }));
    }
    for call in session.commands().filter_map(|call| view.state.call(call)) {
        if is_kept(branch, call, context) {
            continue;
        }
        let content = view.admitted.call_content(call.id());
        branch.push_event(in_doubt(call, None));
        if call.is_act() {
            let ended = call::Event::Ended { call: call.id(), end: call::CallEnd::Unknown, entry: None };
            branch.push_with(Event::Call(ended), Some(texts::UNKNOWN.into()));
            continue;
        }
        let (kind, message) = (SessionEntryKind::Bash { in_context: true }, texts::command_unknown(content));
        // Nothing may come between a message and the results of its calls.
        let entry = if session.run().is_some() {
            let queued = session::Event::Queued {
                queue: MessageQueue::Held,
                tokens: message.tokens,
                kind,
                marks: None,
                behind: None,
            };
            branch.push_with(Event::Session(queued), Some(message.content));
            None
        } else {
            Some(branch.push_message(kind, message, context))
        };
        branch.push_event(Event::Call(call::Event::Ended { call: call.id(), end: call::CallEnd::Unknown, entry }));
    }
    requests::recover_requests(view, session, branch);
    if let Some(compaction) = session.active_compaction() {
        super::compaction::recover_compaction(branch, compaction, resume, context);
    }
    let Some(run) = session.run().and_then(|run| view.state.run(run)) else { return };
    let is_asked = |gate| view.state.gate(gate).is_some_and(gate::Gate::is_pending);
    let waits_for_more = session.unattended().is_some_and(|unattended| unattended.gate_ids().any(is_asked));
    let goes_on = resume == ResumeMode::Go
        || waits_for_more
        || run.awaits_attempt()
        || is_answered(view, session, run)
        || run.calls().iter().any(|call| is_a_persons(view, *call));
    for call in run.calls().iter().filter_map(|call| view.state.call(*call)) {
        let content = view.admitted.call_content(call.id());
        match call.phase() {
            call::CallPhase::Started { .. } | call::CallPhase::InDoubt(_)
                if *call.executor() == call::Executor::Person =>
            {
                if !goes_on {
                    end_call(
                        branch,
                        call,
                        call::CallEnd::Cancelled,
                        texts::tool_result(content, texts::NOT_BEGUN, true),
                        context,
                    );
                }
            }
            call::CallPhase::Started { .. } | call::CallPhase::InDoubt(_)
                if goes_on && is_kept(branch, call, context) => {}
            call::CallPhase::Started { .. } | call::CallPhase::InDoubt(_) => {
                branch.push_event(in_doubt(call, None));
                settle::withdraw_gate(view, branch, call);
                if call.repeat == RepeatMode::Idempotent && resume == ResumeMode::Go && !call.aborting {
                    branch.push_event(Event::Call(call::Event::Again { call: call.id() }));
                } else {
                    end_call(
                        branch,
                        call,
                        call::CallEnd::Unknown,
                        texts::tool_result(content, texts::UNKNOWN, true),
                        context,
                    );
                }
            }
            call::CallPhase::Proposed if !goes_on && run.is_broken() => {
                let ended = call::Event::Ended { call: call.id(), end: call::CallEnd::Cancelled, entry: None };
                branch.push_with(Event::Call(ended), Some(texts::NOT_WHOLE.into()));
            }
            call::CallPhase::Proposed | call::CallPhase::Gated | call::CallPhase::Ready if !goes_on => {
                end_call(
                    branch,
                    call,
                    call::CallEnd::Cancelled,
                    texts::tool_result(content, texts::NOT_BEGUN, true),
                    context,
                );
            }
            call::CallPhase::Proposed | call::CallPhase::Gated | call::CallPhase::Ready | call::CallPhase::Ended(_) => {
            }
        }
    }
    if let RunPhase::Thinking { .. } = run.phase() {
        branch.push_event(Event::Run(run::Event::Interrupted { run: run.id() }));
    }
    if !goes_on {
        if matches!(run.phase(), RunPhase::Calling) {
            branch.push_event(Event::Run(run::Event::TurnClosed { run: run.id() }));
        }
        branch.push_event(Event::Run(run::Event::Ended {
            run: run.id(),
            end: RunOutcome::Interrupted,
            attempts: run.attempt,
        }));
    }
}

fn in_doubt(call: &call::Call, until: Option<Millis>) -> Event {
    Event::Call(call::Event::InDoubt { call: call.id(), since: DoubtCause::ProcessEnded, until })
}

/// Reports whether the peer that has a call can still report its outcome. It has some time to reconnect.
fn is_kept(branch: &mut BranchBuilder<'_>, call: &call::Call, context: &DecisionContext) -> bool {
    // Calls that were in doubt before got more time already.
    if call.may_be_asked() {
        return true;
    }
    let is_kept =
        call.memory.keeps_record() && !call.aborting && matches!(call.phase(), call::CallPhase::Started { .. });
    if is_kept {
        branch.push_event(in_doubt(call, Some(context.now + ASKED_WITHIN)));
    }
    is_kept
}

/// Reports whether a person has a part in a call that has not begun: a call that waits for one waits again, and an approved
/// one is executed.
fn is_a_persons(view: DecisionView<'_>, id: CallId) -> bool {
    let gate = view.state.gate_of(id);
    let was_let_through = gate.and_then(gate::Gate::resolution).is_some_and(|resolution| {
        matches!(resolution, gate::GateResolution::Allowed { .. } | gate::GateResolution::Granted)
    });
    let call = view.state.call(id);
    let is_before_start = call.is_some_and(call::Call::is_before_start);
    let is_asked = call.is_some_and(|call| *call.executor() == call::Executor::Person);
    // The request of a running call for more is gone.
    (is_before_start || is_asked) && gate.is_some_and(gate::Gate::is_pending) || is_before_start && was_let_through
}

/// Reports whether the model has not answered since a person answered a question of the run. The
/// host was notified that the answer counts, so its consequences must happen.
fn is_answered(view: DecisionView<'_>, session: &Session, run: &run::Run) -> bool {
    let is_of_model = |entry: &&&session::SessionEntry| matches!(entry.kind, SessionEntryKind::Assistant { .. });
    let last = session.path_entries().iter().rev().find(is_of_model).map(|entry| entry.lsn);
    let is_of = |gate: &&gate::Gate| {
        gate.run() == Some(run.id())
            && gate.kind().takes_words()
            && gate.resolution() == Some(&gate::GateResolution::Answered)
            && gate.resolved_by().is_some()
    };
    run.abort_state() == run::AbortState::No
        && view.state.all_gates().filter(is_of).any(|gate| gate.answer_content() > last)
}

fn end_call(
    branch: &mut BranchBuilder<'_>,
    call: &call::Call,
    end: call::CallEnd,
    message: session::MessageContent,
    context: &mut DecisionContext,
) {
    let entry = branch.push_message(SessionEntryKind::ToolResult { prunable: false }, message, context);
    branch.push_event(Event::Call(call::Event::Ended { call: call.id(), end, entry: Some(entry) }));
}
