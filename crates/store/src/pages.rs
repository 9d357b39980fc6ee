//! Reads a log from a position to its end, ahead of who reads.
//!
//! It must not know how a log is kept.

use std::collections::VecDeque;

use countersign_core::id::Lsn;
use tokio::task::JoinHandle;

use crate::{
    error::LogReadError,
    log::Log,
    record::{FactsPage, Partition, RecordFacts},
};

/// Pages that are fetched while one is worked on, once the first page was full.
const AHEAD: usize = 3;

/// The facts of the records after a position, page by page, each converted by a function. While one page is worked on, the
/// next ones are fetched.
///
/// It needs a tokio runtime of several threads to be any faster than [`Log::read_facts`]. Dropped, it leaves nothing running.
#[derive(Debug)]
pub struct PageReader<L, T> {
    log: L,
    partition: Partition,
    size: usize,
    convert: fn(RecordFacts<'_>) -> T,
    /// In their order. Empty at the end.
    fetching: VecDeque<JoinHandle<Result<FetchedPage<T>, LogReadError>>>,
    /// Position before the next page to fetch.
    after: Lsn,
}

#[derive(Debug)]
struct FetchedPage<T> {
    facts: FactsPage<T>,
    /// Number of records that were asked for.
    size: usize,
    /// Position of its last record in a log without gaps.
    end: Lsn,
}

impl<L: Log + Clone, T: Send + 'static> PageReader<L, T> {
    /// Begins to fetch the records after `after`: half a page, and then pages of `size`.
    ///
    /// # Panics
    /// If it is called outside a tokio runtime.
    pub fn new(log: L, partition: Partition, after: Lsn, size: usize, convert: fn(RecordFacts<'_>) -> T) -> Self {
        let mut pages =
            Self { log, partition, size: size.max(1), convert, fetching: VecDeque::with_capacity(AHEAD), after };
        // Most logs are short after their snapshot: more connections would be opened for nothing. The work on a longer one
        // begins earlier.
        pages.fetch_page(pages.size.div_ceil(2));
        pages
    }

    /// Returns the next page, empty when there are no more. A page that is not full is the last: records written after it
    /// later are not read.
    ///
    /// A future that is dropped loses no page.
    ///
    /// # Errors
    /// As [`Log::read_facts`]; there is no page after an error.
    pub async fn next(&mut self) -> Result<Vec<T>, LogReadError> {
        let Some(next) = self.fetching.front_mut() else { return Ok(Vec::new()) };
        let fetched = next.await;
        self.fetching.pop_front();
        let page = match fetched {
            Ok(Ok(page)) => page,
            Ok(Err(error)) => {
                self.stop_fetching();
                return Err(error);
            }
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => {
                    self.stop_fetching();
                    return Err(LogReadError::Closed);
                }
            },
        };
        if page.facts.converted.len() < page.size {
            self.stop_fetching();
            return Ok(page.facts.converted);
        }
        if page.facts.last != page.end {
            // A damaged log has gaps: the next page begins elsewhere.
            self.stop_fetching();
            self.after = page.facts.last;
        }
        while self.fetching.len() < AHEAD {
            self.fetch_page(self.size);
        }
        Ok(page.facts.converted)
    }

    /// Begins to fetch a page. Positions have no gaps, so it is known where a page ends before it is read.
    fn fetch_page(&mut self, size: usize) {
        let (log, partition, convert, after) = (self.log.clone(), self.partition, self.convert, self.after);
        let end = Lsn(after.0.saturating_add(size as u64));
        self.after = end;
        self.fetching.push_back(tokio::spawn(async move {
            let facts = log.read_facts(partition, after, size, convert).await?;
            Ok(FetchedPage { facts, size, end })
        }));
    }
}

impl<L, T> PageReader<L, T> {
    fn stop_fetching(&mut self) {
        self.fetching.drain(..).for_each(|page| page.abort());
    }
}

impl<L, T> Drop for PageReader<L, T> {
    fn drop(&mut self) {
        self.stop_fetching();
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::id::Lsn;

    use super::PageReader;
    use crate::{
        error::LogReadError,
        log::Log,
        memory::MemoryLog,
        record::Partition,
        sqlite::{LogOptions, SqliteLog},
        suite::{append_as_owner, text_batch},
    };

    const ZERO: Partition = Partition::ZERO;

    #[tokio::test]
    async fn pages_join_and_end() {
        let log = MemoryLog::new();
        append_as_owner(&log, Lsn(0), text_batch(&["1", "2", "3", "4", "5", "6"])).await.unwrap();
        let whole: Vec<Lsn> = (2..=6).map(Lsn).collect();
        for (size, want) in [(0, vec![1; 5]), (1, vec![1; 5]), (2, vec![1, 2, 2]), (5, vec![3, 2]), (9, vec![5])] {
            let mut pages = PageReader::new(log.clone(), ZERO, Lsn(1), size, |record| record.lsn);
            let (mut sizes, mut joined) = (Vec::new(), Vec::new());
            loop {
                let page = pages.next().await.unwrap();
                if page.is_empty() {
                    break;
                }
                sizes.push(page.len());
                joined.extend(page);
            }
            assert_eq!((sizes, &joined), (want, &whole), "{size}");
            assert_eq!(pages.next().await.unwrap(), []);
        }
    }

    #[tokio::test]
    async fn what_is_written_behind_the_last_page_is_not_read() {
        let log = MemoryLog::new();
        append_as_owner(&log, Lsn(0), text_batch(&["1", "2", "3"])).await.unwrap();
        let mut pages = PageReader::new(log.clone(), ZERO, Lsn(0), 4, |record| record.lsn);
        assert_eq!(pages.next().await.unwrap().len(), 2);
        assert_eq!(pages.next().await.unwrap().len(), 1);
        append_as_owner(&log, Lsn(3), text_batch(&["4"])).await.unwrap();
        assert_eq!(pages.next().await.unwrap(), []);
    }

    #[tokio::test]
    async fn records_after_a_gap_of_a_damaged_log_are_read_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.db");
        let log = SqliteLog::open(&path, LogOptions::default()).unwrap();
        let texts: Vec<String> = (1..=12).map(|number| number.to_string()).collect();
        append_as_owner(&log, Lsn(0), text_batch(&texts.iter().map(String::as_str).collect::<Vec<_>>())).await.unwrap();
        log.close().await;
        drop(log);
        for (lost, size) in [("3, 4, 5, 6", 2), ("1", 3), ("11", 3), ("2, 3, 4, 5, 6, 7", 2)] {
            let damaged = folder.path().join("damaged.db");
            std::fs::copy(&path, &damaged).unwrap();
            let connection = rusqlite::Connection::open(&damaged).unwrap();
            connection
                .execute_batch(&format!("PRAGMA foreign_keys = OFF; DELETE FROM events WHERE lsn IN ({lost})"))
                .unwrap();
            connection.close().unwrap();
            let log = SqliteLog::open(&damaged, LogOptions::default()).unwrap();
            let whole: Vec<Lsn> = log.read_records(ZERO, Lsn(0), 99).await.unwrap().iter().map(|it| it.lsn).collect();
            let (mut pages, mut read) =
                (PageReader::new(log.clone(), ZERO, Lsn(0), size, |record| record.lsn), Vec::new());
            loop {
                let page = pages.next().await.unwrap();
                if page.is_empty() {
                    break;
                }
                read.extend(page);
            }
            assert_eq!(read, whole, "{lost}");
            log.close().await;
        }
    }

    #[tokio::test]
    async fn pages_of_any_number_of_records_join() {
        for count in [10_u64, 1_000, 100_000] {
            let log = MemoryLog::new();
            let texts = vec!["x"; usize::try_from(count).unwrap()];
            for (at, part) in texts.chunks(1_000).enumerate() {
                append_as_owner(&log, Lsn(at as u64 * 1_000), text_batch(part)).await.unwrap();
            }
            let mut pages = PageReader::new(log.clone(), ZERO, Lsn(0), 512, |record| record.lsn);
            let (mut next, mut fetched) = (1, 0);
            loop {
                let page = pages.next().await.unwrap();
                if page.is_empty() {
                    break;
                }
                fetched += 1;
                for lsn in page {
                    assert_eq!(lsn, Lsn(next));
                    next += 1;
                }
            }
            assert_eq!((next, fetched), (count + 1, 1 + count.saturating_sub(256).div_ceil(512)), "{count}");
        }
    }

    #[tokio::test]
    async fn a_page_that_cannot_be_read_is_the_last() {
        let log = MemoryLog::new();
        append_as_owner(&log, Lsn(0), text_batch(&["1", "2"])).await.unwrap();
        let mut pages = PageReader::new(log.clone(), ZERO, Lsn(0), 1, |record| record.lsn);
        assert_eq!(pages.next().await.unwrap().len(), 1);
        log.close().await;
        let result = pages.next().await;
        assert!(matches!(result, Err(LogReadError::Closed)), "{result:?}");
        assert_eq!(pages.next().await.unwrap(), []);
    }
}
