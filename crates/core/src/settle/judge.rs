//! A proposed call is judged: it may run, it is refused, or a person decides.

use super::{OpenCalls, asks_to_go_on, breaker_trips, evaluate_policy, open_approval, short_reason};
use crate::{
    call::{self, Call, CallEnd, CallPhase, Executor},
    decision::{BranchBuilder, DecisionContext, Event, Fact},
    policy::Verdict,
};

pub(super) fn due_facts(docket: OpenCalls<'_>, context: &mut DecisionContext) -> Option<Vec<Fact>> {
    if docket.view.closing || !docket.may_begin() {
        return None;
    }
    let call = docket.open_calls().find(|call| *call.phase() == CallPhase::Proposed)?;
    let mut branch = BranchBuilder::new(docket.session);
    let Some(content) = docket.view.admitted.call_content(call.id()) else {
        docket.end_call(&mut branch, call, CallEnd::Failed, "Not run: what was wanted cannot be read.", context);
        return Some(branch.into_facts());
    };
    if let Some(problem) = &content.problem {
        docket.end_call(&mut branch, call, CallEnd::Failed, problem, context);
        return Some(branch.into_facts());
    }
    let verdict = match (call.executor(), docket.policy_subject(call)) {
        (_, None) => {
            docket.end_call(&mut branch, call, CallEnd::Failed, "Not run: what was wanted cannot be read.", context);
            return Some(branch.into_facts());
        }
        (_, Some(subject)) => evaluate_policy(docket.view, docket.session, &subject, context.now),
    };
    let policy = docket.view.rules.digest();
    let is_question = docket.run.is_none() && *call.executor() == Executor::Person;
    match verdict {
        Verdict::Allow(_) | Verdict::Ask(_) if is_question && is_full(docket) => {
            docket.end_call(&mut branch, call, CallEnd::Limited, "Too many pending approvals", context);
        }
        Verdict::Allow(_) | Verdict::Ask(_) if is_question && docket.is_held() => {
            docket.end_call(&mut branch, call, CallEnd::Denied, asks_to_go_on::HELD, context);
        }
        Verdict::Allow(why) => {
            let why = short_reason(&why);
            branch.push_event(Event::Call(call::Event::Allowed { call: call.id(), why, policy, by: None }));
        }
        Verdict::Deny(why) => docket.deny_call(&mut branch, call, &why, context),
        // A question to a person needs no approval.
        Verdict::Ask(why) if *call.executor() == Executor::Person => {
            let why = short_reason(&why);
            branch.push_event(Event::Call(call::Event::Allowed { call: call.id(), why, policy, by: None }));
        }
        Verdict::Ask(_) if docket.run.is_none() && is_full(docket) => {
            docket.end_call(&mut branch, call, CallEnd::Limited, "Too many pending approvals", context);
        }
        Verdict::Ask(_) if docket.is_held() => {
            asks_to_go_on::open_question(docket, &mut branch, true, context);
            docket.end_call(&mut branch, call, CallEnd::Denied, asks_to_go_on::HELD, context);
        }
        Verdict::Ask(_) if docket.denial_count() >= breaker_trips::LIMIT => {
            docket.end_call(&mut branch, call, CallEnd::Denied, breaker_trips::TRIPPED, context);
        }
        Verdict::Ask(why) => open_approval(docket, &mut branch, call, &why, context),
    }
    Some(branch.into_facts())
}

/// Reports whether the number of pending requests is at its limit.
fn is_full(docket: OpenCalls<'_>) -> bool {
    let waits = |call: &&Call| match call.phase() {
        CallPhase::Gated => true,
        CallPhase::Ready | CallPhase::Started { .. } => *call.executor() == Executor::Person,
        CallPhase::Proposed | CallPhase::InDoubt(_) | CallPhase::Ended(_) => false,
    };
    let waiting = docket.open_calls().filter(waits).count();
    waiting >= usize::try_from(docket.session.settings().max_pending).unwrap_or(usize::MAX)
}
