//! Log of a simulation: records as text, as a real log would hold them.

use std::sync::Arc;

use countersign_core::{
    engine::{ActiveRules, Engine, Event, FactMeta, RecordedFact, ResidencyScope},
    id::Lsn,
};
use countersign_store::FACTS_LIMIT;

/// One record.
#[derive(Clone, Debug)]
pub(super) struct SimRecord {
    pub(super) meta: FactMeta,
    kind: &'static str,
    version: u16,
    facts: String,
    content: Option<Arc<str>>,
}

/// All durable records.
#[derive(Clone, Debug, Default)]
pub(super) struct SimLog(Vec<SimRecord>);

impl SimRecord {
    pub(super) fn decode_event(&self) -> Result<Event, String> {
        Event::decode(self.kind, self.version, &self.facts).map_err(|error| format!("{error}: {}", self.facts))
    }
}

impl SimLog {
    pub(super) fn head_lsn(&self) -> Lsn {
        self.0.last().map_or(Lsn(0), |line| line.meta.lsn)
    }

    pub(super) fn records_after(&self, lsn: Lsn) -> &[SimRecord] {
        let from = usize::try_from(lsn.0).unwrap_or(usize::MAX).min(self.0.len());
        &self.0[from..]
    }

    pub(super) fn content_at(&self, lsn: Lsn) -> Option<&Arc<str>> {
        let at = usize::try_from(lsn.0).ok()?.checked_sub(1)?;
        self.0.get(at)?.content.as_ref()
    }

    /// Writes a batch. Returns the refusal that a log would give.
    pub(super) fn append_records(&mut self, batch: &[RecordedFact]) -> Result<(), String> {
        for recorded in batch {
            let (kind, version, facts) = recorded.fact.event.encode();
            if recorded.meta.lsn != self.head_lsn().next() {
                return Err(format!("record {} follows {}", recorded.meta.lsn, self.head_lsn()));
            }
            if self.0.last().is_some_and(|last| last.meta.at > recorded.meta.at) {
                return Err(format!("record {} is older than the one before it", recorded.meta.lsn));
            }
            if facts.len() > FACTS_LIMIT {
                return Err(format!("a fact of {} bytes fits into no log: {:.200}", facts.len(), facts));
            }
            let content = recorded.fact.content.clone();
            self.0.push(SimRecord { meta: recorded.meta.clone(), kind, version, facts, content });
        }
        Ok(())
    }

    /// Returns the records of `scope`.
    pub(super) fn records_of<'a>(&'a self, scope: &'a ResidencyScope) -> impl Iterator<Item = (Event, FactMeta)> + 'a {
        let records = self.0.iter().filter_map(|line| Some((line.decode_event().ok()?, line.meta.clone())));
        records.filter(move |(event, meta)| match scope {
            ResidencyScope::Session(id) => meta.session.as_ref() == Some(id),
            ResidencyScope::Gate(id) => matches!(event, Event::Gate(event) if event.gate() == *id),
        })
    }

    /// Builds the engine of a new process, before recovery.
    pub(super) fn replay_engine(&self, rules: ActiveRules) -> Result<Engine, String> {
        self.replay_engine_from(None, rules)
    }

    /// Does the same, with a snapshot in place of everything up to its position.
    pub(super) fn replay_engine_from(
        &self,
        snapshot: Option<&(Lsn, String)>,
        rules: ActiveRules,
    ) -> Result<Engine, String> {
        let mut engine = match snapshot {
            None => Engine::new(rules),
            Some((_, text)) => Engine::from_snapshot(rules, text).map_err(|error| format!("a snapshot: {error}"))?,
        };
        for line in self.records_after(snapshot.map_or(Lsn(0), |(lsn, _)| *lsn)) {
            if let Some(scope) =
                line.meta.session.clone().map(ResidencyScope::Session).filter(|scope| engine.needs_fetch(scope))
            {
                let before = self.records_of(&scope).filter(|(_, meta)| meta.lsn < line.meta.lsn);
                engine.fetch_scope(&scope, before, line.meta.at);
            }
            engine.replay_fact(&line.decode_event()?, &line.meta);
        }
        let admitted_lsns = engine.wants_admitted();
        let contents = admitted_lsns.into_iter().filter_map(|lsn| Some((lsn, self.content_at(lsn)?)));
        engine.admit_content(contents).map_err(|(lsn, error)| format!("record {lsn} cannot be admitted: {error}"))?;
        engine.mark_durable(self.head_lsn());
        Ok(engine)
    }
}
