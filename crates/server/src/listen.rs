//! The port of a gateway: one for all network doors. Who may speak at all is decided here, by Host and Origin; who is
//! who is decided by each door.

mod crowd;
mod guard;
mod impatient;
pub(crate) mod peer;
pub mod pulse;
mod rooms;
pub(crate) mod seldom;
mod streams;
mod taking;
mod tls;
mod told;

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    extract::{FromRequest as _, Request, State, WebSocketUpgrade},
    http::{StatusCode, header},
    middleware::{Next, from_fn, from_fn_with_state},
    response::{IntoResponse as _, Response},
    routing::get,
};
use countersign_protocol::{agent_gate::LARGEST_FRAME, gsv};
use futures_util::future::BoxFuture;
use serde_json::json;
use tokio::net::{TcpListener, TcpSocket};

pub(crate) use crowd::Place;
pub use guard::Hosts;
pub(crate) use rooms::{Rooms, few};
use streams::Streams;
pub(crate) use taking::Guest;
pub use tls::{TlsError, load as load_tls};

use crate::{agent_gate, gateway::readiness::Readiness, gsv as peers, metrics::open, web::dress};

/// How many connections may wait to be taken.
const BACKLOG: u32 = 4096;
/// How many may ask at once whether the gateway is well, at the port that is for nothing else.
pub(crate) const HEALTH_MOST: usize = 64;
/// What a connection keeps ready for reading and writing, in bytes. The library's own default is a hundred times that.
const BUFFER: usize = 4096;
/// What is kept ready for reading at the gsv door, where there are the most of them and most frames are small.
const GSV_BUFFER: usize = 1024;
/// Where clients, nodes and channels connect. Every other path is for agents.
const PEERS: &str = "/ws";

/// What answers behind a port.
pub struct Doors {
    /// Agents.
    pub agent_gate: Arc<agent_gate::Door>,
    /// Clients, nodes and channels, at `PEERS`.
    pub gsv: Arc<peers::Door>,
    /// Everything that is no WebSocket: pages, phones, programs.
    pub pages: Router,
    /// Which names the gateway answers to.
    pub hosts: Hosts,
    /// Whether the record answers and messengers and services do: whether that is well, and all of it as JSON text.
    pub health: Box<dyn Fn() -> BoxFuture<'static, (bool, String)> + Send + Sync>,
    /// Whether work can be taken.
    pub(crate) readiness: Readiness,
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
    pub(crate) async fn serve(self, doors: Arc<Doors>, rooms: Rooms, end: impl Future<Output = ()> + Send) {
        let router = router(doors, self.tls.is_some(), Streams::new(rooms.most()));
        taking::take(self.listener, self.tls, rooms, router, end).await;
    }

    /// Serves `router` to at most `most` connections at once until `end`, and waits for those that are open. It looks at
    /// Host and Origin itself.
    pub(crate) async fn serve_router(self, router: Router, most: usize, end: impl Future<Output = ()> + Send) {
        taking::take(self.listener, self.tls, Rooms::of_this_process(most), router, end).await;
    }

    /// Serves nothing but the answer whether the gateway is well.
    pub(crate) async fn serve_health(self, doors: Arc<Doors>, rooms: Rooms, end: impl Future<Output = ()> + Send) {
        let router = watched(Arc::clone(&doors)).layer(from_fn_with_state((doors, false), guard::check));
        taking::take(self.listener, self.tls, rooms, router, end).await;
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

/// A WebSocket is an agent's whatever path it names but one; the rest is for others.
async fn websockets(State(doors): State<Arc<Doors>>, request: Request, next: Next) -> Response {
    let wants = request.headers().get(header::UPGRADE).and_then(|wanted| wanted.to_str().ok());
    if !wants.is_some_and(|wanted| wanted.eq_ignore_ascii_case("websocket")) {
        return next.run(request).await;
    }
    let Some(guest) = request.extensions().get::<Guest>().cloned() else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let is_peers = request.uri().path() == PEERS;
    let word = request.headers().get(gsv::greeting::HEADER).and_then(|word| word.to_str().ok()).map(str::to_owned);
    // Where nobody has to show anything a page of another program on this machine would have all of the door.
    let is_strange = is_peers && !doors.gsv.asks_for_token() && !doors.hosts.is_own_page(&request);
    let upgrade = match WebSocketUpgrade::from_request(request, &()).await {
        Ok(upgrade) => upgrade,
        Err(refused) => return refused.into_response(),
    };
    let upgrade = upgrade.read_buffer_size(BUFFER).write_buffer_size(BUFFER);
    if is_peers {
        if !doors.gsv.is_open() {
            let why = "No clients.token is configured: this door is open on loopback only.\n";
            return (StatusCode::FORBIDDEN, why).into_response();
        }
        if is_strange {
            return (StatusCode::FORBIDDEN, guard::FOREIGN).into_response();
        }
        guest.patience.hand_over();
        let door = Arc::clone(&doors.gsv);
        return upgrade
            .max_write_buffer_size(2 * gsv::LARGEST_FRAME)
            .max_message_size(gsv::LARGEST_FRAME)
            .max_frame_size(gsv::LARGEST_FRAME)
            .read_buffer_size(GSV_BUFFER)
            .on_upgrade(move |socket| {
                let serving = door.serve(socket, guest, word);
                async move {
                    let _open = open::GSV.held();
                    serving.await;
                }
            });
    }
    if !doors.agent_gate.is_open() {
        return (StatusCode::FORBIDDEN, "No agent is configured: this door is closed.\n").into_response();
    }
    // It has a time of its own for those who take nothing.
    guest.patience.hand_over();
    let door = Arc::clone(&doors.agent_gate);
    upgrade
        .max_write_buffer_size(2 * LARGEST_FRAME)
        .max_message_size(LARGEST_FRAME)
        .max_frame_size(LARGEST_FRAME)
        .on_upgrade(move |socket| async move {
            let _open = open::AGENT_GATE.held();
            door.serve(socket, guest.from.ip(), guest.place).await;
        })
}
