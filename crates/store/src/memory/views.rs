//! The rows of views of a log in memory.
//!
//! It must not know records beyond what it is handed.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use bytes::Bytes;

use crate::{
    error::ReadError,
    record::{Head, Stored},
    view::{self, Panicked, Rows, View},
};

/// The registered views, and what each has folded.
#[derive(Default)]
pub(super) struct Views {
    registered: Vec<Arc<dyn View>>,
    /// Absent is a view that panicked.
    folded: BTreeMap<&'static str, Folded>,
}

struct Folded {
    version: u32,
    head: Head,
    rows: BTreeMap<String, Bytes>,
}

impl Views {
    pub(super) fn registered(&self) -> Vec<Arc<dyn View>> {
        self.registered.clone()
    }

    /// Registers `views` in place of those before, and names those that have to be folded anew because they do not fit
    /// a log that ends at `head`.
    pub(super) fn register(&mut self, views: Vec<Arc<dyn View>>, head: Head) -> Vec<Arc<dyn View>> {
        self.folded.retain(|name, folded| {
            folded.head == head && views.iter().any(|view| view.name() == *name && view.version() == folded.version)
        });
        self.registered = views;
        self.registered.iter().filter(|view| !self.folded.contains_key(view.name())).cloned().collect()
    }

    /// The views that may have kept what a redaction removed.
    pub(super) fn with_contents(&self) -> Vec<Arc<dyn View>> {
        let concerned = |view: &&Arc<dyn View>| view.reads_contents() && self.folded.contains_key(view.name());
        self.registered.iter().filter(concerned).cloned().collect()
    }

    /// Folds one more record into every view.
    pub(super) fn follow(&mut self, record: &Stored, content: Option<&str>) {
        for view in &self.registered {
            if let Some(folded) = self.folded.get_mut(view.name())
                && folded.fold(&**view, record, content).is_err()
            {
                self.folded.remove(view.name());
            }
        }
    }

    /// Folds one view from all records.
    pub(super) fn rebuild<'a>(
        &mut self,
        view: &dyn View,
        records: impl IntoIterator<Item = (&'a Stored, Option<&'a str>)>,
    ) {
        self.folded.remove(view.name());
        let mut folded = Folded { version: view.version(), head: Head::EMPTY, rows: BTreeMap::new() };
        let done = records.into_iter().try_for_each(|(record, content)| folded.fold(view, record, content));
        if done.is_ok() {
            self.folded.insert(view.name(), folded);
        }
    }

    pub(super) fn read(
        &self,
        name: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Bytes)>, ReadError> {
        if self.registered.iter().all(|view| view.name() != name) {
            return Err(ReadError::NoView(name.to_owned()));
        }
        let folded = self.folded.get(name).ok_or_else(|| ReadError::BrokenView(name.to_owned()))?;
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            Some(_) | None => Bound::Included(prefix),
        };
        let rows = folded.rows.range::<str, _>((start, Bound::Unbounded));
        let within = rows.take_while(|(key, _)| key.starts_with(prefix));
        Ok(within.take(limit).map(|(key, value)| (key.clone(), value.clone())).collect())
    }
}

impl Folded {
    fn fold(&mut self, view: &dyn View, record: &Stored, content: Option<&str>) -> Result<(), Panicked> {
        view::fold(view, record, content, &mut self.rows)?;
        self.head = Head { lsn: record.lsn, chain: record.chain };
        Ok(())
    }
}

impl Rows for BTreeMap<String, Bytes> {
    fn get(&mut self, key: &str) -> Option<Bytes> {
        Self::get(self, key).cloned()
    }

    fn put(&mut self, key: &str, value: &[u8]) {
        self.insert(key.to_owned(), Bytes::copy_from_slice(value));
    }

    fn delete(&mut self, key: &str) {
        self.remove(key);
    }

    fn scan(&mut self, prefix: &str) -> Vec<(String, Bytes)> {
        let rows = self.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        rows.take_while(|(key, _)| key.starts_with(prefix)).map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}
