//! Activity of a server at one moment, for people.
//!
//! Looking at it starts nothing.

use std::{sync::Arc, time::Duration};

use crate::listing::ServerListing;

/// Activity of a server.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerActivity {
    /// Nothing runs: it is started or reached when it is first needed.
    Idle,
    /// It is started, or lists its tools.
    Busy,
    /// It is connected.
    Connected {
        /// Version of the protocol.
        protocol: String,
        /// Name and version that the server gives itself, escaped and cut.
        program: Option<String>,
        /// Time since the connection was opened.
        since: Duration,
        /// Its tools, if they were listed over this connection.
        listing: Option<Arc<ServerListing>>,
    },
    /// It could not be started or reached, or its connection broke.
    Failed {
        /// Reason, escaped and cut.
        reason: String,
        /// Time until it may be started again. Zero: when it is needed.
        retry_in: Duration,
    },
}
