//! The port of a gateway: one for all network doors. Who may speak at all is decided here, by Host and Origin; who is
//! who is decided by each door.

mod guard;
mod tls;

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    extract::{ConnectInfo, State, WebSocketUpgrade, ws::rejection::WebSocketUpgradeRejection},
    http::StatusCode,
    response::{IntoResponse as _, Response},
    routing::get,
    serve::ListenerExt as _,
};
use countersign_protocol::agent_gate::LARGEST_FRAME;
use futures_util::future::BoxFuture;
use tokio::net::{TcpListener, TcpSocket};

pub use guard::Hosts;
pub use tls::{TlsError, load as load_tls};

use crate::agent_gate;

/// How many connections may wait to be taken.
const BACKLOG: u32 = 4096;
/// What a connection keeps ready for reading and writing, in bytes. The library's own default is a hundred times that.
const BUFFER: usize = 4096;

/// What answers behind a port.
pub struct Doors {
    /// Agents.
    pub agent_gate: Arc<agent_gate::Door>,
    /// Which names the gateway answers to.
    pub hosts: Hosts,
    /// Whether the record answers and messengers and services do: whether that is well, and all of it as JSON text.
    pub health: Box<dyn Fn() -> BoxFuture<'static, (bool, String)> + Send + Sync>,
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

    /// Serves until `end`, and then no new connection. Those that are open are told by their doors.
    ///
    /// # Errors
    /// What the system says when connections can no longer be taken.
    pub async fn serve(self, doors: Arc<Doors>, end: impl Future<Output = ()> + Send + 'static) -> std::io::Result<()> {
        let router = router(doors, self.tls.is_some());
        self.serve_router(router, end).await
    }

    /// Serves nothing but the answer whether the gateway is well.
    ///
    /// # Errors
    /// As [`Port::serve`].
    pub async fn serve_health(
        self,
        doors: Arc<Doors>,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> std::io::Result<()> {
        let router = Router::new().route("/healthz", get(health));
        let router = router.layer(axum::middleware::from_fn_with_state((Arc::clone(&doors), false), guard::check));
        self.serve_router(router.with_state(doors), end).await
    }

    async fn serve_router(self, router: Router, end: impl Future<Output = ()> + Send + 'static) -> std::io::Result<()> {
        match self.tls {
            None => {
                let listener = self.listener.tap_io(|stream| {
                    // A line that cannot be told not to wait still works.
                    let _ = stream.set_nodelay(true);
                });
                let service = router.into_make_service_with_connect_info::<SocketAddr>();
                axum::serve(listener, service).with_graceful_shutdown(end).await
            }
            Some(config) => {
                let listener = tls::Listener::new(self.listener, config);
                let service = router.into_make_service_with_connect_info::<tls::Peer>();
                axum::serve(listener, service).with_graceful_shutdown(end).await
            }
        }
    }
}

fn router(doors: Arc<Doors>, is_tls: bool) -> Router {
    let upgrade = if is_tls { get(upgrade::<tls::Peer>) } else { get(upgrade::<SocketAddr>) };
    Router::new()
        .route("/healthz", get(health))
        .fallback_service(Router::new().fallback(upgrade).with_state(Arc::clone(&doors)))
        .layer(axum::middleware::from_fn_with_state((Arc::clone(&doors), is_tls), guard::check))
        .with_state(doors)
}

async fn health(State(doors): State<Arc<Doors>>) -> Response {
    let (is_well, told) = (doors.health)().await;
    let status = if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, [("content-type", "application/json")], told).into_response()
}

async fn upgrade<P>(
    State(doors): State<Arc<Doors>>,
    ConnectInfo(peer): ConnectInfo<P>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response
where
    P: Into<SocketAddr> + Clone + Send + Sync + 'static,
{
    let Ok(upgrade) = upgrade else {
        return (StatusCode::NOT_FOUND, "There is nothing here. Agents connect with a WebSocket.\n").into_response();
    };
    if !doors.agent_gate.is_open() {
        return (StatusCode::FORBIDDEN, "No agent is configured: this door is closed.\n").into_response();
    }
    let from = peer.into().ip();
    let door = Arc::clone(&doors.agent_gate);
    upgrade
        .read_buffer_size(BUFFER)
        .write_buffer_size(BUFFER)
        .max_write_buffer_size(2 * LARGEST_FRAME)
        .max_message_size(LARGEST_FRAME)
        .max_frame_size(LARGEST_FRAME)
        .on_upgrade(move |socket| async move { door.serve(socket, from).await })
}
