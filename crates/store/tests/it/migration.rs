//! A log that an older program made.

use countersign_core::{
    id::{Lsn, SessionId},
    time::Millis,
};
use countersign_store::{
    Batch, Epoch, Log, LogHead, LogOptions, LogRecord, Partition, ReadScope, SqliteLog, StoredRecord,
    chain::{self, ChainLink},
    suite::{append_as_owner, text_record},
};
use rusqlite::{Connection, params};

use crate::log_folder::LogFolder;

const ZERO: Partition = Partition::ZERO;

/// The tables as version 1 had them.
const VERSION_1: &str = "
    PRAGMA journal_mode = wal;
    CREATE TABLE events (
        lsn INTEGER PRIMARY KEY,
        at INTEGER NOT NULL,
        session TEXT,
        kind TEXT NOT NULL,
        version INTEGER NOT NULL,
        facts TEXT NOT NULL,
        content_digest BLOB CHECK (length(content_digest) = 32),
        chain BLOB NOT NULL CHECK (length(chain) = 32)
    ) STRICT;
    CREATE TABLE contents (
        lsn INTEGER PRIMARY KEY REFERENCES events (lsn),
        salt BLOB,
        bytes BLOB,
        CHECK ((salt IS NULL) = (bytes IS NULL))
    ) STRICT;
    CREATE TABLE snapshots (
        slot INTEGER PRIMARY KEY CHECK (slot = 0),
        lsn INTEGER NOT NULL,
        chain BLOB NOT NULL,
        version INTEGER NOT NULL,
        digest BLOB NOT NULL,
        bytes BLOB NOT NULL
    ) STRICT;
    CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    INSERT INTO meta (key, value) VALUES ('event_format', 1), ('probes', 0);
    PRAGMA application_id = 0x4353474e;
    PRAGMA user_version = 1;
";

/// Makes a log of version 1 with two records, the second with content.
fn make(place: &LogFolder) -> LogHead {
    std::fs::create_dir_all(place.log().parent().unwrap()).unwrap();
    let connection = place.raw();
    connection.execute_batch(VERSION_1).unwrap();
    let first = insert(&connection, LogHead::EMPTY, None);
    let head = insert(&connection, first, Some("content of old"));
    connection.close().unwrap();
    head
}

fn insert(connection: &Connection, head: LogHead, content: Option<&str>) -> LogHead {
    let (lsn, salt) = (head.lsn.next(), [7; chain::SALT_SIZE]);
    let content_digest = content.map(|text| chain::content_digest(&salt, text.as_bytes()));
    let link = ChainLink {
        lsn,
        at: Millis(5),
        session: Some("s1"),
        kind: "old.said",
        version: 1,
        facts: "{}",
        content_digest,
    };
    let chain = chain::chain_digest(&head.chain, &link);
    let digest = content_digest.map(|digest| *digest.as_bytes());
    connection
        .execute(
            "INSERT INTO events VALUES (?1, 5, 's1', 'old.said', 1, '{}', ?2, ?3)",
            params![lsn.0 as i64, digest, chain.as_bytes()],
        )
        .unwrap();
    if let Some(text) = content {
        let row = params![lsn.0 as i64, salt, text.as_bytes()];
        connection.execute("INSERT INTO contents VALUES (?1, ?2, ?3)", row).unwrap();
    }
    LogHead { lsn, chain }
}

async fn found(log: &SqliteLog, scope: ReadScope<'_>) -> Vec<StoredRecord> {
    log.read_scope(ZERO, scope, Lsn(0), 9).await.unwrap()
}

#[tokio::test]
async fn a_log_of_version_1_is_read_as_it_is() {
    let place = LogFolder::new();
    let head = make(&place);
    let before = std::fs::read(place.log()).unwrap();

    let log = SqliteLog::open_read_only(place.log(), 1).unwrap();
    let stored = log.read_records(ZERO, Lsn(0), 9).await.unwrap();
    assert_eq!(stored.iter().map(|stored| stored.key.as_deref()).collect::<Vec<_>>(), [None, None]);
    assert_eq!(found(&log, ReadScope::Session(&SessionId::new("s1"))).await, stored);
    assert_eq!(found(&log, ReadScope::Key("g1")).await, []);
    let report = log.verify_chain(ZERO, Some(head)).await.unwrap();
    assert_eq!((report.head, report.records, report.flaw), (head, 2, None));
    log.close().await;
    assert_eq!(std::fs::read(place.log()).unwrap(), before);
}

#[tokio::test]
async fn a_log_of_version_1_is_brought_to_todays_and_keeps_its_chain() {
    let place = LogFolder::new();
    let head = make(&place);
    let reader = SqliteLog::open_read_only(place.log(), 1).unwrap();
    let old = reader.read_records(ZERO, Lsn(0), 9).await.unwrap();

    let log = place.open();
    assert_eq!(log.head(ZERO).await.unwrap(), head);
    for log in [&log, &reader] {
        assert_eq!(log.current_epoch(ZERO).await.unwrap(), Epoch::NONE);
    }
    let keyed = LogRecord { key: Some("g1".into()), ..text_record("content of new") };
    assert_eq!(append_as_owner(&log, head.lsn, Batch(vec![keyed])).await.unwrap(), Lsn(3));
    let whole = log.read_records(ZERO, Lsn(0), 9).await.unwrap();
    assert_eq!(whole[..2], old);
    for log in [&log, &reader] {
        assert_eq!(found(log, ReadScope::Key("g1")).await, whole[2..]);
        assert_eq!(found(log, ReadScope::Session(&SessionId::new("s1"))).await, whole);
        let report = log.verify_chain(ZERO, Some(head)).await.unwrap();
        assert_eq!((report.records, report.flaw), (3, None));
    }
    assert_eq!(log.redact_contents(ZERO, &[Lsn(2), Lsn(3)]).await.unwrap(), 2);
    assert_eq!(log.verify_chain(ZERO, Some(head)).await.unwrap().redacted, 2);
    assert_eq!(reader.current_epoch(ZERO).await.unwrap(), Epoch(1));
    log.close().await;

    let log = SqliteLog::open(place.log(), LogOptions::default()).unwrap();
    assert_eq!(log.read_records(ZERO, Lsn(0), 9).await.unwrap(), whole);
}
