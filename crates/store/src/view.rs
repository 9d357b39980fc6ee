//! Views: rows folded from the log and stored with it, always of exactly the records that are there.
//!
//! It must not know what a view is about, nor where its rows are kept.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
};

use bytes::Bytes;
use tracing::error;

use crate::record::StoredRecord;

/// A follower of the log that runs inside the append: its rows and the records that they come from are written together
/// or not at all, so a read of it sees every write before it.
///
/// Register it where the log is opened. There it is folded again, page by page, if its version changed or it is of
/// another history; an opening that was cut short continues at the next one. A view that is no longer registered is
/// dropped when the log is opened without it.
///
/// # Panics
/// A panic in [`LogView::fold_record`] costs the view and nothing else: the append succeeds, nothing of the view is kept, reading it
/// returns [`LogReadError::BrokenView`](crate::LogReadError::BrokenView), and the next opening of the log folds it again.
pub trait LogView: Send + Sync {
    /// Tells it from the other views of the log.
    fn name(&self) -> &'static str;

    /// Returns the version of the rows. Raise it whenever [`LogView::fold_record`] changes.
    fn version(&self) -> u32;

    /// Reports whether it reads contents. A view that does is folded again within every redaction, since it may have kept redacted
    /// text: appends wait for that. A view that does not never gets any.
    fn reads_contents(&self) -> bool {
        true
    }

    /// Folds one record into `rows`, in the order of the log.
    ///
    /// It may read nothing but what is handed in and keep nothing but rows: a record may be folded again after its
    /// append failed. `content` is absent if there is none, or not any more, or if it does not fit its digest.
    fn fold_record(&self, record: &StoredRecord, content: Option<&str>, rows: &mut dyn ViewRows);
}

impl fmt::Debug for dyn LogView + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} version {}", self.name(), self.version())
    }
}

/// The rows of one view while a record is folded.
///
/// When the machine fails, reads find nothing, and the folded rows are not written: nor is the batch that they come from.
pub trait ViewRows {
    /// Returns the value of `key`.
    fn get(&mut self, key: &str) -> Option<Bytes>;

    /// Sets the value of `key`.
    fn put_row(&mut self, key: &str, value: &[u8]);

    /// Removes `key`, if it is there.
    fn delete_row(&mut self, key: &str);

    /// Returns all rows whose keys begin with `prefix`, in the order of the keys' bytes.
    fn scan_prefix(&mut self, prefix: &str) -> Vec<(String, Bytes)>;
}

/// A view panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ViewPanic;

/// Lets `view` fold one record. After a panic its rows are worth nothing and have to be dropped.
pub(crate) fn fold_guarded(
    view: &dyn LogView,
    record: &StoredRecord,
    content: Option<&str>,
    rows: &mut dyn ViewRows,
) -> Result<(), ViewPanic> {
    let content = content.filter(|_| view.reads_contents());
    catch_unwind(AssertUnwindSafe(|| view.fold_record(record, content, rows))).map_err(|_| {
        error!(?view, lsn = %record.lsn, "a view panicked; it is unreadable until the log is reopened");
        ViewPanic
    })
}
