//! Control socket of a node that does not serve the realm: each connection is relayed to the node that does.
//!
//! It must not know the requests.

use std::{io, path::Path, sync::Arc, time::Duration};

use countersign_http::listen::{
    peer::{self, LocalPeer},
    tunnel::TunnelClient,
};
use tokio::{net::UnixStream, sync::Semaphore, time::Instant};

use super::relay::TunnelOpener;
use crate::control::{BoundSocket, DataDirLock, PeerCheck};

/// Most connections at a time.
const MOST: usize = 256;
/// Longest wait for a node that serves the realm.
const PATIENCE: Duration = Duration::from_secs(15);

/// Control socket that relays until it is dropped.
pub(super) struct RelaySocket {
    _bound: BoundSocket,
    serving: tokio::task::JoinHandle<()>,
}

impl RelaySocket {
    /// Opens the socket in `folder`, for the gateway's own user, root, and the `others` of this machine.
    pub(super) fn open(folder: &Path, others: Vec<u32>, opener: TunnelOpener) -> io::Result<Self> {
        let (bound, listener) = BoundSocket::bind(DataDirLock::acquire_lock(folder)?, others)?;
        let check = bound.peer_check();
        let serving = tokio::spawn(async move {
            let places = Arc::new(Semaphore::new(MOST));
            loop {
                let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
                let Ok((stream, _)) = listener.accept().await else {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                };
                let Some((stream, user, is_own_user)) = check.admit(stream) else { continue };
                let (opener, check) = (opener.clone(), check.clone());
                tokio::spawn(async move {
                    let _place = place;
                    relay_connection(stream, (user, is_own_user), &check, &opener).await;
                });
            }
        });
        Ok(Self { _bound: bound, serving })
    }
}

impl Drop for RelaySocket {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn relay_connection(
    stream: UnixStream,
    (user, is_own_user): (u32, bool),
    check: &PeerCheck,
    opener: &TunnelOpener,
) {
    let Ok(local) = LocalPeer::from_stream(&stream) else { return };
    let pid = local.pid();
    if !local.may_decide().await {
        return check.refuse(stream, peer::REFUSED_HERE).await;
    }
    let client = TunnelClient::Socket { user, is_own_user, is_guarded: peer::is_guarded(pid).await };
    match opener.open(&client, Instant::now() + PATIENCE).await {
        Some((owner, tunnel)) => opener.copy(stream, &owner, tunnel).await,
        None => check.refuse(stream, "no node of the cluster serves this realm now").await,
    }
}
