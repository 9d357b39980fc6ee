//! What a log has to find by session and by key.
//!
//! It must not know how a log finds it.

use countersign_core::id::{Lsn, SessionId};

use super::{Subject, ZERO, all, append_as_owner, append_texts, head, record};
use crate::log::Log;
use crate::record::{Batch, Record, Scope, Stored};

fn of(session: Option<&str>, key: Option<&str>, text: &str) -> Record {
    Record { session: session.map(SessionId::new), key: key.map(Into::into), ..record(text) }
}

fn lsns(page: &[Stored]) -> Vec<u64> {
    page.iter().map(|stored| stored.lsn.0).collect()
}

async fn scope(log: &impl Log, scope: Scope<'_>, after: u64, limit: usize) -> Vec<Stored> {
    log.read_scope(ZERO, scope, Lsn(after), limit).await.expect("the log can be read")
}

/// A scope gives its records and no others, in order and in pages, also after reopening and after a redaction.
pub async fn a_scope_holds_its_records_in_order(subject: &impl Subject) {
    let log = subject.open().await;
    let (a, b) = (SessionId::new("a"), SessionId::new("b"));
    let sent = [
        of(Some("a"), Some("g1"), "content 1"),
        of(Some("b"), None, "2"),
        of(Some("a"), Some("g2"), "3"),
        of(None, Some("g1"), "content 4"),
        of(Some("b"), Some("g1"), "5"),
        of(Some("a"), Some(""), "6"),
        of(Some("a"), Some("G1"), "7"),
    ];
    for (index, record) in sent.into_iter().enumerate() {
        append_as_owner(&log, Lsn(index as u64), Batch(vec![record])).await.expect("the append is in order");
    }
    log.close().await;
    let mut log = subject.open().await;
    for round in ["reopened", "redacted"] {
        let whole = all(&log).await;
        for (case, of, after, limit, want) in [
            ("a session", Scope::Session(&a), 0, 9, vec![1, 3, 6, 7]),
            ("a key", Scope::Key("g1"), 0, 9, vec![1, 4, 5]),
            ("an empty key", Scope::Key(""), 0, 9, vec![6]),
            ("behind one of it", Scope::Session(&a), 3, 9, vec![6, 7]),
            ("behind one of another", Scope::Key("g1"), 2, 9, vec![4, 5]),
            ("behind one of the key", Scope::Key("g1"), 4, 9, vec![5]),
            ("a page", Scope::Session(&a), 1, 2, vec![3, 6]),
            ("no more than asked for", Scope::Key("g1"), 0, 0, vec![]),
            ("behind its last", Scope::Session(&b), 5, 9, vec![]),
            ("behind all", Scope::Key("g1"), u64::MAX, 9, vec![]),
            ("an unknown session", Scope::Session(&SessionId::new("g1")), 0, 9, vec![]),
            ("an unknown key", Scope::Key("a"), 0, 9, vec![]),
        ] {
            let page = scope(&log, of, after, limit).await;
            assert_eq!(lsns(&page), want, "{round}: {case}");
            assert!(page.iter().all(|stored| whole.contains(stored)), "{round}: {case}");
        }
        if round == "reopened" {
            assert_eq!(log.redact(ZERO, &[Lsn(1), Lsn(4)]).await.expect("writable"), 2);
            log.close().await;
            log = subject.open().await;
        }
    }
}

/// Two logs that differ in keys only have the same chain.
pub async fn a_key_is_no_part_of_the_chain(subject: &impl Subject) {
    let log = subject.open().await;
    append(&log, 0, &["one"]).await;
    append_as_owner(&log, Lsn(1), Batch(vec![of(None, Some("key"), "two")])).await.expect("the append is in order");
    let stored = all(&log).await;
    let without = Stored { key: None, ..stored[1].clone() };
    assert_eq!(stored[1].key.as_deref(), Some("key"));
    let chain = crate::chain::chain(&stored[0].chain, &crate::chain::Link::of_stored(&without));
    assert_eq!(chain, stored[1].chain);
    assert_eq!(log.verify(ZERO, Some(head(&log).await)).await.expect("readable").flaw, None);
}
