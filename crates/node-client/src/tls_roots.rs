//! Trusted certificates of gateways.

use std::{path::Path, sync::Arc};

use anyhow::{Context as _, bail};
use rustls::{
    ClientConfig,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject as _},
};

/// Returns a TLS configuration that trusts the system's certificates, and those in the file `ca`.
///
/// # Errors
/// The file is invalid, or no certificate is trusted.
pub fn tls_client_config(ca: Option<&Path>) -> anyhow::Result<ClientConfig> {
    let extra: Vec<CertificateDer<'static>> = match ca {
        None => Vec::new(),
        Some(path) => {
            let unreadable = || format!("--ca {} cannot be read", path.display());
            let read = CertificateDer::pem_file_iter(path).with_context(unreadable)?;
            read.collect::<Result<_, _>>().with_context(unreadable)?
        }
    };
    if let (Some(path), []) = (ca, extra.as_slice()) {
        bail!("--ca {} contains no certificate", path.display());
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = rustls_platform_verifier::Verifier::new_with_extra_roots(extra, Arc::clone(&provider))
        .context("no trusted certificates: pass some with --ca")?;
    let built = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("TLS cannot be set up")?;
    Ok(built.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth())
}
