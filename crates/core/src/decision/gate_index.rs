//! The loaded gates, by their ids and by their sessions.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
};

use super::State;
use crate::{
    gate::Gate,
    id::{GateId, SessionId},
};

/// Gates by id. A gate stays in the session that it was opened in.
#[derive(Clone, Debug, Default)]
pub(super) struct GateIndex {
    by_id: BTreeMap<GateId, Gate>,
    of_session: BTreeMap<SessionId, BTreeSet<GateId>>,
}

impl Deref for GateIndex {
    type Target = BTreeMap<GateId, Gate>;

    fn deref(&self) -> &Self::Target {
        &self.by_id
    }
}

impl GateIndex {
    pub(super) fn get_mut(&mut self, id: &GateId) -> Option<&mut Gate> {
        self.by_id.get_mut(id)
    }

    pub(super) fn insert(&mut self, id: GateId, gate: Gate) {
        if let Some(session) = gate.session() {
            self.of_session.entry(session.clone()).or_default().insert(id);
        }
        self.by_id.insert(id, gate);
    }

    pub(super) fn remove(&mut self, id: &GateId) -> Option<Gate> {
        let gate = self.by_id.remove(id)?;
        if let Some(session) = gate.session()
            && let Some(others) = self.of_session.get_mut(session)
        {
            others.remove(id);
            if others.is_empty() {
                self.of_session.remove(session);
            }
        }
        Some(gate)
    }
}

impl State {
    /// Returns all loaded gates of one session, resolved ones too. Gates of other sessions are not visited.
    pub fn gates_of(&self, session: &SessionId) -> impl Iterator<Item = &Gate> {
        let ids = self.gates.of_session.get(session).into_iter().flatten();
        ids.filter_map(|id| self.gates.by_id.get(id))
    }
}

#[cfg(test)]
mod tests {
    use super::GateIndex;
    use crate::{
        digest::Digest,
        gate::{Event, Fallback, Gate, Kind},
        id::{GateId, Lsn, SessionId},
        time::Millis,
    };

    #[test]
    fn a_gate_is_among_those_of_its_session_until_it_goes() {
        let mut gates = GateIndex::default();
        let at = |gates: &GateIndex, session: &str| {
            let ids = gates.of_session.get(&SessionId::new(session));
            ids.map(|ids| ids.iter().copied().collect::<Vec<_>>())
        };
        let ids = [1, 2, 3].map(|number| GateId::new(uuid::Uuid::from_u128(number)));
        for (id, session) in ids.into_iter().zip([Some("a"), Some("a"), None]) {
            let opened = Event::Opened {
                gate: id,
                kind: Kind::Pairing,
                ordinal: 0,
                number: 0,
                stage: None,
                run: None,
                call: None,
                subject: Digest::hash_bytes(b""),
                scopes: Vec::new(),
                deadline: None,
                fallback: Fallback::Deny,
                remind_at: None,
                steps: Vec::new(),
            };
            gates.insert(id, Gate::from_opened(&opened, session.map(SessionId::new), Lsn(1), Millis(1)).unwrap());
        }
        assert_eq!((gates.len(), at(&gates, "a")), (3, Some(vec![ids[0], ids[1]])));
        assert!(gates.remove(&ids[0]).is_some() && gates.remove(&ids[0]).is_none());
        assert_eq!(at(&gates, "a"), Some(vec![ids[1]]));
        assert!(gates.remove(&ids[1]).is_some() && gates.remove(&ids[2]).is_some());
        assert!(gates.is_empty() && gates.of_session.is_empty());
    }
}
