//! A folder of its own for each test, and the damage that a process with access to it can do to a log.

use std::{path::PathBuf, sync::Arc};

use countersign_store::{
    LogOptions, LogView, SqliteLog,
    suite::{LogDamage, LogFixture},
};
use rusqlite::{Connection, params};
use tempfile::TempDir;

pub(crate) struct LogFolder(TempDir);

impl LogFolder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.0.path().to_owned()
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.0.path().join("logs/log.db")
    }

    pub(crate) fn open(&self) -> SqliteLog {
        SqliteLog::open(self.log(), LogOptions::default()).unwrap()
    }

    /// Opens a connection that no rule of ours holds back.
    pub(crate) fn raw(&self) -> Connection {
        let connection = Connection::open(self.log()).unwrap();
        connection.pragma_update(None, "foreign_keys", false).unwrap();
        connection
    }
}

impl LogFixture for LogFolder {
    type Log = SqliteLog;

    async fn open_with(&self, views: Vec<Arc<dyn LogView>>) -> SqliteLog {
        SqliteLog::open(self.log(), LogOptions { views, ..LogOptions::default() }).unwrap()
    }

    async fn inflict_damage(&self, damage: LogDamage) {
        let (sql, lsn) = match damage {
            LogDamage::Facts(lsn) => ("UPDATE events SET facts = '{}' WHERE lsn = ?1", lsn),
            LogDamage::At(lsn) => ("UPDATE events SET at = 1 WHERE lsn = ?1", lsn),
            LogDamage::Content(lsn) => ("UPDATE contents SET bytes = x'61' WHERE lsn = ?1", lsn),
            LogDamage::LoseContent(lsn) => ("DELETE FROM contents WHERE lsn = ?1", lsn),
            LogDamage::Remove(lsn) => ("DELETE FROM events WHERE lsn = ?1", lsn),
            LogDamage::CutBehind(lsn) => ("DELETE FROM events WHERE lsn > ?1", lsn),
        };
        assert!(self.raw().execute(sql, params![lsn.0 as i64]).unwrap() > 0);
    }
}
