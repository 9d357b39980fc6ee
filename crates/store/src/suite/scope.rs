//! Reads of a log by session and by key.
//!
//! It must not know how a log finds records.

use countersign_core::id::{Lsn, SessionId};

use super::{LogFixture, ZERO, all_records, append_as_owner, append_texts, log_head, text_record};
use crate::log::Log;
use crate::record::{Batch, LogRecord, ReadScope, StoredRecord};

fn scoped_record(session: Option<&str>, key: Option<&str>, text: &str) -> LogRecord {
    LogRecord { session: session.map(SessionId::new), key: key.map(Into::into), ..text_record(text) }
}

fn record_lsns(page: &[StoredRecord]) -> Vec<u64> {
    page.iter().map(|stored| stored.lsn.0).collect()
}

async fn read_scope(log: &impl Log, scope: ReadScope<'_>, after: u64, limit: usize) -> Vec<StoredRecord> {
    log.read_scope(ZERO, scope, Lsn(after), limit).await.expect("the log can be read")
}

/// A scope gives its records and no others, in order and in pages, also after reopening and after a redaction.
pub async fn a_scope_holds_its_records_in_order(subject: &impl LogFixture) {
    let log = subject.open().await;
    let (a, b) = (SessionId::new("a"), SessionId::new("b"));
    let sent = [
        scoped_record(Some("a"), Some("g1"), "content 1"),
        scoped_record(Some("b"), None, "2"),
        scoped_record(Some("a"), Some("g2"), "3"),
        scoped_record(None, Some("g1"), "content 4"),
        scoped_record(Some("b"), Some("g1"), "5"),
        scoped_record(Some("a"), Some(""), "6"),
        scoped_record(Some("a"), Some("G1"), "7"),
    ];
    for (index, record) in sent.into_iter().enumerate() {
        append_as_owner(&log, Lsn(index as u64), Batch(vec![record])).await.expect("the append is in order");
    }
    log.close().await;
    let mut log = subject.open().await;
    for round in ["reopened", "redacted"] {
        let whole = all_records(&log).await;
        for (case, of, after, limit, want) in [
            ("a session", ReadScope::Session(&a), 0, 9, vec![1, 3, 6, 7]),
            ("a key", ReadScope::Key("g1"), 0, 9, vec![1, 4, 5]),
            ("an empty key", ReadScope::Key(""), 0, 9, vec![6]),
            ("behind one of it", ReadScope::Session(&a), 3, 9, vec![6, 7]),
            ("behind one of another", ReadScope::Key("g1"), 2, 9, vec![4, 5]),
            ("behind one of the key", ReadScope::Key("g1"), 4, 9, vec![5]),
            ("a page", ReadScope::Session(&a), 1, 2, vec![3, 6]),
            ("no more than asked for", ReadScope::Key("g1"), 0, 0, vec![]),
            ("behind its last", ReadScope::Session(&b), 5, 9, vec![]),
            ("behind all", ReadScope::Key("g1"), u64::MAX, 9, vec![]),
            ("an unknown session", ReadScope::Session(&SessionId::new("g1")), 0, 9, vec![]),
            ("an unknown key", ReadScope::Key("a"), 0, 9, vec![]),
        ] {
            let page = read_scope(&log, of, after, limit).await;
            assert_eq!(record_lsns(&page), want, "{round}: {case}");
            assert!(page.iter().all(|stored| whole.contains(stored)), "{round}: {case}");
        }
        if round == "reopened" {
            assert_eq!(log.redact_contents(ZERO, &[Lsn(1), Lsn(4)]).await.expect("writable"), 2);
            log.close().await;
            log = subject.open().await;
        }
    }
}

/// Two logs that differ in keys only have the same chain.
pub async fn a_key_is_no_part_of_the_chain(subject: &impl LogFixture) {
    let log = subject.open().await;
    append_texts(&log, 0, &["one"]).await;
    append_as_owner(&log, Lsn(1), Batch(vec![scoped_record(None, Some("key"), "two")]))
        .await
        .expect("the append is in order");
    let stored = all_records(&log).await;
    let without = StoredRecord { key: None, ..stored[1].clone() };
    assert_eq!(stored[1].key.as_deref(), Some("key"));
    let chain = crate::chain::chain_digest(&stored[0].chain, &crate::chain::ChainLink::of_stored(&without));
    assert_eq!(chain, stored[1].chain);
    assert_eq!(log.verify_chain(ZERO, Some(log_head(&log).await)).await.expect("readable").flaw, None);
}
