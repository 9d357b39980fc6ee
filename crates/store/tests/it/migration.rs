//! A log that an older program made.

use countersign_core::{
    id::{Lsn, SessionId},
    time::Millis,
};
use countersign_store::{
    Batch, Epoch, Head, Log, Options, Partition, Record, Scope, SqliteLog, Stored,
    chain::{self, Link},
    suite::{append_as_owner, record},
};
use rusqlite::{Connection, params};

use crate::place::Place;

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
fn make(place: &Place) -> Head {
    std::fs::create_dir_all(place.log().parent().unwrap()).unwrap();
    let connection = place.raw();
    connection.execute_batch(VERSION_1).unwrap();
    let first = insert(&connection, Head::EMPTY, None);
    let head = insert(&connection, first, Some("content of old"));
    connection.close().unwrap();
    head
}

fn insert(connection: &Connection, head: Head, content: Option<&str>) -> Head {
    let (lsn, salt) = (head.lsn.next(), [7; chain::SALT_SIZE]);
    let content_digest = content.map(|text| chain::content_digest(&salt, text.as_bytes()));
    let link =
        Link { lsn, at: Millis(5), session: Some("s1"), kind: "old.said", version: 1, facts: "{}", content_digest };
    let chain = chain::chain(&head.chain, &link);
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
    Head { lsn, chain }
}

async fn found(log: &SqliteLog, scope: Scope<'_>) -> Vec<Stored> {
    log.read_scope(ZERO, scope, Lsn(0), 9).await.unwrap()
}

#[tokio::test]
async fn a_log_of_version_1_is_read_as_it_is() {
    let place = Place::new();
    let head = make(&place);
    let before = std::fs::read(place.log()).unwrap();

    let log = SqliteLog::open_read_only(place.log(), 1).unwrap();
    let stored = log.read(ZERO, Lsn(0), 9).await.unwrap();
    assert_eq!(stored.iter().map(|stored| stored.key.as_deref()).collect::<Vec<_>>(), [None, None]);
    assert_eq!(found(&log, Scope::Session(&SessionId::new("s1"))).await, stored);
    assert_eq!(found(&log, Scope::Key("g1")).await, []);
    let report = log.verify(ZERO, Some(head)).await.unwrap();
    assert_eq!((report.head, report.records, report.flaw), (head, 2, None));
    log.close().await;
    assert_eq!(std::fs::read(place.log()).unwrap(), before);
}

#[tokio::test]
async fn a_log_of_version_1_is_brought_to_todays_and_keeps_its_chain() {
    let place = Place::new();
    let head = make(&place);
    let reader = SqliteLog::open_read_only(place.log(), 1).unwrap();
    let old = reader.read(ZERO, Lsn(0), 9).await.unwrap();

    let log = place.open();
    assert_eq!(log.head(ZERO).await.unwrap(), head);
    for log in [&log, &reader] {
        assert_eq!(log.epoch(ZERO).await.unwrap(), Epoch::NONE);
    }
    let keyed = Record { key: Some("g1".into()), ..record("content of new") };
    assert_eq!(append_as_owner(&log, head.lsn, Batch(vec![keyed])).await.unwrap(), Lsn(3));
    let whole = log.read(ZERO, Lsn(0), 9).await.unwrap();
    assert_eq!(whole[..2], old);
    for log in [&log, &reader] {
        assert_eq!(found(log, Scope::Key("g1")).await, whole[2..]);
        assert_eq!(found(log, Scope::Session(&SessionId::new("s1"))).await, whole);
        let report = log.verify(ZERO, Some(head)).await.unwrap();
        assert_eq!((report.records, report.flaw), (3, None));
    }
    assert_eq!(log.redact(ZERO, &[Lsn(2), Lsn(3)]).await.unwrap(), 2);
    assert_eq!(log.verify(ZERO, Some(head)).await.unwrap().redacted, 2);
    assert_eq!(reader.epoch(ZERO).await.unwrap(), Epoch(1));
    log.close().await;

    let log = SqliteLog::open(place.log(), Options::default()).unwrap();
    assert_eq!(log.read(ZERO, Lsn(0), 9).await.unwrap(), whole);
}
