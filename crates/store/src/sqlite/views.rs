//! Keeps the rows of views in step with the records of the file.
//!
//! It must not know what a view folds. A view is in step if its version is the registered one and its position is the
//! head; any other is neither folded nor read. One without a position stands before the first record.

use std::sync::Arc;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Statement, params};
use tracing::{info, warn};

use super::{
    query,
    write::{Failure, transact},
};
use crate::{
    record::{Head, Stored},
    view::{self, Panicked, Rows, View},
};

/// Records that are folded in one transaction when a view is rebuilt.
const PAGE: usize = 512;

/// A record that was just written, as views are shown it.
pub(super) struct Written {
    pub(super) stored: Stored,
    pub(super) content: Option<Arc<str>>,
}

/// How far a view was folded, and by which version of it.
struct Position {
    version: u32,
    head: Head,
}

/// Folds `written`, which lies behind `before`, into every view that is in step. Part of the append's transaction.
pub(super) fn follow(
    connection: &Connection,
    views: &[Arc<dyn View>],
    before: Head,
    written: &[Written],
) -> rusqlite::Result<()> {
    let Some(last) = written.last() else { return Ok(()) };
    for view in views {
        if !in_step(connection, view.name(), view.version(), before)? {
            continue;
        }
        let mut rows = Kept::of(connection, &**view);
        let folded = written
            .iter()
            .try_for_each(|Written { stored, content }| view::fold(&**view, stored, content.as_deref(), &mut rows));
        rows.done()?;
        match folded {
            Ok(()) => move_to(connection, &**view, Head { lsn: last.stored.lsn, chain: last.stored.chain })?,
            Err(Panicked) => clear(connection, view.name())?,
        }
    }
    Ok(())
}

/// Drops the views that are not registered and folds into the others what they lack, a page a transaction.
///
/// The log can do without them: a view for which that fails stays out of step until the log is opened again.
pub(super) fn catch_up(connection: &Connection, views: &[Arc<dyn View>]) {
    let report = |name: &str, failure: Failure| {
        let (Failure::Before(error) | Failure::Commit(error)) = failure;
        warn!(name, %error, "a view was not brought up to the log");
    };
    match others(connection, views) {
        Ok(names) => {
            for name in names {
                if let Err(failure) = transact(connection, |connection| clear(connection, &name)) {
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

fn bring_up(connection: &Connection, view: &dyn View) -> Result<(), Failure> {
    let head = query::head(connection)?;
    let mut at = match position(connection, view.name())? {
        Some(at) if at.version == view.version() && is_of_this_log(connection, at.head)? => at.head,
        None if head == Head::EMPTY => return Ok(()),
        Some(_) | None => {
            info!(?view, "a view is folded anew");
            transact(connection, |connection| {
                clear(connection, view.name())?;
                move_to(connection, view, Head::EMPTY)
            })?;
            Head::EMPTY
        }
    };
    while at.lsn < head.lsn {
        match transact(connection, |connection| fold_behind(connection, view, at, PAGE))? {
            Some(further) => at = further,
            None => break,
        }
    }
    Ok(())
}

/// Folds up to `limit` records behind `at` and tells how far that went. `None` if the view panicked, and is no more.
fn fold_behind(connection: &Connection, view: &dyn View, at: Head, limit: usize) -> rusqlite::Result<Option<Head>> {
    let mut statement = connection.prepare_cached(
        "SELECT e.lsn, at, session, kind, version, facts, content_digest, chain, key, c.lsn, salt, bytes
         FROM events AS e LEFT JOIN contents AS c ON ?3 AND c.lsn = e.lsn WHERE e.lsn > ?1 ORDER BY e.lsn LIMIT ?2",
    )?;
    let page = params![query::position(at.lsn), query::count(limit), view.reads_contents()];
    let mut records = statement.query(page)?;
    let mut rows = Kept::of(connection, view);
    let mut reached = at;
    while let Some(row) = records.next()? {
        let stored = query::stored(row, None)?;
        let content = query::kept(row, 9)?;
        let text = content.text(stored.content_digest);
        if let Err(Panicked) = view::fold(view, &stored, text, &mut rows) {
            rows.done()?;
            clear(connection, view.name())?;
            return Ok(None);
        }
        reached = Head { lsn: stored.lsn, chain: stored.chain };
    }
    rows.done()?;
    move_to(connection, view, reached)?;
    Ok(Some(reached))
}

/// Drops whatever a view may have kept of contents that were just removed. Part of the redaction's transaction.
pub(super) fn forget_contents(connection: &Connection, views: &[Arc<dyn View>]) -> rusqlite::Result<()> {
    for name in others(connection, views)? {
        clear(connection, &name)?;
    }
    let head = query::head(connection)?;
    for view in views {
        let in_step = in_step(connection, view.name(), view.version(), head)?;
        if in_step && !view.reads_contents() {
            continue;
        }
        clear(connection, view.name())?;
        if in_step {
            fold_behind(connection, &**view, Head::EMPTY, usize::MAX)?;
        }
    }
    Ok(())
}

/// Up to `limit` rows whose keys begin with `prefix` and lie behind `after`. `None` if the view is not in step.
pub(super) fn read(
    connection: &Connection,
    (name, version): (&str, u32),
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> rusqlite::Result<Option<Vec<(String, Bytes)>>> {
    if !in_step(connection, name, version, query::head(connection)?)? {
        return Ok(None);
    }
    rows(connection, name, prefix, after, limit).map(Some)
}

/// Keys are ordered by their bytes, so those with the same prefix lie together.
fn rows(
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

fn in_step(connection: &Connection, name: &str, version: u32, head: Head) -> rusqlite::Result<bool> {
    Ok(match position(connection, name)? {
        Some(at) => at.version == version && at.head == head,
        None => head == Head::EMPTY,
    })
}

fn position(connection: &Connection, name: &str) -> rusqlite::Result<Option<Position>> {
    connection
        .prepare_cached("SELECT version, lsn, chain FROM view_positions WHERE name = ?1")?
        .query_row([name], |row| {
            let head = Head { lsn: query::lsn(row, 1)?, chain: query::digest(row, 2)? };
            Ok(Position { version: row.get(0)?, head })
        })
        .optional()
}

/// Whether `head` was once a head of this log: a tail may have been cut off, or replaced.
fn is_of_this_log(connection: &Connection, head: Head) -> rusqlite::Result<bool> {
    if head == Head::EMPTY {
        return Ok(true);
    }
    connection
        .prepare_cached("SELECT 1 FROM events WHERE lsn = ?1 AND chain = ?2")?
        .exists(params![query::position(head.lsn), head.chain.as_bytes()])
}

fn move_to(connection: &Connection, view: &dyn View, head: Head) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO view_positions (name, version, lsn, chain) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![view.name(), view.version(), query::position(head.lsn), head.chain.as_bytes()])?;
    Ok(())
}

fn clear(connection: &Connection, name: &str) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM views WHERE name = ?1")?.execute([name])?;
    connection.prepare_cached("DELETE FROM view_positions WHERE name = ?1")?.execute([name])?;
    Ok(())
}

/// The names of views that are in the file and not among `views`.
fn others(connection: &Connection, views: &[Arc<dyn View>]) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare_cached("SELECT name FROM view_positions")?;
    let names: Vec<String> = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(names.into_iter().filter(|name| views.iter().all(|view| view.name() != name)).collect())
}

/// The rows of one view, and the first thing that went wrong with them.
struct Kept<'a> {
    connection: &'a Connection,
    name: &'static str,
    failed: Option<rusqlite::Error>,
}

impl<'a> Kept<'a> {
    fn of(connection: &'a Connection, view: &dyn View) -> Self {
        Self { connection, name: view.name(), failed: None }
    }

    fn try_to<T>(&mut self, work: impl FnOnce(&Connection, &str) -> rusqlite::Result<T>) -> Option<T> {
        if self.failed.is_some() {
            return None;
        }
        work(self.connection, self.name).map_err(|error| self.failed = Some(error)).ok()
    }

    fn write(&mut self, work: impl FnOnce(&mut Statement<'_>, &str) -> rusqlite::Result<usize>, sql: &str) {
        self.try_to(|connection, name| work(&mut *connection.prepare_cached(sql)?, name));
    }

    /// Tells what went wrong.
    fn done(self) -> rusqlite::Result<()> {
        self.failed.map_or(Ok(()), Err)
    }
}

impl Rows for Kept<'_> {
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

    fn put(&mut self, key: &str, value: &[u8]) {
        self.write(
            |statement, name| statement.execute(params![name, key, value]),
            "INSERT OR REPLACE INTO views (name, key, value) VALUES (?1, ?2, ?3)",
        );
    }

    fn delete(&mut self, key: &str) {
        self.write(|statement, name| statement.execute([name, key]), "DELETE FROM views WHERE name = ?1 AND key = ?2");
    }

    fn scan(&mut self, prefix: &str) -> Vec<(String, Bytes)> {
        self.try_to(|connection, name| rows(connection, name, prefix, None, usize::MAX)).unwrap_or_default()
    }
}
