//! Newest entry that this process knows as committed: a database that lacks it has lost entries.
//!
//! It must not know how entries are written.

use std::sync::{Arc, Mutex, PoisonError};

use countersign_core::id::Lsn;
use tokio_postgres::Client;
use tracing::{error, warn};

use super::{query::sql_position, session::PARTITION};
use crate::record::LogHead;

/// Newest entry that the database has confirmed to this process. A clone is the same one.
///
/// A standby that was promoted without it has lost committed entries. The loss is reported when the database is connected again.
#[derive(Clone, Debug)]
pub struct KnownHead(Arc<Mutex<LogHead>>);

impl Default for KnownHead {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(LogHead::EMPTY)))
    }
}

impl KnownHead {
    /// Notes a confirmed entry.
    pub(super) fn advance(&self, head: LogHead) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if head.lsn > known.lsn {
            *known = head;
        }
    }

    /// Reports once if the database lacks the entry.
    pub(super) async fn report_loss(&self, client: &Client, server: &str) {
        let known = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match has_entry(client, known).await {
            Ok(true) => {}
            Ok(false) => {
                log_loss(server, known);
                *self.0.lock().unwrap_or_else(PoisonError::into_inner) = LogHead::EMPTY;
            }
            Err(error) => warn!(%error, "cannot read whether the database has the newest entry"),
        }
    }
}

/// Tells operators that committed entries are gone.
pub(super) fn log_loss(server: &str, known: LogHead) {
    error!(
        %server,
        entry = known.lsn.0,
        "the database lost entries that it had committed; calls that ran may be missing in the record"
    );
}

/// Reports whether the log has an entry at this position with this chain.
pub(super) async fn has_entry(client: &Client, head: LogHead) -> Result<bool, tokio_postgres::Error> {
    if head.lsn == Lsn(0) {
        return Ok(true);
    }
    let row = client
        .query_one(
            "SELECT EXISTS (SELECT 1 FROM countersign.events WHERE partition = $1 AND lsn = $2 AND chain = $3)",
            &[&PARTITION, &sql_position(head.lsn), &head.chain.as_bytes().as_slice()],
        )
        .await?;
    Ok(row.get(0))
}
