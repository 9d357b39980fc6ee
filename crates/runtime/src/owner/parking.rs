//! Items that wait for content that is not in memory, while a reader fetches it from the log.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use countersign_core::{
    engine::{Engine, Event, FactMeta, ResidencyScope},
    id::Lsn,
};
use countersign_store::{self as store, AnyLog, Log as _, Partition};

use crate::inbox::{CommandSource, InboxItem, QueuedItem};

/// Wait before a failed read is retried.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Records read at a time.
const PAGE: usize = 4096;

/// Items by the content that they wait for, in the order in which they came.
pub(super) struct ParkedItems {
    log: AnyLog,
    /// Inbox line for the fetched records.
    back: CommandSource,
    by_scope: BTreeMap<ResidencyScope, Vec<QueuedItem>>,
}

impl ParkedItems {
    pub(super) fn new(log: AnyLog, back: CommandSource) -> Self {
        Self { log, back, by_scope: BTreeMap::new() }
    }

    /// Parks an item that needs content outside of memory, and has it fetched. Returns an item that need not wait.
    pub(super) fn park_item(&mut self, engine: &Engine, waiting: QueuedItem) -> Option<QueuedItem> {
        let needed = match &waiting.item {
            InboxItem::Command(command, _) => engine.scope_of(command),
            InboxItem::Read(scope, _) => scope.clone(),
            InboxItem::Live(_) | InboxItem::Fetched(..) => None,
        };
        let Some(scope) = needed else { return Some(waiting) };
        // Nothing overtakes what waits already, even if a replay brought it to hand meanwhile.
        if let Some(before) = self.by_scope.get_mut(&scope) {
            before.push(waiting);
            return None;
        }
        if !engine.needs_fetch(&scope) {
            return Some(waiting);
        }
        self.by_scope.insert(scope.clone(), vec![waiting]);
        self.fetch_scope(scope, Duration::ZERO);
        None
    }

    /// Holds on to items whose reply cannot be given yet, and has the content that they need fetched once more after a while.
    pub(super) fn park_again(&mut self, scope: &ResidencyScope, waiting: Vec<QueuedItem>) {
        self.by_scope.insert(scope.clone(), waiting);
        self.fetch_scope(scope.clone(), AGAIN_AFTER);
    }

    fn fetch_scope(&self, scope: ResidencyScope, after: Duration) {
        let (log, back) = (self.log.clone(), self.back.clone());
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            let records = read_scope_records(&log, &scope).await;
            back.enqueue_item(InboxItem::Fetched(scope, records)).await;
        });
    }

    /// Reports whether no item is parked.
    pub(super) fn is_empty(&self) -> bool {
        self.by_scope.is_empty()
    }

    /// Returns the items that waited for `scope`.
    pub(super) fn release_scope(&mut self, scope: &ResidencyScope) -> Vec<QueuedItem> {
        self.by_scope.remove(scope).unwrap_or_default()
    }
}

/// Reads all records of `scope` in the log.
pub(super) async fn read_scope_records(
    log: &AnyLog,
    scope: &ResidencyScope,
) -> Result<Vec<(Event, FactMeta)>, Arc<str>> {
    let key;
    let read_scope = match scope {
        ResidencyScope::Session(session) => store::ReadScope::Session(session),
        ResidencyScope::Gate(gate) => {
            key = gate.to_string();
            store::ReadScope::Key(&key)
        }
    };
    let mut records = Vec::new();
    let mut after = Lsn(0);
    loop {
        let page = log
            .read_scope(Partition::ZERO, read_scope, after, PAGE)
            .await
            .map_err(|error| Arc::<str>::from(error.to_string()))?;
        let is_last = page.len() < PAGE;
        for stored in page {
            let event = Event::decode(&stored.kind, stored.version, &stored.facts)
                .map_err(|error| Arc::<str>::from(format!("entry {}: {error}", stored.lsn)))?;
            after = stored.lsn;
            records.push((event, FactMeta { lsn: stored.lsn, at: stored.at, session: stored.session }));
        }
        if is_last {
            return Ok(records);
        }
    }
}
