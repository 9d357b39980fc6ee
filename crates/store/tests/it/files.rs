//! Files on disk, and refused ones.

use std::{fs, io::Read, os::unix::fs::PermissionsExt, path::Path};

use countersign_core::id::Lsn;
use countersign_store::{
    AppendError, Batch, Log, LogHead, LogOpenError, LogOptions, LogReadError, LogRecord, LogWriteError, Partition,
    SqliteLog,
    suite::{append_as_owner, text_batch, text_record},
};

use crate::log_folder::LogFolder;

const ZERO: Partition = Partition::ZERO;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn bytes_under(folder: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        fs::File::open(entry.unwrap().path()).unwrap().read_to_end(&mut bytes).unwrap();
    }
    bytes
}

#[tokio::test]
async fn a_log_that_records_nothing_leaves_nothing_on_disk() {
    let place = LogFolder::new();
    let log = place.open();
    assert_eq!(log.head(ZERO).await.unwrap(), LogHead::EMPTY);
    assert_eq!(log.read_records(ZERO, Lsn(0), 10).await.unwrap(), []);
    log.verify_chain(ZERO, None).await.unwrap();
    log.close().await;
    assert_eq!(fs::read_dir(place.folder()).unwrap().count(), 0);
}

#[tokio::test]
async fn the_first_append_makes_a_log_that_nobody_else_may_read() {
    let place = LogFolder::new();
    let log = place.open();
    append_as_owner(&log, Lsn(0), text_batch(&["one"])).await.unwrap();
    assert_eq!(mode(place.log().parent().unwrap()), 0o700);
    for suffix in ["", "-wal", "-shm", ".lock"] {
        assert_eq!(mode(Path::new(&format!("{}{suffix}", place.log().display()))), 0o600, "{suffix}");
    }
}

#[tokio::test]
async fn a_file_that_was_never_filled_is_no_log_yet() {
    let place = LogFolder::new();
    fs::create_dir(place.log().parent().unwrap()).unwrap();
    fs::write(place.log(), b"").unwrap();
    let log = place.open();
    assert_eq!(log.head(ZERO).await.unwrap(), LogHead::EMPTY);
    assert_eq!(append_as_owner(&log, Lsn(0), text_batch(&["one"])).await.unwrap(), Lsn(1));
}

#[tokio::test]
async fn a_link_to_a_log_is_the_same_log() {
    let place = LogFolder::new();
    let log = place.open();
    append_as_owner(&log, Lsn(0), text_batch(&["one"])).await.unwrap();
    let link = place.folder().join("link.db");
    std::os::unix::fs::symlink(place.log(), &link).unwrap();
    let result = SqliteLog::open(&link, LogOptions::default());
    assert!(matches!(result, Err(LogOpenError::Owned { .. })), "{result:?}");
    log.close().await;
    let log = SqliteLog::open(&link, LogOptions::default()).unwrap();
    assert_eq!(log.head(ZERO).await.unwrap().lsn, Lsn(1));
}

#[tokio::test]
async fn what_this_program_does_not_know_is_refused_and_left_as_it_was() {
    type ErrorCheck = fn(&LogOpenError) -> bool;
    let newer_schema: ErrorCheck = |error| matches!(error, LogOpenError::NewerSchema { found: 99, known: 3, .. });
    let newer_events: ErrorCheck = |error| matches!(error, LogOpenError::NewerEvents { found: 7, known: 1, .. });
    let foreign: ErrorCheck = |error| matches!(error, LogOpenError::Foreign { .. });
    for (sql, check) in [
        ("PRAGMA user_version = 99", newer_schema),
        ("UPDATE meta SET value = 7 WHERE key = 'event_format'", newer_events),
        ("PRAGMA application_id = 5", foreign),
    ] {
        let place = LogFolder::new();
        let log = place.open();
        append_as_owner(&log, Lsn(0), text_batch(&["one"])).await.unwrap();
        log.close().await;
        place.raw().execute_batch(sql).unwrap();
        let before = fs::read(place.log()).unwrap();

        let error = SqliteLog::open(place.log(), LogOptions::default()).unwrap_err();
        assert!(check(&error), "{sql}: {error:?}");
        assert!(error.to_string().starts_with(&*place.log().canonicalize().unwrap().to_string_lossy()), "{error}");
        let error = SqliteLog::open_read_only(place.log(), 1).unwrap_err();
        assert!(check(&error), "{sql}: {error:?}");
        assert_eq!(fs::read(place.log()).unwrap(), before, "{sql}");
    }
}

#[tokio::test]
async fn a_newer_program_marks_the_log_as_its_own() {
    let place = LogFolder::new();
    let log = place.open();
    append_as_owner(&log, Lsn(0), text_batch(&["one"])).await.unwrap();
    log.close().await;
    let newer = SqliteLog::open(place.log(), LogOptions { event_format: 2, ..LogOptions::default() }).unwrap();
    newer.close().await;
    let result = SqliteLog::open(place.log(), LogOptions::default());
    assert!(matches!(result, Err(LogOpenError::NewerEvents { found: 2, known: 1, .. })), "{result:?}");
}

#[tokio::test]
async fn a_database_of_another_program_is_not_taken_over() {
    let place = LogFolder::new();
    fs::create_dir(place.log().parent().unwrap()).unwrap();
    place.raw().execute_batch("CREATE TABLE theirs (x)").unwrap();
    let before = fs::read(place.log()).unwrap();
    let result = SqliteLog::open(place.log(), LogOptions::default());
    assert!(matches!(result, Err(LogOpenError::Foreign { .. })), "{result:?}");
    assert_eq!(fs::read(place.log()).unwrap(), before);
}

#[tokio::test]
async fn what_is_no_database_is_refused_and_left_as_it_was() {
    let place = LogFolder::new();
    fs::create_dir(place.log().parent().unwrap()).unwrap();
    let text = b"shopping list: milk, bread, a new hard disk\n".repeat(40);
    fs::write(place.log(), &text).unwrap();
    let result = SqliteLog::open(place.log(), LogOptions::default());
    assert!(matches!(result, Err(LogOpenError::Corrupt { .. })), "{result:?}");
    assert_eq!(fs::read(place.log()).unwrap(), text);
}

#[tokio::test]
async fn a_damaged_log_says_so_when_it_is_opened_or_read() {
    let place = LogFolder::new();
    let log = place.open();
    let texts = vec!["x"; 2000];
    append_as_owner(&log, Lsn(0), text_batch(&texts)).await.unwrap();
    log.close().await;
    let mut bytes = fs::read(place.log()).unwrap();
    let middle = 2 * 4096;
    bytes[middle..].fill(0x5a);
    fs::write(place.log(), &bytes).unwrap();

    match SqliteLog::open(place.log(), LogOptions::default()) {
        Err(LogOpenError::Corrupt { .. }) => {}
        Err(other) => panic!("{other:?}"),
        Ok(log) => {
            let result = log.read_records(ZERO, Lsn(0), usize::MAX).await;
            assert!(matches!(result, Err(LogReadError::Corrupt(_))), "{result:?}");
            let result = log.verify_chain(ZERO, None).await;
            assert!(matches!(result, Err(LogReadError::Corrupt(_))), "{result:?}");
        }
    }
    assert_eq!(fs::read(place.log()).unwrap(), bytes);
}

#[tokio::test]
async fn redacted_text_is_nowhere_on_disk() {
    let place = LogFolder::new();
    let secret = "the code of the safe is 4815162342 ";
    let with = |content: &str| LogRecord { content: Some(content.into()), ..text_record("facts") };
    let log = place.open();
    let sent = Batch(vec![with(secret), with(&secret.repeat(400)), with("content kept")]);
    append_as_owner(&log, Lsn(0), sent).await.unwrap();
    let folder = place.log().parent().unwrap().to_owned();
    let holds = |needle: &[u8]| bytes_under(&folder).windows(needle.len()).any(|window| window == needle);
    assert!(holds(b"4815162342"));
    assert_eq!(log.redact_contents(ZERO, &[Lsn(1), Lsn(2)]).await.unwrap(), 2);
    assert!(!holds(b"4815162342"));
    assert!(holds(b"content kept"));
}

#[tokio::test]
async fn a_redaction_that_a_reader_hinders_says_that_traces_are_left() {
    let place = LogFolder::new();
    let log = place.open();
    append_as_owner(&log, Lsn(0), text_batch(&["content one"])).await.unwrap();
    let other = place.raw();
    other.execute_batch("BEGIN").unwrap();
    other.query_row("SELECT count(*) FROM events", [], |row| row.get::<_, i64>(0)).unwrap();
    let result = log.redact_contents(ZERO, &[Lsn(1)]).await;
    assert!(matches!(result, Err(LogWriteError::Lingers(_))), "{result:?}");
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(log.redact_contents(ZERO, &[Lsn(1)]).await.unwrap(), 0);
}

#[tokio::test]
async fn a_redaction_of_what_is_gone_already_does_not_touch_the_file() {
    let place = LogFolder::new();
    let log = place.open();
    append_as_owner(&log, Lsn(0), text_batch(&["content one"])).await.unwrap();
    assert_eq!(log.redact_contents(ZERO, &[Lsn(1)]).await.unwrap(), 1);
    append_as_owner(&log, Lsn(1), text_batch(&["content two"])).await.unwrap();
    let waiting = place.log().with_extension("db-wal");
    let before = fs::metadata(&waiting).unwrap().len();
    assert!(before > 0);
    assert_eq!(log.redact_contents(ZERO, &[Lsn(1)]).await.unwrap(), 0);
    assert_eq!(fs::metadata(&waiting).unwrap().len(), before);
    assert_eq!(log.redact_contents(ZERO, &[Lsn(2)]).await.unwrap(), 1);
    assert_eq!(fs::metadata(&waiting).unwrap().len(), 0);
}

/// The file of a log that was not ended has little in it: the latest records are in the write-ahead file.
#[tokio::test]
async fn where_only_the_end_of_a_log_is_left_no_other_begins() {
    let place = LogFolder::new();
    let log = place.open();
    append_as_owner(&log, Lsn(0), text_batch(&["one"])).await.unwrap();
    let left = place.log().with_extension("db-wal");
    let (file, end) = (fs::read(place.log()).unwrap(), fs::read(&left).unwrap());
    log.close().await;
    for is_empty in [false, true] {
        fs::write(&left, &end).unwrap();
        if is_empty {
            fs::write(place.log(), "").unwrap();
        } else {
            fs::remove_file(place.log()).unwrap();
        }
        for result in [SqliteLog::open(place.log(), LogOptions::default()), SqliteLog::open_read_only(place.log(), 1)] {
            assert!(matches!(result, Err(LogOpenError::Parted { .. })), "empty: {is_empty}: {result:?}");
        }
        assert_eq!(fs::read(&left).unwrap(), end, "it is as it was");
    }
    fs::write(place.log(), file).unwrap();
    assert_eq!(place.open().head(ZERO).await.unwrap().lsn, Lsn(1));
}

#[tokio::test]
async fn reading_only_needs_a_log_and_refuses_to_write() {
    let place = LogFolder::new();
    let result = SqliteLog::open_read_only(place.log(), 1);
    assert!(matches!(result, Err(LogOpenError::Missing { .. })), "{result:?}");

    let log = place.open();
    append_as_owner(&log, Lsn(0), text_batch(&["one"])).await.unwrap();
    let reader = SqliteLog::open_read_only(place.log(), 1).unwrap();
    assert_eq!(reader.head(ZERO).await.unwrap(), log.head(ZERO).await.unwrap());
    append_as_owner(&log, Lsn(1), text_batch(&["two"])).await.unwrap();
    log.close().await;
    let report = reader.verify_chain(ZERO, None).await.unwrap();
    assert_eq!((report.records, report.flaw), (2, None));
    let result = append_as_owner(&reader, Lsn(2), text_batch(&["three"])).await;
    assert!(matches!(result, Err(AppendError::ReadOnly)), "{result:?}");
    let result = reader.probe_write().await;
    assert!(matches!(result, Err(LogWriteError::ReadOnly)), "{result:?}");
}

#[tokio::test]
async fn a_chain_is_verified_across_many_pages() {
    let place = LogFolder::new();
    let log = place.open();
    append_as_owner(&log, Lsn(0), text_batch(&vec!["x"; 1300])).await.unwrap();
    let report = log.verify_chain(ZERO, None).await.unwrap();
    assert_eq!((report.records, report.flaw), (1300, None));
}

#[tokio::test]
async fn nothing_is_written_into_a_file_that_was_removed() {
    let place = LogFolder::new();
    let log = place.open();
    append_as_owner(&log, Lsn(0), text_batch(&["one"])).await.unwrap();
    fs::remove_file(place.log()).unwrap();
    let result = append_as_owner(&log, Lsn(1), text_batch(&["two"])).await;
    assert!(matches!(result, Err(AppendError::Io(_))), "{result:?}");
}
