//! Keeps the rows of views in step with the records of the file.
//!
//! It must not know the rows of a view. A view is in step if its version is the registered one and its position is the
//! head; any other is neither folded nor read. One without a position is before the first record.

use std::sync::Arc;

use bytes::Bytes;
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

/// A record that was just written, as views are shown it.
pub(super) struct WrittenRecord {
    pub(super) stored: StoredRecord,
    pub(super) content: Option<Arc<str>>,
}

/// Progress of a view's folding, and the version that did it.
struct ViewPosition {
    version: u32,
    head: LogHead,
}

/// Folds `written`, which comes after `before`, into every view that is in step. Part of the append's transaction.
pub(super) fn follow_views(
    connection: &Connection,
    views: &[Arc<dyn LogView>],
    before: LogHead,
    written: &[WrittenRecord],
) -> rusqlite::Result<()> {
    let Some(last) = written.last() else { return Ok(()) };
    for view in views {
        if !in_step(connection, view.name(), view.version(), before)? {
            continue;
        }
        let mut rows = SqliteRows::for_view(connection, &**view);
        let folded = written.iter().try_for_each(|WrittenRecord { stored, content }| {
            view::fold_guarded(&**view, stored, content.as_deref(), &mut rows)
        });
        rows.into_result()?;
        match folded {
            Ok(()) => move_to(connection, &**view, LogHead { lsn: last.stored.lsn, chain: last.stored.chain })?,
            Err(ViewPanic) => clear_view(connection, view.name())?,
        }
    }
    Ok(())
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

/// Drops anything that a view may have kept of contents that were just removed. Part of the redaction's transaction.
pub(super) fn forget_contents(connection: &Connection, views: &[Arc<dyn LogView>]) -> rusqlite::Result<()> {
    for name in unregistered_views(connection, views)? {
        clear_view(connection, &name)?;
    }
    let head = query::read_head(connection)?;
    for view in views {
        let in_step = in_step(connection, view.name(), view.version(), head)?;
        if in_step && !view.reads_contents() {
            continue;
        }
        clear_view(connection, view.name())?;
        if in_step {
            fold_behind(connection, &**view, LogHead::EMPTY, usize::MAX)?;
        }
    }
    Ok(())
}

/// Reads up to `limit` rows whose keys begin with `prefix` and come after `after`. `None` if the view is not in step.
pub(super) fn read_rows(
    connection: &Connection,
    (name, version): (&str, u32),
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> rusqlite::Result<Option<Vec<(String, Bytes)>>> {
    if !in_step(connection, name, version, query::read_head(connection)?)? {
        return Ok(None);
    }
    select_rows(connection, name, prefix, after, limit).map(Some)
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

fn in_step(connection: &Connection, name: &str, version: u32, head: LogHead) -> rusqlite::Result<bool> {
    Ok(match view_position(connection, name)? {
        Some(at) => at.version == version && at.head == head,
        None => head == LogHead::EMPTY,
    })
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
