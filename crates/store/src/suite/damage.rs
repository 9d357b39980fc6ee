//! Reports of a log after it was damaged without its knowledge.
//!
//! It must not know how the damage is done.

use bytes::Bytes;
use countersign_core::id::Lsn;

use super::{LogDamage, LogFixture, ZERO, append_texts, log_head};
use crate::{
    error::LogReadError,
    log::Log,
    record::{LogHead, Snapshot},
    verify::Corruption,
};

/// A snapshot of a tail that was cut off is not used.
pub async fn a_snapshot_of_a_cut_tail_is_not_used(subject: &impl LogFixture) {
    let log = subject.open().await;
    append_texts(&log, 0, &["one", "two"]).await;
    let LogHead { lsn, chain } = log_head(&log).await;
    let snapshot = Snapshot { lsn, chain, version: 1, bytes: Bytes::from_static(b"state") };
    log.save_snapshot(ZERO, snapshot).await.expect("writable");
    log.close().await;
    subject.inflict_damage(LogDamage::CutBehind(Lsn(1))).await;
    assert_eq!(subject.open().await.load_snapshot(ZERO, 1).await.expect("readable"), None);
}

/// A sound log is found sound, and the report ends at its head.
pub async fn a_sound_log_is_found_sound(subject: &impl LogFixture) {
    let log = subject.open().await;
    append_texts(&log, 0, &["one", "content two"]).await;
    let seen = log_head(&log).await;
    append_texts(&log, 2, &["three"]).await;
    let report = log.verify_chain(ZERO, Some(seen)).await.expect("readable");
    assert_eq!((report.head, report.records, report.flaw), (log_head(&log).await, 3, None));
}

/// The first record that was changed is named.
pub async fn a_changed_record_is_named(subject: &impl LogFixture) {
    let log = subject.open().await;
    append_texts(&log, 0, &["one", "two", "three"]).await;
    log.close().await;
    assert_eq!(flaw_after(subject, LogDamage::Facts(Lsn(3)), None).await, Some(Corruption::Chain(Lsn(3))));
    assert_eq!(flaw_after(subject, LogDamage::At(Lsn(2)), None).await, Some(Corruption::Chain(Lsn(2))));
}

/// A record that was removed is named.
pub async fn a_removed_record_is_named(subject: &impl LogFixture) {
    let log = subject.open().await;
    append_texts(&log, 0, &["one", "two", "three"]).await;
    log.close().await;
    assert_eq!(flaw_after(subject, LogDamage::Remove(Lsn(2)), None).await, Some(Corruption::Missing(Lsn(2))));
}

/// Content that was changed or lost is named by verify and not handed out.
pub async fn changed_content_is_named_and_not_handed_out(subject: &impl LogFixture) {
    let log = subject.open().await;
    append_texts(&log, 0, &["content one", "content two"]).await;
    log.close().await;
    assert_eq!(flaw_after(subject, LogDamage::LoseContent(Lsn(2)), None).await, Some(Corruption::Content(Lsn(2))));
    assert_eq!(flaw_after(subject, LogDamage::Content(Lsn(1)), None).await, Some(Corruption::Content(Lsn(1))));
    let log = subject.open().await;
    for lsn in [Lsn(1), Lsn(2)] {
        let result = log.read_contents(ZERO, &[lsn]).await;
        assert!(matches!(result, Err(LogReadError::Content(at)) if at == lsn), "{result:?}");
    }
}

/// A tail that was cut off shows against a head that was seen before, and only then.
pub async fn a_cut_tail_shows_against_a_known_head(subject: &impl LogFixture) {
    let log = subject.open().await;
    append_texts(&log, 0, &["one", "two"]).await;
    let kept = log_head(&log).await;
    append_texts(&log, 2, &["three"]).await;
    let seen = log_head(&log).await;
    log.close().await;
    assert_eq!(flaw_after(subject, LogDamage::CutBehind(Lsn(2)), None).await, None);
    let log = subject.open().await;
    let flaw = log.verify_chain(ZERO, Some(seen)).await.expect("readable").flaw;
    assert_eq!(flaw, Some(Corruption::CutTail { expected: seen, found: kept }));

    append_texts(&log, 2, &["another three"]).await;
    let found = log_head(&log).await.chain;
    let flaw = log.verify_chain(ZERO, Some(seen)).await.expect("readable").flaw;
    assert_eq!(flaw, Some(Corruption::Rewritten { expected: seen, found }));
}

async fn flaw_after(subject: &impl LogFixture, damage: LogDamage, expected: Option<LogHead>) -> Option<Corruption> {
    subject.inflict_damage(damage).await;
    let log = subject.open().await;
    let report = log.verify_chain(ZERO, expected).await.expect("the log can be read");
    log.close().await;
    report.flaw
}
