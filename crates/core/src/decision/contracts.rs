//! The contracts of sessions within the state: in force from a fact, and gone with the run that they were for.

use super::{event::FactMeta, state::State};
use crate::{
    id::SessionId,
    unattended::{self, UnattendedContract},
};

impl State {
    /// Removes the contract of a run that is over.
    pub(super) fn lift_contract(&mut self, id: &SessionId) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        if session.unattended.take_if(|contract| contract.firing_id().is_some()).is_some() {
            self.contracted.remove(id);
        }
    }

    pub(super) fn apply_unattended(&mut self, event: &unattended::Event, meta: &FactMeta) {
        let Some(session) = meta.session.as_ref().and_then(|id| self.sessions.get_mut(id)) else { return };
        match &mut session.unattended {
            Some(unattended) => unattended.apply(event, meta.at),
            None => session.unattended = UnattendedContract::from_event(event, meta.at).map(Box::new),
        }
        if session.unattended.is_some() {
            self.contracted.insert(session.id().clone());
        }
    }
}
