//! The port of a gateway: one for all network adapters. Host and Origin are checked here for every request; who is
//! who is decided by each adapter.

mod accept;
mod access_log;
mod connection_limiter;
mod connection_quota;
mod guard;
pub mod keep_alive;
pub mod peer;
mod port_service;
mod realm_prefix;
mod realm_routes;
mod streams;
mod tls;
pub mod tunnel;
mod write_timeout;

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    body::HttpBody as _,
    extract::{Request, State},
    http::{StatusCode, header},
    middleware::{Next, from_fn, from_fn_with_state},
    response::{IntoResponse as _, Response},
    routing::get,
};
use futures_util::future::BoxFuture;
use serde_json::json;
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::watch,
};

pub use accept::ConnectionInfo;
pub use connection_limiter::ConnectionPermit;
pub use connection_quota::{ConnectionQuota, few_descriptors_warning, few_descriptors_warning_of_node};
pub use guard::{AllowedHosts, FOREIGN};
use port_service::ConnectionTarget;
pub use port_service::{ConnectionRelay, PortService, PortStream, RelayedConnection};
pub use realm_routes::{PATH as REALMS_PATH, RealmRoutes};
use streams::StreamQuota;
pub use tls::{TlsError, load_server_config as load_tls};

use tunnel::{TunnelRoute, TunnelServer};

use crate::{open_connections::OpenConnections, readiness::ReadinessProbe, reply::finish_response};

/// Most connections that may wait to be accepted.
const BACKLOG: u32 = 4096;
/// Most health checks at once, at the port that serves nothing else.
pub const HEALTH_MOST: usize = 64;
/// Path that is answered as long as the process runs.
pub const LIVEZ: &str = "/livez";
/// Text at that path.
pub const ALIVE: &str = "alive\n";

/// A request for a WebSocket that passed the checks of the port.
pub struct WebSocketRequest {
    /// The request.
    pub request: Request,
    /// The connection that it came over.
    pub guest: ConnectionInfo,
    /// True if no page sent it, or one of the gateway's own.
    pub is_own_page: bool,
}

/// Answers a request for a WebSocket.
pub type WebSockets = Box<dyn Fn(WebSocketRequest) -> BoxFuture<'static, Response> + Send + Sync>;

/// Handlers of a port.
pub struct PortHandlers {
    /// Answers requests for WebSockets.
    pub websockets: WebSockets,
    /// Handler of all requests that are no WebSocket: pages, phones, programs.
    pub pages: Router,
    /// Host names that the gateway answers to.
    pub hosts: AllowedHosts,
    /// Health of the record, messengers and services: whether all are healthy, and the details as JSON text.
    pub health: Box<dyn Fn() -> BoxFuture<'static, (bool, String)> + Send + Sync>,
    /// Reports whether a bearer token is one of this realm.
    pub knows_token: Box<dyn Fn(&str) -> bool + Send + Sync>,
    /// Readiness for work.
    pub readiness: ReadinessProbe,
    /// Counts of its open connections.
    pub open_connections: OpenConnections,
    /// Tunnels of other nodes, in a cluster.
    pub tunnels: Option<Arc<TunnelServer>>,
    /// Reports whether the node still holds the lease of the realm, in a cluster.
    pub holds_lease: Option<Box<dyn Fn() -> bool + Send + Sync>>,
}

/// A port that is bound and not served yet.
pub struct BoundPort {
    listener: TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
}

impl BoundPort {
    /// Binds `address`.
    ///
    /// # Errors
    /// The system's error, such as that the port is taken.
    pub fn bind(address: SocketAddr, tls: Option<Arc<rustls::ServerConfig>>) -> std::io::Result<Self> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(Self { listener: socket.listen(BACKLOG)?, tls })
    }

    /// Returns the address that it is bound to.
    ///
    /// # Errors
    /// The system's error.
    pub fn local_address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns the scheme of its address.
    pub const fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Serves as many connections at once as `quota` allows until `end`, and then no new one. Those that are open are ended by
    /// their adapters, and waited for.
    pub async fn serve(
        self,
        handlers: Arc<PortHandlers>,
        quota: ConnectionQuota,
        end: impl Future<Output = ()> + Send,
    ) {
        let service = PortService::serving(handlers, &quota, self.tls.is_some());
        self.serve_service(service, quota, end).await;
    }

    /// Gives each connection to the service that is the newest then, until `end`. The services end by themselves.
    pub async fn serve_services(
        self,
        services: watch::Receiver<PortService>,
        quota: ConnectionQuota,
        end: impl Future<Output = ()> + Send,
    ) {
        accept::accept_connections(self.listener, self.tls, quota, services, end).await;
    }

    /// Serves `router` to at most `most` connections at once until `end`, and waits for those that are open. It looks at
    /// Host and Origin itself.
    pub async fn serve_router(self, router: Router, most: usize, end: impl Future<Output = ()> + Send) {
        let service = PortService::new(ConnectionTarget::Router(router, Arc::default()));
        self.serve_service(service, ConnectionQuota::of_this_process(most), end).await;
    }

    /// Serves several realms as [`Self::serve`] does one.
    pub async fn serve_realms(
        self,
        realms: &Arc<RealmRoutes>,
        quota: ConnectionQuota,
        end: impl Future<Output = ()> + Send,
    ) {
        self.serve_service(realms.to_service(), quota, end).await;
    }

    /// Serves nothing but the answer whether the realms are well.
    pub async fn serve_realm_health(
        self,
        realms: &Arc<RealmRoutes>,
        quota: ConnectionQuota,
        end: impl Future<Output = ()> + Send,
    ) {
        self.serve_service(realms.to_health_service(), quota, end).await;
    }

    async fn serve_service(self, service: PortService, quota: ConnectionQuota, end: impl Future<Output = ()> + Send) {
        let (_only, services) = watch::channel(service);
        self.serve_services(services, quota, end).await;
    }

    /// Serves nothing but the answer whether the gateway is well.
    pub async fn serve_health(
        self,
        handlers: Arc<PortHandlers>,
        quota: ConnectionQuota,
        end: impl Future<Output = ()> + Send,
    ) {
        let http = Arc::clone(&handlers.open_connections.http);
        let router =
            probe_router(Arc::clone(&handlers)).layer(from_fn_with_state((handlers, false), guard::guard_request));
        self.serve_service(PortService::new(ConnectionTarget::Router(router, http)), quota, end).await;
    }
}

impl PortService {
    /// Makes the service that handles the connections of a port with `quota`.
    pub fn serving(handlers: Arc<PortHandlers>, quota: &ConnectionQuota, is_tls: bool) -> Self {
        let OpenConnections { stream, http, .. } = handlers.open_connections.clone();
        let tunnels = handlers.tunnels.clone();
        let router = port_router(handlers, is_tls, StreamQuota::new(quota.max_connections(), stream));
        let service = Self::new(ConnectionTarget::Router(router.clone(), Arc::clone(&http)));
        let Some(server) = tunnels else { return service };
        let route = TunnelRoute { server, router: router.clone(), service: service.clone() };
        service.with_router(router.layer(from_fn_with_state(route, tunnel::accept_tunnel)), http)
    }
}

fn port_router(handlers: Arc<PortHandlers>, is_tls: bool, stream_quota: StreamQuota) -> Router {
    let pages = handlers.pages.clone();
    probe_router(Arc::clone(&handlers))
        .merge(pages)
        .layer(from_fn_with_state(stream_quota, streams::admit_stream))
        .layer(from_fn(access_log::log_request))
        .layer(from_fn(finish_response))
        .layer(from_fn_with_state(Arc::clone(&handlers), forward_websocket))
        .layer(from_fn_with_state((Arc::clone(&handlers), is_tls), guard::guard_request))
        .layer(from_fn_with_state(handlers, check_lease))
}

/// Makes the routes of one of several realms of a port, which share `streams`.
fn realm_router(handlers: Arc<PortHandlers>, streams: &StreamQuota, is_tls: bool) -> Router {
    let stream = Arc::clone(&handlers.open_connections.stream);
    port_router(handlers, is_tls, streams.counted_by(stream))
}

/// Routes for monitoring; they reveal nothing that needs authorization.
fn probe_router(handlers: Arc<PortHandlers>) -> Router {
    Router::new()
        .route("/healthz", get(answer_health))
        .route(LIVEZ, get(async || ALIVE))
        .route("/readyz", get(answer_ready))
        .with_state(handlers)
}

async fn answer_ready(State(handlers): State<Arc<PortHandlers>>) -> Response {
    let problems = handlers.readiness.find_problems().await;
    let (status, word) = match problems.is_empty() {
        true => (StatusCode::OK, "ready"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready"),
    };
    let body = json!({ "status": word, "problems": problems }).to_string();
    (status, [("content-type", "application/json")], body).into_response()
}

async fn answer_health(State(handlers): State<Arc<PortHandlers>>) -> Response {
    let (is_well, body) = (handlers.health)().await;
    let status = if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, [("content-type", "application/json")], body).into_response()
}

impl PortHandlers {
    /// Reports whether the node still holds the lease of the realm. A gateway that is alone needs none.
    fn has_lease(&self) -> bool {
        self.holds_lease.as_ref().is_none_or(|holds_lease| holds_lease())
    }
}

/// Refuses requests to a node that was stopped for so long that another serves the realm by now.
async fn check_lease(State(handlers): State<Arc<PortHandlers>>, request: Request, next: Next) -> Response {
    if request.uri().path() == LIVEZ || handlers.has_lease() {
        let guest = request.extensions().get::<ConnectionInfo>().cloned();
        let response = next.run(request).await;
        // Every later event and message is checked when it is written.
        let is_stream =
            response.status() == StatusCode::SWITCHING_PROTOCOLS || response.body().size_hint().exact().is_none();
        if let Some(guest) = guest
            && is_stream
            && handlers.holds_lease.is_some()
        {
            guest.patience.write_only_while(move || handlers.has_lease());
        }
        return response;
    }
    let text = "This node of the cluster does not serve the realm any more.\n";
    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1"), (header::CONNECTION, "close")], text).into_response()
}

/// Hands on requests for WebSockets.
async fn forward_websocket(State(handlers): State<Arc<PortHandlers>>, request: Request, next: Next) -> Response {
    let wants = request.headers().get(header::UPGRADE).and_then(|value| value.to_str().ok());
    if !wants.is_some_and(|protocol| protocol.eq_ignore_ascii_case("websocket")) {
        return next.run(request).await;
    }
    let Some(guest) = request.extensions().get::<ConnectionInfo>().cloned() else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let is_own_page = handlers.hosts.is_own_page(&request);
    (handlers.websockets)(WebSocketRequest { request, guest, is_own_page }).await
}
