//! Platform of a gateway: its program, record, clock and entropy.

use std::{fmt, path::PathBuf, sync::Arc};

use countersign_config::Config;
use countersign_runtime::{
    Clock, Entropy,
    store::{self, AnyLog, KnownHead, LeaseClaim, LogView, PostgresLog, PostgresOptions, SqliteLog},
    system_entropy,
};

use crate::serve_error::ServeError;

/// Opens the record of a gateway with these views, once all other checks have passed.
pub type OpenRecord = Box<dyn FnOnce(&Config, Vec<Arc<dyn LogView>>) -> Result<AnyLog, ServeError> + Send>;

/// Platform of a gateway. [`Platform::of_this_machine`] unless a test simulates the machine.
pub struct Platform {
    /// Program that is started again for commands of runs.
    pub program: PathBuf,
    /// Opener of its record.
    pub record: OpenRecord,
    /// Clock.
    pub clock: Clock,
    /// Source of ids.
    pub entropy: Entropy,
}

impl Platform {
    /// Returns the same for a node of a cluster, which opens the record with the lease that it holds.
    pub fn of_node(program: PathBuf, lease: LeaseClaim, known_head: KnownHead) -> Self {
        let record: OpenRecord = Box::new(move |config, views| open_leased(config, views, Some(lease), known_head));
        Self { record, ..Self::of_this_machine(program) }
    }

    /// Returns the machine's own clock and entropy, and the record in the file or database that the settings name.
    pub fn of_this_machine(program: PathBuf) -> Self {
        Self { program, record: Box::new(open_record), clock: Clock::system(), entropy: system_entropy() }
    }
}

impl fmt::Debug for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Platform").field("program", &self.program).field("clock", &self.clock).finish_non_exhaustive()
    }
}

fn open_record(config: &Config, views: Vec<Arc<dyn LogView>>) -> Result<AnyLog, ServeError> {
    open_leased(config, views, None, KnownHead::default())
}

fn open_leased(
    config: &Config,
    views: Vec<Arc<dyn LogView>>,
    lease: Option<LeaseClaim>,
    known_head: KnownHead,
) -> Result<AnyLog, ServeError> {
    let path = &config.storage.log;
    if let Some(database) = &config.storage.database {
        let opened = PostgresLog::open(PostgresOptions { views, lease, known_head, ..database.to_options() });
        return opened
            .map(Into::into)
            .map_err(|error| ServeError::Log { path: path.clone(), problem: store::LogOpenError::Database(error) });
    }
    // Space to finish work when the disk is full.
    let ballast = Some(path.with_extension("ballast"));
    let opened = SqliteLog::open(path, store::LogOptions { ballast, views, ..store::LogOptions::default() });
    opened.map(Into::into).map_err(|problem| ServeError::Log { path: path.clone(), problem })
}
