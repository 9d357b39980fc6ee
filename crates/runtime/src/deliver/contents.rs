//! Content by position: from a cache of recent records, else from the log.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use countersign_core::id::Lsn;
use countersign_store::{AnyLog, Log as _, LogReadError, Partition, StoredContent};
use parking_lot::Mutex;

/// Most bytes that the cache holds.
const CACHED: usize = 16 << 20;
/// Approximate overhead of a text, in bytes.
const EACH: usize = 96;

/// Reads content outside the owner.
#[derive(Clone, Debug)]
pub struct ContentCache {
    log: AnyLog,
    cache: Arc<Mutex<TextCache>>,
}

#[derive(Debug, Default)]
struct TextCache {
    texts: BTreeMap<Lsn, Arc<str>>,
    order: VecDeque<Lsn>,
    bytes: usize,
}

impl TextCache {
    fn insert_text(&mut self, lsn: Lsn, text: Arc<str>) {
        self.bytes += text.len() + EACH;
        if let Some(old) = self.texts.insert(lsn, text) {
            self.bytes -= old.len() + EACH;
        } else {
            self.order.push_back(lsn);
        }
        while self.bytes > CACHED
            && let Some(oldest) = self.order.pop_front()
        {
            if let Some(old) = self.texts.remove(&oldest) {
                self.bytes -= old.len() + EACH;
            }
        }
    }
}

impl ContentCache {
    pub(crate) fn new(log: AnyLog) -> Self {
        Self { log, cache: Arc::default() }
    }

    pub(crate) fn cache_text(&self, lsn: Lsn, text: &Arc<str>) {
        self.cache.lock().insert_text(lsn, Arc::clone(text));
    }

    /// Returns the size of the cache.
    #[cfg(test)]
    pub(crate) fn cached_bytes(&self) -> usize {
        self.cache.lock().bytes
    }

    /// Forgets everything that may not be in the log after all.
    pub(crate) fn forget_after(&self, head: Lsn) {
        let mut cache = self.cache.lock();
        let gone = cache.texts.split_off(&head.next());
        cache.bytes -= gone.values().map(|text| text.len() + EACH).sum::<usize>();
        cache.order.retain(|lsn| *lsn <= head);
    }

    /// Returns the contents at `lsns` in their order; `None` if there is none or it was redacted.
    ///
    /// # Errors
    /// The error of the log.
    pub async fn get(&self, lsns: &[Lsn]) -> Result<Vec<Option<Arc<str>>>, LogReadError> {
        let (found, read) = self.find_texts(lsns).await?;
        let mut cache = self.cache.lock();
        for at in read {
            if let Some(text) = &found[at] {
                cache.insert_text(lsns[at], Arc::clone(text));
            }
        }
        Ok(found)
    }

    /// Returns the same, for a reader of very many that keeps them in another form: none of them becomes part of the cache.
    ///
    /// # Errors
    /// The error of the log.
    pub(crate) async fn get_once(&self, lsns: &[Lsn]) -> Result<Vec<Option<Arc<str>>>, LogReadError> {
        Ok(self.find_texts(lsns).await?.0)
    }

    /// Returns the contents at `lsns`, and the indexes of those that were not in the cache.
    async fn find_texts(&self, lsns: &[Lsn]) -> Result<(Vec<Option<Arc<str>>>, Vec<usize>), LogReadError> {
        let (mut found, missing) = {
            let cache = self.cache.lock();
            let found: Vec<Option<Arc<str>>> = lsns.iter().map(|lsn| cache.texts.get(lsn).cloned()).collect();
            let missing: Vec<usize> = (0..lsns.len()).filter(|&at| found[at].is_none()).collect();
            (found, missing)
        };
        if missing.is_empty() {
            return Ok((found, missing));
        }
        let missing_lsns: Vec<Lsn> = missing.iter().map(|&at| lsns[at]).collect();
        let read = self.log.read_contents(Partition::ZERO, &missing_lsns).await?;
        for (at, content) in missing.iter().zip(read) {
            if let Some(StoredContent::Text(text)) = content {
                found[*at] = Some(text);
            }
        }
        Ok((found, missing))
    }
}
