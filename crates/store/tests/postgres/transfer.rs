//! A log moves between a file and a database with its chain as it is.

use countersign_core::{
    id::{Lsn, SessionId},
    time::Millis,
};
use countersign_store::{
    Batch, Log, LogOptions, LogRecord, Partition, PostgresLog, PostgresOptions, RawLog, SqliteLog, StoredContent,
    TransferError, copy_records,
    suite::{TextView, append_as_owner, text_batch, text_record},
};

use crate::database::Database;

const ZERO: Partition = Partition::ZERO;

/// Appends records of every form: with and without content, key and session, and one that is redacted.
async fn fill(log: &impl Log, first: u64) {
    let odd = LogRecord {
        at: Millis(u64::MAX),
        session: Some(SessionId::new("s\0ä")),
        key: Some("key\0".into()),
        content: Some("".into()),
        ..text_record("odd")
    };
    let bare = LogRecord { session: None, ..text_record("bare") };
    let batch = Batch(vec![text_record("content a"), text_record("content b"), odd, bare]);
    append_as_owner(log, Lsn(first), batch).await.unwrap();
    log.redact_contents(ZERO, &[Lsn(first + 2)]).await.unwrap();
}

async fn raw(log: &impl RawLog) -> Vec<countersign_store::RawRecord> {
    log.read_raw(Lsn(0), usize::MAX).await.unwrap()
}

#[tokio::test]
async fn a_log_goes_to_a_database_and_back_with_its_chain_unchanged() {
    let Some(database) = Database::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let open = |name: &str| SqliteLog::open(folder.path().join(name), LogOptions::default()).unwrap();
    let (file, copy) = (open("log.db"), open("copy.db"));
    fill(&file, 0).await;
    let head = file.head(ZERO).await.unwrap();

    let log = database.open();
    let report = copy_records(&file, &log, |_| {}).await.unwrap();
    assert_eq!((report.head, report.copied, report.resumed, report.redacted), (head, 4, 0, 1));
    assert_eq!(raw(&file).await, raw(&log).await);
    let again = copy_records(&file, &log, |_| {}).await.unwrap();
    assert_eq!((again.head, again.copied, again.resumed), (head, 0, 4));

    // The owner goes on in the database, and its views have everything.
    log.close().await;
    let log = PostgresLog::open(PostgresOptions { views: vec![TextView::new(1)], ..database.options() }).unwrap();
    fill(&log, 4).await;
    assert_eq!(log.read_view(ZERO, "said", "said/", None, 99).await.unwrap().len(), 8);
    let report = copy_records(&log, &copy, |_| {}).await.unwrap();
    assert_eq!((report.head, report.copied, report.redacted), (log.head(ZERO).await.unwrap(), 8, 2));
    assert_eq!(raw(&log).await, raw(&copy).await);
    let contents = copy.read_contents(ZERO, &[Lsn(1), Lsn(2)]).await.unwrap();
    assert_eq!(contents, [Some(StoredContent::Text("content a".into())), Some(StoredContent::Redacted)]);
}

#[tokio::test]
async fn an_interrupted_copy_goes_on_and_forgets_what_was_redacted_since() {
    let Some(database) = Database::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = SqliteLog::open(folder.path().join("log.db"), LogOptions::default()).unwrap();
    append_as_owner(&file, Lsn(0), text_batch(&["content a", "content b"])).await.unwrap();
    let log = database.open();
    copy_records(&file, &log, |_| {}).await.unwrap();
    file.redact_contents(ZERO, &[Lsn(1)]).await.unwrap();
    append_as_owner(&file, Lsn(2), text_batch(&["content c"])).await.unwrap();
    let mut seen = Vec::new();
    let report = copy_records(&file, &log, |lsn| seen.push(lsn)).await.unwrap();
    assert_eq!((report.copied, report.resumed, report.redacted, seen), (1, 2, 1, vec![Lsn(3)]));
    assert_eq!(raw(&file).await, raw(&log).await);
}

#[tokio::test]
async fn a_target_with_another_history_is_left_alone() {
    let Some(database) = Database::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = SqliteLog::open(folder.path().join("log.db"), LogOptions::default()).unwrap();
    append_as_owner(&file, Lsn(0), text_batch(&["a", "b"])).await.unwrap();
    let log = database.open();
    append_as_owner(&log, Lsn(0), text_batch(&["x"])).await.unwrap();
    let head = log.head(ZERO).await.unwrap();
    let result = copy_records(&file, &log, |_| {}).await;
    assert!(matches!(result, Err(TransferError::OtherLog { at: Lsn(1) })), "{result:?}");
    append_as_owner(&log, Lsn(1), text_batch(&["y", "z"])).await.unwrap();
    let result = copy_records(&file, &log, |_| {}).await;
    assert!(matches!(result, Err(TransferError::Longer { found: Lsn(3), source_end: Lsn(2) })), "{result:?}");
    assert!(log.head(ZERO).await.unwrap().lsn > head.lsn);
}
