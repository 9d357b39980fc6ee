//! Consequences of a resolved approval for the call that waited for it.

use super::OpenCalls;
use crate::{
    call::{self, CallEnd, CallPhase},
    decision::{BranchBuilder, DecisionContext, Event, Fact, texts},
    gate::{self, GateResolution, Kind},
    policy::DENIAL_LASTS,
    run,
    session::DenialReach,
};

/// Text for a model about any denial by a person.
const STAYS_DENIED: &str = "A person refused this. Do not retry it: the same action in other words stays denied.";

pub(super) fn due_facts(docket: OpenCalls<'_>, context: &mut DecisionContext) -> Option<Vec<Fact>> {
    let gated = docket.open_calls().filter(|call| *call.phase() == CallPhase::Gated);
    let mut approvals = gated.filter_map(|call| Some((call, docket.view.state.gate_of(call.id())?)));
    let (call, gate) = approvals.find(|(_, gate)| gate.kind() == Kind::Approval && !gate.is_pending())?;
    let gate::GatePhase::Resolved { resolution, by, .. } = gate.phase() else { return None };
    let is_requested = docket.run.is_none();
    let mut branch = BranchBuilder::new(docket.session);
    let who = by.as_ref().map_or_else(String::new, |by| format!(" by {by}"));
    match resolution {
        GateResolution::Allowed { .. } | GateResolution::Granted => {
            if let Some(run) = docket.run
                && run.denials > 0
                && by.as_ref().is_some_and(|by| run.was_denied_by(by))
            {
                let forgiven = run::Event::DenialsForgiven { run: run.id(), of: by.clone(), by: by.clone() };
                branch.push_event(Event::Run(forgiven));
            }
            branch.push_event(Event::Call(call::Event::Allowed {
                call: call.id(),
                why: if by.is_some() { format!("allowed{who}") } else { "covered by a grant".to_owned() },
                policy: docket.view.rules.digest(),
                by: by.clone(),
            }));
        }
        GateResolution::Denied | GateResolution::Declined | GateResolution::Answered => {
            if let Some(run) = docket.run {
                let denied = run::Event::Denied { run: run.id(), in_a_row: run.denials + 1, by: by.clone() };
                branch.push_event(Event::Run(denied));
            }
            let reason = docket.view.admitted.answer_text(gate.id()).filter(|reason| !reason.trim().is_empty());
            let how_long = match docket.session.settings().denials {
                DenialReach::Principal => String::new(),
                DenialReach::Session => {
                    format!(" That holds in this conversation for {} minutes.", DENIAL_LASTS.as_secs() / 60)
                }
            };
            let text = match reason {
                Some(reason) => format!("Denied{who}: {reason}\n{STAYS_DENIED}{how_long}"),
                None => format!("Denied{who}. {STAYS_DENIED}{how_long}"),
            };
            let end = if is_requested { CallEnd::Refused } else { CallEnd::Denied };
            docket.end_call(&mut branch, call, end, &text, context);
        }
        GateResolution::Expired => {
            let end = if is_requested { CallEnd::Expired } else { CallEnd::Denied };
            docket.end_call(&mut branch, call, end, "Denied: nobody answered in time.", context);
        }
        GateResolution::Withdrawn => {
            // Neither a rule nor a person refused it: an agent may request it again.
            let end = if is_requested { CallEnd::Expired } else { CallEnd::Denied };
            let text = match docket.is_over() {
                true => texts::RUN_OVER,
                false => "Denied: the approval was withdrawn before anybody decided.",
            };
            docket.end_call(&mut branch, call, end, text, context);
        }
    }
    Some(branch.into_facts())
}
