//! Requests to the editor that wait for their replies.

use std::{collections::BTreeMap, sync::Arc};

use countersign_core::id::GateId;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::feed_command::FeedCommand;

/// Open requests of one connection, by id.
#[derive(Clone, Default)]
pub(crate) struct ClientRequests(Arc<Mutex<RequestTable>>);

#[derive(Default)]
struct RequestTable {
    last: u64,
    by_id: BTreeMap<u64, (GateId, mpsc::Sender<FeedCommand>)>,
}

impl ClientRequests {
    /// Takes an id for a request about `gate`, whose reply goes to `feed`.
    pub(crate) fn begin(&self, gate: GateId, feed: &mpsc::Sender<FeedCommand>) -> u64 {
        let mut open = self.0.lock();
        open.last += 1;
        let id = open.last;
        open.by_id.insert(id, (gate, feed.clone()));
        id
    }

    /// Drops a request. Its reply is ignored.
    pub(crate) fn forget(&self, id: u64) {
        self.0.lock().by_id.remove(&id);
    }

    /// Hands a reply on. One to no open request is ignored: it crossed the withdrawal.
    pub(crate) async fn resolve(&self, id: u64, result: Result<Value, String>) {
        let found = self.0.lock().by_id.remove(&id);
        if let Some((gate, feed)) = found {
            // A feed that has ended has left the gate to others.
            let _ = feed.send(FeedCommand::Replied { gate, result }).await;
        }
    }
}
