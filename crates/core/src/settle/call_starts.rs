//! A call starts when its turn has come: exclusive ones alone and in order, shared ones beside each other.
//!
//! It is judged once more: a rule, a constraint or a floor that came since the first judgement wins. A call that a gate
//! let through starts only when that is durable, so that no crash can leave a decision without its work.

use super::{Docket, evaluate, open_approval};
use crate::{
    call::{self, Call, End, Phase},
    engine::{Branch, Context, Event, Fact},
    policy::{Subject, Verdict, Why},
    run::{self, Abort},
    tool::Lane,
};

pub(super) fn rule(docket: Docket<'_>, context: &mut Context) -> Option<Vec<Fact>> {
    let may_work = |run: &run::Run| run.abort() == Abort::No && *run.phase() == run::Phase::Calling;
    if docket.view.closing || !docket.run.is_none_or(may_work) {
        return None;
    }
    let call = next(docket)?;
    let mut branch = Branch::new(docket.session);
    let Some(subject) = docket.subject(call) else {
        docket.end_call(&mut branch, call, End::Failed, "Not run: what was wanted cannot be read.", context);
        return Some(branch.finish());
    };
    match evaluate(docket.view, &subject, context.now) {
        Verdict::Deny(why) => {
            docket.end_call(&mut branch, call, End::Denied, &format!("Denied by policy: {why}"), context);
        }
        Verdict::Ask(why)
            if !is_approved(docket, call, &subject, &why) && *call.executor() != call::Executor::Person =>
        {
            open_approval(docket, &mut branch, call, &why, context);
        }
        Verdict::Allow(_) | Verdict::Ask(_) => {
            let boot = docket.view.state.boot();
            branch.push(Event::Call(call::Event::Started { call: call.id(), boot }));
        }
    }
    Some(branch.finish())
}

/// Whether those who have to allowed exactly this: the shell may have gone elsewhere since, and then it is something else, or
/// rules may ask others by now.
fn is_approved(docket: Docket<'_>, call: &Call, subject: &Subject, why: &Why) -> bool {
    let gate = docket.view.state.gate_of(call.id()).filter(|_| call.approved);
    gate.is_some_and(|gate| gate.subject == subject.digest() && gate.satisfies(why.steps()))
}

/// The first call that may start: nothing exclusive before it is open, and for an exclusive one nothing at all.
fn next(docket: Docket<'_>) -> Option<&Call> {
    let mut any_open = false;
    for call in docket.calls() {
        if call.is_over() {
            continue;
        }
        let may_start = match call.lane {
            Lane::Shared => true,
            Lane::Exclusive => !any_open,
        } && call.let_through.is_none_or(|at| at <= docket.view.durable);
        if *call.phase() == Phase::Ready && may_start {
            return Some(call);
        }
        if call.lane == Lane::Exclusive {
            return None;
        }
        any_open = true;
    }
    None
}
