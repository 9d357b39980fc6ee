//! A database that refuses entries, as it does on a full disk, and still accepts small writes.

use countersign_core::id::Lsn;
use countersign_store::{
    AppendError, Log, LogWriteError, Partition,
    suite::{append_as_owner, text_batch},
};

use crate::database::Database;

/// Lets the database refuse each entry with an error of this code.
fn refuse_entries(code: &str) -> String {
    format!(
        "CREATE OR REPLACE FUNCTION refuse_entry() RETURNS trigger LANGUAGE plpgsql
             AS $$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '{code}'; END $$;
         CREATE TRIGGER refuse_entry BEFORE INSERT ON countersign.events FOR EACH ROW EXECUTE FUNCTION refuse_entry()"
    )
}

#[tokio::test]
async fn after_a_refused_append_a_probe_succeeds_only_once_entries_are_accepted() {
    let Some(database) = Database::new() else { return };
    let log = database.open();
    append_as_owner(&log, Lsn(0), text_batch(&["one"])).await.unwrap();
    let admin = database.admin().await;
    for (at, code) in [(1, "disk_full"), (2, "insufficient_privilege")] {
        admin.batch_execute(&refuse_entries(code)).await.unwrap();
        let is_full = code == "disk_full";
        let result = append_as_owner(&log, Lsn(at), text_batch(&["more"])).await;
        assert!(matches!(result, Err(AppendError::Full | AppendError::Io(_))), "{code}: {result:?}");
        assert_eq!(matches!(result, Err(AppendError::Full)), is_full, "{code}: {result:?}");
        for _ in 0..2 {
            let result = log.probe_write().await;
            assert!(matches!(result, Err(LogWriteError::Full | LogWriteError::Io(_))), "{code}: {result:?}");
            assert_eq!(matches!(result, Err(LogWriteError::Full)), is_full, "{code}: {result:?}");
        }
        admin.batch_execute("DROP TRIGGER refuse_entry ON countersign.events").await.unwrap();
        log.probe_write().await.unwrap();
        assert_eq!(append_as_owner(&log, Lsn(at), text_batch(&["more"])).await.unwrap(), Lsn(at + 1));
    }
    let rows = admin.query_one("SELECT count(*) FROM countersign.events", &[]).await.unwrap();
    assert_eq!(rows.get::<_, i64>(0), 3, "a probe leaves no row");
    let report = log.verify_chain(Partition::ZERO, None).await.unwrap();
    assert_eq!((report.records, report.flaw), (3, None));
}
