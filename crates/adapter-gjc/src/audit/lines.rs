//! Facts of the log about a contract, as lines of its audit.

use std::collections::BTreeMap;

use countersign_core::{
    engine, gate,
    id::{Lsn, SessionId},
    ledger::{BudgetBreach, LedgerMetric},
    time::Millis,
    unattended::Event,
};
use countersign_protocol::{
    RawJson,
    gjc::audit::{AuditEvent, AuditOutcome},
};
use countersign_runtime::{
    OwnerHandle,
    store::{Log as _, Partition, ReadScope},
};
use serde_json::json;

use super::{AuditNote, gate_note};
use crate::contract_terms::{self, MissingPermission};

/// Number of records that are read at once.
const PAGE: usize = 512;

/// Returns the lines of everything that the log has of a session's contract, in order: what was decided of it, and the answers that
/// counted.
///
/// # Errors
/// Why the log cannot be read, for people.
pub(crate) async fn read_recorded(handle: &OwnerHandle, session: &SessionId) -> Result<Vec<AuditNote>, String> {
    let (mut notes, mut places, mut after) = (Vec::new(), BTreeMap::new(), Lsn(0));
    loop {
        let scope = ReadScope::Session(session);
        let page = handle.log().read_scope(Partition::ZERO, scope, after, PAGE).await;
        let page = page.map_err(|error| format!("what was decided cannot be audited: {error}"))?;
        for stored in page.iter().filter(|stored| KINDS.contains(&stored.kind.as_ref())) {
            let event = engine::Event::decode(&stored.kind, stored.version, &stored.facts);
            let event = event.map_err(|error| format!("what was decided cannot be audited: {error}"))?;
            match event {
                engine::Event::Unattended(event) => {
                    notes.extend(notes_for_event(&event, session, stored.lsn, stored.at))
                }
                engine::Event::Gate(gate::Event::Opened { gate, stage: Some(stage), number, .. }) => {
                    places.insert(gate, (stage, number));
                }
                // Only hosts that are sent gates as such answer in a form.
                engine::Event::Gate(gate::Event::Resolved { gate, form: Some(form), .. }) => {
                    let place = places.get(&gate);
                    notes.extend(place.map(|place| gate_note::accepted_note(session, *place, form, stored.at)));
                }
                _ => {}
            }
        }
        match page.last() {
            Some(last) if page.len() == PAGE => after = last.lsn,
            _ => return Ok(notes),
        }
    }
}

/// Kinds of facts about contracts and gates, as the log names them.
const KINDS: [&str; 2] = ["unattended", "gate"];

/// Returns the lines of a fact at `lsn`, in order. Their keys depend on its position: a second read of the log writes none twice.
pub(crate) fn notes_for_event(event: &Event, session: &SessionId, lsn: Lsn, at: Millis) -> Vec<AuditNote> {
    let note = |event, outcome, word: &str| AuditNote::new(at, event, outcome, format!("{word}:{session}:{}", lsn.0));
    let negotiated = |outcome| note(AuditEvent::UnattendedNegotiated, outcome, "unattended_negotiated");
    let aborted = || note(AuditEvent::UnattendedAborted, AuditOutcome::Aborted, "unattended_aborted");
    match event {
        Event::Declared { .. } | Event::Narrowed { .. } | Event::Widened { .. } => {
            vec![negotiated(AuditOutcome::Accepted)]
        }
        Event::Kept => vec![negotiated(AuditOutcome::Rejected)],
        Event::Denied { lacks, .. } => vec![match contract_terms::missing_permission(lacks) {
            MissingPermission::Scope(scope) => {
                let scope = Some(scope.name().to_owned());
                AuditNote { scope, ..note(AuditEvent::ScopeDenied, AuditOutcome::Denied, "scope_denied") }
            }
            MissingPermission::Action(action) => {
                let action = Some(action.name().to_owned());
                AuditNote { action, ..note(AuditEvent::ActionDenied, AuditOutcome::Denied, "action_denied") }
            }
        }],
        Event::Breached { breach, place, gate } => {
            let (metric, [limit, observed]) = contract_terms::wire_amounts(*breach);
            let phase = contract_terms::phase_of(place);
            let budget = json!({ "metric": metric, "limit": limit, "observed": observed, "phase": phase });
            let exceeded = note(AuditEvent::BudgetExceeded, AuditOutcome::Exceeded, "budget_exceeded");
            let exceeded = AuditNote { budget: Some(RawJson::from(budget)), ..exceeded };
            if gate.is_some() { vec![exceeded] } else { vec![exceeded, aborted()] }
        }
        Event::Extended { metric, limit, .. } => {
            vec![AuditNote { budget: Some(raised_budget(*metric, *limit)), ..negotiated(AuditOutcome::Accepted) }]
        }
        Event::Ended => vec![aborted()],
        Event::Settled => {
            vec![note(AuditEvent::UnattendedAbortSettled, AuditOutcome::Aborted, "unattended_abort_settled")]
        }
        // The gate of a proposal has its own line; the use of a command is in the log.
        Event::Proposed { .. } | Event::Counted { .. } => Vec::new(),
    }
}

/// Returns a limit that a person raised.
fn raised_budget(metric: LedgerMetric, limit: u64) -> RawJson {
    let (metric, [limit, _]) = contract_terms::wire_amounts(BudgetBreach { metric, limit, observed: limit });
    RawJson::from(json!({ "metric": metric, "limit": limit }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use countersign_core::{
        id::{Lsn, SessionId},
        ledger::{BudgetBreach, LedgerMetric},
        policy::{Class, ContractGap, ContractScope},
        time::Millis,
        unattended::{BreachPoint, Event},
    };

    use countersign_protocol::RawJson;

    use super::notes_for_event;

    fn sorted(budget: &RawJson) -> String {
        let members: BTreeMap<String, serde_json::Value> = budget.decode_as().unwrap();
        serde_json::to_string(&members).unwrap()
    }

    #[test]
    fn each_fact_has_its_lines() {
        let denied = |lacks| Event::Denied { lacks, call: None, command: None };
        let breach = BudgetBreach { metric: LedgerMetric::Cost, limit: 500_000, observed: 700_000 };
        let breached = |gate| Event::Breached { breach, place: BreachPoint::Before("prompt".to_owned()), gate };
        let gate = countersign_core::id::GateId::parse("gate_00000000000000000000000000000001");
        for (event, want) in [
            (Event::Kept, vec!["UnattendedNegotiated Rejected unattended_negotiated:s:7 - - -"]),
            (denied(ContractGap::Scope(ContractScope::Admin)), vec!["ScopeDenied Denied scope_denied:s:7 admin - -"]),
            (
                denied(ContractGap::Class(Class::FileDelete)),
                vec!["ActionDenied Denied action_denied:s:7 - file.delete -"],
            ),
            (
                breached(None),
                vec![
                    r#"BudgetExceeded Exceeded budget_exceeded:s:7 - - {"limit":0.5,"metric":"cost","observed":0.7,"phase":"prompt preflight"}"#,
                    "UnattendedAborted Aborted unattended_aborted:s:7 - - -",
                ],
            ),
            (
                breached(gate),
                vec![
                    r#"BudgetExceeded Exceeded budget_exceeded:s:7 - - {"limit":0.5,"metric":"cost","observed":0.7,"phase":"prompt preflight"}"#,
                ],
            ),
            (
                Event::Extended { metric: LedgerMetric::Tokens, limit: 9, by: None },
                vec![r#"UnattendedNegotiated Accepted unattended_negotiated:s:7 - - {"limit":9,"metric":"tokens"}"#],
            ),
            (Event::Ended, vec!["UnattendedAborted Aborted unattended_aborted:s:7 - - -"]),
            (Event::Settled, vec!["UnattendedAbortSettled Aborted unattended_abort_settled:s:7 - - -"]),
            (Event::Counted { command: "prompt".to_owned() }, vec![]),
        ] {
            let notes = notes_for_event(&event, &SessionId::new("s"), Lsn(7), Millis(5));
            let summaries: Vec<String> = notes
                .iter()
                .map(|note| {
                    let or = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
                    let budget = note.budget.as_ref().map_or_else(|| "-".to_owned(), sorted);
                    let (scope, action) = (or(&note.scope), or(&note.action));
                    format!("{:?} {:?} {} {scope} {action} {budget}", note.event, note.outcome, note.key)
                })
                .collect();
            assert_eq!(summaries, want, "{event:?}");
        }
    }
}
