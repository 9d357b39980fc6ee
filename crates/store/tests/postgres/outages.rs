//! A server that dies and comes back.

use countersign_core::id::Lsn;
use countersign_store::{
    AppendError, Log, LogReadError, Partition, PostgresLog, PostgresOptions,
    suite::{TextView, append_as_owner, text_batch},
};

use crate::{database::Database, server::PostgresServer};

const ZERO: Partition = Partition::ZERO;

#[tokio::test(flavor = "multi_thread")]
async fn everything_acknowledged_is_there_after_the_server_was_killed_and_the_owner_goes_on() {
    let Some(server) = PostgresServer::start(&[], |_| {}) else { return };
    let database = server.make_database();
    let options =
        PostgresOptions { views: vec![TextView::new(1)], ..PostgresOptions::new(server.url("postgres", &database)) };
    let log = PostgresLog::open(options).unwrap();
    let epoch = log.take_over(ZERO).await.unwrap();
    let mut acknowledged = Lsn(0);
    for round in 0..2 {
        let mut pending = Vec::new();
        for at in 0..20 {
            let batch = text_batch(&["content x"]);
            pending.push(log.submit_batch(ZERO, epoch, Lsn(acknowledged.0 + at), batch).await);
        }
        if round == 0 {
            acknowledged = pending.remove(0).await.unwrap();
        }
        server.kill();
        for pending in pending {
            match pending.await {
                Ok(lsn) => acknowledged = lsn,
                Err(error) => {
                    assert!(matches!(error, AppendError::Uncertain(_) | AppendError::Io(_)), "{error:?}");
                }
            }
        }
        let result = log.head(ZERO).await;
        assert!(matches!(result, Err(LogReadError::Unsettled(_) | LogReadError::Io(_))), "{result:?}");
        server.restart();
        server.run_sql("postgres", "SELECT 1");
        let found = log.head(ZERO).await.unwrap();
        assert!(found.lsn >= acknowledged, "{found:?}");
        acknowledged = log.append(ZERO, epoch, found.lsn, text_batch(&["content again"])).await.unwrap();
    }
    let report = log.verify_chain(ZERO, None).await.unwrap();
    assert_eq!((report.records, report.flaw), (acknowledged.0, None));
    let rows = log.read_view(ZERO, "said", "said/", None, usize::MAX).await.unwrap();
    assert_eq!(rows.len() as u64, acknowledged.0);
    log.close().await;
}

/// What a standby does that was promoted without the newest entry, and got another one at its position.
#[tokio::test]
async fn an_owner_whose_database_lost_a_committed_entry_appends_nothing_until_it_takes_the_log_over_again() {
    let Some(database) = Database::new() else { return };
    let log = database.open();
    let epoch = log.take_over(ZERO).await.unwrap();
    log.append(ZERO, epoch, Lsn(0), text_batch(&["one"])).await.unwrap();
    log.append(ZERO, epoch, Lsn(1), text_batch(&["two"])).await.unwrap();
    let admin = database.admin().await;
    let replaced = "UPDATE countersign.events SET chain = sha256(chain) WHERE lsn = 2";
    assert_eq!(admin.execute(replaced, &[]).await.unwrap(), 1);
    let ended = "SELECT pg_terminate_backend(l.pid) FROM pg_locks AS l
                 JOIN pg_database AS d ON d.oid = l.database
                 WHERE l.locktype = 'advisory' AND d.datname = current_database()";
    assert_eq!(admin.query(ended, &[]).await.unwrap().len(), 1);
    let mut result = log.append(ZERO, epoch, Lsn(2), text_batch(&["three"])).await;
    if matches!(result, Err(AppendError::Uncertain(_))) {
        assert_eq!(log.head(ZERO).await.unwrap().lsn, Lsn(2));
        result = log.append(ZERO, epoch, Lsn(2), text_batch(&["three"])).await;
    }
    assert!(matches!(result, Err(AppendError::Position { .. })), "{result:?}");
    let next = log.take_over(ZERO).await.unwrap();
    assert_eq!(log.append(ZERO, next, Lsn(2), text_batch(&["three"])).await.unwrap(), Lsn(3));
}

#[tokio::test]
async fn an_owner_whose_server_is_away_writes_nothing_and_is_told_so() {
    let Some(server) = PostgresServer::start(&[], |_| {}) else { return };
    let database = server.make_database();
    let log = PostgresLog::open(PostgresOptions::new(server.url("postgres", &database))).unwrap();
    append_as_owner(&log, Lsn(0), text_batch(&["one"])).await.unwrap();
    server.kill();
    let result = log.probe_write().await;
    assert!(result.is_err(), "{result:?}");
    let result = log.probe_write().await;
    assert!(result.unwrap_err().to_string().contains("could not be written"));
    server.restart();
    server.run_sql("postgres", "SELECT 1");
    log.probe_write().await.unwrap();
    assert_eq!(append_as_owner(&log, Lsn(1), text_batch(&["two"])).await.unwrap(), Lsn(2));
}
