//! A log has one owner.

use std::process;

use countersign_core::id::Lsn;
use countersign_store::{AppendError, Log, OpenError, Options, Partition, SqliteLog, suite::batch};

use crate::{place::Place, process::Child};

const ZERO: Partition = Partition::ZERO;

#[tokio::test]
async fn a_second_owner_in_the_same_process_is_refused_until_the_first_is_dropped() {
    let place = Place::new();
    let first = place.open();
    first.append(ZERO, Lsn(0), batch(&["one"])).await.unwrap();
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
    let mut owner = Child::spawn("hold", &place.log());
    owner.wait_for("held");

    match SqliteLog::open(place.log(), Options::default()) {
        Err(OpenError::Owned { pid, .. }) => assert_eq!(pid, Some(owner.id())),
        other => panic!("{other:?}"),
    }
    match lazy.append(ZERO, Lsn(0), batch(&["late"])).await {
        Err(AppendError::Open(OpenError::Owned { pid, .. })) => assert_eq!(pid, Some(owner.id())),
        other => panic!("{other:?}"),
    }
    let reader = SqliteLog::open_read_only(place.log(), 1).unwrap();
    assert_eq!(reader.head(ZERO).await.unwrap().lsn, Lsn(1));

    owner.let_go();
    let told = lazy.append(ZERO, Lsn(0), batch(&["late"])).await;
    assert!(matches!(told, Err(AppendError::Fenced { found: Lsn(1), .. })), "{told:?}");
    assert_eq!(lazy.append(ZERO, Lsn(1), batch(&["two"])).await.unwrap(), Lsn(2));
    assert_eq!(reader.head(ZERO).await.unwrap().lsn, Lsn(2));
}
