//! Permanent grants that were given in attached sessions, written into the files of their agent directories.
//!
//! They are given from anywhere, whether or not a host is there; so one follower writes them all.

use std::path::Path;

use countersign_core::{
    engine::Event,
    policy::{self, Grant, GrantReach},
};
use countersign_runtime::{OwnerHandle, ReleasedItem};
use tokio::sync::watch;
use tracing::warn;

use crate::grants;

/// Position up to which grants are written.
pub struct GrantWriter(watch::Receiver<u64>);

impl GrantWriter {
    /// Follows from here on; `None` if there is nothing to follow any more.
    pub(super) async fn follow_log(handle: &OwnerHandle) -> Option<Self> {
        // Not the facts alone: others wait for positions, which live frames move as well.
        let mut subscriber = handle.subscribe().await?;
        let (at, reached) = watch::channel(subscriber.position());
        tokio::spawn(async move {
            while let Some(released) = subscriber.next().await {
                if let Some((realm, grant)) = granted_in_realm(&released) {
                    let kept = tokio::task::spawn_blocking(move || save_realm_grant(&realm, grant)).await;
                    if let Err(failed) = kept.map_err(std::io::Error::other).flatten() {
                        warn!(error = %failed, "failed to save a grant; it applies until its host reconnects");
                    }
                }
                at.send_replace(subscriber.position());
            }
        });
        Some(Self(reached))
    }

    /// Waits until what was released before `position` is in the files. False if it never will be.
    pub async fn wait_for_position(&self, position: u64) -> bool {
        self.0.clone().wait_for(|at| *at >= position).await.is_ok()
    }
}

/// Returns a grant of a realm that an answer gave. What was adopted belongs to no session, and came from the file.
fn granted_in_realm(released: &ReleasedItem) -> Option<(String, Grant)> {
    let ReleasedItem::Fact(recorded) = released else { return None };
    let Event::Policy(policy::Event::Granted(grant)) = &recorded.fact.event else { return None };
    match &grant.scope {
        GrantReach::Realm(realm) if recorded.meta.session.is_some() => Some((realm.clone(), grant.clone())),
        GrantReach::Realm(_) | GrantReach::Always | GrantReach::Session(_) => None,
    }
}

/// Saves a grant of a realm: in the file it is one of every session, as those of sessions with logs of their own are.
fn save_realm_grant(realm: &str, grant: Grant) -> std::io::Result<()> {
    grants::save_grant(&Path::new(realm).join(grants::FILE), &Grant { scope: GrantReach::Always, ..grant })
}
