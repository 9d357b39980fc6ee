//! The least privileges: a role that owns the log, and one that only reads it.

use countersign_core::id::Lsn;
use countersign_store::{
    AppendError, DatabaseError, Log, LogWriteError, Partition, PostgresLog, PostgresOptions,
    suite::{TextView, append_as_owner, text_batch},
};

use crate::database::Database;

const ZERO: Partition = Partition::ZERO;

/// As docs/operations.md says it.
const OWNER: &str = "
    CREATE ROLE countersign_owner LOGIN;
    CREATE SCHEMA countersign AUTHORIZATION countersign_owner;
";
const READER: &str = "
    CREATE ROLE countersign_reader LOGIN;
    GRANT USAGE ON SCHEMA countersign TO countersign_reader;
    GRANT SELECT ON ALL TABLES IN SCHEMA countersign TO countersign_reader;
";

#[tokio::test]
async fn the_owner_of_the_schema_needs_no_more_and_a_reader_can_only_read() {
    let Some(database) = Database::new() else { return };
    let admin = database.admin().await;
    admin.batch_execute(OWNER).await.unwrap();
    let url = |role: &str| PostgresOptions::new(database.server.url(role, &database.name));

    let options = PostgresOptions { views: vec![TextView::new(1)], ..url("countersign_owner") };
    let log = PostgresLog::open(options).unwrap();
    append_as_owner(&log, Lsn(0), text_batch(&["content one", "two"])).await.unwrap();
    assert_eq!(log.redact_contents(ZERO, &[Lsn(1)]).await.unwrap(), 1);
    log.probe_write().await.unwrap();

    admin.batch_execute("CREATE ROLE countersign_stranger LOGIN").await.unwrap();
    let result = PostgresLog::open_read_only(url("countersign_stranger"));
    assert!(matches!(result, Err(DatabaseError::Privilege { .. })), "{result:?}");

    admin.batch_execute(READER).await.unwrap();
    let reader = PostgresLog::open_read_only(url("countersign_reader")).unwrap();
    let report = reader.verify_chain(ZERO, Some(log.head(ZERO).await.unwrap())).await.unwrap();
    assert_eq!((report.records, report.redacted, report.flaw), (2, 1, None));
    log.close().await;
    let result = PostgresLog::open(url("countersign_reader"));
    assert!(matches!(result, Err(DatabaseError::Privilege { .. })), "{result:?}");
    let client = database.connect_as("countersign_reader").await;
    for table in ["events", "contents", "views", "partitions", "meta", "snapshots"] {
        assert!(client.execute(&format!("DELETE FROM countersign.{table}"), &[]).await.is_err(), "{table}");
    }
    admin
        .batch_execute(
            "DROP SCHEMA countersign CASCADE; DROP ROLE countersign_owner, countersign_reader, countersign_stranger",
        )
        .await
        .unwrap();
}

#[tokio::test]
async fn a_privilege_that_is_withdrawn_is_named_and_nothing_is_written() {
    let Some(database) = Database::new() else { return };
    let admin = database.admin().await;
    admin.batch_execute("CREATE ROLE fickle LOGIN; CREATE SCHEMA countersign AUTHORIZATION fickle").await.unwrap();
    let log = PostgresLog::open(PostgresOptions::new(database.server.url("fickle", &database.name))).unwrap();
    append_as_owner(&log, Lsn(0), text_batch(&["one"])).await.unwrap();
    admin
        .batch_execute("ALTER TABLE countersign.events OWNER TO postgres; GRANT SELECT ON countersign.events TO fickle")
        .await
        .unwrap();
    let epoch = log.take_over(ZERO).await.unwrap();
    match log.append(ZERO, epoch, Lsn(1), text_batch(&["two"])).await {
        Err(AppendError::Io(cause)) => assert!(cause.to_string().contains("permission denied"), "{cause}"),
        other => panic!("{other:?}"),
    }
    admin.batch_execute("ALTER TABLE countersign.partitions OWNER TO postgres").await.unwrap();
    let result = log.take_over(ZERO).await;
    assert!(matches!(result, Err(LogWriteError::Io(_))), "{result:?}");
    log.close().await;
    admin.batch_execute("DROP SCHEMA countersign CASCADE; DROP ROLE fickle").await.unwrap();
}
