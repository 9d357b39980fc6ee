//! Readiness of a gateway for work: its record can be written, its owner answers, and there is room on the disk.
//!
//! The reply names no file and no cause, because it needs no login. The cause is logged.

use std::{path::PathBuf, time::Duration};

use countersign_runtime::{
    InboxLane, OwnerHandle,
    store::{Log as _, LogHead, LogWriteError, Partition, free_space},
};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};
use tracing::{info, warn};

use crate::{log_throttle::LogThrottle, read_failures::cause_text};

/// Time for which a result holds: frequent checks do not cause frequent writes.
const FRESH: Duration = Duration::from_secs(1);
/// Time limit of the owner and the record.
const PATIENCE: Duration = Duration::from_secs(2);
/// Less room than this, in bytes, is too little to take work.
const LEAST: u64 = 32 << 20;

const UNWRITABLE: &str = "the record cannot be written";
const FULL: &str = "the disk of the record is full";

/// Readiness check of the gateway.
pub struct ReadinessProbe {
    handle: OwnerHandle,
    folder: PathBuf,
    found: Mutex<Option<(Instant, Vec<&'static str>)>>,
    failing: parking_lot::Mutex<LogThrottle>,
}

impl ReadinessProbe {
    /// Makes the readiness check of the gateway with that owner and data directory.
    pub fn new(handle: OwnerHandle, folder: PathBuf) -> Self {
        Self { handle, folder, found: Mutex::new(None), failing: parking_lot::Mutex::default() }
    }

    /// Returns the problems that keep the gateway from taking work; none if it can.
    pub async fn find_problems(&self) -> Vec<&'static str> {
        let mut found = self.found.lock().await;
        if let Some((at, problems)) = &*found
            && at.elapsed() < FRESH
            && (!problems.is_empty() || !self.is_refusing())
        {
            return problems.clone();
        }
        let (owner, record) = tokio::join!(self.check_owner(), self.check_record());
        let problems: Vec<&'static str> = [owner, record, self.check_disk()].into_iter().flatten().collect();
        let before = found.replace((Instant::now(), problems.clone())).map(|(_, problems)| problems);
        if problems.is_empty() && before.is_some_and(|before| !before.is_empty()) {
            info!("ready again");
        }
        problems
    }

    async fn check_owner(&self) -> Option<&'static str> {
        let source = self.handle.source(InboxLane::Request);
        match timeout(PATIENCE, source.read_state(|_| ())).await {
            Ok(Some(_)) => None,
            Ok(None) => Some("the owner of the record has ended"),
            Err(_) => Some("the owner of the record does not answer in time"),
        }
    }

    /// Reports whether requests are refused since an append failed.
    fn is_refusing(&self) -> bool {
        self.handle.metrics().refusing.get() > 0
    }

    async fn check_record(&self) -> Option<&'static str> {
        let log = self.handle.log();
        let written = async {
            // A record that holds nothing yet has no file, and a check does not make one.
            let head = log.head(Partition::ZERO).await.map_err(|error| (UNWRITABLE, cause_text(&error)))?;
            if head == LogHead::EMPTY {
                return Ok(());
            }
            log.probe_write().await.map_err(|error| {
                let problem = if matches!(error, LogWriteError::Full) { FULL } else { UNWRITABLE };
                (problem, cause_text(&error))
            })
        };
        match timeout(PATIENCE, written).await {
            // The owner tries it again within a second.
            Ok(Ok(())) => self.is_refusing().then_some(UNWRITABLE),
            Ok(Err((problem, error))) => {
                if let Some(before) = self.failing.lock().try_log() {
                    warn!(error, before, "not ready: {problem}");
                }
                Some(problem)
            }
            Err(_) => Some("the record cannot be written in time"),
        }
    }

    fn check_disk(&self) -> Option<&'static str> {
        match free_space(&self.folder) {
            Ok(free) if free >= LEAST => None,
            Ok(free) => {
                warn!(free, "not ready: too little free disk space");
                Some("too little free disk space")
            }
            Err(error) => {
                warn!(%error, "not ready: cannot read the free space of the data directory");
                Some("cannot read the free space of the data directory")
            }
        }
    }
}
