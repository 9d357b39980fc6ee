//! One connection to a service. It counts the bytes taken for the wire, and moves only while its call is polled.

use std::{
    io,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response,
    body::{Body, Bytes, Incoming},
    client::conn::http1,
};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, lookup_host},
};
use tokio_rustls::client::TlsStream;
use url::Host;

use super::{address::UrlOrigin, tls::LazyTlsConnector};

/// Time limit of connecting, all addresses and TLS included.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Bytes of a request that a connection took for the wire, over its whole life.
pub(super) type BytesSent = Arc<AtomicU64>;

pub(super) struct HttpConnection {
    sender: http1::SendRequest<Full<Bytes>>,
    driver: ConnectionDriver,
    taken: BytesSent,
}

impl HttpConnection {
    /// Connects to `origin` within `limit`.
    ///
    /// # Errors
    /// The reason why there is no connection. No byte of a request has left then.
    pub(super) async fn open(origin: &UrlOrigin, tls: &LazyTlsConnector, limit: Duration) -> Result<Self, String> {
        let limit = limit.min(CONNECT_LIMIT);
        let opened = tokio::time::timeout(limit, Self::connect_stream(origin, tls, limit)).await;
        opened.unwrap_or_else(|_| Err(format!("no connection within {limit:?}")))
    }

    async fn connect_stream(origin: &UrlOrigin, tls: &LazyTlsConnector, limit: Duration) -> Result<Self, String> {
        let stream = connect_tcp(origin, limit).await.map_err(|error| error.to_string())?;
        let _ = stream.set_nodelay(true);
        let stream = if origin.encrypted {
            let name = match &origin.host {
                Host::Domain(name) => ServerName::try_from(name.clone()).map_err(|error| error.to_string())?,
                Host::Ipv4(address) => ServerName::from(std::net::IpAddr::from(*address)),
                Host::Ipv6(address) => ServerName::from(std::net::IpAddr::from(*address)),
            };
            let connector = tls.connector().await?;
            let stream = connector.connect(name, stream).await.map_err(|error| format!("TLS: {error}"))?;
            MaybeTlsStream::Encrypted(Box::new(stream))
        } else {
            MaybeTlsStream::Plain(stream)
        };
        let taken = BytesSent::default();
        let wire = CountingStream { stream, taken: Arc::clone(&taken) };
        let (sender, driver) = http1::handshake(TokioIo::new(wire)).await.map_err(|error| error.to_string())?;
        Ok(Self { sender, driver: ConnectionDriver { connection: Box::pin(driver), ended: false }, taken })
    }

    /// Returns the count that tells whether a request has left.
    pub(super) fn bytes_sent(&self) -> BytesSent {
        Arc::clone(&self.taken)
    }

    pub(super) async fn send_request(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, hyper::Error> {
        self.driver.drive_until(self.sender.ready()).await?;
        let answer = self.sender.send_request(request);
        self.driver.drive_until(answer).await
    }

    /// Reads the next bytes of `body`, or none at its end.
    pub(super) async fn next(&mut self, body: &mut Incoming) -> Option<Result<Bytes, hyper::Error>> {
        loop {
            match self.driver.drive_until(body.frame()).await? {
                Err(error) => return Some(Err(error)),
                Ok(frame) => {
                    // Trailers are passed over.
                    if let Ok(bytes) = frame.into_data() {
                        return Some(Ok(bytes));
                    }
                }
            }
        }
    }

    /// Reports whether another request can be sent. Looks at the wire once: an end or stray bytes that came meanwhile end it.
    pub(super) fn is_usable(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        self.driver.poll(&mut context);
        !self.driver.ended && matches!(self.sender.poll_ready(&mut context), Poll::Ready(Ok(())))
    }
}

/// Reports whether nothing of `body` is still to come.
pub(super) fn is_over(body: &Incoming) -> bool {
    body.is_end_stream()
}

struct ConnectionDriver {
    connection: Pin<Box<http1::Connection<TokioIo<CountingStream>, Full<Bytes>>>>,
    ended: bool,
}

impl ConnectionDriver {
    fn poll(&mut self, context: &mut Context<'_>) {
        // Its error reaches the request or the body as well.
        self.ended = self.ended || self.connection.as_mut().poll(context).is_ready();
    }

    async fn drive_until<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        std::future::poll_fn(|context| {
            if let Poll::Ready(end) = work.as_mut().poll(context) {
                return Poll::Ready(end);
            }
            self.poll(context);
            work.as_mut().poll(context)
        })
        .await
    }
}

/// Tries the host's addresses one after the other, each for its share of the rest of `limit`.
async fn connect_tcp(origin: &UrlOrigin, limit: Duration) -> io::Result<TcpStream> {
    let addresses: Vec<_> = match &origin.host {
        Host::Domain(name) => lookup_host((name.as_str(), origin.port)).await?.collect(),
        Host::Ipv4(address) => vec![(*address, origin.port).into()],
        Host::Ipv6(address) => vec![(*address, origin.port).into()],
    };
    let share = limit / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match tokio::time::timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}

enum MaybeTlsStream {
    Plain(TcpStream),
    Encrypted(Box<TlsStream<TcpStream>>),
}

struct CountingStream {
    stream: MaybeTlsStream,
    taken: BytesSent,
}

impl AsyncRead for CountingStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            MaybeTlsStream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            MaybeTlsStream::Encrypted(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for CountingStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let taken = Arc::clone(&self.taken);
        match &mut self.stream {
            MaybeTlsStream::Plain(stream) => {
                let written = Pin::new(stream).poll_write(cx, buf);
                if let Poll::Ready(Ok(bytes)) = &written {
                    taken.fetch_add(u64::try_from(*bytes).unwrap_or(u64::MAX), Ordering::Release);
                }
                written
            }
            // A failure here may follow a departure: only the attempt is known.
            MaybeTlsStream::Encrypted(stream) => {
                taken.fetch_add(u64::try_from(buf.len()).unwrap_or(u64::MAX), Ordering::Release);
                Pin::new(stream).poll_write(cx, buf)
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            MaybeTlsStream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            MaybeTlsStream::Encrypted(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            MaybeTlsStream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            MaybeTlsStream::Encrypted(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
