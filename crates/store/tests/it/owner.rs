//! A log has one owner.

use std::process;

use countersign_core::id::Lsn;
use countersign_store::{
    AppendError, Epoch, Log, LogOpenError, LogOptions, Partition, SqliteLog,
    suite::{append_as_owner, text_batch},
};

use crate::{log_folder::LogFolder, process::ChildProcess};

const ZERO: Partition = Partition::ZERO;

#[tokio::test]
async fn a_second_owner_in_the_same_process_is_refused_until_the_first_is_dropped() {
    let place = LogFolder::new();
    let first = place.open();
    append_as_owner(&first, Lsn(0), text_batch(&["one"])).await.unwrap();
    match SqliteLog::open(place.log(), LogOptions::default()) {
        Err(LogOpenError::Owned { pid, .. }) => assert_eq!(pid, Some(process::id())),
        other => panic!("{other:?}"),
    }
    drop(first);
    assert_eq!(place.open().head(ZERO).await.unwrap().lsn, Lsn(1));
}

#[tokio::test]
async fn a_second_process_is_refused_with_the_pid_of_the_first_but_may_read() {
    let place = LogFolder::new();
    let lazy = place.open();
    let claimed = lazy.take_over(ZERO).await.unwrap();
    let mut owner = ChildProcess::spawn("hold", &place.log());
    owner.wait_for("held");

    match SqliteLog::open(place.log(), LogOptions::default()) {
        Err(LogOpenError::Owned { pid, .. }) => assert_eq!(pid, Some(owner.id())),
        other => panic!("{other:?}"),
    }
    match lazy.append(ZERO, claimed, Lsn(0), text_batch(&["late"])).await {
        Err(AppendError::Open(LogOpenError::Owned { pid, .. })) => assert_eq!(pid, Some(owner.id())),
        other => panic!("{other:?}"),
    }
    let reader = SqliteLog::open_read_only(place.log(), 1).unwrap();
    assert_eq!(reader.head(ZERO).await.unwrap().lsn, Lsn(1));

    owner.let_go();
    match lazy.append(ZERO, claimed, Lsn(1), text_batch(&["late"])).await {
        Err(AppendError::Fenced { epoch, current }) => assert!(epoch == claimed && current > claimed, "{current}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(append_as_owner(&lazy, Lsn(1), text_batch(&["two"])).await.unwrap(), Lsn(2));
    assert_eq!(reader.head(ZERO).await.unwrap().lsn, Lsn(2));
}

#[tokio::test]
async fn a_takeover_of_a_log_that_was_not_made_leaves_nothing_on_disk_and_holds_once_it_is() {
    let place = LogFolder::new();
    let log = place.open();
    assert_eq!(log.take_over(ZERO).await.unwrap(), Epoch(1));
    let epoch = log.take_over(ZERO).await.unwrap();
    assert_eq!((epoch, log.current_epoch(ZERO).await.unwrap()), (Epoch(2), Epoch(2)));
    assert!(!place.log().exists());
    assert!(!place.log().parent().unwrap().exists());
    let result = log.append(ZERO, Epoch(1), Lsn(0), text_batch(&["late"])).await;
    assert!(matches!(result, Err(AppendError::Fenced { current: Epoch(2), .. })), "{result:?}");
    log.append(ZERO, epoch, Lsn(0), text_batch(&["one"])).await.unwrap();
    log.close().await;
    assert_eq!(place.open().current_epoch(ZERO).await.unwrap(), epoch);
}
