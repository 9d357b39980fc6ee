//! Reads a log from a position to its end, one page ahead of who reads.
//!
//! It must not know how a log is kept.

use countersign_core::id::Lsn;
use tokio::task::JoinHandle;

use crate::{
    error::LogReadError,
    log::Log,
    record::{Partition, StoredRecord},
};

type PageResult = Result<Vec<StoredRecord>, LogReadError>;

/// The records after a position, page by page. While one page is worked on, the next is fetched by a task.
///
/// It needs a tokio runtime of several threads to be any faster than [`Log::read_records`]. Dropped, it leaves nothing running.
#[derive(Debug)]
pub struct PageReader<L> {
    log: L,
    partition: Partition,
    size: usize,
    /// Absent at the end.
    next: Option<JoinHandle<PageResult>>,
}

impl<L: Log + Clone> PageReader<L> {
    /// Begins to fetch `size` records after `after`.
    ///
    /// # Panics
    /// If it is called outside a tokio runtime.
    pub fn new(log: L, partition: Partition, after: Lsn, size: usize) -> Self {
        let mut pages = Self { log, partition, size: size.max(1), next: None };
        pages.fetch_page(after);
        pages
    }

    /// Returns the next page, empty when there are no more. A page that is not full is the last: records written after it
    /// later are not read.
    ///
    /// A future that is dropped loses no page.
    ///
    /// # Errors
    /// As [`Log::read_records`]; there is no page after an error.
    pub async fn next(&mut self) -> PageResult {
        let Some(next) = &mut self.next else { return Ok(Vec::new()) };
        let fetched = next.await;
        self.next = None;
        let page = match fetched {
            Ok(page) => page?,
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => return Err(LogReadError::Closed),
            },
        };
        if let Some(last) = page.last().filter(|_| page.len() == self.size) {
            self.fetch_page(last.lsn);
        }
        Ok(page)
    }

    fn fetch_page(&mut self, after: Lsn) {
        let (log, partition, size) = (self.log.clone(), self.partition, self.size);
        self.next = Some(tokio::spawn(async move { log.read_records(partition, after, size).await }));
    }
}

impl<L> Drop for PageReader<L> {
    fn drop(&mut self) {
        if let Some(next) = &self.next {
            next.abort();
        }
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
        suite::{append_as_owner, text_batch},
    };

    const ZERO: Partition = Partition::ZERO;

    #[tokio::test]
    async fn pages_join_and_end() {
        let log = MemoryLog::new();
        append_as_owner(&log, Lsn(0), text_batch(&["1", "2", "3", "4", "5", "6"])).await.unwrap();
        let whole = log.read_records(ZERO, Lsn(1), 9).await.unwrap();
        for (size, want) in [(0, vec![1; 5]), (1, vec![1; 5]), (2, vec![2, 2, 1]), (5, vec![5]), (9, vec![5])] {
            let mut pages = PageReader::new(log.clone(), ZERO, Lsn(1), size);
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
        let mut pages = PageReader::new(log.clone(), ZERO, Lsn(0), 2);
        assert_eq!(pages.next().await.unwrap().len(), 2);
        assert_eq!(pages.next().await.unwrap().len(), 1);
        append_as_owner(&log, Lsn(3), text_batch(&["4"])).await.unwrap();
        assert_eq!(pages.next().await.unwrap(), []);
    }

    #[tokio::test]
    async fn a_page_that_cannot_be_read_is_the_last() {
        let log = MemoryLog::new();
        append_as_owner(&log, Lsn(0), text_batch(&["1", "2"])).await.unwrap();
        let mut pages = PageReader::new(log.clone(), ZERO, Lsn(0), 1);
        assert_eq!(pages.next().await.unwrap().len(), 1);
        log.close().await;
        let result = pages.next().await;
        assert!(matches!(result, Err(LogReadError::Closed)), "{result:?}");
        assert_eq!(pages.next().await.unwrap(), []);
    }
}
