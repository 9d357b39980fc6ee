//! A log has one owner, and whatever an older one had sent is written by then or never.

use std::time::Duration;

use countersign_core::id::Lsn;
use countersign_store::{
    AppendError, DatabaseError, Log, Partition, PostgresLog, PostgresOptions,
    suite::{append_as_owner, text_batch},
};

use crate::{database::Database, proxy::StallingProxy};

const ZERO: Partition = Partition::ZERO;

#[tokio::test]
async fn a_second_gateway_is_refused_until_the_first_has_ended_but_may_read() {
    let Some(database) = Database::new() else { return };
    let first = database.open();
    append_as_owner(&first, Lsn(0), text_batch(&["one"])).await.unwrap();
    match PostgresLog::open(database.options()) {
        Err(DatabaseError::Owned { owner, .. }) => {
            assert!(owner.contains(&format!("countersign process {}", std::process::id())), "{owner}");
        }
        other => panic!("{other:?}"),
    }
    let reader = PostgresLog::open_read_only(database.options()).unwrap();
    assert_eq!(reader.head(ZERO).await.unwrap().lsn, Lsn(1));
    let refused = append_as_owner(&reader, Lsn(1), text_batch(&["two"])).await;
    assert!(matches!(refused, Err(AppendError::ReadOnly)), "{refused:?}");
    drop(first);
    assert_eq!(append_as_owner(&database.open(), Lsn(1), text_batch(&["two"])).await.unwrap(), Lsn(2));
    assert_eq!(reader.head(ZERO).await.unwrap().lsn, Lsn(2));
}

/// The owner is cut off from the database, another takes over, and what the first had sent arrives late.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_owner_had_sent_before_it_was_cut_off_is_not_written_behind_the_next_owner() {
    let Some(database) = Database::new() else { return };
    let proxy = StallingProxy::start(database.server.folder.join(".s.PGSQL.5432")).await;
    let options = PostgresOptions {
        statement_timeout: Duration::from_secs(1),
        connect_timeout: Duration::from_secs(2),
        ..PostgresOptions::new(proxy.url(&database.name))
    };
    let first = PostgresLog::open(options).unwrap();
    let epoch = first.take_over(ZERO).await.unwrap();
    first.append(ZERO, epoch, Lsn(0), text_batch(&["a"])).await.unwrap();

    proxy.stall();
    let late = first.submit_batch(ZERO, epoch, Lsn(1), text_batch(&["late"])).await;
    // The server gives up the first owner's connection: it is the only one with the lock.
    let admin = database.admin().await;
    let ended = "SELECT pg_terminate_backend(l.pid) FROM pg_locks AS l
                 JOIN pg_database AS d ON d.oid = l.database
                 WHERE l.locktype = 'advisory' AND d.datname = current_database()";
    assert_eq!(admin.query(ended, &[]).await.unwrap().len(), 1);
    let second = database.open();
    let next = second.take_over(ZERO).await.unwrap();
    assert!(next > epoch, "{next}");
    assert_eq!(second.append(ZERO, next, Lsn(1), text_batch(&["b"])).await.unwrap(), Lsn(2));
    proxy.resume();

    let result = late.await;
    assert!(matches!(result, Err(AppendError::Uncertain(_))), "{result:?}");
    assert_eq!(first.head(ZERO).await.unwrap(), second.head(ZERO).await.unwrap());
    let result = first.append(ZERO, epoch, Lsn(2), text_batch(&["later"])).await;
    assert!(matches!(result, Err(AppendError::Fenced { current, .. }) if current == next), "{result:?}");
    assert_eq!(second.append(ZERO, next, Lsn(2), text_batch(&["c"])).await.unwrap(), Lsn(3));
    assert_eq!(second.verify_chain(ZERO, None).await.unwrap().flaw, None);
}

/// The line stalls in the middle of an append, and what was on it arrives after the same owner has connected again.
#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_append_is_uncertain_and_never_written_once_its_owner_has_read_again() {
    let Some(database) = Database::new() else { return };
    let proxy = StallingProxy::start(database.server.folder.join(".s.PGSQL.5432")).await;
    let options = PostgresOptions {
        statement_timeout: Duration::from_millis(500),
        connect_timeout: Duration::from_secs(2),
        ..PostgresOptions::new(proxy.url(&database.name))
    };
    let log = PostgresLog::open(options).unwrap();
    let epoch = log.take_over(ZERO).await.unwrap();
    log.append(ZERO, epoch, Lsn(0), text_batch(&["a"])).await.unwrap();
    proxy.stall();
    let sent = [
        log.submit_batch(ZERO, epoch, Lsn(1), text_batch(&["b"])).await,
        log.submit_batch(ZERO, epoch, Lsn(2), text_batch(&["c"])).await,
    ];
    for pending in sent {
        let result = pending.await;
        assert!(matches!(result, Err(AppendError::Uncertain(_))), "{result:?}");
    }
    let result = log.head(ZERO).await;
    assert!(matches!(result, Err(countersign_store::LogReadError::Unsettled(_))), "{result:?}");
    proxy.resume();
    let found = log.head(ZERO).await.unwrap();
    assert!(found.lsn <= Lsn(3), "{found:?}");
    // Nothing that was held back comes after that.
    assert_eq!(log.append(ZERO, epoch, found.lsn, text_batch(&["d"])).await.unwrap(), found.lsn.next());
    let report = log.verify_chain(ZERO, None).await.unwrap();
    assert_eq!((report.records, report.flaw), (found.lsn.0 + 1, None));
}
