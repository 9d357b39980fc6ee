//! Rules about owners, and about several appends in flight.

use countersign_core::id::Lsn;

use super::{
    LogFixture, ZERO, all_records, append_as_owner, append_texts, log_head, record_facts, take_over, text_batch,
    text_record,
};
use crate::{
    append::PendingAppend,
    error::AppendError,
    log::Log,
    record::{Batch, Epoch, FACTS_LIMIT, LogHead, LogRecord},
};

/// Submits batches of one record each, one after the other.
async fn submit_texts(log: &impl Log, epoch: Epoch, mut expected: u64, texts: &[&str]) -> Vec<PendingAppend> {
    let mut pending = Vec::new();
    for text in texts {
        pending.push(log.submit_batch(ZERO, epoch, Lsn(expected), text_batch(&[text])).await);
        expected += 1;
    }
    pending
}

async fn all_texts(log: &impl Log) -> Vec<String> {
    let text = |facts: &str| facts.trim_start_matches("{\"text\":\"").trim_end_matches("\"}").to_owned();
    record_facts(&all_records(log).await).into_iter().map(|(_, facts)| text(facts)).collect()
}

/// The answer, if it is there already.
async fn poll_now(pending: PendingAppend) -> Option<Result<Lsn, AppendError>> {
    tokio::select! {
        biased;
        answer = pending => Some(answer),
        () = std::future::ready(()) => None,
    }
}

/// Several appends are in flight at once; when one is acknowledged, those before it are.
pub async fn pipelined_appends_are_answered_in_order(subject: &impl LogFixture) {
    let log = subject.open().await;
    let epoch = take_over(&log).await;
    let mut pending = submit_texts(&log, epoch, 0, &["a", "content b", "c", "d", "e"]).await;
    assert_eq!(pending.pop().expect("there are five").await.expect("in order"), Lsn(5));
    for (pending, want) in pending.into_iter().zip(1..) {
        let answer = poll_now(pending).await.expect("it was submitted before one that is acknowledged");
        assert_eq!(answer.expect("in order"), Lsn(want));
    }
    assert_eq!(all_texts(&log).await, ["a", "content b", "c", "d", "e"]);
    assert_eq!(log.verify_chain(ZERO, None).await.expect("readable").flaw, None);
}

/// An append that fails leaves no gap: no append that was submitted after it is there.
pub async fn an_append_that_fails_takes_those_behind_it_with_it(subject: &impl LogFixture) {
    let log = subject.open().await;
    let epoch = take_over(&log).await;
    let large = LogRecord { facts: "1".repeat(FACTS_LIMIT + 1).into(), ..text_record("large") };
    let mut before = submit_texts(&log, epoch, 0, &["a", "b"]).await;
    let failing = log.submit_batch(ZERO, epoch, Lsn(2), Batch(vec![text_record("part"), large])).await;
    let behind = submit_texts(&log, epoch, 4, &["x", "y", "z"]).await;
    for pending in behind {
        let result = pending.await;
        assert!(matches!(result, Err(AppendError::Position { found: Lsn(2), .. })), "{result:?}");
    }
    let result = poll_now(failing).await;
    assert!(matches!(result, Some(Err(AppendError::TooLarge { index: 1, .. }))), "{result:?}");
    assert_eq!(before.pop().expect("there are two").await.expect("in order"), Lsn(2));
    assert_eq!(all_texts(&log).await, ["a", "b"]);
    assert_eq!(log.append(ZERO, epoch, Lsn(2), text_batch(&["c"])).await.expect("it goes on"), Lsn(3));
}

/// Dropping the answer withdraws nothing.
pub async fn what_was_submitted_is_written_though_nobody_waits(subject: &impl LogFixture) {
    let log = subject.open().await;
    let epoch = take_over(&log).await;
    drop(submit_texts(&log, epoch, 0, &["a", "b"]).await);
    assert_eq!(log.append(ZERO, epoch, Lsn(2), text_batch(&["c"])).await.expect("it is behind both"), Lsn(3));
    assert_eq!(all_texts(&log).await, ["a", "b", "c"]);
}

/// A writer that did not take a log over cannot append to it.
pub async fn nothing_is_appended_before_a_takeover(subject: &impl LogFixture) {
    let log = subject.open().await;
    assert_eq!(log.current_epoch(ZERO).await.expect("readable"), Epoch::NONE);
    for epoch in [Epoch::NONE, Epoch(1), Epoch(u64::MAX)] {
        let result = log.append(ZERO, epoch, Lsn(0), text_batch(&["a"])).await;
        assert!(matches!(result, Err(AppendError::Fenced { current: Epoch::NONE, .. })), "{epoch}: {result:?}");
    }
    assert_eq!(log_head(&log).await, LogHead::EMPTY);
}

/// A takeover changes nothing but the owner.
pub async fn a_takeover_adds_no_record(subject: &impl LogFixture) {
    let log = subject.open().await;
    take_over(&log).await;
    assert_eq!(log_head(&log).await, LogHead::EMPTY);
    append_texts(&log, 0, &["a"]).await;
    let before = (log_head(&log).await, all_records(&log).await);
    let epoch = take_over(&log).await;
    assert_eq!((log_head(&log).await, all_records(&log).await), before);
    assert_eq!(log.current_epoch(ZERO).await.expect("readable"), epoch);
}

/// The first of two owners writes nothing any more, at any position, and gets the epoch of the other.
pub async fn an_owner_that_was_taken_over_is_fenced(subject: &impl LogFixture) {
    let log = subject.open().await;
    let first = take_over(&log).await;
    log.append(ZERO, first, Lsn(0), text_batch(&["a"])).await.expect("in order");
    let second = take_over(&log).await;
    assert!(second > first, "{second}, {first}");
    for (expected, sent) in [(1, text_batch(&["late"])), (0, text_batch(&["late"])), (1, Batch::default())] {
        match log.append(ZERO, first, Lsn(expected), sent).await {
            Err(AppendError::Fenced { epoch, current }) => assert_eq!((epoch, current), (first, second)),
            other => panic!("{expected}: {other:?}"),
        }
    }
    assert_eq!(log.append(ZERO, second, Lsn(1), text_batch(&["b"])).await.expect("in order"), Lsn(2));
    assert_eq!(all_texts(&log).await, ["a", "b"]);
}

/// No epoch is given twice, also after the log was closed and opened again.
pub async fn a_takeover_outlives_the_log_being_closed(subject: &impl LogFixture) {
    let log = subject.open().await;
    let first = take_over(&log).await;
    log.append(ZERO, first, Lsn(0), text_batch(&["a"])).await.expect("in order");
    let second = take_over(&log).await;
    log.close().await;

    let log = subject.open().await;
    assert_eq!(log.current_epoch(ZERO).await.expect("readable"), second);
    let fenced = log.append(ZERO, first, Lsn(1), text_batch(&["late"])).await;
    assert!(matches!(fenced, Err(AppendError::Fenced { .. })), "{fenced:?}");
    assert!(take_over(&log).await > second);
}

/// After a takeover the head stays where it is, with anything in flight of its last owner; acknowledged records are there.
pub async fn a_takeover_is_final_for_what_is_in_flight(subject: &impl LogFixture) {
    let log = subject.open().await;
    let first = take_over(&log).await;
    let sent = ["a", "b", "c", "d"];
    let before = submit_texts(&log, first, 0, &sent).await;
    take_over(&log).await;
    let found = log_head(&log).await;
    let after = submit_texts(&log, first, found.lsn.0, &["late", "later"]).await;
    let mut acknowledged = Lsn(0);
    for pending in before {
        match pending.await {
            Ok(last) => acknowledged = last,
            Err(error) => {
                assert!(matches!(error, AppendError::Fenced { .. } | AppendError::Position { .. }), "{error:?}")
            }
        }
    }
    assert_eq!(acknowledged, found.lsn);
    for pending in after {
        let result = pending.await;
        assert!(matches!(result, Err(AppendError::Fenced { .. })), "{result:?}");
    }
    assert_eq!(log_head(&log).await, found);
    assert_eq!(all_texts(&log).await, sent[..usize::try_from(found.lsn.0).expect("a few")]);
}

/// Two who take a log over from each other write one history: each builds on all that is there, and no append of a writer
/// that is not the owner gets in between.
pub async fn two_owners_that_take_over_in_turn_leave_one_history(subject: &impl LogFixture) {
    let log = subject.open().await;
    let mut stale = take_over(&log).await;
    let mut want = Vec::new();
    for turn in 0..6 {
        let owner = take_over(&log).await;
        let found = log_head(&log).await.lsn;
        let text = format!("turn {turn}");
        let (late, ours) = (
            log.submit_batch(ZERO, stale, found, text_batch(&["late"])).await,
            log.submit_batch(ZERO, owner, found, text_batch(&[&text])).await,
        );
        assert_eq!(ours.await.expect("it owns the log"), found.next());
        let result = late.await;
        assert!(matches!(result, Err(AppendError::Fenced { .. })), "{result:?}");
        want.push(text);
        stale = owner;
    }
    assert_eq!(all_texts(&log).await, want);
    assert_eq!(append_as_owner(&log, Lsn(6), text_batch(&["last"])).await.expect("in order"), Lsn(7));
}
