//! Relay of connections to the node that serves the realm: a tunnel for each.
//!
//! It must not know what a client says.

use std::{io, sync::Arc, time::Duration};

use countersign_http::listen::{
    ALIVE, ConnectionRelay, LIVEZ, PortService, PortStream, RelayedConnection,
    tunnel::{self, TunnelClient, TunnelKey},
};
use countersign_http::log_throttle::LogThrottle;
use futures_util::{FutureExt as _, future::BoxFuture};
use parking_lot::Mutex;
use reqwest::{Certificate, Client, StatusCode, header, redirect};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy},
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
pub(super) const OPENING: Duration = Duration::from_secs(3);
/// Pause after a tunnel could not be opened.
const PAUSE: Duration = Duration::from_millis(100);
/// Time for which a client may stay after the owner has ended the connection.
const FAREWELL: Duration = Duration::from_secs(2);
/// Time limit of the answer that no node serves the realm.
const REFUSAL: Duration = Duration::from_secs(1);
/// Answer to a tunnel that came to the wrong node.
const NOT_THE_OWNER: &str = "This node does not serve the realm";

/// Opens tunnels to the owner of the realm.
#[derive(Clone)]
pub(crate) struct TunnelOpener {
    client: Client,
    key: TunnelKey,
    /// Id of this process, to which no tunnel leads.
    process: String,
    state: watch::Receiver<NodeState>,
    failing: Arc<Mutex<TunnelFailures>>,
}

/// Failures to reach the owner.
#[derive(Default)]
struct TunnelFailures {
    /// Process of the owner, and the first failure since a tunnel to it was opened.
    since: Option<(String, Instant)>,
    throttle: LogThrottle,
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
        Ok(Self { client: builder.build().map_err(failed)?, key, process, state, failing: Arc::default() })
    }

    /// Waits for an owner that accepts a tunnel, for as long as clients wait.
    ///
    /// # Errors
    /// Why there is none, for the client.
    pub(crate) async fn open_soon(&self, client: &TunnelClient) -> Result<(OwnerNode, reqwest::Upgraded), String> {
        if let Some(opened) = self.open(client, Instant::now() + PATIENCE).await {
            return Ok(opened);
        }
        let owner = self.state.borrow().owner.clone().filter(|owner| owner.process != self.process);
        Err(match owner {
            Some(owner) => format!("This node cannot reach node {}, which serves the realm; see its log", owner.name),
            None => "No node of the cluster serves this realm now".to_owned(),
        })
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
                    Ok(Ok(tunnel)) => {
                        self.failing.lock().since = None;
                        return Some((owner, tunnel));
                    }
                    Ok(Err(error)) => self.warn_unreachable(&owner, &cause_text(&error)),
                    Err(_) => self.warn_unreachable(&owner, "no answer"),
                }
                sleep(PAUSE).await;
            }
        };
        tokio::select! {
            opened = opening => opened,
            () = sleep_until(deadline) => None,
        }
    }

    /// Warns that a node cannot be reached, but not at the first failure: a node that was killed is the owner until its lease ends.
    fn warn_unreachable(&self, owner: &OwnerNode, problem: &str) {
        let mut failing = self.failing.lock();
        let since = match &failing.since {
            Some((process, since)) if *process == owner.process => *since,
            Some(_) | None => Instant::now(),
        };
        failing.since = Some((owner.process.clone(), since));
        if since.elapsed() >= OPENING && failing.throttle.try_log().is_some() {
            let (node, url) = (&owner.name, &owner.url);
            tracing::warn!(
                problem,
                "node {node} serves the realm and cannot be reached at {url} (its cluster.advertise)"
            );
        }
    }

    /// Requests a tunnel, and returns the answer of the node.
    pub(super) async fn request_tunnel(
        &self,
        owner: &OwnerNode,
        client: &TunnelClient,
    ) -> io::Result<reqwest::Response> {
        let request = self
            .client
            .get(format!("{}{}", owner.url, tunnel::PATH))
            .header(header::CONNECTION, "upgrade")
            .header(header::UPGRADE, tunnel::PROTOCOL)
            .header(tunnel::HEADER, self.key.sign(&owner.process, client));
        request.send().await.map_err(io::Error::other)
    }

    async fn open_to(&self, owner: &OwnerNode, client: &TunnelClient) -> io::Result<reqwest::Upgraded> {
        let response = self.request_tunnel(owner, client).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let hint =
                if response.status() == StatusCode::FORBIDDEN { ": is its cluster.secret the same?" } else { "" };
            return Err(io::Error::other(format!("it answers {}{hint}", response.status())));
        }
        response.upgrade().await.map_err(io::Error::other)
    }

    /// Copies both directions until both have ended, the owner has ended its direction a while ago, or another node owns the realm.
    pub(crate) async fn copy(&self, stream: impl PortStream, owner: &OwnerNode, tunnel: reqwest::Upgraded) {
        let mut state = self.state.clone();
        let is_gone = |state: &NodeState| state.owner.as_ref().is_some_and(|other| other.process != owner.process);
        let (mut from_client, mut to_client) = tokio::io::split(stream);
        let (mut from_owner, mut to_owner) = tokio::io::split(tunnel);
        // An error is the end of a direction.
        let requests = async {
            let _ = copy(&mut from_client, &mut to_owner).await;
            let _ = to_owner.shutdown().await;
        };
        let replies = async {
            // It flushes whenever nothing more comes: a reply over TLS must not wait for the next.
            let _ = copy(&mut from_owner, &mut to_client).await;
            let _ = to_client.shutdown().await;
            sleep(FAREWELL).await;
        };
        let both = async {
            let mut replies = std::pin::pin!(replies);
            tokio::select! {
                () = &mut replies => {}
                () = requests => replies.await,
            }
        };
        tokio::select! {
            () = both => {}
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
            if is_for(stream.first(), LIVEZ) {
                let _ = timeout(REFUSAL, answer(&mut stream, "200 OK", ALIVE)).await;
                return None;
            }
            // A tunnel of a node that takes this one for the owner ends here, or two nodes could pass it on for ever.
            if is_for(stream.first(), tunnel::PATH) {
                let _ = timeout(REFUSAL, refuse(&mut stream, NOT_THE_OWNER)).await;
                return None;
            }
            let client =
                TunnelClient::Port { from, may_decide: peer.may_decide().await, is_guarded: peer.is_guarded().await };
            let opened = tokio::select! {
                opened = opener.open_soon(&client) => opened,
                () = service.ended() => return Some(Box::new(stream) as Box<dyn PortStream>),
            };
            let (owner, tunnel) = match opened {
                Ok(opened) => opened,
                Err(why) => {
                    let _ = timeout(REFUSAL, refuse(&mut stream, &why)).await;
                    return None;
                }
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

/// Returns the text of an error with its causes.
pub(super) fn cause_text(error: &io::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.get_ref().and_then(|inner| std::error::Error::source(inner));
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

/// Reports whether the head of a request begins with a `GET` of `path`.
fn is_for(head: &[u8], path: &str) -> bool {
    let rest = head.strip_prefix(b"GET ").and_then(|rest| rest.strip_prefix(path.as_bytes()));
    rest.is_some_and(|rest| rest.first().is_none_or(|next| matches!(next, b' ' | b'?')))
}

/// Tells a client of HTTP why the realm is not served.
async fn refuse(stream: &mut ReadAhead, why: &str) -> io::Result<()> {
    answer(stream, "503 Service Unavailable\r\nretry-after: 1", &format!("{why}.\n")).await
}

/// Answers a request, and closes the connection.
async fn answer(stream: &mut ReadAhead, status: &str, text: &str) -> io::Result<()> {
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: text/plain\r\nconnection: close");
    stream.write_all(format!("{head}\r\ncontent-length: {}\r\n\r\n{text}", text.len()).as_bytes()).await?;
    stream.shutdown().await?;
    // Its request is read, or the end of the line would overtake the answer.
    let mut passed_over = [0; 1024];
    while stream.read(&mut passed_over).await? > 0 {}
    Ok(())
}
