//! The behaviour that every log has to show: one rule a function, each on a log of its own.
//!
//! It must not know how a log is kept: a [`LogFixture`] makes logs, opens them again and damages them.
//! [`behaviour_suite!`](crate::behaviour_suite) turns all rules into tests.

mod append;
mod damage;
mod scope;
mod view;

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use countersign_core::{
    digest::Digest,
    id::{Lsn, SessionId},
    time::Millis,
};

use crate::{
    chain::{self, ChainLink},
    error::{AppendError, LogReadError, LogWriteError},
    log::Log,
    record::{
        Batch, Epoch, FACTS_LIMIT, FactsPage, LogHead, LogRecord, Partition, ReadScope, RecordFacts, Snapshot,
        StoredContent, StoredRecord,
    },
    view::LogView,
};

pub use self::{append::*, damage::*, scope::*, view::*};

/// A place for one log, which the rules open, close, damage and open again.
pub trait LogFixture: Send + Sync {
    /// The kind of log that is tried.
    type Log: Log;

    /// Opens the log with these views, or makes an empty one the first time. The one opened before was closed.
    fn open_with(&self, views: Vec<Arc<dyn LogView>>) -> impl Future<Output = Self::Log> + Send;

    /// Opens the log without views.
    fn open(&self) -> impl Future<Output = Self::Log> + Send {
        self.open_with(Vec::new())
    }

    /// Damages the log without its knowledge, while it is closed.
    fn inflict_damage(&self, damage: LogDamage) -> impl Future<Output = ()> + Send;
}

/// Damage that a process with access to the storage does to a log.
#[derive(Clone, Debug)]
pub enum LogDamage {
    /// Changes the facts of a record.
    Facts(Lsn),
    /// Changes when a record was decided.
    At(Lsn),
    /// Changes the content of a record.
    Content(Lsn),
    /// Removes the content of a record without a mark.
    LoseContent(Lsn),
    /// Removes a record.
    Remove(Lsn),
    /// Removes every record after this one.
    CutBehind(Lsn),
}

const ZERO: Partition = Partition::ZERO;

/// Makes a record for `text`, different from that of any other. It has content if `text` begins with `content`.
pub fn text_record(text: &str) -> LogRecord {
    LogRecord {
        at: Millis(1_700_000_000_000),
        session: Some(SessionId::new("s1")),
        key: None,
        kind: Cow::Borrowed("suite.said"),
        version: 1,
        facts: format!("{{\"text\":\"{text}\"}}").into(),
        content: text.starts_with("content").then(|| Arc::from(text)),
    }
}

/// A batch with one [`text_record`] a text.
pub fn text_batch(texts: &[&str]) -> Batch {
    Batch(texts.iter().map(|text| text_record(text)).collect())
}

/// Takes a log over and appends a batch, as an owner does that opens it for this one batch.
///
/// # Errors
/// As [`Log::append`], and what taking it over failed with in the same terms.
pub async fn append_as_owner<L: Log>(log: &L, expected: Lsn, batch: Batch) -> Result<Lsn, AppendError> {
    let epoch = log.take_over(ZERO).await.map_err(|error| match error {
        LogWriteError::Full => AppendError::Full,
        LogWriteError::Io(cause) | LogWriteError::Lingers(cause) => AppendError::Io(cause),
        LogWriteError::Open(error) => AppendError::Open(error),
        LogWriteError::ReadOnly => AppendError::ReadOnly,
        LogWriteError::Closed => AppendError::Closed,
        LogWriteError::NoPartition(partition) => AppendError::NoPartition(partition),
    })?;
    log.append(ZERO, epoch, expected, batch).await
}

async fn take_over(log: &impl Log) -> Epoch {
    log.take_over(ZERO).await.expect("the log can be taken over")
}

async fn append_texts(log: &impl Log, expected: u64, texts: &[&str]) -> Lsn {
    append_as_owner(log, Lsn(expected), text_batch(texts)).await.expect("the append is in order")
}

async fn all_records(log: &impl Log) -> Vec<StoredRecord> {
    log.read_records(ZERO, Lsn(0), usize::MAX).await.expect("the log can be read")
}

async fn log_head(log: &impl Log) -> LogHead {
    log.head(ZERO).await.expect("the log can be read")
}

fn record_facts(page: &[StoredRecord]) -> Vec<(u64, &str)> {
    page.iter().map(|stored| (stored.lsn.0, &*stored.facts)).collect()
}

/// A new log has no records, no contents and no snapshot, and is sound.
pub async fn a_new_log_is_empty(subject: &impl LogFixture) {
    let log = subject.open().await;
    assert_eq!(log_head(&log).await, LogHead::EMPTY);
    assert_eq!(all_records(&log).await, []);
    assert_eq!(log.read_contents(ZERO, &[Lsn(1)]).await.expect("readable"), [None]);
    assert_eq!(log.load_snapshot(ZERO, 1).await.expect("readable"), None);
    assert_eq!(log.redact_contents(ZERO, &[Lsn(1)]).await.expect("nothing to do"), 0);
    let report = log.verify_chain(ZERO, Some(LogHead::EMPTY)).await.expect("readable");
    assert_eq!((report.head, report.records, report.flaw), (LogHead::EMPTY, 0, None));
}

/// Records come back in the order in which they were appended, field by field, chained as documented.
pub async fn records_come_back_as_they_were_appended(subject: &impl LogFixture) {
    let log = subject.open().await;
    let bare = LogRecord {
        at: Millis(5),
        session: None,
        key: Some("".into()),
        kind: Cow::Borrowed("ä"),
        version: u16::MAX,
        facts: "{\"nul\":\"\\u0000\"}".into(),
        content: None,
    };
    let sent = [
        text_record("one"),
        text_record("content two"),
        bare,
        LogRecord { content: Some("".into()), ..text_record("four") },
    ];
    let last = append_as_owner(&log, Lsn(0), Batch(sent.to_vec())).await.expect("the append is in order");
    assert_eq!(last, Lsn(4));

    let mut previous = chain::GENESIS;
    let stored = all_records(&log).await;
    assert_eq!(stored.len(), sent.len());
    for (index, (sent, stored)) in sent.iter().zip(&stored).enumerate() {
        assert_eq!(stored.lsn, Lsn(index as u64 + 1));
        assert_eq!(stored.content_digest.is_some(), sent.content.is_some());
        assert_eq!(
            stored.chain,
            chain::chain_digest(&previous, &ChainLink::of_record(sent, stored.lsn, stored.content_digest))
        );
        assert_eq!(stored.key, sent.key);
        previous = stored.chain;
    }
    assert_eq!(log_head(&log).await, LogHead { lsn: last, chain: previous });
}

/// An append is refused unless it expects the head, and then nothing of it is there.
pub async fn only_the_expected_position_is_written_to(subject: &impl LogFixture) {
    let log = subject.open().await;
    append_texts(&log, 0, &["one", "two"]).await;
    for expected in [0, 1, 3, 99] {
        match append_as_owner(&log, Lsn(expected), text_batch(&["late"])).await {
            Err(AppendError::Position { expected: reported, found: Lsn(2) }) => assert_eq!(reported, Lsn(expected)),
            other => panic!("expected {expected}: {other:?}"),
        }
    }
    assert_eq!(append_texts(&log, 2, &["three"]).await, Lsn(3));
    assert_eq!(record_facts(&all_records(&log).await).len(), 3);
}

/// A batch with one record too large is refused whole; the limit itself is allowed.
pub async fn a_batch_is_written_whole_or_not_at_all(subject: &impl LogFixture) {
    let log = subject.open().await;
    let large = |size| LogRecord { facts: "1".repeat(size).into(), ..text_record("large") };
    let refused = Batch(vec![text_record("one"), large(FACTS_LIMIT + 1), text_record("three")]);
    match append_as_owner(&log, Lsn(0), refused).await {
        Err(AppendError::TooLarge { index: 1, size }) => assert_eq!(size, FACTS_LIMIT + 1),
        other => panic!("{other:?}"),
    }
    assert_eq!(log_head(&log).await, LogHead::EMPTY);
    let last = append_as_owner(&log, Lsn(0), Batch(vec![text_record("one"), large(FACTS_LIMIT)])).await;
    assert_eq!(last.expect("the append is in order"), Lsn(2));
}

/// An empty batch writes nothing, and is refused like any other.
pub async fn an_empty_batch_only_checks_the_position(subject: &impl LogFixture) {
    let log = subject.open().await;
    append_texts(&log, 0, &["one"]).await;
    assert_eq!(append_texts(&log, 1, &[]).await, Lsn(1));
    let epoch = take_over(&log).await;
    let elsewhere = log.append(ZERO, epoch, Lsn(0), Batch::default()).await;
    assert!(matches!(elsewhere, Err(AppendError::Position { .. })), "{elsewhere:?}");
    take_over(&log).await;
    let fenced = log.append(ZERO, epoch, Lsn(1), Batch::default()).await;
    assert!(matches!(fenced, Err(AppendError::Fenced { .. })), "{fenced:?}");
    assert_eq!(log_head(&log).await.lsn, Lsn(1));
}

/// Of many who append after the same position at once, exactly one is recorded.
pub async fn one_of_many_writers_wins(subject: &impl LogFixture) {
    let log = subject.open().await;
    append_texts(&log, 0, &["start"]).await;
    let epoch = take_over(&log).await;
    let rivals = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let [a, b, c, d, e, f, g, h] = rivals.map(|rival| log.append(ZERO, epoch, Lsn(1), text_batch(&[rival])));
    let results = tokio::join!(a, b, c, d, e, f, g, h);
    let results = [results.0, results.1, results.2, results.3, results.4, results.5, results.6, results.7];
    let won: Vec<_> =
        rivals.iter().zip(&results).filter(|(_, result)| result.is_ok()).map(|(rival, _)| *rival).collect();
    assert_eq!(won.len(), 1, "{results:?}");
    assert_eq!(*all_records(&log).await[1].facts, *text_record(won[0]).facts);
}

/// Appends that are queued one after the other are all recorded, in their order.
pub async fn queued_appends_keep_their_order(subject: &impl LogFixture) {
    let log = subject.open().await;
    let epoch = take_over(&log).await;
    let queued = ["a", "b", "c", "d"];
    let [a, b, c, d] = [0, 1, 2, 3].map(|at| log.append(ZERO, epoch, Lsn(at), text_batch(&[queued[at as usize]])));
    let results = tokio::join!(a, b, c, d);
    let results =
        [results.0, results.1, results.2, results.3].map(|result| result.expect("each follows the one before"));
    assert_eq!(results, [Lsn(1), Lsn(2), Lsn(3), Lsn(4)]);
    let want: Vec<_> = queued.iter().map(|text| text_record(text).facts).collect();
    assert_eq!(all_records(&log).await.into_iter().map(|stored| stored.facts).collect::<Vec<_>>(), want);
}

/// Pages join without gap or repetition, and a short one is the last.
pub async fn pages_join_without_a_gap(subject: &impl LogFixture) {
    let log = subject.open().await;
    append_texts(&log, 0, &["1", "2", "3", "4", "5"]).await;
    let whole = all_records(&log).await;
    let mut joined = Vec::new();
    loop {
        let after = joined.last().map_or(Lsn(0), |stored: &StoredRecord| stored.lsn);
        let page = log.read_records(ZERO, after, 2).await.expect("readable");
        let short = page.len() < 2;
        joined.extend(page);
        if short {
            break;
        }
    }
    assert_eq!(joined, whole);
    assert_eq!(log.read_records(ZERO, Lsn(5), 2).await.expect("readable"), []);
    let facts = |record: RecordFacts<'_>| {
        (record.lsn, record.at, record.session, record.kind.to_owned(), record.version, record.facts.to_owned())
    };
    for (after, limit) in [(0, 9), (0, 2), (3, 2), (4, 2), (5, 2), (u64::MAX, 2), (0, 0)] {
        let records = log.read_records(ZERO, Lsn(after), limit).await.expect("readable");
        let read = log.read_facts(ZERO, Lsn(after), limit, facts).await.expect("readable");
        let last = records.last().map_or(Lsn(after), |record| record.lsn);
        let converted = records.iter().map(|record| facts(RecordFacts::of_stored(record))).collect();
        assert_eq!(read, FactsPage { converted, last }, "{limit} after {after}");
    }
    assert_eq!(log.read_records(ZERO, Lsn(u64::MAX), 2).await.expect("readable"), []);
    assert_eq!(log.read_records(ZERO, Lsn(0), 0).await.expect("readable"), []);
}

/// Contents come back in the order of the positions, and a record without content says so.
pub async fn contents_come_back_in_the_order_asked_for(subject: &impl LogFixture) {
    let log = subject.open().await;
    append_texts(&log, 0, &["content ä", "none", "content c"]).await;
    let text = |text: &str| Some(StoredContent::Text(text.into()));
    let requested = [Lsn(3), Lsn(2), Lsn(1), Lsn(3), Lsn(99), Lsn(0)];
    let got = log.read_contents(ZERO, &requested).await.expect("readable");
    assert_eq!(got, [text("content c"), None, text("content ä"), text("content c"), None, None]);
}

/// A redaction removes the content permanently and leaves records, digests and chain as they were.
pub async fn a_redaction_keeps_the_record_and_its_digest(subject: &impl LogFixture) {
    let log = subject.open().await;
    append_texts(&log, 0, &["content a", "none", "content c"]).await;
    let before = all_records(&log).await;
    assert_eq!(log.redact_contents(ZERO, &[Lsn(1), Lsn(2), Lsn(99)]).await.expect("writable"), 1);
    assert_eq!(log.redact_contents(ZERO, &[Lsn(1)]).await.expect("writable"), 0);
    log.close().await;

    let log = subject.open().await;
    assert_eq!(all_records(&log).await, before);
    let got = log.read_contents(ZERO, &[Lsn(1), Lsn(3)]).await.expect("readable");
    assert_eq!(got, [Some(StoredContent::Redacted), Some(StoredContent::Text("content c".into()))]);
    let report = log.verify_chain(ZERO, Some(log_head(&log).await)).await.expect("readable");
    assert_eq!((report.records, report.redacted, report.flaw), (3, 1, None));
    assert_eq!(append_texts(&log, 3, &["four"]).await, Lsn(4));
}

/// Every acknowledged record is there after the log is closed and opened again.
pub async fn everything_is_there_after_reopening(subject: &impl LogFixture) {
    let log = subject.open().await;
    append_texts(&log, 0, &["one", "content two"]).await;
    let before = (log_head(&log).await, all_records(&log).await);
    log.close().await;

    let log = subject.open().await;
    assert_eq!((log_head(&log).await, all_records(&log).await), before);
    assert_eq!(append_texts(&log, 2, &["three"]).await, Lsn(3));
}

/// A closed log says so to every call.
pub async fn a_closed_log_says_so(subject: &impl LogFixture) {
    let log = subject.open_with(vec![TextView::new(1)]).await;
    append_texts(&log, 0, &["one"]).await;
    log.close().await;
    log.close().await;
    let result = log.append(ZERO, Epoch(1), Lsn(1), text_batch(&["late"])).await;
    assert!(matches!(result, Err(AppendError::Closed)), "{result:?}");
    let result = log.take_over(ZERO).await;
    assert!(matches!(result, Err(LogWriteError::Closed)), "{result:?}");
    let result = log.current_epoch(ZERO).await;
    assert!(matches!(result, Err(LogReadError::Closed)), "{result:?}");
    let result = log.read_records(ZERO, Lsn(0), 1).await;
    assert!(matches!(result, Err(LogReadError::Closed)), "{result:?}");
    let result = log.read_scope(ZERO, ReadScope::Key("key"), Lsn(0), 1).await;
    assert!(matches!(result, Err(LogReadError::Closed)), "{result:?}");
    let result = log.read_view(ZERO, "said", "", None, 1).await;
    assert!(matches!(result, Err(LogReadError::Closed)), "{result:?}");
    let result = log.probe_write().await;
    assert!(matches!(result, Err(LogWriteError::Closed)), "{result:?}");
}

/// A partition that does not exist is refused.
pub async fn only_partition_zero_exists(subject: &impl LogFixture) {
    let log = subject.open_with(vec![TextView::new(1)]).await;
    let other = Partition(1);
    let result = log.append(other, Epoch(1), Lsn(0), text_batch(&["one"])).await;
    assert!(matches!(result, Err(AppendError::NoPartition(Partition(1)))), "{result:?}");
    let result = log.take_over(other).await;
    assert!(matches!(result, Err(LogWriteError::NoPartition(Partition(1)))), "{result:?}");
    let result = log.current_epoch(other).await;
    assert!(matches!(result, Err(LogReadError::NoPartition(Partition(1)))), "{result:?}");
    let result = log.head(other).await;
    assert!(matches!(result, Err(LogReadError::NoPartition(Partition(1)))), "{result:?}");
    let result = log.read_scope(other, ReadScope::Key("key"), Lsn(0), 1).await;
    assert!(matches!(result, Err(LogReadError::NoPartition(Partition(1)))), "{result:?}");
    let result = log.read_view(other, "said", "", None, 1).await;
    assert!(matches!(result, Err(LogReadError::NoPartition(Partition(1)))), "{result:?}");
    let result = log.redact_contents(other, &[]).await;
    assert!(matches!(result, Err(LogWriteError::NoPartition(Partition(1)))), "{result:?}");
}

/// A probe adds no record.
pub async fn a_probe_adds_no_record(subject: &impl LogFixture) {
    let log = subject.open().await;
    append_texts(&log, 0, &["one"]).await;
    let before = log_head(&log).await;
    log.probe_write().await.expect("writable");
    log.probe_write().await.expect("writable");
    assert_eq!(log_head(&log).await, before);
}

/// A snapshot comes back if it is of the requested version and of this history, also after reopening.
pub async fn a_snapshot_comes_back_only_if_it_fits(subject: &impl LogFixture) {
    let log = subject.open().await;
    let of =
        |head: LogHead| Snapshot { lsn: head.lsn, chain: head.chain, version: 3, bytes: Bytes::from_static(b"state") };
    log.save_snapshot(ZERO, of(LogHead::EMPTY)).await.expect("nothing to do");
    append_texts(&log, 0, &["one", "two"]).await;
    let good = of(log_head(&log).await);
    append_texts(&log, 2, &["three"]).await;

    log.save_snapshot(ZERO, good.clone()).await.expect("writable");
    assert_eq!(log.load_snapshot(ZERO, 3).await.expect("readable"), Some(good.clone()));
    assert_eq!(log.load_snapshot(ZERO, 2).await.expect("readable"), None, "version");
    log.close().await;
    let log = subject.open().await;
    assert_eq!(log.load_snapshot(ZERO, 3).await.expect("readable"), Some(good.clone()));

    for (case, snapshot) in [
        ("other history", Snapshot { chain: Digest::hash_bytes(b"other"), ..good.clone() }),
        ("beyond the head", Snapshot { lsn: Lsn(4), ..good.clone() }),
        ("before the first", of(LogHead::EMPTY)),
    ] {
        log.save_snapshot(ZERO, snapshot).await.expect("writable");
        assert_eq!(log.load_snapshot(ZERO, 3).await.expect("readable"), None, "{case}");
    }
    let newer = of(log_head(&log).await);
    log.save_snapshot(ZERO, newer.clone()).await.expect("writable");
    assert_eq!(log.load_snapshot(ZERO, 3).await.expect("readable"), Some(newer), "the last one counts");
}

/// Turns every rule of the suite into a test on the subject that the expression makes.
#[macro_export]
macro_rules! behaviour_suite {
    ($subject:expr) => {
        $crate::behaviour_suite! { $subject;
            a_new_log_is_empty
            records_come_back_as_they_were_appended
            only_the_expected_position_is_written_to
            a_batch_is_written_whole_or_not_at_all
            an_empty_batch_only_checks_the_position
            one_of_many_writers_wins
            queued_appends_keep_their_order
            pipelined_appends_are_answered_in_order
            an_append_that_fails_takes_those_behind_it_with_it
            what_was_submitted_is_written_though_nobody_waits
            nothing_is_appended_before_a_takeover
            a_takeover_adds_no_record
            an_owner_that_was_taken_over_is_fenced
            a_takeover_outlives_the_log_being_closed
            a_takeover_is_final_for_what_is_in_flight
            two_owners_that_take_over_in_turn_leave_one_history
            pages_join_without_a_gap
            contents_come_back_in_the_order_asked_for
            a_scope_holds_its_records_in_order
            a_key_is_no_part_of_the_chain
            a_redaction_keeps_the_record_and_its_digest
            everything_is_there_after_reopening
            a_closed_log_says_so
            only_partition_zero_exists
            a_probe_adds_no_record
            a_snapshot_comes_back_only_if_it_fits
            a_view_sees_every_write_at_once
            a_failed_append_leaves_no_trace_in_a_view
            a_view_is_there_after_reopening
            a_view_of_another_version_is_rebuilt
            a_panic_in_a_view_costs_that_view_only
            a_view_forgets_what_was_redacted
            a_view_of_a_cut_tail_is_rebuilt
            a_snapshot_of_a_cut_tail_is_not_used
            a_sound_log_is_found_sound
            a_changed_record_is_named
            a_removed_record_is_named
            changed_content_is_named_and_not_handed_out
            a_cut_tail_shows_against_a_known_head
        }
    };
    ($subject:expr; $($rule:ident)*) => {
        $(
            #[tokio::test]
            async fn $rule() {
                $crate::suite::$rule(&$subject).await;
            }
        )*
    };
}
