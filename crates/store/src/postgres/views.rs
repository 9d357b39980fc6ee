//! Keeps the rows of views in step with the records of the database.
//!
//! It must not know the rows of a view. A view is in step if its version is the registered one and its position is the head.
//! Any other is neither folded nor read.

use std::sync::Arc;

use countersign_core::id::Lsn;
use tracing::{info, warn};

use super::{
    query::{content_bytes, sql_position, stored_record},
    session::{PARTITION, head_of},
    statements::Statements,
    view_rows::{PostgresRows, RowCache, RowChanges},
};
use crate::{
    database_error::{ServerError, StatementError},
    record::{LogHead, StoredRecord},
    view::{self, LogView, ViewPanic},
};

/// Records that are folded in one transaction when a view is rebuilt.
const PAGE: i64 = 512;

/// A record that is about to be written, as views are shown it.
pub(super) struct NewRecord {
    pub(super) stored: StoredRecord,
    pub(super) content: Option<Arc<str>>,
    pub(super) salt: Option<[u8; crate::chain::SALT_SIZE]>,
}

/// A registered view, as the writer sees it.
pub(super) struct FollowedView {
    view: Arc<dyn LogView>,
    in_step: bool,
    cache: RowCache,
}

/// What a view makes of a group of records.
pub(super) struct ViewUpdate {
    pub(super) name: &'static str,
    pub(super) version: u32,
    pub(super) changes: RowChanges,
}

/// All registered views.
pub(super) struct FollowedViews(Vec<FollowedView>);

impl FollowedViews {
    pub(super) fn new(views: &[Arc<dyn LogView>]) -> Self {
        let followed = |view: &Arc<dyn LogView>| FollowedView {
            view: Arc::clone(view),
            in_step: false,
            cache: RowCache::default(),
        };
        Self(views.iter().map(followed).collect())
    }

    /// Folds `records` into every view that is in step. A view that panics is out of step until the log is opened again.
    pub(super) fn fold_records(
        &mut self,
        statements: Statements<'_>,
        records: &[NewRecord],
    ) -> Result<Vec<ViewUpdate>, StatementError> {
        let mut updates = Vec::new();
        if records.is_empty() {
            return Ok(updates);
        }
        for followed in self.0.iter_mut().filter(|followed| followed.in_step) {
            let view = &*followed.view;
            let mut rows = PostgresRows::new(statements, view.name(), &mut followed.cache);
            let folded = records.iter().try_for_each(|NewRecord { stored, content, .. }| {
                view::fold_guarded(view, stored, content.as_deref(), &mut rows)
            });
            let changes = rows.into_changes()?;
            if folded == Err(ViewPanic) {
                followed.in_step = false;
                continue;
            }
            for (key, value) in &changes {
                followed.cache.put_row(key, value.clone());
            }
            updates.push(ViewUpdate { name: view.name(), version: view.version(), changes });
        }
        Ok(updates)
    }

    /// Takes note of the views whose rows the database took with a group, of those that were sent with it.
    pub(super) fn confirm(&mut self, sent: &[&'static str], moved: &[&str]) {
        for followed in &mut self.0 {
            let name = followed.view.name();
            if followed.in_step && sent.contains(&name) && !moved.contains(&name) {
                warn!(name, "a view of the log is not in step any more; it is unreadable until the log is reopened");
                followed.in_step = false;
            }
        }
    }

    /// Forgets rows that may not have been written.
    pub(super) fn forget_rows(&mut self) {
        self.0.iter_mut().for_each(|followed| followed.cache.clear());
    }

    /// Drops the views that are not registered and folds the missing records into the others, a page a transaction.
    ///
    /// The log can do without them: a view for which that fails stays out of step until the log is opened again.
    pub(super) fn catch_up(&mut self, statements: Statements<'_>, head: LogHead) {
        if let Err(error) = self.drop_unregistered(statements) {
            warn!(error = %ServerError::from(error), "cannot drop old views of the log");
        }
        for followed in &mut self.0 {
            match bring_up(statements, &*followed.view, head) {
                Ok(in_step) => followed.in_step = in_step,
                Err(error) => {
                    let error = ServerError::from(error);
                    warn!(view = followed.view.name(), %error, "cannot update a view from the log");
                }
            }
        }
    }

    /// Drops anything that a view may have kept of contents that were just removed. Part of the redaction's transaction.
    pub(super) fn forget_contents(&mut self, statements: Statements<'_>, head: LogHead) -> Result<(), StatementError> {
        self.drop_unregistered(statements)?;
        for followed in &mut self.0 {
            let view = &*followed.view;
            if followed.in_step && !view.reads_contents() {
                continue;
            }
            followed.cache.clear();
            clear_view(statements, view.name())?;
            if followed.in_step {
                insert_position(statements, view)?;
                followed.in_step = fold_to(statements, view, LogHead::EMPTY, head, FoldScope::Caller)?;
            }
        }
        Ok(())
    }

    fn drop_unregistered(&self, statements: Statements<'_>) -> Result<(), StatementError> {
        let rows =
            statements.query("SELECT name FROM countersign.view_positions WHERE partition = $1", &[&PARTITION])?;
        for name in rows.iter().map(|row| row.get::<_, &str>(0)) {
            if self.0.iter().all(|followed| followed.view.name() != name) {
                clear_view(statements, name)?;
            }
        }
        Ok(())
    }
}

/// Brings a view to `head`. False if it panicked, and is no more.
fn bring_up(statements: Statements<'_>, view: &dyn LogView, head: LogHead) -> Result<bool, StatementError> {
    let at = match view_position(statements, view.name())? {
        Some((version, at)) if version == i64::from(view.version()) && is_of_this_log(statements, at)? => at,
        found => {
            if found.is_some() || head != LogHead::EMPTY {
                info!(?view, "rebuilding a view from the log");
            }
            statements.transaction(|| {
                clear_view(statements, view.name())?;
                insert_position(statements, view)
            })?;
            LogHead::EMPTY
        }
    };
    fold_to(statements, view, at, head, FoldScope::Page)
}

/// Transaction in which a page of records is folded.
#[derive(Clone, Copy)]
enum FoldScope {
    /// One of its own.
    Page,
    /// The one of the caller.
    Caller,
}

/// Folds the records after `at` up to `head`. False if the view panicked, and is no more.
fn fold_to(
    statements: Statements<'_>,
    view: &dyn LogView,
    mut at: LogHead,
    head: LogHead,
    scope: FoldScope,
) -> Result<bool, StatementError> {
    while at.lsn < head.lsn {
        let page = || fold_page(statements, view, at);
        let folded = match scope {
            FoldScope::Page => statements.transaction(page)?,
            FoldScope::Caller => page()?,
        };
        match folded {
            Some(further) if further.lsn > at.lsn => at = further,
            Some(_) | None => return Ok(false),
        }
    }
    Ok(true)
}

/// Folds a page of records after `at` and returns the new position. `None` if the view panicked, and is no more.
fn fold_page(statements: Statements<'_>, view: &dyn LogView, at: LogHead) -> Result<Option<LogHead>, StatementError> {
    let records = statements.query(
        "SELECT e.lsn, at, session, kind, version, facts, content_digest, chain, key, c.lsn, salt, bytes
         FROM countersign.events AS e
         LEFT JOIN countersign.contents AS c ON $4 AND c.partition = e.partition AND c.lsn = e.lsn
         WHERE e.partition = $1 AND e.lsn > $2 ORDER BY e.lsn LIMIT $3",
        &[&PARTITION, &sql_position(at.lsn), &PAGE, &view.reads_contents()],
    )?;
    let mut cache = RowCache::default();
    let mut rows = PostgresRows::new(statements, view.name(), &mut cache);
    let mut reached = at;
    for row in &records {
        let stored = stored_record(row, None)?;
        let content = content_bytes(row, 9)?;
        if let Err(ViewPanic) =
            view::fold_guarded(view, &stored, content.checked_text(stored.content_digest), &mut rows)
        {
            rows.into_changes()?;
            clear_view(statements, view.name())?;
            return Ok(None);
        }
        reached = LogHead { lsn: stored.lsn, chain: stored.chain };
    }
    write_changes(statements, view, &rows.into_changes()?)?;
    statements.execute(
        "UPDATE countersign.view_positions SET lsn = $3, chain = $4 WHERE partition = $1 AND name = $2",
        &[&PARTITION, &view.name(), &sql_position(reached.lsn), &reached.chain.as_bytes().as_slice()],
    )?;
    Ok(Some(reached))
}

fn write_changes(statements: Statements<'_>, view: &dyn LogView, changes: &RowChanges) -> Result<(), StatementError> {
    let put = changes.iter().filter_map(|(key, value)| Some((key.as_bytes(), value.as_deref()?)));
    let (keys, values): (Vec<&[u8]>, Vec<&[u8]>) = put.unzip();
    let removed: Vec<&[u8]> =
        changes.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| key.as_bytes()).collect();
    if !keys.is_empty() {
        statements.execute(
            "INSERT INTO countersign.views (partition, name, key, value)
             SELECT $1, $2, r.key, r.value FROM unnest($3::bytea[], $4::bytea[]) AS r (key, value)
             ON CONFLICT (partition, name, sha256(key)) DO UPDATE SET value = excluded.value",
            &[&PARTITION, &view.name(), &keys, &values],
        )?;
    }
    if !removed.is_empty() {
        statements.execute(
            "DELETE FROM countersign.views AS v USING unnest($3::bytea[]) AS r (key)
             WHERE v.partition = $1 AND v.name = $2 AND sha256(v.key) = sha256(r.key)",
            &[&PARTITION, &view.name(), &removed],
        )?;
    }
    Ok(())
}

fn view_position(statements: Statements<'_>, name: &str) -> Result<Option<(i64, LogHead)>, StatementError> {
    let rows = statements.query(
        "SELECT version, lsn, chain FROM countersign.view_positions WHERE partition = $1 AND name = $2",
        &[&PARTITION, &name],
    )?;
    rows.first().map(|row| Ok((row.get(0), head_of(row, 1)?))).transpose()
}

/// Reports whether `head` was once a head of this log: a tail may have been cut off, or replaced.
fn is_of_this_log(statements: Statements<'_>, head: LogHead) -> Result<bool, StatementError> {
    if head.lsn == Lsn(0) {
        return Ok(true);
    }
    let rows = statements.query(
        "SELECT 1 FROM countersign.events WHERE partition = $1 AND lsn = $2 AND chain = $3",
        &[&PARTITION, &sql_position(head.lsn), &head.chain.as_bytes().as_slice()],
    )?;
    Ok(!rows.is_empty())
}

fn insert_position(statements: Statements<'_>, view: &dyn LogView) -> Result<(), StatementError> {
    let genesis = crate::chain::GENESIS;
    statements
        .execute(
            "INSERT INTO countersign.view_positions (partition, name, version, lsn, chain) VALUES ($1, $2, $3, 0, $4)",
            &[&PARTITION, &view.name(), &i64::from(view.version()), &genesis.as_bytes().as_slice()],
        )
        .map(drop)
}

fn clear_view(statements: Statements<'_>, name: &str) -> Result<(), StatementError> {
    statements.execute("DELETE FROM countersign.views WHERE partition = $1 AND name = $2", &[&PARTITION, &name])?;
    statements
        .execute("DELETE FROM countersign.view_positions WHERE partition = $1 AND name = $2", &[&PARTITION, &name])
        .map(drop)
}
