//! Listing of a session while its adapter is open, under its current id.
//!
//! It must not know what the session does.

use std::sync::Arc;

use countersign_adapter_omp::SessionListing;
use countersign_protocol::gjc::registry::{SessionRecord, SessionTransport};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::registry::{RegistryEntry, SessionRegistry};

/// Lists a session until it is dropped.
#[derive(Debug)]
pub struct SessionPresence {
    listing: Arc<Mutex<Option<RegistryEntry>>>,
    following: JoinHandle<()>,
}

impl SessionPresence {
    /// Lists the session of `listing`, which is reached by `transport`, at `endpoint` if that has one. A session that cannot be
    /// listed is open all the same. Must be called within a runtime.
    pub fn for_listing(listing: SessionListing, transport: SessionTransport, endpoint: Option<String>) -> Self {
        let SessionListing { agent_dir, record, mut current } = listing;
        let registry = SessionRegistry::for_agent_dir(&agent_dir);
        let listing = registry.add_session(SessionRecord { transport, endpoint, ..record });
        let listing =
            listing.inspect_err(|error| tracing::warn!(%error, "failed to add the session to the registry")).ok();
        let listing = Arc::new(Mutex::new(listing));
        let listed = Arc::clone(&listing);
        let following = tokio::spawn(async move {
            while current.changed().await.is_ok() {
                let (session, listed) = (current.borrow_and_update().clone(), Arc::clone(&listed));
                // The folder may be held by another process, or on a slow disk.
                let follow = move || {
                    if let Some(listing) = listed.lock().as_mut() {
                        listing.switch_session(&session);
                    }
                };
                let _ = tokio::task::spawn_blocking(follow).await;
            }
        });
        Self { listing, following }
    }
}

impl Drop for SessionPresence {
    fn drop(&mut self) {
        self.following.abort();
        self.listing.lock().take();
    }
}
