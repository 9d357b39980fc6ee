//! Views in a file: rebuilt in pages, and never in the way of the log.

use std::{io::Read, path::Path, sync::Arc};

use countersign_core::id::Lsn;
use countersign_store::{
    AppendError, Batch, Log, LogOptions, LogReadError, LogRecord, LogView, Partition, SqliteLog, StoredRecord,
    ViewRows,
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
async fn a_batch_whose_rows_find_no_space_leaves_nothing_behind() {
    let place = LogFolder::new();
    let views: Vec<Arc<dyn LogView>> = vec![Arc::new(DoublingView)];
    let log = SqliteLog::open(place.log(), LogOptions { views, max_pages: Some(64), ..LogOptions::default() }).unwrap();
    append_as_owner(&log, Lsn(0), text_batch(&["one"])).await.unwrap();
    let result = append_as_owner(&log, Lsn(1), Batch(vec![with(&"large ".repeat(20_000))])).await;
    assert!(matches!(result, Err(AppendError::Full)), "{result:?}");
    assert_eq!(log.head(ZERO).await.unwrap().lsn, Lsn(1));
    assert_eq!(append_as_owner(&log, Lsn(1), text_batch(&["content b"])).await.unwrap(), Lsn(2));
    assert_eq!(log.read_view(ZERO, "twice", "", None, 9).await.unwrap().len(), 2);
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
