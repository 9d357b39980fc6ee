//! What a resolved approval means for the call that waited for it.

use super::Scene;
use crate::{
    call::{self, End, Phase},
    engine::{Branch, Context, Event, Fact},
    gate::{self, Kind, Resolution},
    run,
};

pub(super) fn rule(scene: Scene<'_>, context: &mut Context) -> Option<Vec<Fact>> {
    let (call, gate) = scene.calls().find_map(|call| {
        let gate = scene.view.state.gate_of(call.id())?;
        (*call.phase() == Phase::Gated && gate.kind() == Kind::Approval && !gate.is_pending()).then_some((call, gate))
    })?;
    let gate::Phase::Resolved { resolution, by, .. } = gate.phase() else { return None };
    let run = scene.run.id();
    let mut branch = Branch::new(scene.session);
    let who = by.as_ref().map_or_else(String::new, |by| format!(" by {by}"));
    match resolution {
        Resolution::Allowed { .. } | Resolution::Granted => {
            if scene.run.denials > 0 && by.as_ref().is_some_and(|by| scene.run.was_denied_by(by)) {
                branch.push(Event::Run(run::Event::DenialsForgiven { run, of: by.clone(), by: by.clone() }));
            }
            branch.push(Event::Call(call::Event::Allowed {
                call: call.id(),
                why: if by.is_some() { format!("allowed{who}") } else { "covered by a grant".to_owned() },
                policy: scene.view.rules.digest(),
                by: by.clone(),
            }));
        }
        Resolution::Denied | Resolution::Declined | Resolution::Answered => {
            branch.push(Event::Run(run::Event::Denied { run, in_a_row: scene.run.denials + 1, by: by.clone() }));
            let reason = scene.view.admitted.answer(gate.id()).filter(|reason| !reason.trim().is_empty());
            let text = match reason {
                Some(reason) => format!("Denied{who}: {reason}"),
                None => format!("Denied{who}. The same action in other words stays denied."),
            };
            scene.end_call(&mut branch, call, End::Denied, &text, context);
        }
        Resolution::Expired => {
            scene.end_call(&mut branch, call, End::Denied, "Denied: nobody answered in time.", context);
        }
        Resolution::Withdrawn => {
            scene.end_call(&mut branch, call, End::Denied, "Denied: the approval was withdrawn.", context);
        }
    }
    Some(branch.finish())
}
