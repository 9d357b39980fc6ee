//! Servers of which a call was refused.
//!
//! It must not know the reason: the tool may have changed, or the server does not start.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Servers of which a call was refused, and that nobody has compared since. They are no more than there are servers.
#[derive(Debug, Default)]
pub(crate) struct RefusedServers {
    servers: Mutex<BTreeSet<String>>,
    added: Notify,
}

impl RefusedServers {
    pub(crate) fn add(&self, server: &str) {
        self.servers.lock().insert(server.to_owned());
        self.added.notify_one();
    }

    /// Waits until there are servers, and takes them.
    ///
    /// *Cancellation*: nothing is lost.
    pub(crate) async fn wait(&self) -> BTreeSet<String> {
        loop {
            self.added.notified().await;
            let servers = std::mem::take(&mut *self.servers.lock());
            if !servers.is_empty() {
                return servers;
            }
        }
    }
}
