//! Address of a gateway, and whether a token may be sent there.
//!
//! It must not connect.

use std::{net::IpAddr, path::Path, sync::Arc};

use anyhow::{Context as _, bail};
use tokio_tungstenite::{Connector, tungstenite::http::Uri};

use crate::{connect_error, tls_roots::tls_client_config};

/// Path of the endpoint for nodes, if an address names none.
const DOOR: &str = "/ws";

/// Selects whether a token may go over a connection that others can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsecurePolicy {
    /// To this machine only.
    ToLoopback,
    /// A flag permits it.
    Anywhere,
}

/// A gateway that may be connected to.
#[derive(Clone)]
pub(crate) struct GatewayAddress {
    /// Whole, without credentials.
    pub(crate) url: String,
    /// TLS, where the address wants it.
    pub(crate) connector: Connector,
}

impl GatewayAddress {
    /// Reads an address as people write it. `ca` is a file of certificates that are trusted besides the system's.
    pub(crate) fn from_url(given: &str, ca: Option<&Path>, plain: InsecurePolicy) -> anyhow::Result<Self> {
        let uri = parse_url(given)?;
        connect_error::check_port(&uri).with_context(|| format!("--url {given}"))?;
        let host = uri.host().unwrap_or_default();
        let connector = match uri.scheme_str() {
            Some("wss") => Connector::Rustls(Arc::new(tls_client_config(ca)?)),
            Some("ws") if ca.is_some() => bail!("--ca can only be used with a wss:// address, not with {given}"),
            Some("ws") if plain == InsecurePolicy::Anywhere || is_loopback(host) => Connector::Plain,
            Some("ws") => bail!(
                "{given} is not encrypted: others on the network could read the token and change the commands that run here. Use \
                 wss://, or --insecure if the connection is protected otherwise"
            ),
            Some("http" | "https") => {
                bail!("--url {given}: expected ws:// or wss://, such as {}", given.replacen("http", "ws", 1))
            }
            Some(_) | None => bail!("--url {given}: expected an address such as wss://gateway.example.org/ws"),
        };
        Ok(Self { url: uri.to_string(), connector })
    }

    /// Returns the port that it names or means.
    pub(crate) fn port(&self) -> u16 {
        let uri: Option<Uri> = self.url.parse().ok();
        let usual = if self.url.starts_with("wss:") { 443 } else { 80 };
        uri.and_then(|uri| uri.port_u16()).unwrap_or(usual)
    }
}

/// Reads the address, with the path of the endpoint if it names none.
fn parse_url(given: &str) -> anyhow::Result<Uri> {
    let uri: Uri = given.parse().with_context(|| format!("--url {given} is not a valid address"))?;
    if uri.host().is_none_or(str::is_empty) || uri.scheme().is_none() {
        bail!("--url {given}: expected an address such as wss://gateway.example.org/ws");
    }
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) || uri.query().is_some() {
        bail!("--url must not contain a token or query parameters: use --token-file or --token-env");
    }
    if !matches!(uri.path(), "" | "/") {
        return Ok(uri);
    }
    let whole = format!("{}{DOOR}", given.trim_end_matches('/'));
    whole.parse().with_context(|| format!("--url {given} is not a valid address"))
}

/// Reports whether `host` is this machine.
pub fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::{GatewayAddress, InsecurePolicy};

    #[test]
    fn a_token_goes_over_tls_or_stays_on_this_machine() {
        for (given, plain, want) in [
            ("ws://127.0.0.1:8443/ws", InsecurePolicy::ToLoopback, Ok("ws://127.0.0.1:8443/ws")),
            ("ws://localhost:8443", InsecurePolicy::ToLoopback, Ok("ws://localhost:8443/ws")),
            ("ws://[::1]:8443/", InsecurePolicy::ToLoopback, Ok("ws://[::1]:8443/ws")),
            ("wss://gate.example.org", InsecurePolicy::ToLoopback, Ok("wss://gate.example.org/ws")),
            ("wss://gate.example.org/behind/ws", InsecurePolicy::ToLoopback, Ok("wss://gate.example.org/behind/ws")),
            ("ws://10.0.0.7:8443", InsecurePolicy::ToLoopback, Err("is not encrypted")),
            ("ws://localhost.example.org", InsecurePolicy::ToLoopback, Err("is not encrypted")),
            ("ws://10.0.0.7:8443", InsecurePolicy::Anywhere, Ok("ws://10.0.0.7:8443/ws")),
            ("https://gate.example.org", InsecurePolicy::ToLoopback, Err("such as wss://gate.example.org")),
            ("gate.example.org:8443", InsecurePolicy::ToLoopback, Err("expected an address such as")),
            ("gate", InsecurePolicy::ToLoopback, Err("expected an address such as")),
            ("wss://token@gate.example.org", InsecurePolicy::ToLoopback, Err("must not contain a token")),
            ("wss://gate.example.org/ws?token=x", InsecurePolicy::ToLoopback, Err("must not contain a token")),
            ("wss://", InsecurePolicy::ToLoopback, Err("is not a valid address")),
        ] {
            let got = GatewayAddress::from_url(given, None, plain).map(|address| address.url);
            match (got, want) {
                (Ok(got), Ok(want)) => assert_eq!(got, want, "{given}"),
                (Err(error), Err(want)) => assert!(format!("{error:#}").contains(want), "{given}: {error:#}"),
                (got, want) => panic!("{given}: {got:?}, not {want:?}"),
            }
        }
    }
}
