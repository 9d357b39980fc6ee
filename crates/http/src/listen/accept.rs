//! Accepts connections: each in a task of its own, with a place, and with little time until its request is complete.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, body::Body, http::Request};
use hyper::{body::Incoming, server::conn::http1, service::Service as _};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpListener,
    sync::{Semaphore, watch},
    time::timeout,
};
use tokio_rustls::TlsAcceptor;

use super::{
    connection_limiter::{ConnectionLimiter, ConnectionPermit},
    connection_quota::{ConnectionQuota, QuotaLimit},
    peer::TcpPeer,
    port_service::{ConnectionTarget, PortService, PortStream, RelayedConnection},
    write_timeout::{WriteDeadline, WriteTimeout},
};
use crate::log_throttle::LogThrottle;

/// Time limit of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Time limit of a request's head, and of the silence of a connection between two.
const HEAD: Duration = Duration::from_secs(10);
/// Time for which a client may take nothing of its response.
pub(super) const DEAF: Duration = Duration::from_secs(20);
/// Largest head, in bytes.
const LARGEST_HEAD: usize = 32 << 10;
/// Most connections at once that get the answer that there is no room.
const REFUSALS: usize = 64;
/// Time limit of that answer.
const REFUSAL: Duration = Duration::from_secs(1);
/// Pause after the system refused a connection; each time in a row twice as long, up to the most.
const RECOVERY: Duration = Duration::from_millis(50);
const LONGEST_RECOVERY: Duration = Duration::from_secs(1);

/// Sender of a request: its address, the place of its connection, the process at its other end, and the time for which that may
/// take nothing of its response.
#[derive(Clone)]
pub struct ConnectionInfo {
    pub from: SocketAddr,
    pub place: Arc<ConnectionPermit>,
    pub peer: TcpPeer,
    pub(super) patience: WriteDeadline,
}

impl ConnectionInfo {
    /// Leaves the time for which the other end may take nothing to the adapter.
    pub fn hand_over(&self) {
        self.patience.hand_over();
    }
}

/// Gives all connections to the service that the port has when they come, until `end`, and then until all have left. A request
/// carries its [`ConnectionInfo`] among its extensions.
pub(super) async fn accept_connections(
    listener: TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
    quota: ConnectionQuota,
    services: watch::Receiver<PortService>,
    end: impl Future<Output = ()> + Send,
) {
    let acceptor = tls.map(TlsAcceptor::from);
    let crowd = ConnectionLimiter::new(quota.clone());
    let refusals = Arc::new(Semaphore::new(REFUSALS));
    let (mut full, mut failing) = (LogThrottle::default(), AcceptFailures::default());
    let mut end = std::pin::pin!(end);
    loop {
        let accepted = tokio::select! {
            () = &mut end => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                failing.recover(&error, &crowd).await;
                continue;
            }
        };
        failing.rest = None;
        // A connection without this option still works.
        let _ = stream.set_nodelay(true);
        // A line that has no address any more decides nothing.
        let peer = stream.local_addr().map(|ours| TcpPeer::new(from, ours)).unwrap_or_default();
        let place = tokio::select! {
            () = &mut end => break,
            place = crowd.acquire_permit(from.ip()) => place,
        };
        let Some(place) = place else {
            let (most, limit) = (quota.max_connections(), quota.limit());
            if let Some(before) = full.try_log() {
                tracing::warn!(before, "refused a connection: {most} are open, {}", limit.source_text());
            }
            // Over TLS there would have to be a handshake first, which is what there is no room for.
            if acceptor.is_none()
                && let (Ok(permit), Some(room)) =
                    (Arc::clone(&refusals).try_acquire_owned(), quota.try_acquire_descriptor())
            {
                tokio::spawn(async move {
                    let _ = timeout(REFUSAL, send_refusal(stream, most, limit)).await;
                    drop((permit, room));
                });
            }
            continue;
        };
        let (services, acceptor) = (services.clone(), acceptor.clone());
        tokio::spawn(async move {
            let patience = WriteDeadline::new(DEAF);
            let guest = ConnectionInfo { from, place: Arc::clone(&place), peer, patience };
            let served = async {
                match acceptor {
                    None => dispatch_connection(stream, guest, services).await,
                    Some(acceptor) => {
                        if let Ok(Ok(stream)) = timeout(HANDSHAKE, acceptor.accept(stream)).await {
                            dispatch_connection(stream, guest, services).await;
                        }
                    }
                }
            };
            tokio::select! {
                () = place.wait_revoked() => {}
                () = served => {}
            }
        });
    }
    drop(listener);
    services.borrow().end();
    crowd.wait_until_empty().await;
}

/// Serves a connection, or lets another node serve it. One that was not relayed yet when the port changed gets the new service.
async fn dispatch_connection<S>(stream: S, guest: ConnectionInfo, mut services: watch::Receiver<PortService>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut service = services.borrow_and_update().clone();
    if let ConnectionTarget::Router(router, open) = service.target() {
        let _open = (open.increment_guard(), service.track());
        return serve_connection(stream, router.clone(), guest, service.closes()).await;
    }
    let mut stream: Box<dyn PortStream> = Box::new(stream);
    loop {
        match service.target() {
            ConnectionTarget::Router(router, open) => {
                let _open = (open.increment_guard(), service.track());
                return serve_connection(stream, router.clone(), guest, service.closes()).await;
            }
            ConnectionTarget::Relay(relay) => {
                let connection = RelayedConnection { stream, from: guest.from, peer: guest.peer.clone() };
                let Some(returned) = relay.relay(connection, service.clone()).await else { return };
                stream = returned;
                if services.changed().await.is_err() {
                    return;
                }
            }
        }
        service = services.borrow_and_update().clone();
    }
}

/// Connections that the system would not give, one after another.
#[derive(Default)]
struct AcceptFailures {
    log_throttle: LogThrottle,
    /// Pause after the next refusal by the system.
    rest: Option<Duration>,
}

impl AcceptFailures {
    /// Waits a moment after the system refused a connection: out of descriptors, most likely, and then an
    /// unauthenticated connection gives its own back.
    async fn recover(&mut self, error: &io::Error, crowd: &ConnectionLimiter) {
        if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
            return;
        }
        if let Some(before) = self.log_throttle.try_log() {
            tracing::warn!(%error, before, "failed to accept a connection on a port");
        }
        crowd.make_room();
        let rest = self.rest.unwrap_or(RECOVERY);
        self.rest = Some((rest * 2).min(LONGEST_RECOVERY));
        tokio::time::sleep(rest).await;
    }
}

/// Tells a client that there is no room, and why.
async fn send_refusal(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    most: usize,
    limit: QuotaLimit,
) -> io::Result<()> {
    let why = format!("The gateway has {most} connections, {}.\n", limit.source_text());
    let head = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\nretry-after: 5\r\nconnection: close";
    stream.write_all(format!("{head}\r\ncontent-length: {}\r\n\r\n{why}", why.len()).as_bytes()).await?;
    stream.shutdown().await?;
    // Its request is read, or the end of the line would overtake the answer.
    let mut passed_over = [0; 1024];
    while stream.read(&mut passed_over).await? > 0 {}
    Ok(())
}

/// Serves one connection to its end or until it becomes a WebSocket, and after `closes` no further request.
pub(super) async fn serve_connection<S>(
    stream: S,
    router: Router,
    guest: ConnectionInfo,
    mut closes: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = WriteTimeout::new(stream, guest.patience.clone());
    let router = TowerToHyperService::new(router);
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(guest.clone());
        router.call(request.map(Body::new))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(LARGEST_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    // A failure on a line is its client's business.
    let ended = tokio::select! {
        ended = &mut connection => Some(ended),
        _ = closes.wait_for(|closing| *closing) => None,
    };
    if ended.is_none() {
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use axum::{Router, routing::get};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
        sync::watch,
        time::Instant,
    };

    use super::{
        AcceptFailures, ConnectionInfo, ConnectionLimiter, ConnectionQuota, DEAF, HEAD, LARGEST_HEAD, LONGEST_RECOVERY,
        QuotaLimit, RECOVERY, TcpPeer, WriteDeadline, send_refusal, serve_connection,
    };

    /// Returns a connection that is served, the client's end of it, and the switch that closes the port.
    async fn line() -> (DuplexStream, watch::Sender<bool>) {
        let (client, server) = duplex(1 << 20);
        let (closing, closes) = watch::channel(false);
        let from = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let place =
            ConnectionLimiter::new(ConnectionQuota::of_this_process(1)).acquire_permit(from.ip()).await.unwrap();
        let guest = ConnectionInfo { from, place, peer: TcpPeer::default(), patience: WriteDeadline::new(DEAF) };
        let router =
            Router::new().route("/", get(async || "here")).route("/much", get(async || "much".repeat(1 << 20)));
        tokio::spawn(serve_connection(server, router, guest, closes));
        (client, closing)
    }

    async fn rest(client: &mut DuplexStream) -> String {
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_sends_too_little_in_time_is_closed() {
        for sent in ["", "G", "GET / HTTP/1.1\r\nhost: a\r\nx: ", "GET / HTTP/1.1\r\nhost: a\r\n\r\n"] {
            let (mut client, _closing) = line().await;
            let begun = Instant::now();
            client.write_all(sent.as_bytes()).await.unwrap();
            let reply = rest(&mut client).await;
            assert_eq!(reply.ends_with("here"), sent.ends_with("\r\n\r\n"), "{sent:?}: {reply}");
            let took = begun.elapsed();
            assert!(took >= HEAD && took < HEAD * 2, "{sent:?}: {took:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_byte_by_byte_does_not_stretch_its_time() {
        let (mut client, _closing) = line().await;
        let begun = Instant::now();
        let head = b"GET / HTTP/1.1\r\nx: ".iter().chain(std::iter::repeat(&b'a'));
        for byte in head {
            if client.write_all(&[*byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(HEAD / 50).await;
        }
        assert!(begun.elapsed() < HEAD * 2, "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_is_too_large_is_refused() {
        let (mut client, _closing) = line().await;
        let head = format!("GET / HTTP/1.1\r\nx: {}", "a".repeat(2 * LARGEST_HEAD));
        client.write_all(head.as_bytes()).await.unwrap();
        assert!(rest(&mut client).await.starts_with("HTTP/1.1 431 "));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_rests_is_closed_when_the_port_closes() {
        let (mut client, closing) = line().await;
        client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        let mut answer = [0; 12];
        client.read_exact(&mut answer).await.unwrap();
        let begun = Instant::now();
        closing.send_replace(true);
        assert!(rest(&mut client).await.ends_with("here"));
        assert!(begun.elapsed() < HEAD, "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_reads_no_answer_is_closed() {
        let (mut client, _closing) = line().await;
        client.write_all(b"GET /much HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        let mut answer = vec![0; 1 << 20];
        client.read_exact(&mut answer).await.unwrap();
        // A client that takes something now and then stays.
        for _ in 0..3 {
            tokio::time::sleep(DEAF * 3 / 4).await;
            client.read_exact(&mut answer[..1 << 18]).await.unwrap();
        }
        tokio::time::sleep(DEAF * 2).await;
        let mut rest = Vec::new();
        let _ = client.read_to_end(&mut rest).await;
        assert!(rest.len() < 2 << 20, "{} bytes more", rest.len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_names_the_limit() {
        let (mut client, server) = duplex(1 << 10);
        let refusing = tokio::spawn(send_refusal(server, 7, QuotaLimit::Configured));
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let reply = rest(&mut client).await;
        assert!(reply.starts_with("HTTP/1.1 503 ") && reply.contains("has 7 connections"), "{reply}");
        drop(client);
        refusing.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn without_free_descriptors_accepting_slows_down_and_unauthenticated_connections_are_closed() {
        let crowd = ConnectionLimiter::new(ConnectionQuota::of_this_process(9));
        let place = crowd.acquire_permit(Ipv4Addr::LOCALHOST.into()).await.unwrap();
        let mut failing = AcceptFailures::default();
        let error = std::io::Error::from(std::io::ErrorKind::Other);
        let mut rests = Vec::new();
        for _ in 0..7 {
            let begun = Instant::now();
            failing.recover(&error, &crowd).await;
            rests.push(begun.elapsed());
        }
        assert_eq!((rests[0], rests[1], rests[6]), (RECOVERY, RECOVERY * 2, LONGEST_RECOVERY));
        assert!(!place.mark_authenticated(), "whoever has not said who it is gives its own back");
        let begun = Instant::now();
        failing.recover(&std::io::Error::from(std::io::ErrorKind::ConnectionAborted), &crowd).await;
        assert_eq!(begun.elapsed().as_millis(), 0, "a client that went is nothing to wait for");
    }
}
