//! The certificate of the gateway's port.

use std::{
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};

/// Why a certificate or its key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{}: {problem}; {key} must name a PEM file that this user can read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error. It is part of the message already, and is no further cause.
        problem: std::io::Error,
        /// Configuration key that names it.
        key: &'static str,
    },
    /// A file has the wrong content.
    #[error("{}: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// Certificate and key do not belong together.
    #[error("the certificate and the key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

/// Reads a certificate with its chain, and its key, from PEM files.
///
/// # Errors
/// [`TlsError`], which names the file.
pub fn load_server_config(cert: &Path, key: &Path) -> Result<Arc<rustls::ServerConfig>, TlsError> {
    let malformed = |path: &Path, problem: String| TlsError::Malformed { path: path.to_owned(), problem };
    let open = |path: &Path, key: &'static str| {
        let file = File::open(path).map(BufReader::new);
        file.map_err(|problem| TlsError::Read { path: path.to_owned(), problem, key })
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_reader_iter(open(cert, "gateway.tls.cert")?)
        .collect::<Result<_, _>>()
        .map_err(|error| malformed(cert, error.to_string()))?;
    if chain.is_empty() {
        return Err(malformed(cert, "the file contains no certificate".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_reader(open(key, "gateway.tls.key")?)
        .map_err(|error| malformed(key, error.to_string()))?;
    let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
