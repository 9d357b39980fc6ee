//! A folder of its own for each test, and what somebody with access to it can do to a log.

use std::{path::PathBuf, sync::Arc};

use countersign_store::{
    Options, SqliteLog, View,
    suite::{Damage, Subject},
};
use rusqlite::{Connection, params};
use tempfile::TempDir;

pub(crate) struct Place(TempDir);

impl Place {
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
        SqliteLog::open(self.log(), Options::default()).unwrap()
    }

    /// A connection that no rule of ours holds back.
    pub(crate) fn raw(&self) -> Connection {
        let connection = Connection::open(self.log()).unwrap();
        connection.pragma_update(None, "foreign_keys", false).unwrap();
        connection
    }
}

impl Subject for Place {
    type Log = SqliteLog;

    async fn open_with(&self, views: Vec<Arc<dyn View>>) -> SqliteLog {
        SqliteLog::open(self.log(), Options { views, ..Options::default() }).unwrap()
    }

    async fn damage(&self, damage: Damage) {
        let (sql, lsn) = match damage {
            Damage::Facts(lsn) => ("UPDATE events SET facts = '{}' WHERE lsn = ?1", lsn),
            Damage::At(lsn) => ("UPDATE events SET at = 1 WHERE lsn = ?1", lsn),
            Damage::Content(lsn) => ("UPDATE contents SET bytes = x'61' WHERE lsn = ?1", lsn),
            Damage::LoseContent(lsn) => ("DELETE FROM contents WHERE lsn = ?1", lsn),
            Damage::Remove(lsn) => ("DELETE FROM events WHERE lsn = ?1", lsn),
            Damage::CutBehind(lsn) => ("DELETE FROM events WHERE lsn > ?1", lsn),
        };
        assert!(self.raw().execute(sql, params![lsn.0 as i64]).unwrap() > 0);
    }
}
