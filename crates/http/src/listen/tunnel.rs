//! Tunnels between the nodes of a cluster: a node relays the connection of a client to the node that serves its realm, as an
//! upgraded request. A header names the client, and proves that the sender knows the secret of the cluster.
//!
//! It must not know how nodes find each other.

use std::{
    net::SocketAddr,
    sync::{Arc, LazyLock},
};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use futures_util::future::BoxFuture;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use ring::hmac;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use super::{
    ConnectionInfo,
    accept::{DEAF, serve_connection},
    peer::TcpPeer,
    port_service::{PortService, PortStream},
    write_timeout::WriteDeadline,
};
use crate::log_throttle::LogThrottle;

/// Path of a tunnel.
pub const PATH: &str = "/cluster/tunnel";
/// Protocol that the request is upgraded to.
pub const PROTOCOL: &str = "countersign-tunnel";
/// Header that names the client, with its proof.
pub const HEADER: &str = "x-countersign-tunnel";

/// Purpose of the key, so that no other use of the secret makes the same proof.
const CONTEXT: &[u8] = b"countersign tunnel between nodes, 1";

/// Client of a relayed connection, as the node saw it that the client connected to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TunnelClient {
    /// Client of a port.
    Port {
        /// Its address.
        from: SocketAddr,
        /// False if it may be a command of an agent, which decides nothing.
        may_decide: bool,
        /// True if it is an agent that asks the gateway before its calls, or a command of one.
        is_guarded: bool,
    },
    /// Client of a control socket.
    Socket {
        /// Its user, by number.
        user: u32,
        /// True if it is the user of the gateway, or root.
        is_own_user: bool,
        /// True if it is an agent that asks the gateway before its calls, or a command of one.
        is_guarded: bool,
    },
}

/// Content of the header.
#[derive(Serialize, Deserialize)]
struct TunnelPass {
    /// Process of the node that it is for: no other accepts it.
    process: String,
    client: TunnelClient,
}

/// Key that the nodes of a cluster share.
#[derive(Clone)]
pub struct TunnelKey(hmac::Key);

impl TunnelKey {
    /// Derives the key from the secret of the cluster.
    pub fn from_secret(secret: &SecretString) -> Self {
        let root = hmac::Key::new(hmac::HMAC_SHA256, secret.expose_secret().as_bytes());
        Self(hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&root, CONTEXT).as_ref()))
    }

    /// Returns the header of a tunnel to the node with this `process`.
    pub fn sign(&self, process: &str, client: &TunnelClient) -> String {
        let pass = TunnelPass { process: process.to_owned(), client: client.clone() };
        let text = serde_json::to_string(&pass).unwrap_or_default();
        format!("{}.{text}", hex::encode(hmac::sign(&self.0, text.as_bytes())))
    }

    /// Returns the client that a header names, if a node of the cluster made it for `process`.
    pub fn verify(&self, process: &str, value: &str) -> Option<TunnelClient> {
        let (proof, text) = value.split_once('.')?;
        let proof = hex::decode(proof).ok()?;
        hmac::verify(&self.0, text.as_bytes(), &proof).ok()?;
        let pass: TunnelPass = serde_json::from_str(text).ok()?;
        (pass.process == process).then_some(pass.client)
    }
}

impl std::fmt::Debug for TunnelKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TunnelKey")
    }
}

/// Serves a client of the control socket of another node.
pub type RelayedSocket = Box<dyn Fn(Box<dyn PortStream>, TunnelClient) -> BoxFuture<'static, ()> + Send + Sync>;

/// Tunnels that a node accepts.
pub struct TunnelServer {
    /// Key of the cluster.
    pub key: TunnelKey,
    /// Id of this process.
    pub process: String,
    /// Handler of clients of control sockets.
    pub socket: RelayedSocket,
}

impl TunnelServer {
    fn client_of(&self, headers: &HeaderMap) -> Option<TunnelClient> {
        self.key.verify(&self.process, headers.get(HEADER)?.to_str().ok()?)
    }
}

/// State of [`accept_tunnel`].
#[derive(Clone)]
pub(super) struct TunnelRoute {
    pub(super) server: Arc<TunnelServer>,
    /// Routes for the clients of ports.
    pub(super) router: Router,
    /// The service of the port that the tunnel came to.
    pub(super) service: PortService,
}

/// Refused tunnels.
static REFUSED: LazyLock<Mutex<LogThrottle>> = LazyLock::new(Mutex::default);

/// Accepts tunnels. All other requests pass.
pub(super) async fn accept_tunnel(State(route): State<TunnelRoute>, mut request: Request, next: Next) -> Response {
    if request.uri().path() != PATH {
        return next.run(request).await;
    }
    let is_upgrade = request.method() == Method::GET
        && request.headers().get(header::UPGRADE).is_some_and(|protocol| protocol == PROTOCOL);
    let client = is_upgrade.then(|| route.server.client_of(request.headers())).flatten();
    let (Some(client), Some(carrier)) = (client, request.extensions().get::<ConnectionInfo>().cloned()) else {
        if let Some(before) = REFUSED.lock().try_log() {
            let from = request.extensions().get::<ConnectionInfo>().map(|carrier| carrier.from.to_string());
            tracing::warn!(
                from,
                before,
                "refused a tunnel: another cluster.secret, or not from a node of this cluster"
            );
        }
        return (StatusCode::FORBIDDEN, "Only nodes of this cluster may open tunnels.\n").into_response();
    };
    // It rests while the client does.
    carrier.hand_over();
    let upgraded = hyper::upgrade::on(&mut request);
    let open = route.service.track();
    tokio::spawn(async move {
        let _open = open;
        // The other node has gone.
        let Ok(stream) = upgraded.await else { return };
        let stream = TokioIo::new(stream);
        let place = Arc::clone(&carrier.place);
        let serving = async move {
            match client {
                TunnelClient::Port { from, may_decide, is_guarded } => {
                    let guest = ConnectionInfo {
                        from,
                        place: Arc::clone(&carrier.place),
                        peer: TcpPeer::relayed(may_decide, is_guarded),
                        patience: WriteDeadline::new(DEAF),
                    };
                    serve_connection(stream, route.router, guest, route.service.closes()).await;
                }
                TunnelClient::Socket { .. } => {
                    tokio::select! {
                        () = (route.server.socket)(Box::new(stream), client) => {}
                        () = route.service.ended() => {}
                    }
                }
            }
        };
        tokio::select! {
            () = place.wait_revoked() => {}
            () = serving => {}
        }
    });
    let mut accepted = StatusCode::SWITCHING_PROTOCOLS.into_response();
    accepted.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    accepted.headers_mut().insert(header::UPGRADE, HeaderValue::from_static(PROTOCOL));
    accepted
}

#[cfg(test)]
mod tests {
    use super::{TunnelClient, TunnelKey};

    #[test]
    fn a_pass_is_for_one_process_and_from_one_cluster() {
        let key = TunnelKey::from_secret(&"secret".into());
        let client = TunnelClient::Port { from: "192.0.2.1:5".parse().unwrap(), may_decide: true, is_guarded: false };
        let pass = key.sign("p1", &client);
        assert!(!pass.contains("secret"), "{pass}");
        assert_eq!(key.verify("p1", &pass), Some(client.clone()));
        assert_eq!(key.verify("p2", &pass), None);
        assert_eq!(TunnelKey::from_secret(&"other".into()).verify("p1", &pass), None);
        for forged in [
            pass.replace("192.0.2.1", "192.0.2.2"),
            pass.replace("\"is_guarded\":false", "\"is_guarded\":true"),
            pass.split_once('.').unwrap().1.to_owned(),
            format!(".{}", pass.split_once('.').unwrap().1),
            String::new(),
        ] {
            assert_ne!(forged, pass);
            assert_eq!(key.verify("p1", &forged), None, "{forged}");
        }
    }
}
