//! A call that is wanted is judged: it may run, it is refused, or a person decides.

use super::{Scene, breaker_trips, brief, evaluate, open_approval};
use crate::{
    call::{self, End, Executor, Phase},
    engine::{Branch, Context, Event, Fact},
    policy::Verdict,
};

pub(super) fn rule(scene: Scene<'_>, context: &mut Context) -> Option<Vec<Fact>> {
    if scene.view.closing {
        return None;
    }
    let call = scene.calls().find(|call| *call.phase() == Phase::Wanted)?;
    let mut branch = Branch::new(scene.session);
    let Some(content) = scene.view.admitted.call(call.id()) else {
        scene.end_call(&mut branch, call, End::Failed, "Not run: what was wanted cannot be read.", context);
        return Some(branch.finish());
    };
    if let Some(problem) = &content.problem {
        scene.end_call(&mut branch, call, End::Failed, problem, context);
        return Some(branch.finish());
    }
    let verdict = match (call.executor(), scene.subject(call)) {
        (_, None) => {
            scene.end_call(&mut branch, call, End::Failed, "Not run: what was wanted cannot be read.", context);
            return Some(branch.finish());
        }
        (_, Some(subject)) => evaluate(scene.view, &subject, context.now),
    };
    let policy = scene.view.rules.digest();
    match verdict {
        Verdict::Allow(why) => {
            let why = brief(&why);
            branch.push(Event::Call(call::Event::Allowed { call: call.id(), why, policy, by: None }));
        }
        Verdict::Deny(why) => {
            scene.end_call(&mut branch, call, End::Denied, &format!("Denied by policy: {why}"), context);
        }
        // A question to a person needs nobody's leave but their own.
        Verdict::Ask(why) if *call.executor() == Executor::Person => {
            let why = brief(&why);
            branch.push(Event::Call(call::Event::Allowed { call: call.id(), why, policy, by: None }));
        }
        Verdict::Ask(_) if scene.run.denials >= breaker_trips::LIMIT => {
            scene.end_call(&mut branch, call, End::Denied, breaker_trips::TRIPPED, context);
        }
        Verdict::Ask(why) => open_approval(scene, &mut branch, call, &why, context),
    }
    Some(branch.finish())
}
