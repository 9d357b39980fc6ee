//! Relay of connections to the node that serves the realm: a tunnel for each.
//!
//! It must not know what a client says.

use std::{io, time::Duration};

use countersign_http::listen::{
    ConnectionRelay, PortService, PortStream, RelayedConnection,
    tunnel::{self, TunnelClient, TunnelKey},
};
use futures_util::{FutureExt as _, future::BoxFuture};
use reqwest::{Certificate, Client, StatusCode, header, redirect};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional_with_sizes},
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    lease_keeper::{NodeState, OwnerNode},
    read_ahead::ReadAhead,
};
use crate::serve_error::ServeError;

/// Time in which a client must begin its request.
const SILENCE: Duration = Duration::from_secs(10);
/// Longest wait of a client for a node that serves the realm.
const PATIENCE: Duration = Duration::from_secs(15);
/// Time limit of opening a tunnel.
const OPENING: Duration = Duration::from_secs(3);
/// Pause after a tunnel could not be opened.
const PAUSE: Duration = Duration::from_millis(100);
/// Time limit of the answer that no node serves the realm.
const REFUSAL: Duration = Duration::from_secs(1);
/// Buffer of each direction, in bytes: most connections rest.
const BUFFER: usize = 4096;

/// Opens tunnels to the owner of the realm.
#[derive(Clone)]
pub(crate) struct TunnelOpener {
    client: Client,
    key: TunnelKey,
    /// Id of this process, to which no tunnel leads.
    process: String,
    state: watch::Receiver<NodeState>,
}

impl TunnelOpener {
    /// Makes the opener of a node. `authorities` are PEM certificates that may sign those of other nodes.
    pub(crate) fn new(
        (key, process): (TunnelKey, String),
        authorities: Option<&[u8]>,
        state: watch::Receiver<NodeState>,
    ) -> Result<Self, ServeError> {
        let builder = Client::builder()
            .no_proxy()
            .http1_only()
            .redirect(redirect::Policy::none())
            .connect_timeout(OPENING)
            .tcp_nodelay(true)
            .tcp_keepalive(Duration::from_secs(10))
            .pool_max_idle_per_host(0);
        let failed = |error: reqwest::Error| ServeError::of_io("cluster.ca_file", io::Error::other(error));
        let builder = match authorities {
            None => builder,
            Some(pem) => builder.tls_certs_only(Certificate::from_pem_bundle(pem).map_err(failed)?),
        };
        Ok(Self { client: builder.build().map_err(failed)?, key, process, state })
    }

    /// Waits for an owner that accepts a tunnel, for as long as clients wait.
    pub(crate) async fn open_soon(&self, client: &TunnelClient) -> Option<(OwnerNode, reqwest::Upgraded)> {
        self.open(client, Instant::now() + PATIENCE).await
    }

    async fn open(&self, client: &TunnelClient, deadline: Instant) -> Option<(OwnerNode, reqwest::Upgraded)> {
        let mut state = self.state.clone();
        let opening = async {
            loop {
                let is_other =
                    |state: &NodeState| state.owner.as_ref().is_some_and(|owner| owner.process != self.process);
                let owner = match state.wait_for(is_other).await {
                    Ok(state) => state.owner.clone(),
                    Err(_) => return None,
                };
                let Some(owner) = owner else { continue };
                match timeout(OPENING, self.open_to(&owner, client)).await {
                    Ok(Ok(tunnel)) => return Some((owner, tunnel)),
                    Ok(Err(error)) => tracing::debug!(%error, node = owner.name, "no tunnel to the owner of the realm"),
                    Err(_) => tracing::debug!(node = owner.name, "the owner of the realm did not answer"),
                }
                sleep(PAUSE).await;
            }
        };
        tokio::select! {
            opened = opening => opened,
            () = sleep_until(deadline) => None,
        }
    }

    async fn open_to(&self, owner: &OwnerNode, client: &TunnelClient) -> io::Result<reqwest::Upgraded> {
        let response = self
            .client
            .get(format!("{}{}", owner.url, tunnel::PATH))
            .header(header::CONNECTION, "upgrade")
            .header(header::UPGRADE, tunnel::PROTOCOL)
            .header(tunnel::HEADER, self.key.sign(&owner.process, client))
            .send()
            .await
            .map_err(io::Error::other)?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(io::Error::other(format!("{} answers {}", owner.name, response.status())));
        }
        response.upgrade().await.map_err(io::Error::other)
    }

    /// Copies both directions until one ends, or another node owns the realm.
    pub(crate) async fn copy(&self, mut stream: impl PortStream, owner: &OwnerNode, mut tunnel: reqwest::Upgraded) {
        let mut state = self.state.clone();
        let is_gone = |state: &NodeState| state.owner.as_ref().is_some_and(|other| other.process != owner.process);
        tokio::select! {
            // An error is the end of one of them.
            _ = copy_bidirectional_with_sizes(&mut stream, &mut tunnel, BUFFER, BUFFER) => {}
            _ = state.wait_for(is_gone) => {}
        }
    }
}

impl ConnectionRelay for TunnelOpener {
    fn relay(
        &self,
        connection: RelayedConnection,
        service: PortService,
    ) -> BoxFuture<'static, Option<Box<dyn PortStream>>> {
        let opener = self.clone();
        async move {
            let RelayedConnection { stream, from, peer } = connection;
            // A client that says nothing needs no tunnel.
            let Ok(Ok(mut stream)) = timeout(SILENCE, ReadAhead::read_first(stream)).await else { return None };
            if stream.first().is_empty() {
                return None;
            }
            // A tunnel of a node that takes this one for the owner ends here, or two nodes could pass it on for ever.
            if is_tunnel(stream.first()) {
                let _ = timeout(REFUSAL, refuse(&mut stream)).await;
                return None;
            }
            let client =
                TunnelClient::Port { from, may_decide: peer.may_decide().await, is_guarded: peer.is_guarded().await };
            let opened = tokio::select! {
                opened = opener.open_soon(&client) => opened,
                () = service.ended() => return Some(Box::new(stream) as Box<dyn PortStream>),
            };
            let Some((owner, tunnel)) = opened else {
                let _ = timeout(REFUSAL, refuse(&mut stream)).await;
                return None;
            };
            tokio::select! {
                () = opener.copy(stream, &owner, tunnel) => {}
                () = service.ended() => {}
            }
            None
        }
        .boxed()
    }
}

/// Reports whether the head of a request that begins so is that of a tunnel.
fn is_tunnel(head: &[u8]) -> bool {
    head.strip_prefix(b"GET ").is_some_and(|rest| rest.starts_with(tunnel::PATH.as_bytes()))
}

/// Tells a client of HTTP that no node serves the realm.
async fn refuse(stream: &mut ReadAhead) -> io::Result<()> {
    const TEXT: &str = "No node of the cluster serves this realm now.\n";
    let head = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\nretry-after: 1\r\nconnection: close";
    stream.write_all(format!("{head}\r\ncontent-length: {}\r\n\r\n{TEXT}", TEXT.len()).as_bytes()).await?;
    stream.shutdown().await?;
    // Its request is read, or the end of the line would overtake the answer.
    let mut passed_over = [0; 1024];
    while stream.read(&mut passed_over).await? > 0 {}
    Ok(())
}
