//! The file of the journal: tables of SQLite.
//!
//! It must not decide when something is written.

use std::{
    fs,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use countersign_protocol::{
    RawJson,
    gsv::{
        node::{ExecEvent, ExecState},
        tool::{NoResultReason, ToolResultParams},
    },
};
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, TransactionBehavior, params};

use super::{InterruptedWork, WaitingEvent};

/// The form of the file.
const VERSION: i64 = 1;
/// Time for which the end of a call is kept, in milliseconds.
const KEPT: i64 = 24 * 60 * 60 * 1000;
/// The same of a result that the gateway has not taken. The call itself is kept until the gateway has taken its end.
const LONGEST_KEPT: i64 = 90 * KEPT;
/// The most bytes that results have which the gateway has taken.
const RESULTS: i64 = 256 << 20;

const FORM: &str = "
CREATE TABLE calls (
    id TEXT PRIMARY KEY,
    tool TEXT NOT NULL,
    state TEXT NOT NULL,
    began_at INTEGER NOT NULL,
    ended_at INTEGER,
    result TEXT,
    error TEXT,
    received INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX ended ON calls (ended_at);
CREATE TABLE commands (session TEXT PRIMARY KEY, event TEXT NOT NULL) STRICT;
CREATE TABLE outbox (seq INTEGER PRIMARY KEY AUTOINCREMENT, call TEXT, event TEXT NOT NULL) STRICT;
";

/// Tables that journals did not have at first. A program that does not know them leaves them alone.
const IDENTITY: &str = "
CREATE TABLE IF NOT EXISTS identity (id INTEGER NOT NULL) STRICT;
INSERT INTO identity SELECT random() WHERE NOT EXISTS (SELECT 1 FROM identity);
";

/// Known state of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum JournaledCall {
    /// Nothing was, and now it has begun.
    New,
    /// It works.
    Working,
    /// It is over, and this is the result for the gateway.
    Over(ToolResultParams),
}

/// The file.
pub(super) struct JournalTable(Connection);

impl JournalTable {
    pub(super) fn open(path: &Path) -> rusqlite::Result<Self> {
        // No other user reads the contents of calls. Files next to it get the mode of the file, which an earlier version made
        // with another.
        let file = fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        let kept = file.and_then(|file| file.set_permissions(fs::Permissions::from_mode(0o600)));
        kept.map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
        let connection = Connection::open(path)?;
        connection.busy_timeout(Duration::from_secs(5))?;
        connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "full")?;
        connection.pragma_update(None, "trusted_schema", false)?;
        match connection.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0))? {
            0 => {
                connection
                    .execute_batch(&format!("BEGIN IMMEDIATE; {FORM} PRAGMA user_version = {VERSION}; COMMIT;"))?;
            }
            VERSION => {}
            other => {
                let message = format!("it was written by another version of this program (form {other})");
                return Err(rusqlite::Error::ToSqlConversionFailure(message.into()));
            }
        }
        connection.execute_batch(&format!("BEGIN IMMEDIATE; {IDENTITY} COMMIT;"))?;
        Ok(Self(connection))
    }

    /// Returns the number of this journal, which no other has.
    pub(super) fn id(&self) -> rusqlite::Result<u64> {
        self.0.query_row("SELECT id FROM identity", [], |row| row.get::<_, i64>(0)).map(i64::cast_unsigned)
    }

    /// Does `work` as one transaction.
    pub(super) fn in_transaction<T>(
        &mut self,
        work: impl FnOnce(&JournalTransaction<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let noting = JournalTransaction(self.0.transaction_with_behavior(TransactionBehavior::Immediate)?);
        let done = work(&noting)?;
        noting.0.commit()?;
        Ok(done)
    }

    /// Settles the remains of another process: the outcome of its calls is unknown, and its commands ended with it.
    pub(super) fn settle_interrupted(&mut self) -> rusqlite::Result<InterruptedWork> {
        self.in_transaction(|noting| {
            let why = "The node broke off while this ran, and does not know what came of it";
            let calls = noting.0.execute(
                "UPDATE calls SET state = 'unknown', error = ?1, ended_at = ?2 WHERE state = 'working'",
                params![why, now_millis()],
            )?;
            let left: Vec<String> = {
                let mut rows = noting.0.prepare("SELECT event FROM commands ORDER BY rowid")?;
                rows.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?
            };
            for started in &left {
                let started = read_event(started)?;
                noting.insert_event(&ExecEvent {
                    event_id: format!("{}-ended", started.session_id),
                    event: ExecState::Failed,
                    signal: Some("SIG9".to_owned()),
                    output_tail: Some("[the node broke off, and this command ended with it]".to_owned()),
                    ended_at: u64::try_from(now_millis()).ok(),
                    ..started
                })?;
            }
            noting.prune_calls()?;
            Ok(InterruptedWork { calls, commands: left.len() })
        })
    }

    /// Returns the number of waiting events.
    pub(super) fn waiting_count(&self) -> rusqlite::Result<usize> {
        let count: i64 = self.0.query_row("SELECT count(*) FROM outbox", [], |row| row.get(0))?;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// Returns the oldest event.
    pub(super) fn next_waiting(&self) -> rusqlite::Result<Option<WaitingEvent>> {
        let mut found = self.0.prepare_cached(
            "SELECT outbox.seq, outbox.event, coalesce(calls.received = 1 OR calls.state NOT IN ('working', 'done'), 1)
             FROM outbox LEFT JOIN calls ON calls.id = outbox.call ORDER BY outbox.seq LIMIT 1",
        )?;
        let row = |row: &Row<'_>| Ok((row.get(0)?, row.get::<_, String>(1)?, row.get(2)?));
        let Some((seq, event, is_announced)) = found.query_row([], row).optional()? else { return Ok(None) };
        Ok(Some(WaitingEvent { seq, event: read_event(&event)?, is_announced }))
    }
}

/// A transaction.
pub(super) struct JournalTransaction<'a>(Transaction<'a>);

impl JournalTransaction<'_> {
    fn known_call(&self, call: &str) -> rusqlite::Result<Option<JournaledCall>> {
        let mut found = self.0.prepare_cached("SELECT state, result, error FROM calls WHERE id = ?1")?;
        let row = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?, row.get(2)?));
        let Some((state, result, error)) = found.query_row([call], row).optional()? else { return Ok(None) };
        let fate = match state.as_str() {
            "working" => return Ok(Some(JournaledCall::Working)),
            "done" => None,
            "not_begun" => Some(NoResultReason::NotBegun),
            _ => Some(NoResultReason::Unknown),
        };
        let result = result.and_then(|text| RawJson::parse(text).ok());
        Ok(Some(JournaledCall::Over(ToolResultParams { call_id: call.to_owned(), result, error, fate })))
    }

    pub(super) fn begin_call(&self, call: &str, tool: &str) -> rusqlite::Result<JournaledCall> {
        if let Some(known) = self.known_call(call)? {
            return Ok(known);
        }
        let sql = "INSERT INTO calls (id, tool, state, began_at) VALUES (?1, ?2, 'working', ?3)";
        self.0.prepare_cached(sql)?.execute(params![call, tool, now_millis()])?;
        Ok(JournaledCall::New)
    }

    pub(super) fn resume_call(&self, call: &str) -> rusqlite::Result<JournaledCall> {
        if let Some(known) = self.known_call(call)? {
            return Ok(known);
        }
        let sql = "INSERT INTO calls (id, tool, state, began_at, ended_at) VALUES (?1, '', 'not_begun', ?2, ?2)";
        self.0.prepare_cached(sql)?.execute(params![call, now_millis()])?;
        let fate = Some(NoResultReason::NotBegun);
        Ok(JournaledCall::Over(ToolResultParams { call_id: call.to_owned(), result: None, error: None, fate }))
    }

    pub(super) fn end_call(&self, outcome: &ToolResultParams) -> rusqlite::Result<()> {
        let sql = "UPDATE calls SET state = 'done', ended_at = ?2, result = ?3, error = ?4 WHERE id = ?1";
        let result = outcome.result.as_ref().map(RawJson::as_text);
        self.0.prepare_cached(sql)?.execute(params![outcome.call_id, now_millis(), result, outcome.error])?;
        Ok(())
    }

    pub(super) fn mark_received(&self, call: &str) -> rusqlite::Result<()> {
        self.0.prepare_cached("UPDATE calls SET received = 1 WHERE id = ?1")?.execute([call])?;
        Ok(())
    }

    pub(super) fn insert_event(&self, event: &ExecEvent) -> rusqlite::Result<()> {
        let text = RawJson::from_wire(event);
        if event.event.is_end() {
            self.0.prepare_cached("DELETE FROM commands WHERE session = ?1")?.execute([&event.session_id])?;
        } else {
            let sql = "INSERT OR REPLACE INTO commands (session, event) VALUES (?1, ?2)";
            self.0.prepare_cached(sql)?.execute(params![event.session_id, text.as_text()])?;
        }
        let sql = "INSERT INTO outbox (call, event) VALUES (?1, ?2)";
        self.0.prepare_cached(sql)?.execute(params![event.call_id, text.as_text()])?;
        Ok(())
    }

    pub(super) fn delete_event(&self, seq: i64) -> rusqlite::Result<()> {
        self.0.prepare_cached("DELETE FROM outbox WHERE seq = ?1")?.execute([seq])?;
        Ok(())
    }

    /// Forgets calls that ended long ago, and the oldest of the results that were taken where they are more than is kept.
    pub(super) fn prune_calls(&self) -> rusqlite::Result<()> {
        self.0.execute("DELETE FROM calls WHERE ended_at < ?1 AND received = 1", [now_millis() - KEPT])?;
        // Of what the gateway has not taken it will ask, however long it was away. That it began must not be forgotten then.
        let why = "Its result was not taken for months and is not kept any more";
        let sql =
            "UPDATE calls SET state = 'unknown', result = NULL, error = ?2 WHERE ended_at < ?1 AND state = 'done'";
        self.0.execute(sql, params![now_millis() - LONGEST_KEPT, why])?;
        let why = "Its result was taken long ago and is not kept any more";
        self.0.execute(
            "UPDATE calls SET state = 'unknown', result = NULL, error = ?2 WHERE id IN (
                SELECT id FROM (
                    SELECT id, sum(length(coalesce(result, ''))) OVER (ORDER BY ended_at DESC, id) AS bytes
                    FROM calls WHERE received = 1 AND state = 'done'
                ) WHERE bytes > ?1)",
            params![RESULTS, why],
        )?;
        Ok(())
    }
}

/// Returns the milliseconds since 1970.
fn now_millis() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn read_event(text: &str) -> rusqlite::Result<ExecEvent> {
    let unreadable = |error| rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(error));
    serde_json::from_str(text).map_err(unreadable)
}
