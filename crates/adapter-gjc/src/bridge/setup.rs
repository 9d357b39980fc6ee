//! Settings of the bridge from the environment, and the errors that keep it from starting.
//!
//! It must not open anything but the files of the certificate.

use std::{
    net::{SocketAddr, ToSocketAddrs as _},
    path::Path,
    sync::Arc,
};

use countersign_agent_dir::ProcessEnvironment;
use countersign_http::listen;
use countersign_protocol::gjc::{
    bridge::{self, EnabledEndpoints, TOKEN_VARIABLE},
    unattended::CommandScope,
};
use secrecy::SecretString;

const CERTIFICATE: &str = "GJC_BRIDGE_TLS_CERT";
const KEY: &str = "GJC_BRIDGE_TLS_KEY";
const HOST: &str = "GJC_BRIDGE_HOST";
const PORT: &str = "GJC_BRIDGE_PORT";
const SCOPES: &str = "GJC_BRIDGE_SCOPES";
const ENDPOINTS: &str = "GJC_BRIDGE_ENDPOINTS";

/// Default address of the bridge.
const USUAL: (&str, u16) = ("127.0.0.1", 4077);

/// Selects whether the bridge may work without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsPolicy {
    /// Never.
    Refused,
    /// On loopback: a flag requests it.
    OnLoopback,
}

/// Why the bridge does not start.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// There is no token.
    #[error("{TOKEN_VARIABLE} is required: clients use it to authenticate as the host")]
    NoToken,
    /// There is neither a certificate nor a flag.
    #[error("{CERTIFICATE} and {KEY} are required for HTTPS; --insecure allows plain HTTP on loopback")]
    NoTls,
    /// One of certificate and key is missing.
    #[error("{CERTIFICATE} and {KEY} must be set together: {0} is not set")]
    HalfTls(&'static str),
    /// Others could read along.
    #[error("--insecure is allowed on loopback only: {0} is not a loopback address")]
    NotLoopback(SocketAddr),
    /// The address is none.
    #[error("{HOST}: invalid address {host:?}: {problem}")]
    Host {
        /// As it was given.
        host: String,
        /// Error of the system.
        problem: String,
    },
    /// The port is none.
    #[error("{PORT} must be a number from 0 to 65535, not {0:?}")]
    Port(String),
    /// A name is unknown.
    #[error(transparent)]
    Name(#[from] bridge::BridgeConfigError),
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] listen::TlsError),
}

/// Settings of the bridge.
pub struct BridgeSetup {
    pub(super) token: SecretString,
    pub(super) address: SocketAddr,
    pub(super) tls: Option<Arc<rustls::ServerConfig>>,
    pub(super) scopes: Vec<CommandScope>,
    pub(super) endpoints: EnabledEndpoints,
}

impl BridgeSetup {
    /// Reads the variables of the process.
    ///
    /// # Errors
    /// [`SetupError`], which names the variable.
    pub fn from_environment(environment: &ProcessEnvironment, plain: TlsPolicy) -> Result<Self, SetupError> {
        let token = environment.get(TOKEN_VARIABLE).map(str::trim).filter(|token| !token.is_empty());
        let token = SecretString::from(token.ok_or(SetupError::NoToken)?.to_owned());
        let scopes = bridge::read_scopes(environment.get(SCOPES).unwrap_or_default())?;
        let endpoints = EnabledEndpoints::from_names(environment.get(ENDPOINTS).unwrap_or_default())?;
        let address = bind_address(environment)?;
        let tls = match (environment.get(CERTIFICATE), environment.get(KEY)) {
            (Some(certificate), Some(key)) => Some(listen::load_tls(Path::new(certificate), Path::new(key))?),
            (Some(_), None) => return Err(SetupError::HalfTls(KEY)),
            (None, Some(_)) => return Err(SetupError::HalfTls(CERTIFICATE)),
            (None, None) if plain == TlsPolicy::Refused => return Err(SetupError::NoTls),
            (None, None) if !address.ip().to_canonical().is_loopback() => return Err(SetupError::NotLoopback(address)),
            (None, None) => None,
        };
        Ok(Self { token, address, tls, scopes, endpoints })
    }
}

fn bind_address(environment: &ProcessEnvironment) -> Result<SocketAddr, SetupError> {
    let port = match environment.get(PORT) {
        None => USUAL.1,
        Some(text) => text.trim().parse().map_err(|_| SetupError::Port(text.to_owned()))?,
    };
    let host = environment.get(HOST).unwrap_or(USUAL.0).trim();
    let wrong = |problem: String| SetupError::Host { host: host.to_owned(), problem };
    let mut addresses = (host, port).to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
    addresses.next().ok_or_else(|| wrong("the host name has no address".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::{BridgeSetup, ProcessEnvironment, TlsPolicy};

    #[test]
    fn what_keeps_the_bridge_from_starting_is_named() {
        let token = ("GJC_BRIDGE_TOKEN", "t");
        let none = ("GJC_BRIDGE_TLS_CERT", "/nowhere/cert.pem");
        let key = ("GJC_BRIDGE_TLS_KEY", "/nowhere/key.pem");
        let insecure = TlsPolicy::OnLoopback;
        for (variables, plain, want) in [
            (&[][..], insecure, "GJC_BRIDGE_TOKEN is required"),
            (&[("GJC_BRIDGE_TOKEN", "  ")], insecure, "GJC_BRIDGE_TOKEN is required"),
            (&[token], TlsPolicy::Refused, "GJC_BRIDGE_TLS_CERT and GJC_BRIDGE_TLS_KEY are required"),
            (&[token, none], insecure, "GJC_BRIDGE_TLS_KEY is not set"),
            (&[token, key], insecure, "GJC_BRIDGE_TLS_CERT is not set"),
            (&[token, none, key], insecure, "/nowhere/cert.pem"),
            (&[token, ("GJC_BRIDGE_HOST", "0.0.0.0")], insecure, "0.0.0.0:4077 is not a loopback address"),
            (&[token, ("GJC_BRIDGE_HOST", "not a host")], insecure, "GJC_BRIDGE_HOST"),
            (&[token, ("GJC_BRIDGE_PORT", "70000")], insecure, "GJC_BRIDGE_PORT"),
            (&[token, ("GJC_BRIDGE_SCOPES", "root")], insecure, "GJC_BRIDGE_SCOPES names an unknown scope: root"),
            (&[token, ("GJC_BRIDGE_ENDPOINTS", "evnts")], insecure, "GJC_BRIDGE_ENDPOINTS names an unknown endpoint"),
        ] {
            let environment: ProcessEnvironment = variables.iter().copied().collect();
            let problem = BridgeSetup::from_environment(&environment, plain).map(|_| ()).unwrap_err().to_string();
            assert!(problem.contains(want), "{variables:?}: {problem}");
        }
    }

    #[test]
    fn loopback_needs_no_tls_only_if_configured() {
        let environment: ProcessEnvironment = [("GJC_BRIDGE_TOKEN", "t")].into_iter().collect();
        let setup = BridgeSetup::from_environment(&environment, TlsPolicy::OnLoopback)
            .map_err(|error| error.to_string())
            .unwrap();
        assert_eq!((setup.address.to_string().as_str(), setup.tls.is_none()), ("127.0.0.1:4077", true));
    }
}
