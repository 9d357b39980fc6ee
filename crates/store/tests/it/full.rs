//! A disk without space.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use countersign_core::id::Lsn;
use countersign_store::{
    AppendError, BALLAST_SIZE, Batch, Log, LogOptions, LogRecord, Partition, SqliteLog,
    suite::{append_as_owner, text_batch, text_record},
};

use tempfile::TempDir;

use crate::log_folder::LogFolder;

const ZERO: Partition = Partition::ZERO;

fn with_ballast(place: &LogFolder, max_pages: Option<u32>) -> (SqliteLog, PathBuf) {
    let ballast = place.folder().join("ballast");
    let options = LogOptions { ballast: Some(ballast.clone()), max_pages, ..LogOptions::default() };
    (SqliteLog::open(place.log(), options).unwrap(), ballast)
}

/// Appends until the log is full and returns where it ended.
async fn fill(log: &SqliteLog) -> Lsn {
    let large = "content ".repeat(2000);
    let mut head = log.head(ZERO).await.unwrap().lsn;
    loop {
        match append_as_owner(log, head, text_batch(&["small", &large])).await {
            Ok(last) => head = last,
            Err(AppendError::Full) => return head,
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_batch_that_finds_no_space_leaves_nothing_behind() {
    let place = LogFolder::new();
    let log = SqliteLog::open(place.log(), LogOptions { max_pages: Some(64), ..LogOptions::default() }).unwrap();
    let head = fill(&log).await;
    assert_eq!(log.head(ZERO).await.unwrap().lsn, head);
    log.probe_write().await.unwrap();
    assert_eq!(append_as_owner(&log, head, text_batch(&["small"])).await.unwrap(), head.next());
    assert_eq!(log.verify_chain(ZERO, None).await.unwrap().flaw, None);
}

#[tokio::test]
async fn one_batch_that_is_too_large_does_not_take_those_before_it_with_it() {
    let place = LogFolder::new();
    let log = SqliteLog::open(place.log(), LogOptions { max_pages: Some(64), ..LogOptions::default() }).unwrap();
    let epoch = log.take_over(ZERO).await.unwrap();
    log.append(ZERO, epoch, Lsn(0), text_batch(&["start"])).await.unwrap();
    let large = LogRecord { content: Some("x".repeat(512 * 1024).into()), ..text_record("large") };
    let results = tokio::join!(
        log.append(ZERO, epoch, Lsn(1), text_batch(&["small"])),
        log.append(ZERO, epoch, Lsn(2), Batch(vec![text_record("begin"), large])),
        log.append(ZERO, epoch, Lsn(2), text_batch(&["small too"])),
    );
    assert!(matches!(results.1, Err(AppendError::Full)), "{:?}", results.1);
    assert_eq!((results.0.unwrap(), results.2.unwrap()), (Lsn(2), Lsn(3)));
    assert_eq!(log.head(ZERO).await.unwrap().lsn, Lsn(3));
}

#[tokio::test]
async fn the_ballast_is_made_behind_the_first_append_given_up_when_full_and_remade_after_a_probe() {
    let place = LogFolder::new();
    let (log, ballast) = with_ballast(&place, Some(64));
    assert!(!ballast.exists());
    append_as_owner(&log, Lsn(0), text_batch(&["one"])).await.unwrap();
    // The writer answers first: the next answer comes after its work then.
    append_as_owner(&log, Lsn(1), text_batch(&["two"])).await.unwrap();
    assert_eq!(fs::metadata(&ballast).unwrap().len(), BALLAST_SIZE);
    fill(&log).await;
    assert!(!ballast.exists());
    log.probe_write().await.unwrap();
    assert_eq!(fs::metadata(&ballast).unwrap().len(), BALLAST_SIZE);
}

/// Takes the rest of `disk`, with or without the log's need of it.
fn use_up(disk: &Path) {
    let mut filler = fs::File::create(disk.join("filler")).unwrap();
    for size in [1 << 20, 4096, 1] {
        while filler.write_all(&vec![1; size]).is_ok() {}
    }
}

/// Returns a folder on the disk that `COUNTERSIGN_SMALL_DISK` names: a file system of 100 MiB with nothing on it.
///
/// No test may mount one by itself, so the tests that fill it show nothing if it is not set. They need it
/// one after the other: `COUNTERSIGN_SMALL_DISK=FOLDER cargo test -p countersign-store full::on_a_small_disk --
/// --test-threads=1`.
fn small_disk() -> Option<TempDir> {
    Some(tempfile::tempdir_in(std::env::var_os("COUNTERSIGN_SMALL_DISK")?).unwrap())
}

#[tokio::test]
async fn on_a_small_disk_that_is_full_the_ballast_lets_small_appends_through() {
    let Some(disk) = small_disk() else { return };
    let disk = disk.path();
    let ballast = disk.join("ballast");
    let options = LogOptions { ballast: Some(ballast.clone()), ..LogOptions::default() };
    let log = SqliteLog::open(disk.join("log.db"), options).unwrap();
    append_as_owner(&log, Lsn(0), text_batch(&["one"])).await.unwrap();
    append_as_owner(&log, Lsn(1), text_batch(&["two"])).await.unwrap();
    assert!(ballast.exists());

    let head = fill(&log).await;
    assert!(!ballast.exists());
    assert_eq!(log.head(ZERO).await.unwrap().lsn, head);
    log.probe_write().await.unwrap();
    assert!(!ballast.exists(), "the space is not taken at once again");
    assert_eq!(append_as_owner(&log, head, text_batch(&["the end of a call"])).await.unwrap(), head.next());

    use_up(disk);
    let head = fill(&log).await;
    assert_eq!(log.head(ZERO).await.unwrap().lsn, head);
    assert_eq!(log.verify_chain(ZERO, None).await.unwrap().flaw, None);
}

#[tokio::test]
async fn on_a_small_disk_that_is_full_a_log_is_opened_by_giving_the_ballast_up() {
    let Some(disk) = small_disk() else { return };
    let disk = disk.path();
    let ballast = disk.join("ballast");
    let open = || {
        SqliteLog::open(disk.join("log.db"), LogOptions { ballast: Some(ballast.clone()), ..LogOptions::default() })
            .unwrap()
    };
    let log = open();
    append_as_owner(&log, Lsn(0), text_batch(&["one"])).await.unwrap();
    log.close().await;
    assert!(ballast.exists());
    use_up(disk);
    let log = open();
    assert!(!ballast.exists());
    assert_eq!(append_as_owner(&log, Lsn(1), text_batch(&["two"])).await.unwrap(), Lsn(2));
}
