//! A call starts when its turn has come: exclusive ones alone and in order, shared ones beside each other.
//!
//! It is judged once more: a rule, a constraint or a floor that came since the first judgement wins. A call that a gate
//! let through starts only when that is durable, so that no crash can leave a decision without its work.

use super::{Scene, evaluate, open_approval};
use crate::{
    call::{self, Call, End, Phase},
    engine::{Branch, Context, Event, Fact},
    policy::{Subject, Verdict},
    run::{self, Abort},
    tool::Lane,
};

pub(super) fn rule(scene: Scene<'_>, context: &mut Context) -> Option<Vec<Fact>> {
    if scene.view.closing || scene.run.abort() != Abort::No || *scene.run.phase() != run::Phase::Calling {
        return None;
    }
    let call = next(scene)?;
    let mut branch = Branch::new(scene.session);
    let Some(subject) = scene.subject(call) else {
        scene.end_call(&mut branch, call, End::Failed, "Not run: what was wanted cannot be read.", context);
        return Some(branch.finish());
    };
    match evaluate(scene.view, &subject, context.now) {
        Verdict::Deny(why) => {
            scene.end_call(&mut branch, call, End::Denied, &format!("Denied by policy: {why}"), context);
        }
        Verdict::Ask(why) if !is_approved(scene, call, &subject) && *call.executor() != call::Executor::Person => {
            open_approval(scene, &mut branch, call, &why, context);
        }
        Verdict::Allow(_) | Verdict::Ask(_) => {
            let boot = scene.view.state.boot();
            branch.push(Event::Call(call::Event::Started { call: call.id(), boot }));
        }
    }
    Some(branch.finish())
}

/// Whether a person allowed exactly this: the shell may have gone elsewhere since, and then it is something else.
fn is_approved(scene: Scene<'_>, call: &Call, subject: &Subject) -> bool {
    call.approved && scene.view.state.gate_of(call.id()).is_some_and(|gate| gate.subject == subject.digest())
}

/// The first call that may start: nothing exclusive before it is open, and for an exclusive one nothing at all.
fn next(scene: Scene<'_>) -> Option<&Call> {
    let mut any_open = false;
    for call in scene.calls() {
        if call.is_over() {
            continue;
        }
        let may_start = match call.lane {
            Lane::Shared => true,
            Lane::Exclusive => !any_open,
        } && call.let_through.is_none_or(|at| at <= scene.view.durable);
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
