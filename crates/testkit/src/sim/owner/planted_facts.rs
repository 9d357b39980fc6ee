//! Facts without a cause: faults that the checks of a simulation must find.

use countersign_core::{
    engine::{Event, Fact, FactMeta, RecordedFact},
    id::SessionId,
    ledger::BudgetBreach,
    unattended::{self, ContractStatus},
};

use super::SimOwner;
use crate::sim::{PlantedFault, channels};

impl SimOwner {
    /// Returns a session in which a gate asks to raise the budget.
    pub(super) fn awaiting_extension(&self) -> Option<(SessionId, BudgetBreach)> {
        self.engine.state().sessions().find_map(|session| match session.unattended()?.status() {
            ContractStatus::AwaitingDecision { breach, .. } => Some((session.id().clone(), breach)),
            ContractStatus::InForce | ContractStatus::Over { .. } | ContractStatus::Settled { .. } => None,
        })
    }

    /// Plants a second receipt of a message.
    pub(super) fn plant_second_receipt(&mut self, batch: &mut Vec<RecordedFact>) {
        let head = self.engine.state().head_lsn();
        let again = batch.iter().find_map(|recorded| channels::receive_again(recorded, head));
        if let Some(again) = again.filter(|_| self.plant_fault(PlantedFault::HearTwice)) {
            self.engine.replay_fact(&again.fact.event, &again.meta);
            batch.push(again);
        }
    }

    /// Creates a fact without a cause, folded in as if it had been decided.
    pub(super) fn more_for_nothing(&mut self, session: SessionId, breach: BudgetBreach) -> RecordedFact {
        let limit = breach.limit * 2;
        let event = Event::Unattended(unattended::Event::Extended { metric: breach.metric, limit, by: None });
        let state = self.engine.state();
        let meta = FactMeta { lsn: state.head_lsn().next(), at: state.last_fact_at(), session: Some(session.clone()) };
        self.engine.replay_fact(&event, &meta);
        RecordedFact { meta, fact: Fact { event, session: Some(session), content: None } }
    }
}
