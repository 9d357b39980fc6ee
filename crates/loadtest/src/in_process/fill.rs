//! A log file of a chosen size, for a gateway that is measured with it.

use std::{path::Path, time::Duration};

use anyhow::ensure;
use countersign_core::{
    id::{Lsn, SessionId},
    time::Millis,
};
use countersign_runtime::{Clock, encode_record};
use countersign_store::{AnyLog, Batch, Log as _, LogOptions as StoreOptions, LogRecord, Partition, SqliteLog};
use serde_json::{Value, json};

use super::{environment::bench_rules, history::HistoryAuthor};

/// Least records of one append.
const BATCH: usize = 1000;
/// Time between two sessions. Nearly all of them have rested for a while when the last one ends.
const APART: Duration = Duration::from_secs(10);
/// Time after which a gateway unloads a session.
const IDLE: Duration = Duration::from_secs(600);

/// Makes a log at `path` with so many sessions at rest, each with a prompt, and with about `records` records in all.
pub(super) async fn fill_log(path: &Path, sessions: usize, records: usize) -> anyhow::Result<Value> {
    ensure!(sessions > 0, "a log needs a session");
    let log: AnyLog = SqliteLog::open(path, StoreOptions::default())?.into();
    let epoch = log.take_over(Partition::ZERO).await?;
    let past = APART.as_millis() as u64 * sessions as u64;
    let begun = Millis(Clock::system().now().0.saturating_sub(past));
    let mut author = HistoryAuthor::begin(bench_rules(path)?, begun)?;
    let (mut head, mut made) = (Lsn(0), 0);
    let mut waiting: Vec<LogRecord> = Vec::new();
    for number in 0..sessions {
        let id = SessionId::new(format!("session-{number}"));
        author.open_session(&id)?;
        author.add_short_exchange(&id)?;
        loop {
            let facts = author.take_facts();
            made += facts.len();
            waiting.extend(facts.iter().map(encode_record));
            if made * sessions >= records * (number + 1) {
                break;
            }
            author.add_exchange(&id)?;
        }
        author.let_time_pass(APART, IDLE);
        if waiting.len() >= BATCH || number + 1 == sessions {
            head = log.append(Partition::ZERO, epoch, head, Batch(std::mem::take(&mut waiting))).await?;
        }
    }
    log.close().await;
    Ok(json!({ "records": made }))
}
