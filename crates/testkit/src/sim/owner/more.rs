//! Facts that nothing led to: mistakes that the record of a simulation is looked after for.

use countersign_core::{
    engine::{Event, Fact, Meta, Recorded},
    id::SessionId,
    ledger::Breach,
    unattended::{self, Standing},
};

use super::Owner;
use crate::sim::{Fault, networks};

impl Owner {
    /// A session in which a person is asked for more.
    pub(super) fn held(&self) -> Option<(SessionId, Breach)> {
        self.engine.state().sessions().find_map(|session| match session.unattended()?.standing() {
            Standing::Asked { breach, .. } => Some((session.id().clone(), breach)),
            Standing::InForce | Standing::Over { .. } | Standing::Settled { .. } => None,
        })
    }

    /// A message that was heard is heard once more.
    pub(super) fn hears_twice(&mut self, batch: &mut Vec<Recorded>) {
        let head = self.engine.state().head();
        let again = batch.iter().find_map(|heard| networks::again(heard, head));
        if let Some(again) = again.filter(|_| self.make(Fault::HearTwice)) {
            self.engine.replay(&again.fact.event, &again.meta);
            batch.push(again);
        }
    }

    /// A fact that nothing led to, folded in as if it had been decided.
    pub(super) fn more_for_nothing(&mut self, session: SessionId, breach: Breach) -> Recorded {
        let limit = breach.limit * 2;
        let event = Event::Unattended(unattended::Event::Extended { metric: breach.metric, limit, by: None });
        let state = self.engine.state();
        let meta = Meta { lsn: state.head().next(), at: state.at(), session: Some(session.clone()) };
        self.engine.replay(&event, &meta);
        Recorded { meta, fact: Fact { event, session: Some(session), content: None } }
    }
}
