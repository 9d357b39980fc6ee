//! Rows of one view while records are folded: changes that are not written yet, over those in the database.
//!
//! It must not know records.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{session::PARTITION, statements::Statements};
use crate::{database_error::StatementError, view::ViewRows};

/// Bytes of known rows of one view, after which they are forgotten.
const CACHE_BYTES: usize = 4 * 1024 * 1024;

/// Values of keys, where `None` is a key without a row.
pub(super) type RowChanges = BTreeMap<String, Option<Bytes>>;

/// Rows that the writer read or wrote before. It is the only one who writes them.
#[derive(Default)]
pub(super) struct RowCache {
    rows: RowChanges,
    bytes: usize,
}

impl RowCache {
    fn get(&self, key: &str) -> Option<Option<Bytes>> {
        self.rows.get(key).cloned()
    }

    pub(super) fn put_row(&mut self, key: &str, value: Option<Bytes>) {
        if self.bytes > CACHE_BYTES {
            self.clear();
        }
        self.bytes += key.len() + value.as_ref().map_or(0, Bytes::len);
        self.rows.insert(key.to_owned(), value);
    }

    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.bytes = 0;
    }
}

/// The rows of one view, and the first thing that went wrong with them.
pub(super) struct PostgresRows<'a> {
    pub(super) statements: Statements<'a>,
    pub(super) name: &'static str,
    pub(super) cache: &'a mut RowCache,
    pub(super) changes: RowChanges,
    failed: Option<StatementError>,
}

impl<'a> PostgresRows<'a> {
    pub(super) fn new(statements: Statements<'a>, name: &'static str, cache: &'a mut RowCache) -> Self {
        Self { statements, name, cache, changes: RowChanges::new(), failed: None }
    }

    /// Returns the changes that have to be written.
    pub(super) fn into_changes(self) -> Result<RowChanges, StatementError> {
        match self.failed {
            Some(error) => Err(error),
            None => Ok(self.changes),
        }
    }

    fn read<T: Default>(&mut self, read: impl FnOnce(&Statements<'_>, &str) -> Result<T, StatementError>) -> T {
        if self.failed.is_some() {
            return T::default();
        }
        read(&self.statements, self.name).unwrap_or_else(|error| {
            self.failed = Some(error);
            T::default()
        })
    }
}

impl ViewRows for PostgresRows<'_> {
    fn get(&mut self, key: &str) -> Option<Bytes> {
        if let Some(known) = self.changes.get(key).cloned().or_else(|| self.cache.get(key)) {
            return known;
        }
        let found = self.read(|statements, name| {
            let rows = statements.query(
                "SELECT value FROM countersign.views WHERE partition = $1 AND name = $2 AND sha256(key) = sha256($3)",
                &[&PARTITION, &name, &key.as_bytes()],
            )?;
            Ok(rows.first().map(|row| Bytes::copy_from_slice(row.get(0))))
        });
        if self.failed.is_none() {
            self.cache.put_row(key, found.clone());
        }
        found
    }

    fn put_row(&mut self, key: &str, value: &[u8]) {
        self.changes.insert(key.to_owned(), Some(Bytes::copy_from_slice(value)));
    }

    fn delete_row(&mut self, key: &str) {
        self.changes.insert(key.to_owned(), None);
    }

    fn scan_prefix(&mut self, prefix: &str) -> Vec<(String, Bytes)> {
        let mut rows = self.read(|statements, name| {
            let rows = statements.query(
                "SELECT key, value FROM countersign.views
                 WHERE partition = $1 AND name = $2 AND substring(key from 1 for 512) >= substring($3::bytea from 1 for 512)
                 AND key >= $3 AND ($4::bytea IS NULL OR key < $4)",
                &[&PARTITION, &name, &prefix.as_bytes(), &end_of_prefix(prefix)],
            )?;
            let row = |row: &tokio_postgres::Row| {
                let key = String::from_utf8_lossy(row.get(0)).into_owned();
                (key, Bytes::copy_from_slice(row.get(1)))
            };
            Ok(rows.iter().map(row).collect::<BTreeMap<_, _>>())
        });
        for (key, change) in self.changes.iter().filter(|(key, _)| key.starts_with(prefix)) {
            match change {
                Some(value) => drop(rows.insert(key.clone(), value.clone())),
                None => drop(rows.remove(key)),
            }
        }
        rows.into_iter().collect()
    }
}

/// Returns the first bytes after all keys that begin with `prefix`; none if every key does.
pub(super) fn end_of_prefix(prefix: &str) -> Option<Vec<u8>> {
    let mut end = prefix.as_bytes().to_vec();
    // UTF-8 has no byte that cannot be counted up.
    *end.last_mut()? += 1;
    Some(end)
}
