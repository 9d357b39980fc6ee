use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use countersign_core::id::Lsn;

use rusqlite::params;

use super::{
    LogOptions, SqliteLog, SqliteLogFile, SqliteState, WriterPhase,
    query::{self, ScopeIndex},
};
use crate::{
    Log,
    error::{AppendError, LogReadError, LogWriteError},
    record::Epoch,
    record::Partition,
    suite::{TextView, text_batch},
    view::LogView,
};

const ZERO: Partition = Partition::ZERO;
const EPOCH: Epoch = Epoch(1);

/// Makes a log with one record of its first epoch, whose next commits fail half-way as often as the number says.
fn failing(path: &Path) -> (SqliteLog, Arc<AtomicUsize>) {
    failing_with(path, LogOptions::default())
}

fn failing_with(path: &Path, options: LogOptions) -> (SqliteLog, Arc<AtomicUsize>) {
    let mut file = SqliteLogFile::create_file(path, &options, None).unwrap();
    assert_eq!(super::write::take_over(&file.connection).unwrap(), EPOCH);
    let result =
        super::write::append_batches(&file.connection, &options.views, [(EPOCH, Lsn(0), &text_batch(&["one"]))])
            .unwrap();
    assert!(matches!(result[..], [Ok(Lsn(1))]), "{result:?}");
    let failures = Arc::new(AtomicUsize::new(0));
    let left = Arc::clone(&failures);
    let fail = move || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
    file.connection.commit_hook(Some(fail)).unwrap();
    let shared = SqliteState::new(path.to_owned(), options, true);
    let phase = WriterPhase::run(&shared, Some(file)).unwrap();
    (SqliteLog::with_phase(shared, phase), failures)
}

#[tokio::test]
async fn a_commit_that_fails_is_undone_and_reported_as_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let (log, failures) = failing(&folder.path().join("log.db"));
    failures.store(1, Ordering::Relaxed);
    let result = log.append(ZERO, EPOCH, Lsn(1), text_batch(&["two"])).await;
    assert!(matches!(result, Err(AppendError::Io(_))), "{result:?}");
    assert_eq!(log.head(ZERO).await.unwrap().lsn, Lsn(1));
    assert_eq!(log.append(ZERO, EPOCH, Lsn(1), text_batch(&["two"])).await.unwrap(), Lsn(2));
}

#[tokio::test]
async fn a_commit_that_cannot_be_undone_is_uncertain_until_a_write_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let (log, failures) = failing(&folder.path().join("log.db"));
    failures.store(usize::MAX, Ordering::Relaxed);
    let result = log.append(ZERO, EPOCH, Lsn(1), text_batch(&["two"])).await;
    assert!(matches!(result, Err(AppendError::Uncertain(_))), "{result:?}");
    let result = log.head(ZERO).await;
    assert!(matches!(result, Err(LogReadError::Unsettled(_))), "{result:?}");
    let result = log.append(ZERO, EPOCH, Lsn(1), text_batch(&["two"])).await;
    assert!(matches!(result, Err(AppendError::Io(_))), "{result:?}");
    let result = log.probe_write().await;
    assert!(matches!(result, Err(LogWriteError::Io(_))), "{result:?}");

    failures.store(0, Ordering::Relaxed);
    assert_eq!(log.head(ZERO).await.unwrap().lsn, Lsn(1));
    assert_eq!(log.append(ZERO, EPOCH, Lsn(1), text_batch(&["two"])).await.unwrap(), Lsn(2));
}

#[tokio::test]
async fn a_commit_that_fails_leaves_no_trace_in_a_view() {
    let folder = tempfile::tempdir().unwrap();
    let views: Vec<Arc<dyn LogView>> = vec![TextView::new(1)];
    let (log, failures) = failing_with(&folder.path().join("log.db"), LogOptions { views, ..LogOptions::default() });
    let row_count = async || log.read_view(ZERO, "said", "said/", None, 9).await.unwrap().len();
    failures.store(1, Ordering::Relaxed);
    let result = log.append(ZERO, EPOCH, Lsn(1), text_batch(&["two"])).await;
    assert!(matches!(result, Err(AppendError::Io(_))), "{result:?}");
    assert_eq!(row_count().await, 1);
    log.append(ZERO, EPOCH, Lsn(1), text_batch(&["two"])).await.unwrap();
    assert_eq!(row_count().await, 2);
}

#[tokio::test]
async fn a_view_has_each_record_once_after_commits_that_failed_between_others() {
    let folder = tempfile::tempdir().unwrap();
    let views: Vec<Arc<dyn LogView>> = vec![TextView::new(1)];
    let (log, failures) = failing_with(&folder.path().join("log.db"), LogOptions { views, ..LogOptions::default() });
    log.append(ZERO, EPOCH, Lsn(1), text_batch(&["two"])).await.unwrap();
    for left in [1, usize::MAX] {
        failures.store(left, Ordering::Relaxed);
        log.append(ZERO, EPOCH, Lsn(2), text_batch(&["lost"])).await.unwrap_err();
    }
    failures.store(0, Ordering::Relaxed);
    log.append(ZERO, EPOCH, Lsn(2), text_batch(&["three"])).await.unwrap();
    log.append(ZERO, EPOCH, Lsn(3), text_batch(&["four"])).await.unwrap();
    let rows = log.read_view(ZERO, "said", "said/", None, 9).await.unwrap();
    assert_eq!(rows.iter().map(|(key, _)| &key[5..]).collect::<Vec<_>>(), ["00001", "00002", "00003", "00004"]);
}

#[tokio::test]
async fn appends_that_shared_a_failed_commit_each_get_the_error() {
    let folder = tempfile::tempdir().unwrap();
    let (log, failures) = failing(&folder.path().join("log.db"));
    failures.store(usize::MAX, Ordering::Relaxed);
    let results = tokio::join!(
        log.append(ZERO, EPOCH, Lsn(1), text_batch(&["two"])),
        log.append(ZERO, EPOCH, Lsn(2), text_batch(&["three"]))
    );
    assert!(matches!(results.0, Err(AppendError::Uncertain(_))), "{results:?}");
    assert!(results.1.is_err(), "{results:?}");
    failures.store(0, Ordering::Relaxed);
    assert_eq!(log.head(ZERO).await.unwrap().lsn, Lsn(1));
}

#[tokio::test]
async fn what_was_in_flight_behind_a_failed_commit_is_not_written_when_writing_works_again() {
    let folder = tempfile::tempdir().unwrap();
    let (log, failures) = failing(&folder.path().join("log.db"));
    failures.store(usize::MAX, Ordering::Relaxed);
    let mut pending = Vec::new();
    for expected in 1..5 {
        pending.push(log.submit_batch(ZERO, EPOCH, Lsn(expected), text_batch(&["lost"])).await);
    }
    for (index, pending) in pending.into_iter().enumerate() {
        let result = pending.await;
        assert!(result.is_err(), "{result:?}");
        if index == 0 {
            failures.store(0, Ordering::Relaxed);
        }
    }
    assert_eq!(log.head(ZERO).await.unwrap().lsn, Lsn(1));
    assert_eq!(log.append(ZERO, EPOCH, Lsn(1), text_batch(&["two"])).await.unwrap(), Lsn(2));
}

#[test]
fn a_scope_is_found_by_its_index() {
    let folder = tempfile::tempdir().unwrap();
    let file = SqliteLogFile::create_file(&folder.path().join("log.db"), &LogOptions::default(), None).unwrap();
    for (index, want) in [
        (ScopeIndex::Session, "SEARCH events USING INDEX events_by_session (session=? AND rowid>?)"),
        (ScopeIndex::Key, "SEARCH events USING INDEX events_by_key (key=? AND rowid>?)"),
    ] {
        let sql = format!("EXPLAIN QUERY PLAN {}", query::scope_sql(index, true).unwrap());
        let plan: String = file.connection.query_row(&sql, params![0, 9, "x"], |row| row.get(3)).unwrap();
        assert_eq!(plan, want);
    }
}
