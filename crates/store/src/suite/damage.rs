//! What a log has to say after somebody damaged it behind its back.
//!
//! It must not know how the damage is done.

use bytes::Bytes;
use countersign_core::id::Lsn;

use super::{Damage, Subject, ZERO, append_texts, head};
use crate::{
    error::ReadError,
    log::Log,
    record::{Head, Snapshot},
    verify::Flaw,
};

/// A snapshot of a tail that was cut off is not used.
pub async fn a_snapshot_of_a_cut_tail_is_not_used(subject: &impl Subject) {
    let log = subject.open().await;
    append(&log, 0, &["one", "two"]).await;
    let Head { lsn, chain } = head(&log).await;
    let snapshot = Snapshot { lsn, chain, version: 1, bytes: Bytes::from_static(b"state") };
    log.save_snapshot(ZERO, snapshot).await.expect("writable");
    log.close().await;
    subject.damage(Damage::CutBehind(Lsn(1))).await;
    assert_eq!(subject.open().await.load_snapshot(ZERO, 1).await.expect("readable"), None);
}

/// A sound log is found sound, and the report ends at its head.
pub async fn a_sound_log_is_found_sound(subject: &impl Subject) {
    let log = subject.open().await;
    append(&log, 0, &["one", "content two"]).await;
    let seen = head(&log).await;
    append(&log, 2, &["three"]).await;
    let report = log.verify(ZERO, Some(seen)).await.expect("readable");
    assert_eq!((report.head, report.records, report.flaw), (head(&log).await, 3, None));
}

/// The first record that was changed is named.
pub async fn a_changed_record_is_named(subject: &impl Subject) {
    let log = subject.open().await;
    append(&log, 0, &["one", "two", "three"]).await;
    log.close().await;
    assert_eq!(flaw_after(subject, Damage::Facts(Lsn(3)), None).await, Some(Flaw::Chain(Lsn(3))));
    assert_eq!(flaw_after(subject, Damage::At(Lsn(2)), None).await, Some(Flaw::Chain(Lsn(2))));
}

/// A record that was removed is named.
pub async fn a_removed_record_is_named(subject: &impl Subject) {
    let log = subject.open().await;
    append(&log, 0, &["one", "two", "three"]).await;
    log.close().await;
    assert_eq!(flaw_after(subject, Damage::Remove(Lsn(2)), None).await, Some(Flaw::Missing(Lsn(2))));
}

/// Content that was changed or lost is named by verify and not handed out.
pub async fn changed_content_is_named_and_not_handed_out(subject: &impl Subject) {
    let log = subject.open().await;
    append(&log, 0, &["content one", "content two"]).await;
    log.close().await;
    assert_eq!(flaw_after(subject, Damage::LoseContent(Lsn(2)), None).await, Some(Flaw::Content(Lsn(2))));
    assert_eq!(flaw_after(subject, Damage::Content(Lsn(1)), None).await, Some(Flaw::Content(Lsn(1))));
    let log = subject.open().await;
    for lsn in [Lsn(1), Lsn(2)] {
        let told = log.contents(ZERO, &[lsn]).await;
        assert!(matches!(told, Err(ReadError::Content(at)) if at == lsn), "{told:?}");
    }
}

/// A tail that was cut off shows against a head that was seen before, and only then.
pub async fn a_cut_tail_shows_against_a_known_head(subject: &impl Subject) {
    let log = subject.open().await;
    append(&log, 0, &["one", "two"]).await;
    let kept = head(&log).await;
    append(&log, 2, &["three"]).await;
    let seen = head(&log).await;
    log.close().await;
    assert_eq!(flaw_after(subject, Damage::CutBehind(Lsn(2)), None).await, None);
    let log = subject.open().await;
    let flaw = log.verify(ZERO, Some(seen)).await.expect("readable").flaw;
    assert_eq!(flaw, Some(Flaw::CutTail { expected: seen, found: kept }));

    append(&log, 2, &["another three"]).await;
    let found = head(&log).await.chain;
    let flaw = log.verify(ZERO, Some(seen)).await.expect("readable").flaw;
    assert_eq!(flaw, Some(Flaw::Rewritten { expected: seen, found }));
}

async fn flaw_after(subject: &impl Subject, damage: Damage, expected: Option<Head>) -> Option<Flaw> {
    subject.damage(damage).await;
    let log = subject.open().await;
    let report = log.verify(ZERO, expected).await.expect("the log can be read");
    log.close().await;
    report.flaw
}
