//! Time of an owner from opening a long log to answering, compared with only reading the same records.

use std::{path::Path, time::Instant};

use anyhow::ensure;
use countersign_core::{
    engine::{ActiveRules, Engine, Event, FactMeta},
    id::Lsn,
};
use countersign_runtime::{Clock, InboxLane, OwnerHandle, encode_record};
use countersign_store::{
    AnyLog, Batch, Log as _, LogOptions as StoreOptions, LogRecord, Partition, SqliteLog, StoredRecord,
};
use serde_json::{Value, json};

use super::{environment, history, median, owner_options};

/// Events in the log.
const EVENTS: usize = 100_000;
/// Records of one append while the log is made.
const BATCH: usize = 1000;
/// Records of one page, as an owner reads them.
const PAGE: usize = 4096;
const ROUNDS: usize = 5;

pub(super) async fn measure(folder: &Path) -> anyhow::Result<Value> {
    let path = folder.join("restart.db");
    let rules = environment::bench_rules(&path)?;
    let recorded = history::make_history(rules.clone(), Clock::system().now(), EVENTS)?;
    let written: Vec<LogRecord> = recorded.iter().map(encode_record).collect();
    drop(recorded);
    let log: AnyLog = SqliteLog::open(&path, StoreOptions::default())?.into();
    let epoch = log.take_over(Partition::ZERO).await?;
    let mut head = Lsn(0);
    for chunk in written.chunks(BATCH) {
        head = log.append(Partition::ZERO, epoch, head, Batch(chunk.to_vec())).await?;
    }
    log.close().await;
    drop((log, written));

    let (mut whole, mut ready) = (Vec::new(), Vec::new());
    let (mut read, mut decoded, mut folded) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // The first opening finds no snapshot, and its clean end leaves one to the second.
        let copy = folder.join(format!("restart-{round}.db"));
        std::fs::copy(&path, &copy)?;
        whole.push(time_open(&copy, &rules, folder).await?);
        ready.push(time_open(&copy, &rules, folder).await?);
        let (took, records) = time_bare_read(&path).await?;
        read.push(took);
        let (decode, fold) = time_replay(&rules, &records)?;
        decoded.push(decode);
        folded.push(fold);
    }
    Ok(json!({
        "whole_ms": median(whole),
        "ready_ms": median(ready),
        "yardstick_ms": median(read),
        "decode_ms": median(decoded),
        "fold_ms": median(folded),
        "events": EVENTS,
        "pending_gates": history::GATES,
    }))
}

/// Returns the milliseconds from opening the log to the first answer.
async fn time_open(path: &Path, rules: &ActiveRules, folder: &Path) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let log: AnyLog = SqliteLog::open(path, StoreOptions::default())?.into();
    let handle = OwnerHandle::open(log, owner_options(rules.clone(), folder)?).await?;
    let answered = handle.source(InboxLane::Request).read_state(|engine| engine.state().pending_gates().count()).await;
    let took = millis_since(begun);
    let pending = answered.map_or(0, |(count, _)| count);
    ensure!(pending == history::GATES, "{pending} gates are pending of {}", history::GATES);
    handle.close().await;
    handle.close_log().await;
    Ok(took)
}

/// Returns the milliseconds to open the log and read every record, and the records.
async fn time_bare_read(path: &Path) -> anyhow::Result<(f64, Vec<StoredRecord>)> {
    let mut records = Vec::with_capacity(EVENTS);
    let begun = Instant::now();
    let log: AnyLog = SqliteLog::open(path, StoreOptions::default())?.into();
    let mut after = Lsn(0);
    loop {
        let page = log.read_records(Partition::ZERO, after, PAGE).await?;
        match page.last() {
            Some(last) => after = last.lsn,
            None => break,
        }
        records.extend(page);
    }
    let took = millis_since(begun);
    log.close().await;
    Ok((took, records))
}

/// Measures the rest of the time: milliseconds to decode every record, and to fold every event into a state.
fn time_replay(rules: &ActiveRules, records: &[StoredRecord]) -> anyhow::Result<(f64, f64)> {
    let begun = Instant::now();
    let decode = |stored: &StoredRecord| Event::decode(&stored.kind, stored.version, &stored.facts);
    let events = records.iter().map(decode).collect::<Result<Vec<_>, _>>()?;
    let decoded = millis_since(begun);
    let begun = Instant::now();
    let mut engine = Engine::new(rules.clone());
    for (event, stored) in events.iter().zip(records) {
        engine.replay_fact(event, &FactMeta { lsn: stored.lsn, at: stored.at, session: stored.session.clone() });
    }
    Ok((decoded, millis_since(begun)))
}

fn millis_since(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64() * 1e3
}
