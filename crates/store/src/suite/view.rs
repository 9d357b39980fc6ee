//! Reads of the views of a log.
//!
//! It must not know where their rows are kept.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use countersign_core::id::Lsn;

use super::{LogDamage, LogFixture, ZERO, append_as_owner, append_texts, text_batch, text_record};
use crate::{
    error::{AppendError, LogReadError},
    log::Log,
    record::{Batch, FACTS_LIMIT, LogRecord, StoredRecord},
    view::{LogView, ViewRows},
};

/// A view that uses all that a view may: it keeps texts under `said/` and its position, and counts under
/// `count`. Facts that have the word make it `forget` its texts, or `panic` after its first change.
#[derive(Debug)]
pub struct TextView {
    /// Its name.
    pub name: &'static str,
    /// Its version, which comes before the texts.
    pub version: u32,
    /// True if it reads contents.
    pub contents: bool,
    /// True if it panics when a fact says so.
    pub panics: bool,
    /// Number of records that it got.
    pub shown: AtomicUsize,
}

impl TextView {
    /// Makes the view `said` in this version, with contents.
    pub fn new(version: u32) -> Arc<Self> {
        Arc::new(Self { name: "said", version, contents: true, panics: true, shown: AtomicUsize::new(0) })
    }

    /// The same, mended: it does not panic.
    pub fn without_panics(version: u32) -> Arc<Self> {
        Arc::new(Self { name: "said", version, contents: true, panics: false, shown: AtomicUsize::new(0) })
    }

    /// The view `facts`, without contents.
    pub fn of_facts() -> Arc<Self> {
        Arc::new(Self { name: "facts", version: 1, contents: false, panics: false, shown: AtomicUsize::new(0) })
    }

    /// Returns the number of records that it got.
    pub fn shown_count(&self) -> usize {
        self.shown.load(Ordering::Relaxed)
    }
}

impl LogView for TextView {
    fn name(&self) -> &'static str {
        self.name
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn reads_contents(&self) -> bool {
        self.contents
    }

    fn fold_record(&self, record: &StoredRecord, content: Option<&str>, rows: &mut dyn ViewRows) {
        self.shown.fetch_add(1, Ordering::Relaxed);
        let count = rows.get("count").map_or(0, |count| String::from_utf8_lossy(&count).parse().unwrap_or(0));
        rows.put_row("count", (count + 1).to_string().as_bytes());
        assert!(!self.panics || !record.facts.contains("panic"), "asked to panic");
        if record.facts.contains("forget") {
            for (key, _) in rows.scan_prefix("said/") {
                rows.delete_row(&key);
            }
        }
        let text = content.unwrap_or(if self.contents { "-" } else { "fact" });
        rows.put_row(&format!("said/{:05}", record.lsn.0), format!("v{} {text}", self.version).as_bytes());
        rows.put_row("the last", &record.lsn.0.to_be_bytes());
    }
}

async fn view_texts(log: &impl Log, name: &str) -> Vec<String> {
    let rows = log.read_view(ZERO, name, "said/", None, usize::MAX).await.expect("the view is in step");
    rows.into_iter().map(|(key, value)| format!("{} {}", &key[5..], String::from_utf8_lossy(&value))).collect()
}

async fn row_count(log: &impl Log, name: &str) -> Option<Bytes> {
    let rows = log.read_view(ZERO, name, "count", None, 9).await.expect("the view is in step");
    rows.into_iter().next().map(|(_, value)| value)
}

/// A view has every record that was acknowledged, and is read by prefix and in pages.
pub async fn a_view_sees_every_write_at_once(subject: &impl LogFixture) {
    let log = subject.open_with(vec![TextView::new(1), TextView::of_facts()]).await;
    assert_eq!(log.read_view(ZERO, "said", "", None, 9).await.expect("empty"), []);
    append_texts(&log, 0, &["content a", "b"]).await;
    assert_eq!(view_texts(&log, "said").await, ["00001 v1 content a", "00002 v1 -"]);
    append_texts(&log, 2, &["content c"]).await;
    assert_eq!(view_texts(&log, "said").await, ["00001 v1 content a", "00002 v1 -", "00003 v1 content c"]);
    assert_eq!(view_texts(&log, "facts").await, ["00001 v1 fact", "00002 v1 fact", "00003 v1 fact"]);

    for (case, prefix, after, limit, want) in [
        ("all", "", None, 9, &["count", "said/00001", "said/00002", "said/00003", "the last"][..]),
        ("a prefix", "said/", None, 9, &["said/00001", "said/00002", "said/00003"]),
        ("a page", "said/", None, 2, &["said/00001", "said/00002"]),
        ("the next page", "said/", Some("said/00002"), 2, &["said/00003"]),
        ("behind what is not there", "said/", Some("said/00001x"), 2, &["said/00002", "said/00003"]),
        ("behind what lies before the prefix", "said/", Some("count"), 9, &["said/00001", "said/00002", "said/00003"]),
        ("behind all with the prefix", "said/", Some("the"), 9, &[]),
        ("no such prefix", "sb", None, 9, &[]),
        ("none", "", None, 0, &[]),
    ] {
        let rows = log.read_view(ZERO, "said", prefix, after, limit).await.expect("the view is in step");
        assert_eq!(rows.iter().map(|(key, _)| &**key).collect::<Vec<_>>(), want, "{case}");
    }
    append_texts(&log, 3, &["content forget"]).await;
    assert_eq!(view_texts(&log, "said").await, ["00004 v1 content forget"]);
    assert_eq!(row_count(&log, "said").await, Some(Bytes::from_static(b"4")));
}

/// An append that was refused is in no view.
pub async fn a_failed_append_leaves_no_trace_in_a_view(subject: &impl LogFixture) {
    let log = subject.open_with(vec![TextView::new(1)]).await;
    append_texts(&log, 0, &["content a"]).await;
    let elsewhere = append_as_owner(&log, Lsn(0), text_batch(&["content late"])).await;
    assert!(matches!(elsewhere, Err(AppendError::Position { .. })), "{elsewhere:?}");
    let large = LogRecord { facts: "1".repeat(FACTS_LIMIT + 1).into(), ..text_record("large") };
    let refused = append_as_owner(&log, Lsn(1), Batch(vec![text_record("content b"), large])).await;
    assert!(matches!(refused, Err(AppendError::TooLarge { .. })), "{refused:?}");
    assert_eq!(view_texts(&log, "said").await, ["00001 v1 content a"]);
    append_texts(&log, 1, &["content c"]).await;
    assert_eq!(view_texts(&log, "said").await, ["00001 v1 content a", "00002 v1 content c"]);
}

/// A view is kept when the log is closed, and not folded again.
pub async fn a_view_is_there_after_reopening(subject: &impl LogFixture) {
    let log = subject.open_with(vec![TextView::new(1)]).await;
    append_texts(&log, 0, &["content a", "b"]).await;
    log.close().await;
    let again = TextView::new(1);
    let log = subject.open_with(vec![again.clone()]).await;
    assert_eq!(view_texts(&log, "said").await, ["00001 v1 content a", "00002 v1 -"]);
    assert_eq!(again.shown_count(), 0);
    append_texts(&log, 2, &["content c"]).await;
    assert_eq!((view_texts(&log, "said").await.len(), again.shown_count()), (3, 1));
}

/// A view that is new, or of another version, is folded from all records; one that is not registered is dropped.
pub async fn a_view_of_another_version_is_rebuilt(subject: &impl LogFixture) {
    let log = subject.open().await;
    append_texts(&log, 0, &["content a", "b"]).await;
    let result = log.read_view(ZERO, "said", "", None, 9).await;
    assert!(matches!(&result, Err(LogReadError::NoView(name)) if name == "said"), "{result:?}");
    log.close().await;

    for version in [1, 2, 1] {
        let view = TextView::new(version);
        let log = subject.open_with(vec![view.clone()]).await;
        let want = [format!("00001 v{version} content a"), format!("00002 v{version} -")];
        assert_eq!(view_texts(&log, "said").await, want);
        assert_eq!(row_count(&log, "said").await, Some(Bytes::from_static(b"2")));
        assert_eq!(view.shown_count(), 2);
        log.close().await;
    }
    subject.open_with(vec![TextView::of_facts()]).await.close().await;
    let view = TextView::new(1);
    let log = subject.open_with(vec![view.clone()]).await;
    assert_eq!((view_texts(&log, "said").await.len(), view.shown_count()), (2, 2));
}

/// A view that panics is out of use until the log is opened again. The append and the other views know nothing of it.
pub async fn a_panic_in_a_view_costs_that_view_only(subject: &impl LogFixture) {
    let log = subject.open_with(vec![TextView::new(1), TextView::of_facts()]).await;
    append_texts(&log, 0, &["content a"]).await;
    assert_eq!(append_texts(&log, 1, &["b", "panic"]).await, Lsn(3));
    assert_eq!(append_texts(&log, 3, &["content d"]).await, Lsn(4));
    let broken = async |log: &_| {
        let result = Log::read_view(log, ZERO, "said", "", None, 9).await;
        assert!(matches!(&result, Err(LogReadError::BrokenView(name)) if name == "said"), "{result:?}");
        assert_eq!(view_texts(log, "facts").await.len(), 4);
    };
    broken(&log).await;
    log.close().await;
    for case in ["behind an append", "behind a rebuild"] {
        let log = subject.open_with(vec![TextView::without_panics(1), TextView::of_facts()]).await;
        let want = ["00001 v1 content a", "00002 v1 -", "00003 v1 -", "00004 v1 content d"];
        assert_eq!(view_texts(&log, "said").await, want, "{case}");
        assert_eq!(row_count(&log, "said").await, Some(Bytes::from_static(b"4")), "{case}");
        log.close().await;
        subject.open_with(vec![TextView::of_facts()]).await.close().await;
        let log = subject.open_with(vec![TextView::new(1), TextView::of_facts()]).await;
        broken(&log).await;
        log.close().await;
    }
}

/// Redacted text is in no view any more.
pub async fn a_view_forgets_what_was_redacted(subject: &impl LogFixture) {
    let (view, facts) = (TextView::new(1), TextView::of_facts());
    let log = subject.open_with(vec![view.clone(), facts.clone()]).await;
    append_texts(&log, 0, &["content a", "content b"]).await;
    assert_eq!(log.redact_contents(ZERO, &[Lsn(1)]).await.expect("writable"), 1);
    assert_eq!(view_texts(&log, "said").await, ["00001 v1 -", "00002 v1 content b"]);
    assert_eq!(row_count(&log, "said").await, Some(Bytes::from_static(b"2")));
    assert_eq!(log.redact_contents(ZERO, &[Lsn(1)]).await.expect("writable"), 0);
    assert_eq!((view.shown_count(), facts.shown_count()), (4, 2), "folded anew once, and only with contents");
    append_texts(&log, 2, &["content c"]).await;
    assert_eq!(view_texts(&log, "said").await, ["00001 v1 -", "00002 v1 content b", "00003 v1 content c"]);
}

/// A view of records that are gone is folded again.
pub async fn a_view_of_a_cut_tail_is_rebuilt(subject: &impl LogFixture) {
    let log = subject.open_with(vec![TextView::new(1)]).await;
    append_texts(&log, 0, &["content a", "b"]).await;
    log.close().await;
    subject.inflict_damage(LogDamage::CutBehind(Lsn(1))).await;
    let log = subject.open_with(vec![TextView::new(1)]).await;
    assert_eq!(view_texts(&log, "said").await, ["00001 v1 content a"]);
}
