//! TLS towards services: rustls with ring, and the system's certificates.

use std::sync::Arc;

use rustls::{ClientConfig, crypto::ring};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;

/// Set up when it is first needed: reading the system's certificates takes longer than a local answer.
#[derive(Default)]
pub(super) struct LazyTlsConnector(OnceCell<TlsConnector>);

impl LazyTlsConnector {
    pub(super) async fn connector(&self) -> Result<TlsConnector, String> {
        let load = || async {
            let loaded = tokio::task::spawn_blocking(client_config).await;
            let loaded = loaded.unwrap_or_else(|_| Err("the certificates cannot be read".to_owned()))?;
            Ok(TlsConnector::from(Arc::new(loaded)))
        };
        self.0.get_or_try_init(load).await.cloned()
    }
}

fn client_config() -> Result<ClientConfig, String> {
    let configuration = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(BuilderVerifierExt::with_platform_verifier);
    Ok(configuration.map_err(|error| format!("TLS cannot be set up: {error}"))?.with_no_client_auth())
}
