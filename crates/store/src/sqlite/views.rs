//! Folds the records of the file into the rows of views.
//!
//! It must not know the rows of a view. A view without a position is before the first record.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use countersign_core::id::Lsn;
use rusqlite::{Connection, OptionalExtension, Statement, params};
use tracing::{info, warn};

use super::{
    query,
    write::{TransactionError, run_transaction},
};
use crate::{
    record::{LogHead, StoredRecord},
    view::{self, LogView, ViewPanic, ViewRows},
};

/// Records that are folded in one transaction when a view is rebuilt.
const PAGE: usize = 512;

/// Progress of a view's folding, and the version that did it.
struct ViewPosition {
    version: u32,
    head: LogHead,
}

/// Views that are neither folded nor read until the log is opened again.
pub(super) type BrokenViews = BTreeSet<&'static str>;

/// A record that was just written, and its content.
pub(super) struct WrittenRecord {
    pub(super) stored: StoredRecord,
    pub(super) content: Option<Arc<str>>,
}

/// Folds the records that were written since the last time into every view that is not in `broken`, and adds those that panic to it.
/// `written` are the last records, or some of those before: what is not among them is read. One transaction.
pub(super) fn fold_due(
    connection: &Connection,
    views: &[Arc<dyn LogView>],
    broken: &mut BrokenViews,
    written: &[WrittenRecord],
) -> rusqlite::Result<()> {
    let head = query::read_head(connection)?;
    for view in views {
        if broken.contains(view.name()) {
            continue;
        }
        let mut at = view_position(connection, view.name())?.map_or(LogHead::EMPTY, |at| at.head);
        while at.lsn < head.lsn {
            let first = written.iter().position(|record| record.stored.lsn == at.lsn.next());
            let next = first.map(|first| contiguous_start(&written[first..])).unwrap_or_default();
            let further = if next.is_empty() {
                fold_behind(connection, &**view, at, PAGE)?
            } else {
                fold_written(connection, &**view, next)?
            };
            match further {
                Some(further) => at = further,
                None => {
                    broken.insert(view.name());
                    break;
                }
            }
        }
    }
    Ok(())
}

/// Returns the records up to the first gap: one whose commit was uncertain may be in the log and not among them.
fn contiguous_start(written: &[WrittenRecord]) -> &[WrittenRecord] {
    let is_next = |pair: &[WrittenRecord]| pair[1].stored.lsn == pair[0].stored.lsn.next();
    let length = written.windows(2).take_while(|pair| is_next(pair)).count() + 1;
    &written[..length.min(written.len())]
}

/// Folds records that come after the position of a view and returns the new position. `None` if the view panicked, and is no more.
fn fold_written(
    connection: &Connection,
    view: &dyn LogView,
    written: &[WrittenRecord],
) -> rusqlite::Result<Option<LogHead>> {
    let Some(WrittenRecord { stored: last, .. }) = written.last() else { return Ok(None) };
    let mut rows = SqliteRows::for_view(connection, view);
    let folded = written.iter().try_for_each(|WrittenRecord { stored, content }| {
        view::fold_guarded(view, stored, content.as_deref(), &mut rows)
    });
    rows.into_result()?;
    if let Err(ViewPanic) = folded {
        clear_view(connection, view.name())?;
        return Ok(None);
    }
    let reached = LogHead { lsn: last.lsn, chain: last.chain };
    move_to(connection, view, reached)?;
    Ok(Some(reached))
}

/// Returns the views whose rows are of no use after [`catch_up`]: they panicked, or could not be emptied. One that only lacks records
/// is folded further when it is read.
pub(super) fn find_broken_views(connection: &Connection, views: &[Arc<dyn LogView>]) -> rusqlite::Result<BrokenViews> {
    let is_empty = query::read_head(connection)? == LogHead::EMPTY;
    let mut broken = BrokenViews::new();
    for view in views {
        let is_usable = match view_position(connection, view.name())? {
            Some(at) => at.version == view.version() && is_of_this_log(connection, at.head)?,
            None => is_empty,
        };
        if !is_usable {
            broken.insert(view.name());
        }
    }
    Ok(broken)
}

/// Drops the views that are not registered and folds the missing records into the others, a page a transaction.
///
/// The log can do without them: a view for which that fails stays out of step until the log is opened again.
pub(super) fn catch_up(connection: &Connection, views: &[Arc<dyn LogView>]) {
    let report = |name: &str, failure: TransactionError| {
        let (TransactionError::Before(error) | TransactionError::Commit(error)) = failure;
        warn!(name, %error, "cannot update a view from the log");
    };
    match unregistered_views(connection, views) {
        Ok(names) => {
            for name in names {
                if let Err(failure) = run_transaction(connection, |connection| clear_view(connection, &name)) {
                    report(&name, failure);
                }
            }
        }
        Err(error) => report("", error.into()),
    }
    for view in views {
        if let Err(failure) = bring_up(connection, &**view) {
            report(view.name(), failure);
        }
    }
}

fn bring_up(connection: &Connection, view: &dyn LogView) -> Result<(), TransactionError> {
    let head = query::read_head(connection)?;
    let mut at = match view_position(connection, view.name())? {
        Some(at) if at.version == view.version() && is_of_this_log(connection, at.head)? => at.head,
        None if head == LogHead::EMPTY => return Ok(()),
        Some(_) | None => {
            info!(?view, "rebuilding a view from the log");
            run_transaction(connection, |connection| {
                clear_view(connection, view.name())?;
                move_to(connection, view, LogHead::EMPTY)
            })?;
            LogHead::EMPTY
        }
    };
    while at.lsn < head.lsn {
        match run_transaction(connection, |connection| fold_behind(connection, view, at, PAGE))? {
            Some(further) => at = further,
            None => break,
        }
    }
    Ok(())
}

/// Folds up to `limit` records after `at` and returns the new position. `None` if the view panicked, and is no more.
fn fold_behind(
    connection: &Connection,
    view: &dyn LogView,
    at: LogHead,
    limit: usize,
) -> rusqlite::Result<Option<LogHead>> {
    let mut statement = connection.prepare_cached(
        "SELECT e.lsn, at, session, kind, version, facts, content_digest, chain, key, c.lsn, salt, bytes
         FROM events AS e LEFT JOIN contents AS c ON ?3 AND c.lsn = e.lsn WHERE e.lsn > ?1 ORDER BY e.lsn LIMIT ?2",
    )?;
    let page = params![query::sql_position(at.lsn), query::sql_count(limit), view.reads_contents()];
    let mut records = statement.query(page)?;
    let mut rows = SqliteRows::for_view(connection, view);
    let mut reached = at;
    while let Some(row) = records.next()? {
        let stored = query::read_stored(row, None)?;
        let content = query::read_content_bytes(row, 9)?;
        let text = content.checked_text(stored.content_digest);
        if let Err(ViewPanic) = view::fold_guarded(view, &stored, text, &mut rows) {
            rows.into_result()?;
            clear_view(connection, view.name())?;
            return Ok(None);
        }
        reached = LogHead { lsn: stored.lsn, chain: stored.chain };
    }
    rows.into_result()?;
    move_to(connection, view, reached)?;
    Ok(Some(reached))
}

/// Drops anything that a view may have kept of contents that were just removed, and folds it again from the rest. Part of the
/// redaction's transaction.
pub(super) fn forget_contents(
    connection: &Connection,
    views: &[Arc<dyn LogView>],
    broken: &mut BrokenViews,
) -> rusqlite::Result<()> {
    for name in unregistered_views(connection, views)? {
        clear_view(connection, &name)?;
    }
    for view in views {
        let is_broken = broken.contains(view.name());
        if !is_broken && !view.reads_contents() {
            continue;
        }
        clear_view(connection, view.name())?;
        if !is_broken && fold_behind(connection, &**view, LogHead::EMPTY, usize::MAX)?.is_none() {
            broken.insert(view.name());
        }
    }
    Ok(())
}

/// Rows of a view, or what is missing for them.
pub(super) enum RowsRead {
    Rows(Vec<(String, Bytes)>),
    /// The view lacks records up to this one.
    Behind(Lsn),
}

/// Reads up to `limit` rows whose keys begin with `prefix` and come after `after`, if the view has all records up to `at_least`, or
/// up to the head if that is not given. To be called in a read transaction.
pub(super) fn read_rows(
    connection: &Connection,
    (name, version): (&str, u32),
    (prefix, after, limit): (&str, Option<&str>, usize),
    at_least: Option<Lsn>,
) -> rusqlite::Result<RowsRead> {
    let wanted = match at_least {
        Some(lsn) => lsn,
        None => query::read_head(connection)?.lsn,
    };
    let reached = match view_position(connection, name)? {
        Some(at) => Some(at.head.lsn).filter(|_| at.version == version),
        None => Some(Lsn(0)),
    };
    if reached.is_none_or(|reached| reached < wanted) {
        return Ok(RowsRead::Behind(wanted));
    }
    select_rows(connection, name, prefix, after, limit).map(RowsRead::Rows)
}

/// Keys are ordered by their bytes, so those with the same prefix lie together.
fn select_rows(
    connection: &Connection,
    name: &str,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> rusqlite::Result<Vec<(String, Bytes)>> {
    let (mut statement, start) = match after {
        Some(after) if after >= prefix => (
            connection.prepare_cached("SELECT key, value FROM views WHERE name = ?1 AND key > ?2 ORDER BY key")?,
            after,
        ),
        Some(_) | None => (
            connection.prepare_cached("SELECT key, value FROM views WHERE name = ?1 AND key >= ?2 ORDER BY key")?,
            prefix,
        ),
    };
    let mut found = statement.query([name, start])?;
    let mut rows = Vec::new();
    while rows.len() < limit
        && let Some(row) = found.next()?
    {
        let key: String = row.get(0)?;
        if !key.starts_with(prefix) {
            break;
        }
        rows.push((key, Bytes::from(row.get::<_, Vec<u8>>(1)?)));
    }
    Ok(rows)
}

fn view_position(connection: &Connection, name: &str) -> rusqlite::Result<Option<ViewPosition>> {
    connection
        .prepare_cached("SELECT version, lsn, chain FROM view_positions WHERE name = ?1")?
        .query_row([name], |row| {
            let head = LogHead { lsn: query::read_lsn(row, 1)?, chain: query::read_digest(row, 2)? };
            Ok(ViewPosition { version: row.get(0)?, head })
        })
        .optional()
}

/// Reports whether `head` was once a head of this log: a tail may have been cut off, or replaced.
fn is_of_this_log(connection: &Connection, head: LogHead) -> rusqlite::Result<bool> {
    if head == LogHead::EMPTY {
        return Ok(true);
    }
    connection
        .prepare_cached("SELECT 1 FROM events WHERE lsn = ?1 AND chain = ?2")?
        .exists(params![query::sql_position(head.lsn), head.chain.as_bytes()])
}

fn move_to(connection: &Connection, view: &dyn LogView, head: LogHead) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO view_positions (name, version, lsn, chain) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![view.name(), view.version(), query::sql_position(head.lsn), head.chain.as_bytes()])?;
    Ok(())
}

fn clear_view(connection: &Connection, name: &str) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM views WHERE name = ?1")?.execute([name])?;
    connection.prepare_cached("DELETE FROM view_positions WHERE name = ?1")?.execute([name])?;
    Ok(())
}

/// Returns the names of views that are in the file and not among `views`.
fn unregistered_views(connection: &Connection, views: &[Arc<dyn LogView>]) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare_cached("SELECT name FROM view_positions")?;
    let names: Vec<String> = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(names.into_iter().filter(|name| views.iter().all(|view| view.name() != name)).collect())
}

/// The rows of one view, and the first thing that went wrong with them.
struct SqliteRows<'a> {
    connection: &'a Connection,
    name: &'static str,
    failed: Option<rusqlite::Error>,
}

impl<'a> SqliteRows<'a> {
    fn for_view(connection: &'a Connection, view: &dyn LogView) -> Self {
        Self { connection, name: view.name(), failed: None }
    }

    fn try_to<T>(&mut self, work: impl FnOnce(&Connection, &str) -> rusqlite::Result<T>) -> Option<T> {
        if self.failed.is_some() {
            return None;
        }
        work(self.connection, self.name).map_err(|error| self.failed = Some(error)).ok()
    }

    fn execute_write(&mut self, work: impl FnOnce(&mut Statement<'_>, &str) -> rusqlite::Result<usize>, sql: &str) {
        self.try_to(|connection, name| work(&mut *connection.prepare_cached(sql)?, name));
    }

    /// Tells what went wrong.
    fn into_result(self) -> rusqlite::Result<()> {
        self.failed.map_or(Ok(()), Err)
    }
}

impl ViewRows for SqliteRows<'_> {
    fn get(&mut self, key: &str) -> Option<Bytes> {
        self.try_to(|connection, name| {
            connection
                .prepare_cached("SELECT value FROM views WHERE name = ?1 AND key = ?2")?
                .query_row([name, key], |row| row.get::<_, Vec<u8>>(0))
                .optional()
        })
        .flatten()
        .map(Bytes::from)
    }

    fn put_row(&mut self, key: &str, value: &[u8]) {
        self.execute_write(
            |statement, name| statement.execute(params![name, key, value]),
            "INSERT OR REPLACE INTO views (name, key, value) VALUES (?1, ?2, ?3)",
        );
    }

    fn delete_row(&mut self, key: &str) {
        self.execute_write(
            |statement, name| statement.execute([name, key]),
            "DELETE FROM views WHERE name = ?1 AND key = ?2",
        );
    }

    fn scan_prefix(&mut self, prefix: &str) -> Vec<(String, Bytes)> {
        self.try_to(|connection, name| select_rows(connection, name, prefix, None, usize::MAX)).unwrap_or_default()
    }
}
