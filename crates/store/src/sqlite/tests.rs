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
    LogFile, Options, Phase, Shared, SqliteLog,
    query::{self, Index},
};
use crate::{
    Log,
    error::{AppendError, ReadError, WriteError},
    record::Epoch,
    record::Partition,
    suite::{Said, batch},
    view::View,
};

const ZERO: Partition = Partition::ZERO;
const EPOCH: Epoch = Epoch(1);

/// A log with one record of its first epoch, whose next commits fail half-way as often as the number says.
fn failing(path: &Path) -> (SqliteLog, Arc<AtomicUsize>) {
    failing_with(path, Options::default())
}

fn failing_with(path: &Path, options: Options) -> (SqliteLog, Arc<AtomicUsize>) {
    let mut file = LogFile::make(path, &options, None).unwrap();
    assert_eq!(super::write::take_over(&file.connection).unwrap(), EPOCH);
    let told = super::write::append(&file.connection, &options.views, [(EPOCH, Lsn(0), &batch(&["one"]))]).unwrap();
    assert!(matches!(told[..], [Ok(Lsn(1))]), "{told:?}");
    let failures = Arc::new(AtomicUsize::new(0));
    let left = Arc::clone(&failures);
    let fail = move || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
    file.connection.commit_hook(Some(fail)).unwrap();
    let shared = Shared::new(path.to_owned(), options, true);
    let phase = Phase::run(&shared, Some(file)).unwrap();
    (SqliteLog::with(shared, phase), failures)
}

#[tokio::test]
async fn a_commit_that_fails_is_undone_and_told_as_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let (log, failures) = failing(&folder.path().join("log.db"));
    failures.store(1, Ordering::Relaxed);
    let told = log.append(ZERO, EPOCH, Lsn(1), batch(&["two"])).await;
    assert!(matches!(result, Err(AppendError::Io(_))), "{result:?}");
    assert_eq!(log.head(ZERO).await.unwrap().lsn, Lsn(1));
    assert_eq!(log.append(ZERO, EPOCH, Lsn(1), batch(&["two"])).await.unwrap(), Lsn(2));
}

#[tokio::test]
async fn a_commit_that_cannot_be_undone_is_uncertain_until_a_write_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let (log, failures) = failing(&folder.path().join("log.db"));
    failures.store(usize::MAX, Ordering::Relaxed);
    let told = log.append(ZERO, EPOCH, Lsn(1), batch(&["two"])).await;
    assert!(matches!(result, Err(AppendError::Uncertain(_))), "{result:?}");
    let told = log.head(ZERO).await;
    assert!(matches!(result, Err(ReadError::Unsettled(_))), "{result:?}");
    let told = log.append(ZERO, EPOCH, Lsn(1), batch(&["two"])).await;
    assert!(matches!(result, Err(AppendError::Io(_))), "{result:?}");
    let told = log.probe().await;
    assert!(matches!(result, Err(WriteError::Io(_))), "{result:?}");

    failures.store(0, Ordering::Relaxed);
    assert_eq!(log.head(ZERO).await.unwrap().lsn, Lsn(1));
    assert_eq!(log.append(ZERO, EPOCH, Lsn(1), batch(&["two"])).await.unwrap(), Lsn(2));
}

#[tokio::test]
async fn a_commit_that_fails_leaves_no_trace_in_a_view() {
    let folder = tempfile::tempdir().unwrap();
    let views: Vec<Arc<dyn View>> = vec![Said::new(1)];
    let (log, failures) = failing_with(&folder.path().join("log.db"), Options { views, ..Options::default() });
    let said = async || log.view(ZERO, "said", "said/", None, 9).await.unwrap().len();
    failures.store(1, Ordering::Relaxed);
    let told = log.append(ZERO, EPOCH, Lsn(1), batch(&["two"])).await;
    assert!(matches!(result, Err(AppendError::Io(_))), "{result:?}");
    assert_eq!(row_count().await, 1);
    log.append(ZERO, EPOCH, Lsn(1), batch(&["two"])).await.unwrap();
    assert_eq!(row_count().await, 2);
}

#[tokio::test]
async fn appends_that_shared_a_failed_commit_are_each_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let (log, failures) = failing(&folder.path().join("log.db"));
    failures.store(usize::MAX, Ordering::Relaxed);
    let told = tokio::join!(
        log.append(ZERO, EPOCH, Lsn(1), batch(&["two"])),
        log.append(ZERO, EPOCH, Lsn(2), batch(&["three"]))
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
        pending.push(log.submit(ZERO, EPOCH, Lsn(expected), batch(&["lost"])).await);
    }
    for (index, pending) in pending.into_iter().enumerate() {
        let told = pending.await;
        assert!(result.is_err(), "{result:?}");
        if index == 0 {
            failures.store(0, Ordering::Relaxed);
        }
    }
    assert_eq!(log.head(ZERO).await.unwrap().lsn, Lsn(1));
    assert_eq!(log.append(ZERO, EPOCH, Lsn(1), batch(&["two"])).await.unwrap(), Lsn(2));
}

#[test]
fn a_scope_is_found_by_its_index() {
    let folder = tempfile::tempdir().unwrap();
    let file = LogFile::make(&folder.path().join("log.db"), &Options::default(), None).unwrap();
    for (index, want) in [
        (Index::Session, "SEARCH events USING INDEX events_by_session (session=? AND rowid>?)"),
        (Index::Key, "SEARCH events USING INDEX events_by_key (key=? AND rowid>?)"),
    ] {
        let sql = format!("EXPLAIN QUERY PLAN {}", query::scope_sql(index, true).unwrap());
        let plan: String = file.connection.query_row(&sql, params![0, 9, "x"], |row| row.get(3)).unwrap();
        assert_eq!(plan, want);
    }
}
