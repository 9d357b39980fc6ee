//! Retention: contents of calls and gates, and objects, are removed after the configured time.
//!
//! Facts are never removed, so the chain stays valid: a removed content leaves its digest in the record. Contents of open calls,
//! and those that an agent has not received, stay however old they are. Nothing runs without a configured time.

use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

use countersign_adapter_gsv::LETTERS;
use countersign_config::RetentionConfig;
use countersign_core::{engine::Engine, id::Lsn, time::Millis};
use countersign_files::objects::ObjectStore;
use countersign_runtime::{
    Clock, InboxLane, OwnerHandle,
    store::{Log as _, LogReadError, LogWriteError, Partition},
};
use tracing::{info, warn};

/// Most records that are read in one step.
const PAGE: usize = 512;
/// Most contents that are removed in one step. Appends wait for it.
const BATCH: usize = 128;

/// Reason why a pass of retention ended early.
#[derive(Debug, thiserror::Error)]
enum RetentionError {
    #[error(transparent)]
    Read(#[from] LogReadError),
    #[error(transparent)]
    Write(#[from] LogWriteError),
    #[error("the gateway is closing")]
    Closing,
}

/// Removes expired contents, and again after each interval, until the owner ends.
pub(crate) async fn run_retention(handle: OwnerHandle, clock: Clock, objects: ObjectStore, settings: RetentionConfig) {
    // Everything up to this position has been removed.
    let mut done = Lsn(0);
    loop {
        tokio::time::sleep(settings.every).await;
        if settings.calls.is_some() || settings.gates.is_some() {
            match remove_contents(&handle, clock.now(), &settings, &mut done).await {
                Ok(0) => {}
                Ok(removed) => info!(removed, "removed expired contents"),
                Err(RetentionError::Closing) => return,
                Err(error) => warn!(%error, "failed to remove expired contents; retrying later"),
            }
        }
        if let Some(age) = settings.objects
            && let Some(before) = SystemTime::now().checked_sub(age)
        {
            // A file of an outbound message stays until that is delivered, and goes with it.
            match objects.clear_older(before, LETTERS).await {
                Ok(0) => {}
                Ok(removed) => info!(removed, "removed expired objects"),
                Err(error) => warn!(%error, "failed to remove expired objects"),
            }
        }
    }
}

/// Removes contents that are expired at `now`, after position `done`; returns their number.
async fn remove_contents(
    handle: &OwnerHandle,
    now: Millis,
    settings: &RetentionConfig,
    done: &mut Lsn,
) -> Result<usize, RetentionError> {
    let before = |age: Option<Duration>| {
        age.map(|age| Millis(now.0.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX))))
    };
    let (calls, gates) = (before(settings.calls), before(settings.gates));
    let Some(newest) = calls.max(gates) else { return Ok(0) };
    let (log, mut after, mut removed, mut may_advance) = (handle.log(), *done, 0, true);
    loop {
        let page = log.read_records(Partition::ZERO, after, PAGE).await?;
        let Some(last) = page.last().map(|stored| stored.lsn) else { return Ok(removed) };
        let needed = needed_contents(handle).await.ok_or(RetentionError::Closing)?;
        let mut due = Vec::new();
        for stored in &page {
            // Times in a record never go back.
            if stored.at >= newest {
                removed += redact_contents(handle, &due).await?;
                return Ok(removed);
            }
            let limit = match &*stored.kind {
                "call" => calls,
                "gate" => gates,
                _ => None,
            };
            let has_one = stored.content_digest.is_some() && matches!(&*stored.kind, "call" | "gate");
            if has_one && limit.is_some_and(|limit| stored.at < limit) && !needed.contains(&stored.lsn) {
                due.push(stored.lsn);
            } else if has_one && (limit.is_some() || needed.contains(&stored.lsn)) {
                // It is checked again when it is older, or over.
                may_advance = false;
            }
            if may_advance {
                *done = stored.lsn;
            }
        }
        removed += redact_contents(handle, &due).await?;
        after = last;
    }
}

async fn redact_contents(handle: &OwnerHandle, lsns: &[Lsn]) -> Result<usize, LogWriteError> {
    let mut removed = 0;
    for batch in lsns.chunks(BATCH) {
        removed += match handle.log().redact_contents(Partition::ZERO, batch).await {
            // They cannot be read any more; the next removal, or the next pass, empties the rest in the file.
            Err(LogWriteError::Lingers(_)) => batch.len(),
            other => other?,
        };
    }
    Ok(removed)
}

/// Returns the positions of contents that may still be needed; `None` if the owner has ended.
async fn needed_contents(handle: &OwnerHandle) -> Option<BTreeSet<Lsn>> {
    let read = |engine: &Engine| {
        let state = engine.state();
        let open = state.calls().filter(|call| !call.is_over()).map(|call| call.content_lsn());
        let unreceived = state.sessions().filter_map(|session| session.agent_requests());
        let unreceived = unreceived.flat_map(|requester| requester.results().values());
        let unreceived = unreceived.flat_map(|result| [result.proposed_lsn, result.lsn]);
        engine.wants_admitted().into_iter().chain(open).chain(unreceived).collect()
    };
    handle.source(InboxLane::Request).read_state(read).await.map(|(needed, _)| needed)
}
