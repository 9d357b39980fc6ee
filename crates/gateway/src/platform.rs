//! What a gateway stands on: the program it is, its record, its time and its chance.

use std::{fmt, path::PathBuf, sync::Arc};

use countersign_config::Config;
use countersign_runtime::{
    Clock, Entropy,
    store::{self, AnyLog, LogView, SqliteLog},
    system_entropy,
};

use crate::serve_error::ServeError;

/// Opens the record of a gateway with these views, once nothing else stands in its way.
pub type OpenRecord = Box<dyn FnOnce(&Config, Vec<Arc<dyn LogView>>) -> Result<AnyLog, ServeError> + Send>;

/// What a gateway stands on. [`Ground::of_this_machine`] unless somebody plays the machine.
pub struct Platform {
    /// What is started again for commands of runs.
    pub program: PathBuf,
    /// Where its record comes from.
    pub record: OpenRecord,
    /// What time it is.
    pub clock: Clock,
    /// Where ids come from.
    pub entropy: Entropy,
}

impl Platform {
    /// The machine's own clock and chance, and the record in the file that the settings name.
    pub fn of_this_machine(program: PathBuf) -> Self {
        Self { program, record: Box::new(open_file), clock: Clock::system(), entropy: system_entropy() }
    }
}

impl fmt::Debug for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ground").field("program", &self.program).field("clock", &self.clock).finish_non_exhaustive()
    }
}

fn open_file(config: &Config, views: Vec<Arc<dyn LogView>>) -> Result<AnyLog, ServeError> {
    let path = &config.storage.log;
    // Space for the end of what was begun when the disk is full.
    let ballast = Some(path.with_extension("ballast"));
    let opened = SqliteLog::open(path, store::LogOptions { ballast, views, ..store::LogOptions::default() });
    opened.map(Into::into).map_err(|problem| ServeError::Log { path: path.clone(), problem })
}
