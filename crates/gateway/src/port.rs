//! Address of a port, and how to bind one.

use std::net::{SocketAddr, ToSocketAddrs as _};

use countersign_http::listen::BoundPort;

use crate::serve_error::ServeError;

/// Address at which a port serves a realm.
#[derive(Clone, Copy, Debug)]
pub struct PortAddress {
    /// Scheme: `http` or `https`.
    pub scheme: &'static str,
    /// Address with the port that the system gave.
    pub bound: SocketAddr,
}

impl PortAddress {
    /// Reads the address of a bound port.
    ///
    /// # Errors
    /// [`ServeError::Io`]: the system's reason.
    pub fn of_port(port: &BoundPort) -> Result<Self, ServeError> {
        let bound = port.local_address().map_err(|source| ServeError::of_io("the port", source))?;
        Ok(Self { scheme: port.scheme(), bound })
    }

    /// Returns the URL with the host as it was configured.
    pub(crate) fn url(&self, host: &str) -> String {
        format!("{}://{}", self.scheme, format_authority(host, self.bound))
    }
}

/// Resolves a configured host and port.
///
/// # Errors
/// [`ServeError::Io`]: the host has no address.
pub(crate) fn resolve_address(host: &str, port: u16) -> Result<SocketAddr, ServeError> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let what = format!("cannot resolve {host}");
    let mut found = (bare, port).to_socket_addrs().map_err(|source| ServeError::of_io(&what, source))?;
    found.next().ok_or_else(|| ServeError::of_io(host, std::io::Error::other("the host name has no address")))
}

/// Returns the address as it was configured, with the port that the system gave.
fn format_authority(host: &str, bound: SocketAddr) -> String {
    let is_bare = host.contains(':') && !host.starts_with('[');
    if is_bare { format!("[{host}]:{}", bound.port()) } else { format!("{host}:{}", bound.port()) }
}

/// Returns the host of a URL, without its port.
pub(crate) fn host_of(url: &str) -> Option<&str> {
    let authority = url.split_once("://")?.1.split('/').next()?;
    Some(authority.rsplit_once(':').map_or(authority, |(host, _)| host))
}
