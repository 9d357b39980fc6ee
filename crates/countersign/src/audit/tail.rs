//! The newest entries of a record that match a filter.
//!
//! It must not know how they are printed.

use std::collections::{BTreeSet, VecDeque};

use countersign_core::id::Lsn;
use countersign_store::{AnyLog, Log as _, Partition, ReadScope, StoredRecord};
use countersign_view::record::{RecordFilter, RecordFormatter, RecordSubject};

use super::for_each_entry_between;

/// Number of records before the first shown one that are read at first for the names of calls and gates.
const LOOK_BACK: u64 = 1000;
/// Records that a search reads at a time.
const WINDOW: usize = 4096;
/// The end of any record.
const HEAD: Lsn = Lsn(u64::MAX);

/// An entry, its subject, and its event in one line.
pub(super) type DescribedEntry = (StoredRecord, RecordSubject, String);

/// Returns the newest `count` entries that match `filter`, the oldest of them first.
pub(super) async fn read_newest(
    log: &AnyLog,
    count: usize,
    filter: &RecordFilter,
) -> anyhow::Result<VecDeque<DescribedEntry>> {
    if count == 0 {
        return Ok(VecDeque::new());
    }
    if filter.is_empty() {
        let first = log.head(Partition::ZERO).await?.lsn.0.saturating_sub(count as u64);
        let from = Lsn(first.saturating_sub(LOOK_BACK));
        return describe_newest(log, (from, HEAD), count, |stored, _| stored.lsn.0 > first).await;
    }
    if !filter.needs_no_context() {
        return describe_newest(log, (Lsn(0), HEAD), count, |stored, about| filter.matches_record(stored, about)).await;
    }
    let found = match &filter.session {
        Some(session) => find_in_scope(log, ReadScope::Session(session), count, filter).await?,
        None => find_backwards(log, count, filter).await?,
    };
    let Some((first, last)) = found.first().zip(found.last()) else { return Ok(VecDeque::new()) };
    let mut reach = LOOK_BACK;
    loop {
        let after = first.0.saturating_sub(reach);
        let newest = describe_newest(log, (Lsn(after), *last), count, |stored, _| found.contains(&stored.lsn)).await?;
        if after == 0 || newest.iter().all(|(_, about, _)| is_described(about)) {
            return Ok(newest);
        }
        reach = reach.saturating_mul(8);
    }
}

/// Reports whether the records that describe the call or gate of an entry were read.
const fn is_described(about: &RecordSubject) -> bool {
    about.is_begun || (about.call.is_none() && about.gate.is_none())
}

/// Describes the records after the first position and up to the second, and returns the newest `count` of those that `is_meant`.
async fn describe_newest(
    log: &AnyLog,
    (after, last): (Lsn, Lsn),
    count: usize,
    is_meant: impl Fn(&StoredRecord, &RecordSubject) -> bool,
) -> anyhow::Result<VecDeque<DescribedEntry>> {
    let mut formatter = RecordFormatter::default();
    let mut newest = VecDeque::new();
    for_each_entry_between(log, after, last, async |stored, content| {
        let (about, text) = formatter.describe_record(&stored, content.as_deref());
        if is_meant(&stored, &about) {
            if newest.len() == count {
                newest.pop_front();
            }
            newest.push_back((stored, about, text));
        }
        Ok(())
    })
    .await?;
    Ok(newest)
}

/// Finds the newest matching positions from the end, a page at a time.
async fn find_backwards(log: &AnyLog, count: usize, filter: &RecordFilter) -> anyhow::Result<BTreeSet<Lsn>> {
    let mut end = log.head(Partition::ZERO).await?.lsn.0;
    let mut found = BTreeSet::new();
    while end > 0 {
        let first = end.saturating_sub(WINDOW as u64);
        let limit = usize::try_from(end - first)?;
        for stored in log.read_records(Partition::ZERO, Lsn(first), limit).await?.into_iter().rev() {
            // The gateway's clock never goes back behind the record, so everything before is older still.
            if filter.since.is_some_and(|since| stored.at < since) {
                return Ok(found);
            }
            if matches_alone(filter, &stored) {
                found.insert(stored.lsn);
                if found.len() == count {
                    return Ok(found);
                }
            }
        }
        end = first;
    }
    Ok(found)
}

/// Finds the newest matching positions among the records that the store's index has for `scope`.
async fn find_in_scope(
    log: &AnyLog,
    scope: ReadScope<'_>,
    count: usize,
    filter: &RecordFilter,
) -> anyhow::Result<BTreeSet<Lsn>> {
    let (mut found, mut after) = (BTreeSet::new(), Lsn(0));
    loop {
        let page = log.read_scope(Partition::ZERO, scope, after, WINDOW).await?;
        for stored in page.iter().filter(|stored| matches_alone(filter, stored)) {
            found.insert(stored.lsn);
            if found.len() > count {
                found.pop_first();
            }
        }
        match page.last() {
            Some(last) if page.len() == WINDOW => after = last.lsn,
            Some(_) | None => return Ok(found),
        }
    }
}

/// Reports whether a record matches a filter that needs no context. An outcome is part of the event itself.
fn matches_alone(filter: &RecordFilter, stored: &StoredRecord) -> bool {
    filter.matches_stored(stored)
        && (filter.outcomes.is_empty()
            || filter.matches_outcome(&RecordFormatter::default().describe_record(stored, None).0))
}

#[cfg(test)]
mod tests {
    use countersign_core::{
        id::{Lsn, SessionId},
        time::Millis,
    };
    use countersign_store::{AnyLog, Batch, Log as _, LogRecord, MemoryLog, Partition};
    use countersign_view::record::RecordFilter;

    use super::{HEAD, describe_newest, read_newest};

    async fn fill_log(size: u64) -> AnyLog {
        let log = AnyLog::from(MemoryLog::new());
        let epoch = log.take_over(Partition::ZERO).await.unwrap();
        for first in (0..size).step_by(1000) {
            let records = (first..size.min(first + 1000)).map(|n| LogRecord {
                at: Millis(n / 3),
                session: (n % 4 != 0).then(|| SessionId::new(format!("s{}", n % 4))),
                key: None,
                kind: ["boot", "run", "session"][usize::try_from(n % 3).unwrap()].into(),
                version: 1,
                facts: "{}".into(),
                content: None,
            });
            log.append(Partition::ZERO, epoch, Lsn(first), Batch(records.collect())).await.unwrap();
        }
        log
    }

    #[tokio::test]
    async fn the_newest_matching_entries_are_those_of_a_plain_reading() {
        for size in [0, 10, 600] {
            let log = fill_log(size).await;
            for bits in 0..64_u32 {
                let has = |bit: u32| bits & (1 << bit) != 0;
                let filter = RecordFilter {
                    since: has(0).then_some(Millis(size / 6)),
                    until: has(1).then_some(Millis(size / 4)),
                    session: has(2).then(|| SessionId::new(if has(5) { "none" } else { "s1" }.to_owned())),
                    kinds: if has(3) { vec!["run".to_owned()] } else { Vec::new() },
                    tools: if has(4) { vec!["bash".to_owned()] } else { Vec::new() },
                    ..RecordFilter::default()
                };
                for count in [1, 7, 2000] {
                    let plain = describe_newest(&log, (Lsn(0), HEAD), count, |stored, about| {
                        filter.matches_record(stored, about)
                    });
                    let plain = plain.await.unwrap();
                    assert_eq!(read_newest(&log, count, &filter).await.unwrap(), plain, "{size} {count} {filter:?}");
                }
            }
        }
    }
}
