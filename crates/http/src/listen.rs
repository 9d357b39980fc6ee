//! The port of a gateway: one for all network doors. Who may speak at all is decided here, by Host and Origin; who is
//! who is decided by each door.

mod crowd;
mod guard;
mod impatient;
pub mod peer;
pub mod pulse;
mod rooms;
pub mod seldom;
mod streams;
mod taking;
mod tls;
mod told;

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    extract::{Request, State},
    http::{StatusCode, header},
    middleware::{Next, from_fn, from_fn_with_state},
    response::{IntoResponse as _, Response},
    routing::get,
};
use futures_util::future::BoxFuture;
use serde_json::json;
use tokio::net::{TcpListener, TcpSocket};

pub use crowd::Place;
pub use guard::{FOREIGN, Hosts};
pub use rooms::{Rooms, few};
use streams::Streams;
pub use taking::Guest;
pub use tls::{TlsError, load as load_tls};

use crate::{open_connections::OpenConnections, readiness::Readiness, reply::dress};

/// How many connections may wait to be taken.
const BACKLOG: u32 = 4096;
/// How many may ask at once whether the gateway is well, at the port that is for nothing else.
pub const HEALTH_MOST: usize = 64;
/// A request for a WebSocket that passed the checks of the port.
pub struct WebSocketRequest {
    /// The request.
    pub request: Request,
    /// The connection that it came over.
    pub guest: Guest,
    /// Whether no page sent it, or one of the gateway's own.
    pub is_own_page: bool,
}

/// Answers a request for a WebSocket.
pub type WebSockets = Box<dyn Fn(WebSocketRequest) -> BoxFuture<'static, Response> + Send + Sync>;

/// What answers behind a port.
pub struct Doors {
    /// Answers requests for WebSockets.
    pub websockets: WebSockets,
    /// Everything that is no WebSocket: pages, phones, programs.
    pub pages: Router,
    /// Which names the gateway answers to.
    pub hosts: Hosts,
    /// Whether the record answers and messengers and services do: whether that is well, and all of it as JSON text.
    pub health: Box<dyn Fn() -> BoxFuture<'static, (bool, String)> + Send + Sync>,
    /// Whether work can be taken.
    pub readiness: Readiness,
    /// Counts of its open connections.
    pub open_connections: OpenConnections,
}

/// A port that is bound and not served yet.
pub struct Port {
    listener: TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
}

impl Port {
    /// Binds `address`.
    ///
    /// # Errors
    /// What the system says, such as that the port is taken.
    pub fn bind(address: SocketAddr, tls: Option<Arc<rustls::ServerConfig>>) -> std::io::Result<Self> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(Self { listener: socket.listen(BACKLOG)?, tls })
    }

    /// The address that it is bound to.
    ///
    /// # Errors
    /// What the system says.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// How its address begins.
    pub const fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Serves as many connections at once as `rooms` has until `end`, and then no new one. Those that are open are told by
    /// their doors, and waited for.
    pub async fn serve(self, doors: Arc<Doors>, rooms: Rooms, end: impl Future<Output = ()> + Send) {
        let OpenConnections { stream, http, .. } = doors.open_connections.clone();
        let router = router(doors, self.tls.is_some(), Streams::new(rooms.most(), stream));
        taking::take(self.listener, self.tls, rooms, router, http, end).await;
    }

    /// Serves `router` to at most `most` connections at once until `end`, and waits for those that are open. It looks at
    /// Host and Origin itself.
    pub async fn serve_router(self, router: Router, most: usize, end: impl Future<Output = ()> + Send) {
        taking::take(self.listener, self.tls, Rooms::of_this_process(most), router, Arc::default(), end).await;
    }

    /// Serves nothing but the answer whether the gateway is well.
    pub async fn serve_health(self, doors: Arc<Doors>, rooms: Rooms, end: impl Future<Output = ()> + Send) {
        let http = Arc::clone(&doors.open_connections.http);
        let router = watched(Arc::clone(&doors)).layer(from_fn_with_state((doors, false), guard::check));
        taking::take(self.listener, self.tls, rooms, router, http, end).await;
    }
}

fn router(doors: Arc<Doors>, is_tls: bool, room: Streams) -> Router {
    let pages = doors.pages.clone();
    watched(Arc::clone(&doors))
        .merge(pages)
        .layer(from_fn_with_state(room, streams::admit))
        .layer(from_fn(told::tell))
        .layer(from_fn(dress))
        .layer(from_fn_with_state(Arc::clone(&doors), websockets))
        .layer(from_fn_with_state((doors, is_tls), guard::check))
}

/// What whoever watches over the process asks; it tells nothing that only some may know.
fn watched(doors: Arc<Doors>) -> Router {
    Router::new()
        .route("/healthz", get(health))
        .route("/livez", get(async || "alive\n"))
        .route("/readyz", get(ready))
        .with_state(doors)
}

async fn ready(State(doors): State<Arc<Doors>>) -> Response {
    let problems = doors.readiness.problems().await;
    let (status, word) = match problems.is_empty() {
        true => (StatusCode::OK, "ready"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready"),
    };
    let told = json!({ "status": word, "problems": problems }).to_string();
    (status, [("content-type", "application/json")], told).into_response()
}

async fn health(State(doors): State<Arc<Doors>>) -> Response {
    let (is_well, told) = (doors.health)().await;
    let status = if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, [("content-type", "application/json")], told).into_response()
}

/// Hands on requests for WebSockets.
async fn websockets(State(doors): State<Arc<Doors>>, request: Request, next: Next) -> Response {
    let wants = request.headers().get(header::UPGRADE).and_then(|wanted| wanted.to_str().ok());
    if !wants.is_some_and(|wanted| wanted.eq_ignore_ascii_case("websocket")) {
        return next.run(request).await;
    }
    let Some(guest) = request.extensions().get::<Guest>().cloned() else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let is_own_page = doors.hosts.is_own_page(&request);
    (doors.websockets)(WebSocketRequest { request, guest, is_own_page }).await
}
