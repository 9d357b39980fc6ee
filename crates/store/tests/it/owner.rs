//! A log has one owner.

use std::process;

use countersign_core::id::Lsn;
use countersign_store::{
    AppendError, Epoch, Log, OpenError, Options, Partition, SqliteLog,
    suite::{append_as_owner, batch},
};

use crate::{place::Place, process::Child};

const ZERO: Partition = Partition::ZERO;

#[tokio::test]
async fn a_second_owner_in_the_same_process_is_refused_until_the_first_is_dropped() {
    let place = Place::new();
    let first = place.open();
    append_as_owner(&first, Lsn(0), batch(&["one"])).await.unwrap();
    match SqliteLog::open(place.log(), Options::default()) {
        Err(OpenError::Owned { pid, .. }) => assert_eq!(pid, Some(process::id())),
        other => panic!("{other:?}"),
    }
    drop(first);
    assert_eq!(place.open().head(ZERO).await.unwrap().lsn, Lsn(1));
}

#[tokio::test]
async fn a_second_process_is_refused_with_the_pid_of_the_first_but_may_read() {
    let place = Place::new();
    let lazy = place.open();
    let claimed = lazy.take_over(ZERO).await.unwrap();
    let mut owner = Child::spawn("hold", &place.log());
    owner.wait_for("held");

    match SqliteLog::open(place.log(), Options::default()) {
        Err(OpenError::Owned { pid, .. }) => assert_eq!(pid, Some(owner.id())),
        other => panic!("{other:?}"),
    }
    match lazy.append(ZERO, claimed, Lsn(0), batch(&["late"])).await {
        Err(AppendError::Open(OpenError::Owned { pid, .. })) => assert_eq!(pid, Some(owner.id())),
        other => panic!("{other:?}"),
    }
    let reader = SqliteLog::open_read_only(place.log(), 1).unwrap();
    assert_eq!(reader.head(ZERO).await.unwrap().lsn, Lsn(1));

    owner.let_go();
    match lazy.append(ZERO, claimed, Lsn(1), batch(&["late"])).await {
        Err(AppendError::Fenced { epoch, current }) => assert!(epoch == claimed && current > claimed, "{current}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(append_as_owner(&lazy, Lsn(1), batch(&["two"])).await.unwrap(), Lsn(2));
    assert_eq!(reader.head(ZERO).await.unwrap().lsn, Lsn(2));
}

#[tokio::test]
async fn a_takeover_of_a_log_that_was_not_made_leaves_nothing_on_disk_and_holds_once_it_is() {
    let place = Place::new();
    let log = place.open();
    assert_eq!(log.take_over(ZERO).await.unwrap(), Epoch(1));
    let epoch = log.take_over(ZERO).await.unwrap();
    assert_eq!((epoch, log.epoch(ZERO).await.unwrap()), (Epoch(2), Epoch(2)));
    assert!(!place.log().exists());
    assert!(!place.log().parent().unwrap().exists());
    let told = log.append(ZERO, Epoch(1), Lsn(0), batch(&["late"])).await;
    assert!(matches!(told, Err(AppendError::Fenced { current: Epoch(2), .. })), "{told:?}");
    log.append(ZERO, epoch, Lsn(0), batch(&["one"])).await.unwrap();
    log.close().await;
    assert_eq!(place.open().epoch(ZERO).await.unwrap(), epoch);
}
