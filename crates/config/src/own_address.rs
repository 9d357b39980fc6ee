//! Addresses that lead back to the gateway.
//!
//! It must not resolve names: a name that only the network knows is found out by the gateway when it is called.

use std::net::IpAddr;

use url::{Host, Url};

use super::settings::GatewayConfig;

/// Returns true if an address is certainly that of the gateway: its port on this machine, or its public address.
pub(super) fn is_own_address(address: &str, gateway: &GatewayConfig) -> bool {
    let Ok(url) = Url::parse(address) else { return false };
    let port = url.port_or_known_default();
    // The system chooses port 0, and nobody knows it in advance.
    if gateway.port != 0 && port == Some(gateway.port) && url.host().is_some_and(|host| is_own_host(&host, gateway)) {
        return true;
    }
    let public = gateway.public_url.as_deref().and_then(|public| Url::parse(public).ok());
    public.is_some_and(|public| {
        // Other paths of the same host may be other programs behind the same proxy.
        url.host() == public.host()
            && port == public.port_or_known_default()
            && url.path().trim_end_matches('/') == format!("{}/mcp", public.path().trim_end_matches('/'))
    })
}

fn is_own_host(host: &Host<&str>, gateway: &GatewayConfig) -> bool {
    let is_named = |name: &str| {
        let own = std::iter::once(&gateway.host).chain(&gateway.allowed_hosts);
        own.map(|own| own.trim_matches(['[', ']'])).any(|own| own.eq_ignore_ascii_case(name))
    };
    let is_here = |ip: IpAddr| {
        let ip = ip.to_canonical();
        ip.is_loopback() || ip.is_unspecified() || is_named(&ip.to_string())
    };
    match host {
        Host::Domain(name) => {
            let name = name.trim_end_matches('.');
            name.eq_ignore_ascii_case("localhost")
                || name.to_ascii_lowercase().ends_with(".localhost")
                || is_named(name)
        }
        Host::Ipv4(ip) => is_here(IpAddr::V4(*ip)),
        Host::Ipv6(ip) => is_here(IpAddr::V6(*ip)),
    }
}
