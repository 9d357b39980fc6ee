//! Views in a file: rebuilt in pages, and never in the way of the log.

use std::{io::Read, path::Path, sync::Arc};

use countersign_core::id::Lsn;
use countersign_store::{
    Batch, Log, LogOptions, LogReadError, LogRecord, LogView, Partition, SqliteLog, StoredRecord, ViewRows,
    suite::{TextView, append_as_owner, text_batch, text_record},
};

use crate::{log_folder::LogFolder, process::ChildProcess};

const ZERO: Partition = Partition::ZERO;

/// More than one page of a rebuild.
const RECORDS: usize = 1300;

/// The page that a rebuild writes at once.
const PAGE: usize = 512;

fn open(place: &LogFolder, view: &Arc<TextView>) -> SqliteLog {
    let views: Vec<Arc<dyn LogView>> = vec![view.clone()];
    SqliteLog::open(place.log(), LogOptions { views, ..LogOptions::default() }).unwrap()
}

fn with(content: &str) -> LogRecord {
    LogRecord { content: Some(content.into()), ..text_record("facts") }
}

async fn texts(log: &SqliteLog) -> Vec<String> {
    let rows = log.read_view(ZERO, "said", "said/", None, usize::MAX).await.unwrap();
    rows.into_iter().map(|(_, value)| String::from_utf8(value.to_vec()).unwrap()).collect()
}

/// A view that kills its process at the last record.
#[derive(Debug)]
struct AbortingView(Arc<TextView>);

impl LogView for AbortingView {
    fn name(&self) -> &'static str {
        "said"
    }

    fn version(&self) -> u32 {
        1
    }

    fn fold_record(&self, record: &StoredRecord, content: Option<&str>, rows: &mut dyn ViewRows) {
        if record.lsn.0 as usize == RECORDS {
            std::process::abort();
        }
        self.0.fold_record(record, content, rows);
    }
}

/// Runs in a child: it dies while it folds the last page of its view.
pub(crate) fn die_while_rebuilding(log: &Path) {
    let views: Vec<Arc<dyn LogView>> = vec![Arc::new(AbortingView(TextView::new(1)))];
    SqliteLog::open(log, LogOptions { views, ..LogOptions::default() }).unwrap();
}

#[tokio::test]
async fn a_rebuild_that_was_killed_goes_on_behind_its_last_page() {
    let place = LogFolder::new();
    let log = place.open();
    append_as_owner(&log, Lsn(0), text_batch(&vec!["content x"; RECORDS])).await.unwrap();
    log.close().await;

    assert!(!ChildProcess::spawn("die while rebuilding", &place.log()).ended_well());
    let view = TextView::new(1);
    let log = open(&place, &view);
    assert_eq!(view.shown_count(), RECORDS % PAGE);
    assert_eq!(texts(&log).await, vec!["v1 content x"; RECORDS]);
}

#[tokio::test]
async fn redacted_text_is_in_no_view_on_disk() {
    let place = LogFolder::new();
    let secret = "the code of the safe is 4815162342 ";
    let log = open(&place, &TextView::new(1));
    let sent = Batch(vec![with(secret), with(&secret.repeat(400)), with("content kept")]);
    append_as_owner(&log, Lsn(0), sent).await.unwrap();
    assert_eq!(log.redact_contents(ZERO, &[Lsn(1), Lsn(2)]).await.unwrap(), 2);
    let mut bytes = Vec::new();
    for entry in std::fs::read_dir(place.log().parent().unwrap()).unwrap() {
        std::fs::File::open(entry.unwrap().path()).unwrap().read_to_end(&mut bytes).unwrap();
    }
    let holds = |needle: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
    assert!(holds(b"v1 content kept"));
    assert!(!holds(b"4815162342"));
}

#[tokio::test]
async fn a_view_for_which_there_is_no_space_keeps_no_log_from_being_opened() {
    let place = LogFolder::new();
    let log = place.open();
    append_as_owner(&log, Lsn(0), Batch(vec![with("small"), with(&"large ".repeat(25_000))])).await.unwrap();
    log.close().await;

    let views: Vec<Arc<dyn LogView>> = vec![TextView::new(1)];
    let log = SqliteLog::open(place.log(), LogOptions { views, max_pages: Some(64), ..LogOptions::default() }).unwrap();
    let result = log.read_view(ZERO, "said", "", None, 9).await;
    assert!(matches!(result, Err(LogReadError::BrokenView(_))), "{result:?}");
    assert_eq!(append_as_owner(&log, Lsn(2), text_batch(&["three"])).await.unwrap(), Lsn(3));
    log.close().await;
    assert_eq!(texts(&open(&place, &TextView::new(1))).await.len(), 3);
}

#[tokio::test]
async fn a_view_without_space_for_its_rows_is_in_the_way_of_no_append() {
    let place = LogFolder::new();
    let views: Vec<Arc<dyn LogView>> = vec![Arc::new(DoublingView)];
    let log = SqliteLog::open(place.log(), LogOptions { views, max_pages: Some(64), ..LogOptions::default() }).unwrap();
    append_as_owner(&log, Lsn(0), text_batch(&["content a"])).await.unwrap();
    let rows = async || log.read_view(ZERO, "twice", "", None, 9).await.map(|rows| rows.len());
    assert_eq!(rows().await.unwrap(), 1);
    append_as_owner(&log, Lsn(1), Batch(vec![with(&"large ".repeat(20_000))])).await.unwrap();
    assert!(matches!(rows().await, Err(LogReadError::BrokenView(_))));
    assert_eq!(append_as_owner(&log, Lsn(2), text_batch(&["content b"])).await.unwrap(), Lsn(3));
    assert_eq!(log.redact_contents(ZERO, &[Lsn(2)]).await.unwrap(), 1);
    assert_eq!(rows().await.unwrap(), 3, "there is space for the rows now");
}

#[tokio::test]
async fn records_without_a_reader_of_their_view_are_folded_in_groups_and_at_the_end() {
    for count in [10, 1_000, 2_500] {
        let place = LogFolder::new();
        let view = TextView::new(1);
        let log = open(&place, &view);
        for lsn in 0..count {
            append_as_owner(&log, Lsn(lsn), text_batch(&["content x"])).await.unwrap();
            assert!(lsn as usize - view.shown_count().min(lsn as usize) <= 512, "of {count}");
        }
        log.close().await;
        assert_eq!(view.shown_count(), count as usize);
        assert_eq!(texts(&open(&place, &view)).await.len(), count as usize);
        assert_eq!(view.shown_count(), count as usize, "none is folded twice");
    }
}

/// Runs in a child: it dies with records that no view has.
pub(crate) async fn die_with_unfolded_records(log: &Path) {
    let views: Vec<Arc<dyn LogView>> = vec![TextView::new(1)];
    let log = SqliteLog::open(log, LogOptions { views, ..LogOptions::default() }).unwrap();
    append_as_owner(&log, Lsn(0), text_batch(&["content a", "content b"])).await.unwrap();
    assert_eq!(texts(&log).await.len(), 2);
    append_as_owner(&log, Lsn(2), text_batch(&["content c"])).await.unwrap();
    std::process::abort();
}

#[tokio::test]
async fn a_view_gets_the_records_of_a_killed_process_that_it_lacks() {
    let place = LogFolder::new();
    assert!(!ChildProcess::spawn("die with unfolded records", &place.log()).ended_well());
    let view = TextView::new(1);
    let log = open(&place, &view);
    assert_eq!(texts(&log).await, ["v1 content a", "v1 content b", "v1 content c"]);
    assert_eq!(view.shown_count(), 1, "the first two were folded before");
}

/// A view that wants more space than the record did.
#[derive(Debug)]
struct DoublingView;

impl LogView for DoublingView {
    fn name(&self) -> &'static str {
        "twice"
    }

    fn version(&self) -> u32 {
        1
    }

    fn fold_record(&self, record: &StoredRecord, content: Option<&str>, rows: &mut dyn ViewRows) {
        rows.put_row(&record.lsn.to_string(), content.unwrap_or_default().repeat(2).as_bytes());
    }
}
