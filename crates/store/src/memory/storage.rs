//! What a log in memory consists of, and what an append does to it.
//!
//! It must not know handles, crashes or waiting.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::{Arc, Weak},
};

use bytes::Bytes;
use countersign_core::{digest::Digest, id::Lsn};

use super::{Disk, Fault, Outcome, views::Views};
use crate::{
    chain::{self, Link, SALT_SIZE},
    error::{AppendError, Cause, ReadError, WriteError},
    record::{Batch, Content, Epoch, Head, Scope, Snapshot, Stored},
    verify::{Kept, Report, Walk},
    view::View,
};

/// How an append ends: with an answer, or never.
pub(super) enum Ending {
    /// The answer, and what is dropped when it is taken.
    Answer(Result<Lsn, AppendError>, Option<Arc<()>>),
    Crash,
}

impl Ending {
    const fn refused(error: AppendError) -> Self {
        Self::Answer(Err(error), None)
    }
}

/// Everything that survives a crash of the pretended process.
#[derive(Default)]
pub(super) struct Storage {
    records: Vec<Stored>,
    contents: BTreeMap<Lsn, Text>,
    snapshot: Option<Snapshot>,
    views: Views,
    faults: VecDeque<Option<Fault>>,
    disk: Disk,
    unsettled: bool,
    epoch: Epoch,
    /// Alive until the answer to the last append that ended uncertain is taken.
    untaken: Weak<()>,
}

struct Text {
    salt: [u8; SALT_SIZE],
    /// Absent once it is redacted.
    text: Option<Arc<str>>,
}

impl Storage {
    pub(super) fn plant(&mut self, appends: usize, fault: Fault) {
        if self.faults.len() <= appends {
            self.faults.resize(appends + 1, None);
        }
        self.faults[appends] = Some(fault);
    }

    pub(super) const fn disk(&self) -> Disk {
        self.disk
    }

    pub(super) fn set_disk(&mut self, disk: Disk) {
        self.disk = disk;
    }

    pub(super) fn head(&self) -> Head {
        self.records.last().map_or(Head::EMPTY, |last| Head { lsn: last.lsn, chain: last.chain })
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

    pub(super) fn append(&mut self, epoch: Epoch, expected: Lsn, batch: &Batch) -> Ending {
        let fault = self.faults.pop_front().flatten();
        if let Err(error) = self.settle() {
            return Ending::refused(AppendError::Io(Cause::new(error)));
        }
        if let Err(error) = batch.check_turn((epoch, expected), (self.epoch, self.head().lsn)) {
            return Ending::refused(error);
        }
        if self.untaken.strong_count() > 0 {
            return Ending::refused(AppendError::Io(Cause::new(io::Error::other("the append before it is uncertain"))));
        }
        match self.disk {
            Disk::Works => {}
            Disk::Full => return Ending::refused(AppendError::Full),
            Disk::Broken => return Ending::refused(AppendError::Io(broken())),
        }
        match fault {
            None => Ending::Answer(Ok(self.write(batch)), None),
            Some(Fault::Full) => Ending::refused(AppendError::Full),
            Some(Fault::Io) => Ending::refused(AppendError::Io(broken())),
            Some(Fault::Fenced) => Ending::refused(AppendError::Fenced { epoch, current: self.take_over() }),
            Some(fault @ (Fault::Uncertain(outcome) | Fault::Breaks(outcome))) => {
                if matches!(fault, Fault::Breaks(_)) {
                    self.disk = Disk::Broken;
                }
                match outcome {
                    Outcome::Written => drop(self.write(batch)),
                    Outcome::Lost => {}
                }
                self.unsettled = true;
                let untaken = Arc::new(());
                self.untaken = Arc::downgrade(&untaken);
                Ending::Answer(Err(AppendError::Uncertain(broken())), Some(untaken))
            }
            Some(Fault::CrashBefore) => Ending::Crash,
            Some(Fault::CrashAfter) => {
                self.write(batch);
                Ending::Crash
            }
        }
    }

    fn write(&mut self, batch: &Batch) -> Lsn {
        for record in &batch.0 {
            let head = self.head();
            let lsn = head.lsn.next();
            let content_digest = record.content.as_ref().map(|text| {
                let salt = salt(lsn);
                self.contents.insert(lsn, Text { salt, text: Some(Arc::clone(text)) });
                chain::content_digest(&salt, text.as_bytes())
            });
            let chain = chain::chain(&head.chain, &Link::of_record(record, lsn, content_digest));
            let stored = Stored::new(record, lsn, content_digest, chain);
            self.views.follow(&stored, record.content.as_deref());
            self.records.push(stored);
        }
        self.head().lsn
    }

    /// Finds out what became of an uncertain append, which only a broken disk prevents.
    pub(super) fn settle(&mut self) -> Result<(), ReadError> {
        match self.disk {
            Disk::Broken if self.unsettled => Err(ReadError::Unsettled(broken())),
            Disk::Works | Disk::Full | Disk::Broken => {
                self.unsettled = false;
                Ok(())
            }
        }
    }

    /// A restart reads what is there, whatever the disk is like.
    pub(super) fn settle_by_restart(&mut self, views: Vec<Arc<dyn View>>) {
        self.unsettled = false;
        let behind = self.views.register(views, self.head());
        self.rebuild(&behind);
    }

    pub(super) fn views(&self) -> Vec<Arc<dyn View>> {
        self.views.registered()
    }

    pub(super) fn view(
        &self,
        name: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Bytes)>, ReadError> {
        self.views.read(name, prefix, after, limit)
    }

    fn rebuild(&mut self, behind: &[Arc<dyn View>]) {
        let mut views = std::mem::take(&mut self.views);
        for view in behind {
            let content = |stored: &Stored| self.kept(stored.lsn).text(stored.content_digest);
            views.rebuild(&**view, self.records.iter().map(|stored| (stored, content(stored))));
        }
        self.views = views;
    }

    fn get(&self, lsn: Lsn) -> Option<&Stored> {
        self.records.get(usize::try_from(lsn.0.checked_sub(1)?).ok()?)
    }

    pub(super) fn page(&self, scope: Option<Scope<'_>>, after: Lsn, limit: usize) -> Vec<Stored> {
        let start = self.records.partition_point(|stored| stored.lsn <= after);
        let within = |stored: &&Stored| scope.is_none_or(|scope| scope.covers(stored));
        self.records[start..].iter().filter(within).take(limit).cloned().collect()
    }

    pub(super) fn content(&self, lsn: Lsn) -> Result<Option<Content>, ReadError> {
        let Some(digest) = self.get(lsn).and_then(|stored| stored.content_digest) else { return Ok(None) };
        if !self.kept(lsn).fits(Some(digest)) {
            return Err(ReadError::Content(lsn));
        }
        Ok(Some(match self.contents.get(&lsn).and_then(|kept| kept.text.as_ref()) {
            Some(text) => Content::Text(Arc::clone(text)),
            None => Content::Redacted,
        }))
    }

    fn kept(&self, lsn: Lsn) -> Kept<'_> {
        match self.contents.get(&lsn) {
            None => Kept::Nothing,
            Some(Text { text: None, .. }) => Kept::Redacted,
            Some(Text { salt, text: Some(text) }) => Kept::Bytes { salt, bytes: text.as_bytes() },
        }
    }

    pub(super) fn snapshot(&self, version: u32) -> Option<Snapshot> {
        let snapshot = self.snapshot.as_ref()?;
        let stored = self.get(snapshot.lsn)?;
        (snapshot.version == version && snapshot.chain == stored.chain).then(|| snapshot.clone())
    }

    pub(super) fn save(&mut self, snapshot: Snapshot) -> Result<(), WriteError> {
        self.probe()?;
        if !self.records.is_empty() {
            self.snapshot = Some(snapshot);
        }
        Ok(())
    }

    pub(super) fn redact(&mut self, lsns: &[Lsn]) -> Result<usize, WriteError> {
        self.probe()?;
        let mut take = |lsn| self.contents.get_mut(lsn).and_then(|kept| kept.text.take());
        let removed = lsns.iter().filter(|lsn| take(lsn).is_some()).count();
        if removed > 0 {
            self.rebuild(&self.views.with_contents());
        }
        Ok(removed)
    }

    pub(super) fn probe(&mut self) -> Result<(), WriteError> {
        match self.disk {
            Disk::Works => {
                self.unsettled = false;
                Ok(())
            }
            Disk::Full => Err(WriteError::Full),
            Disk::Broken => Err(WriteError::Io(broken())),
        }
    }

    pub(super) fn verify(&self, expected: Option<Head>) -> Report {
        let mut walk = Walk::new(expected);
        for stored in &self.records {
            walk.take(stored, &self.kept(stored.lsn));
        }
        walk.finish()
    }
}

/// Not secret: in memory there is nobody who could see the digest and not the text.
fn salt(lsn: Lsn) -> [u8; SALT_SIZE] {
    let mut salt = [0; SALT_SIZE];
    salt.copy_from_slice(&Digest::hash_bytes(&lsn.0.to_be_bytes()).as_bytes()[..SALT_SIZE]);
    salt
}

fn broken() -> Cause {
    Cause::new(io::Error::other("the pretended disk failed"))
}

#[cfg(test)]
impl Storage {
    pub(super) fn records_mut(&mut self) -> &mut Vec<Stored> {
        &mut self.records
    }

    pub(super) fn overwrite_content(&mut self, lsn: Lsn, text: &str) {
        self.contents.entry(lsn).and_modify(|kept| kept.text = Some(text.into()));
    }

    pub(super) fn lose_content(&mut self, lsn: Lsn) {
        self.contents.remove(&lsn);
    }
}
