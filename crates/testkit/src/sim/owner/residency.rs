//! Removal of sessions from memory, and loading before a command needs them.

use std::time::Duration;

use countersign_core::engine::{Command, Event, FactMeta};

use super::SimOwner;
use crate::sim::PlantedFault;

/// Time after which a resting session leaves memory.
const IDLE: Duration = Duration::from_secs(30);

impl SimOwner {
    pub(super) fn let_go(&mut self) {
        self.engine.evict_idle(self.now, Some(IDLE));
    }

    /// Fetches the data that `command` needs, as a reader of the log would.
    pub(super) fn fetch_for(&mut self, command: &Command) {
        let Some(scope) = self.engine.scope_of(command).filter(|scope| self.engine.needs_fetch(scope)) else { return };
        let mut records: Vec<(Event, FactMeta)> = self.log.records_of(&scope).collect();
        if records.len() > 3 && self.plant_fault(PlantedFault::FetchLess) {
            records.truncate(records.len() / 2);
        }
        self.push_trace(|| format!("-- {scope:?} is fetched from {} records", records.len()));
        self.stats.fetched += 1;
        self.engine.fetch_scope(&scope, records, self.now);
    }
}
