//! TLS on the gateway's port. A handshake never holds up the next connection.

use std::{
    fs::File,
    io::BufReader,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum::{extract::connect_info::Connected, serve::IncomingStream};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How many finished handshakes may wait to be served.
const READY: usize = 256;

/// Why a certificate or its key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// They do not belong together.
    #[error("the certificate and the key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

/// Reads a certificate with its chain, and its key, from PEM files.
///
/// # Errors
/// [`TlsError`], which names the file.
pub fn load(cert: &Path, key: &Path) -> Result<Arc<rustls::ServerConfig>, TlsError> {
    let malformed = |path: &Path, problem: String| TlsError::Malformed { path: path.to_owned(), problem };
    let open = |path: &Path| {
        File::open(path).map(BufReader::new).map_err(|source| TlsError::Read { path: path.to_owned(), source })
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_reader_iter(open(cert)?)
        .collect::<Result<_, _>>()
        .map_err(|error| malformed(cert, error.to_string()))?;
    if chain.is_empty() {
        return Err(malformed(cert, "there is no certificate in it".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_reader(open(key)?).map_err(|error| malformed(key, error.to_string()))?;
    let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Whose connection it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(SocketAddr);

impl From<Peer> for SocketAddr {
    fn from(peer: Peer) -> Self {
        peer.0
    }
}

/// Connections whose handshake is done.
pub(super) struct Listener {
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    local: std::io::Result<SocketAddr>,
    taking: tokio::task::JoinHandle<()>,
}

impl Listener {
    pub(super) fn new(listener: TcpListener, config: Arc<rustls::ServerConfig>) -> Self {
        let local = listener.local_addr();
        let (tx, ready) = mpsc::channel(READY);
        let acceptor = TlsAcceptor::from(config);
        let taking = tokio::spawn(async move {
            loop {
                let Ok((stream, from)) = listener.accept().await else {
                    // Out of descriptors, most likely: others will end.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                };
                let _ = stream.set_nodelay(true);
                let (acceptor, tx) = (acceptor.clone(), tx.clone());
                tokio::spawn(async move {
                    if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                        let _ = tx.send((stream, from)).await;
                    }
                });
            }
        });
        Self { ready, local, taking }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.taking.abort();
    }
}

impl axum::serve::Listener for Listener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(ready) => ready,
            // The task that takes connections ends only with this listener.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        match &self.local {
            Ok(local) => Ok(*local),
            Err(error) => Err(std::io::Error::new(error.kind(), error.to_string())),
        }
    }
}

impl Connected<IncomingStream<'_, Listener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Listener>) -> Self {
        Self(*stream.remote_addr())
    }
}
