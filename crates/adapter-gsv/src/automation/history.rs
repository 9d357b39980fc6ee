//! Firings of jobs that ended: a row each, folded within the append, so that it needs no replay and is always current.
//! Of each job as many are kept as its records say, and [`MOST`] in all.

use countersign_core::{
    engine::Event,
    schedule::{self, FiringOutcome, FiringStatus, JobKind},
};
use countersign_protocol::gsv::{cron, session::PageParams};
use countersign_runtime::store::{AnyLog, Log as _, LogReadError, LogView, Partition, StoredRecord, ViewRows};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Name of the view.
const NAME: &str = "gsv-runs";
/// Most rows that are kept in all.
const MOST: u64 = 20_000;
/// Most rows that are read at once.
const PAGE: usize = 500;
/// Key of the row with the numbers of rows, past and present.
const COUNTS: &str = "count";

/// View of the past runs of jobs.
#[derive(Debug)]
pub struct JobRunsView;

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct RunCounts {
    /// Number of the last row.
    last: u64,
    /// Number of rows.
    kept: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct JobRunRow {
    number: u64,
    job: String,
    /// Time of the firing, in milliseconds.
    at: u64,
    status: FiringStatus,
    took: u64,
    next: Option<u64>,
    outcome: FiringOutcome,
}

/// Rows come in the order of their keys, and the newest is to come first.
fn all_runs_key(number: u64) -> String {
    format!("a/{:020}", u64::MAX - number)
}

fn job_runs_key(job: &str, number: u64) -> String {
    format!("j/{job}/{:020}", u64::MAX - number)
}

/// Returns the key under which the numbers of the rows of a job are stored.
fn numbers_key(job: &str) -> String {
    format!("n/{job}")
}

impl LogView for JobRunsView {
    fn name(&self) -> &'static str {
        NAME
    }

    fn version(&self) -> u32 {
        1
    }

    fn fold_record(&self, record: &StoredRecord, content: Option<&str>, rows: &mut dyn ViewRows) {
        if record.kind != "schedule" {
            return;
        }
        let Ok(Event::Schedule(schedule::Event::Ended {
            firing,
            kind: JobKind::Job,
            status,
            fired_at,
            took,
            next,
            remembered,
            ..
        })) = Event::decode(&record.kind, record.version, &record.facts)
        else {
            return;
        };
        let mut counts: RunCounts = get_json(rows, COUNTS).unwrap_or_default();
        counts.last += 1;
        counts.kept += 1;
        let row = JobRunRow {
            number: counts.last,
            job: firing.job.as_str().to_owned(),
            at: fired_at.0,
            status,
            took: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            next: next.map(|next| next.0),
            outcome: content.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default(),
        };
        put_json(rows, &all_runs_key(row.number), &row);
        put_json(rows, &job_runs_key(&row.job, row.number), &row);
        let mut of_this: Vec<u64> = get_json(rows, &numbers_key(&row.job)).unwrap_or_default();
        of_this.push(row.number);
        let most = usize::try_from(remembered).unwrap_or(usize::MAX);
        let old: Vec<u64> = of_this.drain(..of_this.len().saturating_sub(most)).collect();
        put_json(rows, &numbers_key(&row.job), &of_this);
        for number in old {
            rows.delete_row(&all_runs_key(number));
            rows.delete_row(&job_runs_key(&row.job, number));
            counts.kept -= 1;
        }
        forget_oldest(rows, &mut counts);
        put_json(rows, COUNTS, &counts);
    }
}

/// Removes the oldest row if there are too many. Numbers leave no gap, so the oldest is known.
fn forget_oldest(rows: &mut dyn ViewRows, counts: &mut RunCounts) {
    let Some(oldest) = counts.last.checked_sub(MOST).filter(|oldest| *oldest > 0) else { return };
    let Some(row) = get_json::<JobRunRow>(rows, &all_runs_key(oldest)) else { return };
    rows.delete_row(&all_runs_key(oldest));
    rows.delete_row(&job_runs_key(&row.job, oldest));
    counts.kept -= 1;
    let mut of_job: Vec<u64> = get_json(rows, &numbers_key(&row.job)).unwrap_or_default();
    of_job.retain(|number| *number != oldest);
    if of_job.is_empty() {
        rows.delete_row(&numbers_key(&row.job));
    } else {
        put_json(rows, &numbers_key(&row.job), &of_job);
    }
}

fn get_json<T: DeserializeOwned>(rows: &mut dyn ViewRows, key: &str) -> Option<T> {
    rows.get(key).and_then(|bytes| serde_json::from_slice(&bytes).ok())
}

fn put_json<T: Serialize>(rows: &mut dyn ViewRows, key: &str, value: &T) {
    if let Ok(bytes) = serde_json::to_vec(value) {
        rows.put_row(key, &bytes);
    }
}

/// Reads the selected rows of a job, or of all, the newest first, and their number in all.
///
/// # Errors
/// An error of the log.
pub(super) async fn job_runs(
    log: &AnyLog,
    job: Option<&str>,
    page: PageParams,
) -> Result<cron::CronRunsResult, LogReadError> {
    let count = match job {
        Some(job) => read_one::<Vec<u64>>(log, &numbers_key(job)).await?.map_or(0, |of_job| of_job.len()),
        None => read_one::<RunCounts>(log, COUNTS)
            .await?
            .map_or(0, |counts| usize::try_from(counts.kept).unwrap_or(usize::MAX)),
    };
    let prefix = job.map_or_else(|| "a/".to_owned(), |job| format!("j/{job}/"));
    let (mut found, mut after) = (Vec::new(), None::<String>);
    let needed = page.offset.saturating_add(page.limit).min(count);
    while found.len() < needed {
        let rows =
            log.read_view(Partition::ZERO, NAME, &prefix, after.as_deref(), PAGE.min(needed - found.len())).await?;
        let Some((last, _)) = rows.last() else { break };
        after = Some(last.clone());
        found.extend(rows.into_iter().filter_map(|(_, bytes)| serde_json::from_slice::<JobRunRow>(&bytes).ok()));
    }
    let runs = page.select_rows(found).into_iter().map(past_run).collect();
    Ok(cron::CronRunsResult { runs, count })
}

async fn read_one<T: DeserializeOwned>(log: &AnyLog, key: &str) -> Result<Option<T>, LogReadError> {
    let rows = log.read_view(Partition::ZERO, NAME, key, None, 1).await?;
    let row = rows.into_iter().find(|(found, _)| found == key);
    Ok(row.and_then(|(_, bytes)| serde_json::from_slice(&bytes).ok()))
}

fn past_run(row: JobRunRow) -> cron::PastRun {
    let result = cron::JobRunResult {
        job_id: row.job,
        status: wire_status(row.status),
        error: row.outcome.error,
        summary: row.outcome.summary,
        duration_ms: Some(row.took),
        next_run_at_ms: row.next,
    };
    cron::PastRun { id: row.number, ts: row.at, result }
}

/// Returns the name of a status on the wire.
pub(super) const fn wire_status(status: FiringStatus) -> cron::CronRunStatus {
    match status {
        FiringStatus::Ok => cron::CronRunStatus::Ok,
        FiringStatus::Failed => cron::CronRunStatus::Error,
        FiringStatus::Skipped => cron::CronRunStatus::Skipped,
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use bytes::Bytes;
    use countersign_core::{
        digest::Digest,
        engine::Event,
        id::{JobId, Lsn},
        schedule::{self, FiringId, FiringStatus, JobKind},
        time::Millis,
    };
    use countersign_runtime::store::{LogView as _, StoredRecord, ViewRows};

    use super::{COUNTS, JobRunsView, RunCounts, get_json, numbers_key};

    #[derive(Default)]
    struct MapRows(BTreeMap<String, Bytes>);

    impl ViewRows for MapRows {
        fn get(&mut self, key: &str) -> Option<Bytes> {
            self.0.get(key).cloned()
        }

        fn put_row(&mut self, key: &str, value: &[u8]) {
            self.0.insert(key.to_owned(), Bytes::copy_from_slice(value));
        }

        fn delete_row(&mut self, key: &str) {
            self.0.remove(key);
        }

        fn scan_prefix(&mut self, prefix: &str) -> Vec<(String, Bytes)> {
            let rows = self.0.iter().filter(|(key, _)| key.starts_with(prefix));
            rows.map(|(key, value)| (key.clone(), value.clone())).collect()
        }
    }

    fn ended(job: &str, number: u64, remembered: u32) -> StoredRecord {
        let event = Event::Schedule(schedule::Event::Ended {
            firing: FiringId { job: JobId::new(job), number },
            kind: JobKind::Job,
            status: FiringStatus::Ok,
            fired_at: Millis(number),
            took: Duration::ZERO,
            next: None,
            reported: false,
            remembered,
        });
        let (kind, version, facts) = event.encode();
        StoredRecord {
            lsn: Lsn(number),
            at: Millis(number),
            session: None,
            key: None,
            kind: kind.into(),
            version,
            facts: facts.into(),
            content_digest: None,
            chain: Digest::hash_bytes(b""),
        }
    }

    #[test]
    fn of_each_job_the_newest_are_kept_and_the_number_of_all_is_true() {
        let mut rows = MapRows::default();
        for number in 1..=5 {
            JobRunsView.fold_record(&ended("a", number, 2), None, &mut rows);
            JobRunsView.fold_record(&ended("b", number, 3), None, &mut rows);
        }
        let kept = |rows: &mut MapRows, job| get_json::<Vec<u64>>(rows, &numbers_key(job));
        assert_eq!((kept(&mut rows, "a"), kept(&mut rows, "b")), (Some(vec![7, 9]), Some(vec![6, 8, 10])));
        let counts: RunCounts = get_json(&mut rows, COUNTS).unwrap();
        assert_eq!(
            (counts.last, counts.kept, rows.scan_prefix("a/").len(), rows.scan_prefix("j/").len()),
            (10, 5, 5, 5)
        );
    }
}
