//! A call starts when its turn has come: exclusive ones alone and in order, shared ones at the same time.
//!
//! It is judged once more: a rule, a constraint or a floor that came since the first judgement wins. A call that a gate
//! let through starts only when that is durable, so that no crash can leave a decision without its work. One that a peer
//! does starts on the line which the peer has, and waits under a deadline while it has none.

use super::{OpenCalls, contract, evaluate_policy, open_approval};
use crate::{
    call::{self, Call, CallEnd, CallPhase},
    decision::{BranchBuilder, DecisionContext, Event, Fact},
    peer::PeerLine,
    policy::{PolicySubject, Verdict, VerdictReason},
    run::{self, AbortState},
    tool::CallConcurrency,
    unattended::BreachPoint,
};

pub(super) fn due_facts(docket: OpenCalls<'_>, context: &mut DecisionContext) -> Option<Vec<Fact>> {
    let may_work = |run: &run::Run| run.abort_state() == AbortState::No && *run.phase() == run::RunPhase::Calling;
    if docket.view.closing || !docket.may_begin() || !docket.run.is_none_or(may_work) {
        return None;
    }
    let (call, turn) = next_call(docket)?;
    let mut branch = BranchBuilder::new(docket.session);
    let line = match turn {
        CallTarget::Here => None,
        CallTarget::At(line) => Some(line),
        CallTarget::Away => {
            let until = context.now + docket.session.settings().peer_timeout;
            branch.push_event(Event::Call(call::Event::Waits { call: call.id(), until }));
            return Some(branch.into_facts());
        }
    };
    let Some(subject) = docket.policy_subject(call) else {
        docket.end_call(&mut branch, call, CallEnd::Failed, "Not run: what was wanted cannot be read.", context);
        return Some(branch.into_facts());
    };
    match evaluate_policy(docket.view, docket.session, &subject, context.now) {
        Verdict::Deny(why) => docket.deny_call(&mut branch, call, &why, context),
        Verdict::Ask(why)
            if !is_approved(docket, call, &subject, &why) && *call.executor() != call::Executor::Person =>
        {
            open_approval(docket, &mut branch, call, &why, context);
        }
        Verdict::Allow(_) | Verdict::Ask(_) => {
            if let Some(breach) = contract::call_breach(docket.session, call.id(), context.now) {
                return contract::breach_facts(docket.view, docket.session, breach, BreachPoint::Call, context);
            }
            let boot = docket.view.state.boot_count();
            let memory = call.peer().map(|peer| docket.view.state.memory_of(peer)).unwrap_or_default();
            branch.push_event(Event::Call(call::Event::Started { call: call.id(), boot, line, memory }));
        }
    }
    Some(branch.into_facts())
}

/// Reports whether the required approvers allowed exactly this: the shell may have changed its folder since, which changes the call, or
/// rules may require others by now.
fn is_approved(docket: OpenCalls<'_>, call: &Call, subject: &PolicySubject, why: &VerdictReason) -> bool {
    let gate = docket.view.state.gate_of(call.id()).filter(|_| call.approved);
    gate.is_some_and(|gate| gate.subject == subject.digest() && gate.satisfies_steps(why.approval_steps()))
}

/// Place of execution of a call whose turn has come.
enum CallTarget {
    Here,
    /// Its peer, which has this line.
    At(PeerLine),
    /// Its peer, which has no line.
    Away,
}

/// Returns the first call that may start, or has to wait for its peer from now on: nothing exclusive before it is open, and for an
/// exclusive one nothing at all.
fn next_call(docket: OpenCalls<'_>) -> Option<(&Call, CallTarget)> {
    let mut any_open = false;
    for call in docket.open_calls() {
        if call.is_over() {
            continue;
        }
        let may_start = match call.concurrency {
            CallConcurrency::Shared => true,
            CallConcurrency::Exclusive => !any_open,
        } && call.let_through.is_none_or(|at| at <= docket.view.durable);
        if *call.phase() == CallPhase::Ready && may_start {
            match call.peer().map(|peer| docket.view.state.line_of(peer)) {
                None => return Some((call, CallTarget::Here)),
                Some(Some(line)) => return Some((call, CallTarget::At(line))),
                Some(None) if call.until.is_none() => return Some((call, CallTarget::Away)),
                // It waits, and is open for those after it.
                Some(None) => {}
            }
        }
        if call.concurrency == CallConcurrency::Exclusive {
            return None;
        }
        any_open = true;
    }
    None
}
