//! Options with which a log in a database is opened.
//!
//! It must not know how they are used.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use super::{known_head::KnownHead, leases::LeaseClaim};
use crate::view::LogView;

/// Options of a log in a PostgreSQL database.
#[derive(Clone)]
pub struct PostgresOptions {
    /// Address of the database: `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, or `host=HOST dbname=DATABASE user=USER`.
    pub url: String,
    /// Certificates of the authorities that may sign the server's, in PEM. Those of the machine by default.
    pub ca_file: Option<PathBuf>,
    /// The newest format of events that the caller can read. A log in a newer one is refused, an older one is marked
    /// with this.
    pub event_format: u32,
    /// Number of reads that may run at the same time, each on a connection of its own. Writes have one more.
    pub readers: usize,
    /// Longest time that a connection may take to be made.
    pub connect_timeout: Duration,
    /// Longest time that the server may work on one statement, or wait for a lock. A server that is silent for five seconds
    /// more is taken for lost.
    pub statement_timeout: Duration,
    /// Views that are folded from the records as they are written. Their names differ.
    pub views: Vec<Arc<dyn LogView>>,
    /// The lease that allows the caller to write, in a cluster. Another process that has the log open loses it then. Without
    /// one, a log that another process has open for writing is refused.
    pub lease: Option<LeaseClaim>,
    /// Newest entry that the database has confirmed, for several handles of one process.
    pub known_head: KnownHead,
}

impl PostgresOptions {
    /// Returns the defaults for the database at `url`.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            ca_file: None,
            event_format: 1,
            readers: 4,
            connect_timeout: Duration::from_secs(10),
            statement_timeout: Duration::from_secs(30),
            views: Vec::new(),
            lease: None,
            known_head: KnownHead::default(),
        }
    }
}

/// Without the address, since it may hold a password.
impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("ca_file", &self.ca_file)
            .field("event_format", &self.event_format)
            .field("readers", &self.readers)
            .field("views", &self.views)
            .finish_non_exhaustive()
    }
}
