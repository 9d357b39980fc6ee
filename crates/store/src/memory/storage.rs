//! Parts of a log in memory, and the effect of an append on them.
//!
//! It must not know handles, crashes or waiting.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::{Arc, Weak},
};

use bytes::Bytes;
use countersign_core::{digest::Digest, id::Lsn};

use super::{DiskState, LogFault, UncertainOutcome, views::MemoryViews};
use crate::{
    chain::{self, ChainLink, SALT_SIZE},
    error::{AppendError, ErrorCause, LogReadError, LogWriteError},
    record::{Batch, Epoch, LogHead, ReadScope, Snapshot, StoredContent, StoredRecord},
    verify::{ChainWalk, ContentBytes, VerifyReport},
    view::LogView,
};

/// End of an append: with an answer, or never.
pub(super) enum AppendEnding {
    /// The answer, and what is dropped when it is taken.
    Answer(Result<Lsn, AppendError>, Option<Arc<()>>),
    Crash,
}

impl AppendEnding {
    const fn from_error(error: AppendError) -> Self {
        Self::Answer(Err(error), None)
    }
}

/// Storage that survives a crash of the pretended process.
#[derive(Default)]
pub(super) struct MemoryStorage {
    records: Vec<StoredRecord>,
    contents: BTreeMap<Lsn, StoredText>,
    snapshot: Option<Snapshot>,
    views: MemoryViews,
    faults: VecDeque<Option<LogFault>>,
    disk: DiskState,
    unsettled: bool,
    epoch: Epoch,
    /// Alive until the answer to the last append that ended uncertain is taken.
    untaken: Weak<()>,
}

struct StoredText {
    salt: [u8; SALT_SIZE],
    /// Absent once it is redacted.
    text: Option<Arc<str>>,
}

impl MemoryStorage {
    pub(super) fn plant_fault(&mut self, appends: usize, fault: LogFault) {
        if self.faults.len() <= appends {
            self.faults.resize(appends + 1, None);
        }
        self.faults[appends] = Some(fault);
    }

    pub(super) const fn disk(&self) -> DiskState {
        self.disk
    }

    pub(super) fn set_disk(&mut self, disk: DiskState) {
        self.disk = disk;
    }

    pub(super) fn head(&self) -> LogHead {
        self.records.last().map_or(LogHead::EMPTY, |last| LogHead { lsn: last.lsn, chain: last.chain })
    }

    pub(super) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(super) fn take_over(&mut self) -> Epoch {
        self.epoch = self.epoch.next();
        // Its owner may never take that answer.
        self.untaken = Weak::new();
        self.epoch
    }

    pub(super) fn append(&mut self, epoch: Epoch, expected: Lsn, batch: &Batch) -> AppendEnding {
        let fault = self.faults.pop_front().flatten();
        if let Err(error) = self.settle_uncertain() {
            return AppendEnding::from_error(AppendError::Io(ErrorCause::new(error)));
        }
        if let Err(error) = batch.check_turn((epoch, expected), (self.epoch, self.head().lsn)) {
            return AppendEnding::from_error(error);
        }
        if self.untaken.strong_count() > 0 {
            return AppendEnding::from_error(AppendError::Io(ErrorCause::new(io::Error::other(
                "the append before it is uncertain",
            ))));
        }
        match self.disk {
            DiskState::Works => {}
            DiskState::Full => return AppendEnding::from_error(AppendError::Full),
            DiskState::Broken => return AppendEnding::from_error(AppendError::Io(disk_error())),
        }
        match fault {
            None => AppendEnding::Answer(Ok(self.write_batch(batch)), None),
            Some(LogFault::Full) => AppendEnding::from_error(AppendError::Full),
            Some(LogFault::Io) => AppendEnding::from_error(AppendError::Io(disk_error())),
            Some(LogFault::Fenced) => {
                AppendEnding::from_error(AppendError::Fenced { epoch, current: self.take_over() })
            }
            Some(fault @ (LogFault::Uncertain(outcome) | LogFault::Breaks(outcome))) => {
                if matches!(fault, LogFault::Breaks(_)) {
                    self.disk = DiskState::Broken;
                }
                match outcome {
                    UncertainOutcome::Written => drop(self.write_batch(batch)),
                    UncertainOutcome::Lost => {}
                }
                self.unsettled = true;
                let untaken = Arc::new(());
                self.untaken = Arc::downgrade(&untaken);
                AppendEnding::Answer(Err(AppendError::Uncertain(disk_error())), Some(untaken))
            }
            Some(LogFault::CrashBefore) => AppendEnding::Crash,
            Some(LogFault::CrashAfter) => {
                self.write_batch(batch);
                AppendEnding::Crash
            }
        }
    }

    fn write_batch(&mut self, batch: &Batch) -> Lsn {
        for record in &batch.0 {
            let head = self.head();
            let lsn = head.lsn.next();
            let content_digest = record.content.as_ref().map(|text| {
                let salt = salt_for(lsn);
                self.contents.insert(lsn, StoredText { salt, text: Some(Arc::clone(text)) });
                chain::content_digest(&salt, text.as_bytes())
            });
            let chain = chain::chain_digest(&head.chain, &ChainLink::of_record(record, lsn, content_digest));
            let stored = StoredRecord::new(record, lsn, content_digest, chain);
            self.views.follow_record(&stored, record.content.as_deref());
            self.records.push(stored);
        }
        self.head().lsn
    }

    /// Finds out what became of an uncertain append, which only a broken disk prevents.
    pub(super) fn settle_uncertain(&mut self) -> Result<(), LogReadError> {
        match self.disk {
            DiskState::Broken if self.unsettled => Err(LogReadError::Unsettled(disk_error())),
            DiskState::Works | DiskState::Full | DiskState::Broken => {
                self.unsettled = false;
                Ok(())
            }
        }
    }

    /// Settles all appends as a restart does: it reads the storage, whatever the state of the disk.
    pub(super) fn settle_by_restart(&mut self, views: Vec<Arc<dyn LogView>>) {
        self.unsettled = false;
        let behind = self.views.register_views(views, self.head());
        self.rebuild_views(&behind);
    }

    pub(super) fn registered_views(&self) -> Vec<Arc<dyn LogView>> {
        self.views.registered_views()
    }

    pub(super) fn read_view(
        &self,
        name: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Bytes)>, LogReadError> {
        self.views.read_rows(name, prefix, after, limit)
    }

    fn rebuild_views(&mut self, behind: &[Arc<dyn LogView>]) {
        let mut views = std::mem::take(&mut self.views);
        for view in behind {
            let content = |stored: &StoredRecord| self.content_bytes(stored.lsn).checked_text(stored.content_digest);
            views.rebuild_view(&**view, self.records.iter().map(|stored| (stored, content(stored))));
        }
        self.views = views;
    }

    fn get(&self, lsn: Lsn) -> Option<&StoredRecord> {
        self.records.get(usize::try_from(lsn.0.checked_sub(1)?).ok()?)
    }

    pub(super) fn read_page(&self, scope: Option<ReadScope<'_>>, after: Lsn, limit: usize) -> Vec<StoredRecord> {
        let start = self.records.partition_point(|stored| stored.lsn <= after);
        let within = |stored: &&StoredRecord| scope.is_none_or(|scope| scope.covers(stored));
        self.records[start..].iter().filter(within).take(limit).cloned().collect()
    }

    pub(super) fn read_content(&self, lsn: Lsn) -> Result<Option<StoredContent>, LogReadError> {
        let Some(digest) = self.get(lsn).and_then(|stored| stored.content_digest) else { return Ok(None) };
        if !self.content_bytes(lsn).matches_digest(Some(digest)) {
            return Err(LogReadError::Content(lsn));
        }
        Ok(Some(match self.contents.get(&lsn).and_then(|kept| kept.text.as_ref()) {
            Some(text) => StoredContent::Text(Arc::clone(text)),
            None => StoredContent::Redacted,
        }))
    }

    fn content_bytes(&self, lsn: Lsn) -> ContentBytes<'_> {
        match self.contents.get(&lsn) {
            None => ContentBytes::Nothing,
            Some(StoredText { text: None, .. }) => ContentBytes::Redacted,
            Some(StoredText { salt, text: Some(text) }) => ContentBytes::Bytes { salt, bytes: text.as_bytes() },
        }
    }

    pub(super) fn matching_snapshot(&self, version: u32) -> Option<Snapshot> {
        let snapshot = self.snapshot.as_ref()?;
        let stored = self.get(snapshot.lsn)?;
        (snapshot.version == version && snapshot.chain == stored.chain).then(|| snapshot.clone())
    }

    pub(super) fn save_snapshot(&mut self, snapshot: Snapshot) -> Result<(), LogWriteError> {
        self.probe_disk()?;
        if !self.records.is_empty() {
            self.snapshot = Some(snapshot);
        }
        Ok(())
    }

    pub(super) fn redact_contents(&mut self, lsns: &[Lsn]) -> Result<usize, LogWriteError> {
        self.probe_disk()?;
        let mut take = |lsn| self.contents.get_mut(lsn).and_then(|kept| kept.text.take());
        let removed = lsns.iter().filter(|lsn| take(lsn).is_some()).count();
        if removed > 0 {
            self.rebuild_views(&self.views.with_contents());
        }
        Ok(removed)
    }

    pub(super) fn probe_disk(&mut self) -> Result<(), LogWriteError> {
        match self.disk {
            DiskState::Works => {
                self.unsettled = false;
                Ok(())
            }
            DiskState::Full => Err(LogWriteError::Full),
            DiskState::Broken => Err(LogWriteError::Io(disk_error())),
        }
    }

    pub(super) fn verify_chain(&self, expected: Option<LogHead>) -> VerifyReport {
        let mut walk = ChainWalk::new(expected);
        for stored in &self.records {
            walk.check_record(stored, &self.content_bytes(stored.lsn));
        }
        walk.finish()
    }
}

/// Returns the salt of a position. It is not secret: in memory no reader could see the digest and not the text.
fn salt_for(lsn: Lsn) -> [u8; SALT_SIZE] {
    let mut salt = [0; SALT_SIZE];
    salt.copy_from_slice(&Digest::hash_bytes(&lsn.0.to_be_bytes()).as_bytes()[..SALT_SIZE]);
    salt
}

fn disk_error() -> ErrorCause {
    ErrorCause::new(io::Error::other("the pretended disk failed"))
}

#[cfg(test)]
impl MemoryStorage {
    pub(super) fn records_mut(&mut self) -> &mut Vec<StoredRecord> {
        &mut self.records
    }

    pub(super) fn overwrite_content(&mut self, lsn: Lsn, text: &str) {
        self.contents.entry(lsn).and_modify(|kept| kept.text = Some(text.into()));
    }

    pub(super) fn lose_content(&mut self, lsn: Lsn) {
        self.contents.remove(&lsn);
    }
}
