//! The rows of views of a log in memory.
//!
//! It must not know records other than its input.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use bytes::Bytes;

use crate::{
    error::LogReadError,
    record::{LogHead, StoredRecord},
    view::{self, LogView, ViewPanic, ViewRows},
};

/// The registered views, and what each has folded.
#[derive(Default)]
pub(super) struct MemoryViews {
    registered: Vec<Arc<dyn LogView>>,
    /// Absent is a view that panicked.
    folded: BTreeMap<&'static str, FoldedView>,
}

struct FoldedView {
    version: u32,
    head: LogHead,
    rows: BTreeMap<String, Bytes>,
}

impl MemoryViews {
    pub(super) fn registered_views(&self) -> Vec<Arc<dyn LogView>> {
        self.registered.clone()
    }

    /// Registers `views` in place of those before, and names those that have to be folded again because they do not fit
    /// a log that ends at `head`.
    pub(super) fn register_views(&mut self, views: Vec<Arc<dyn LogView>>, head: LogHead) -> Vec<Arc<dyn LogView>> {
        self.folded.retain(|name, folded| {
            folded.head == head && views.iter().any(|view| view.name() == *name && view.version() == folded.version)
        });
        self.registered = views;
        self.registered.iter().filter(|view| !self.folded.contains_key(view.name())).cloned().collect()
    }

    /// Returns the views that may have kept redacted text.
    pub(super) fn with_contents(&self) -> Vec<Arc<dyn LogView>> {
        let concerned = |view: &&Arc<dyn LogView>| view.reads_contents() && self.folded.contains_key(view.name());
        self.registered.iter().filter(concerned).cloned().collect()
    }

    /// Folds one more record into every view.
    pub(super) fn follow_record(&mut self, record: &StoredRecord, content: Option<&str>) {
        for view in &self.registered {
            if let Some(folded) = self.folded.get_mut(view.name())
                && folded.fold_record(&**view, record, content).is_err()
            {
                self.folded.remove(view.name());
            }
        }
    }

    /// Folds one view from all records.
    pub(super) fn rebuild_view<'a>(
        &mut self,
        view: &dyn LogView,
        records: impl IntoIterator<Item = (&'a StoredRecord, Option<&'a str>)>,
    ) {
        self.folded.remove(view.name());
        let mut folded = FoldedView { version: view.version(), head: LogHead::EMPTY, rows: BTreeMap::new() };
        let done = records.into_iter().try_for_each(|(record, content)| folded.fold_record(view, record, content));
        if done.is_ok() {
            self.folded.insert(view.name(), folded);
        }
    }

    pub(super) fn read_rows(
        &self,
        name: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Bytes)>, LogReadError> {
        if self.registered.iter().all(|view| view.name() != name) {
            return Err(LogReadError::NoView(name.to_owned()));
        }
        let folded = self.folded.get(name).ok_or_else(|| LogReadError::BrokenView(name.to_owned()))?;
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            Some(_) | None => Bound::Included(prefix),
        };
        let rows = folded.rows.range::<str, _>((start, Bound::Unbounded));
        let within = rows.take_while(|(key, _)| key.starts_with(prefix));
        Ok(within.take(limit).map(|(key, value)| (key.clone(), value.clone())).collect())
    }
}

impl FoldedView {
    fn fold_record(
        &mut self,
        view: &dyn LogView,
        record: &StoredRecord,
        content: Option<&str>,
    ) -> Result<(), ViewPanic> {
        view::fold_guarded(view, record, content, &mut self.rows)?;
        self.head = LogHead { lsn: record.lsn, chain: record.chain };
        Ok(())
    }
}

impl ViewRows for BTreeMap<String, Bytes> {
    fn get(&mut self, key: &str) -> Option<Bytes> {
        Self::get(self, key).cloned()
    }

    fn put_row(&mut self, key: &str, value: &[u8]) {
        self.insert(key.to_owned(), Bytes::copy_from_slice(value));
    }

    fn delete_row(&mut self, key: &str) {
        self.remove(key);
    }

    fn scan_prefix(&mut self, prefix: &str) -> Vec<(String, Bytes)> {
        let rows = self.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        rows.take_while(|(key, _)| key.starts_with(prefix)).map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}
