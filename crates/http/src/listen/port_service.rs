//! What a port does with its connections: it serves them itself, or lets another node of its cluster serve them.
//!
//! It must not know how another node is reached.

use std::{net::SocketAddr, sync::Arc};

use axum::Router;
use countersign_runtime::metrics::Gauge;
use futures_util::future::BoxFuture;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
};
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};

use super::peer::TcpPeer;

/// Stream of a connection, TLS removed.
pub trait PortStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> PortStream for S {}

/// Connection that another node may serve. Nothing of it was read yet.
pub struct RelayedConnection {
    /// Its stream.
    pub stream: Box<dyn PortStream>,
    /// Address of the client.
    pub from: SocketAddr,
    /// Process of the client.
    pub peer: TcpPeer,
}

/// Passes connections to the node that serves the realm.
pub trait ConnectionRelay: Send + Sync {
    /// Relays a connection until one end closes it, or until `service` ends. Returns the stream if the service ended before anything of
    /// it was read.
    fn relay(
        &self,
        connection: RelayedConnection,
        service: PortService,
    ) -> BoxFuture<'static, Option<Box<dyn PortStream>>>;
}

/// Handling of the connections of a port, until it ends. A clone is the same service.
#[derive(Clone)]
pub struct PortService {
    target: ConnectionTarget,
    closing: Arc<watch::Sender<bool>>,
    open: TaskTracker,
}

/// Handler of a connection.
#[derive(Clone)]
pub(super) enum ConnectionTarget {
    /// These routes. The gauge counts connections.
    Router(Router, Arc<Gauge>),
    /// Another node.
    Relay(Arc<dyn ConnectionRelay>),
}

impl PortService {
    /// Makes a service that gives each connection to another node.
    pub fn relayed(relay: Arc<dyn ConnectionRelay>) -> Self {
        Self::new(ConnectionTarget::Relay(relay))
    }

    pub(super) fn new(target: ConnectionTarget) -> Self {
        Self { target, closing: Arc::new(watch::Sender::new(false)), open: TaskTracker::new() }
    }

    /// Returns the same service with other routes.
    pub(super) fn with_router(self, router: Router, open: Arc<Gauge>) -> Self {
        Self { target: ConnectionTarget::Router(router, open), ..self }
    }

    /// Ends it: connections are closed once they have their answers, and those of other nodes are cut.
    pub fn end(&self) {
        self.closing.send_replace(true);
        self.open.close();
    }

    /// Waits until it has ended and all connections that it served are closed.
    pub async fn closed(&self) {
        self.open.wait().await;
    }

    /// Counts a connection, until the token is dropped.
    pub(super) fn track(&self) -> TaskTrackerToken {
        self.open.token()
    }

    /// Waits until it ends.
    pub async fn ended(&self) {
        // The sender is ours, so it cannot be gone.
        let _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }

    pub(super) fn closes(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }

    pub(super) const fn target(&self) -> &ConnectionTarget {
        &self.target
    }
}

impl std::fmt::Debug for PortService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.target {
            ConnectionTarget::Router(..) => "Router",
            ConnectionTarget::Relay(_) => "Relay",
        };
        f.debug_tuple("PortService").field(&kind).finish()
    }
}
