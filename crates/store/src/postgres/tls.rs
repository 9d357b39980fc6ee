//! TLS to a database server, with the trusted certificates of a file or of the machine.
//!
//! It must not know the protocol that it carries.

use std::{
    io,
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, InvalidDnsNameError, ServerName, pem::PemObject},
};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_rustls::client;

use crate::database_error::DatabaseError;

/// Makes connections to servers whose certificates are trusted.
#[derive(Clone)]
pub(super) struct TrustedTls(Arc<ClientConfig>);

impl TrustedTls {
    /// Trusts the authorities in `ca_file`, or those of the machine.
    pub(super) fn new(ca_file: Option<&Path>) -> Result<Self, DatabaseError> {
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| DatabaseError::Trust { problem: error.to_string() })?;
        let config = match ca_file {
            Some(path) => builder.with_root_certificates(read_authorities(path)?).with_no_client_auth(),
            None => builder
                .with_platform_verifier()
                .map_err(|error| DatabaseError::Trust { problem: error.to_string() })?
                .with_no_client_auth(),
        };
        Ok(Self(Arc::new(config)))
    }
}

fn read_authorities(path: &Path) -> Result<RootCertStore, DatabaseError> {
    let refused = |problem: String| DatabaseError::CaFile { path: path.to_owned(), problem };
    let mut authorities = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| refused(error.to_string()))? {
        let certificate = certificate.map_err(|error| refused(error.to_string()))?;
        authorities.add(certificate).map_err(|error| refused(error.to_string()))?;
    }
    if authorities.is_empty() {
        return Err(refused("no certificate in it".to_owned()));
    }
    Ok(authorities)
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for TrustedTls {
    type Stream = ServerStream<S>;
    type TlsConnect = ServerHandshake;
    type Error = InvalidDnsNameError;

    fn make_tls_connect(&mut self, host: &str) -> Result<ServerHandshake, InvalidDnsNameError> {
        // A Unix socket has no name, and no handshake either.
        let name = if host.is_empty() { "localhost" } else { host };
        Ok(ServerHandshake { config: Arc::clone(&self.0), name: ServerName::try_from(name)?.to_owned() })
    }
}

/// A handshake with one server.
pub(super) struct ServerHandshake {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for ServerHandshake {
    type Stream = ServerStream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<ServerStream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        let connector = tokio_rustls::TlsConnector::from(self.config);
        Box::pin(async move { connector.connect(self.name, stream).await.map(ServerStream) })
    }
}

/// A connection under TLS.
pub(super) struct ServerStream<S>(client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> tokio_postgres::tls::TlsStream for ServerStream<S> {
    /// None: the certificate is checked, so nobody in between can have taken part in the handshake.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for ServerStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ServerStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
