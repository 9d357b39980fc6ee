//! A call starts when its turn has come: exclusive ones alone and in order, shared ones beside each other.
//!
//! It is judged once more: a rule, a constraint or a floor that came since the first judgement wins.

use super::{Scene, evaluate, open_approval};
use crate::{
    call::{self, Call, End, Phase},
    engine::{Branch, Context, Event, Fact},
    policy::Verdict,
    run::{self, Abort},
    tool::Lane,
};

pub(super) fn rule(scene: Scene<'_>, context: &mut Context) -> Option<Vec<Fact>> {
    if scene.view.closing || scene.run.abort() != Abort::No || *scene.run.phase() != run::Phase::Calling {
        return None;
    }
    let call = next(scene)?;
    let subject = scene.subject(call)?;
    let mut branch = Branch::new(scene.session);
    match evaluate(scene.view, &subject, context.now) {
        Verdict::Deny(why) => {
            scene.end_call(&mut branch, call, End::Denied, &format!("Denied by policy: {why}"), context);
        }
        Verdict::Ask(why) if !call.approved && *call.executor() != call::Executor::Person => {
            open_approval(scene, &mut branch, call, &why, context);
        }
        Verdict::Allow(_) | Verdict::Ask(_) => {
            let boot = scene.view.state.boot();
            branch.push(Event::Call(call::Event::Started { call: call.id(), boot }));
        }
    }
    Some(branch.finish())
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
        };
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
