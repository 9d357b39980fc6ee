//! Refuses requests from a page of another site, or that were led here under another name.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use axum::{
    extract::{Request, State},
    http::{StatusCode, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};

use super::{LIVEZ, PortHandlers};
use crate::{
    origin::{self, CROSS_ORIGIN},
    reply::HttpProblem,
};

/// Text for a page of another site, unless an adapter has a text of its own.
pub const FOREIGN: &str = "This origin may not speak to the gateway.\n";

/// Text for a request for a name that is not the gateway's.
const UNNAMED: &str = "The gateway does not answer to this name.\n";

/// The names that a gateway answers to.
#[derive(Clone, Debug, Default)]
pub struct AllowedHosts {
    names: BTreeSet<String>,
    /// Names among them that the owner gave.
    given: BTreeSet<String>,
    /// True if every address of this machine is one of them: it listens on all.
    any_address: bool,
}

impl AllowedHosts {
    /// Allows loopback names, the address that is bound, and `more`.
    pub fn new(bound: IpAddr, more: impl IntoIterator<Item = String>) -> Self {
        let loopback = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let given: BTreeSet<String> = more.into_iter().map(|name| name.to_lowercase()).collect();
        let all = loopback.into_iter().chain([bound.to_string()]).chain(given.iter().cloned());
        Self {
            names: all.map(|name| canonical_name(&name)).collect(),
            given,
            any_address: bound.to_canonical().is_unspecified(),
        }
    }

    /// Reports whether no page sent this, or our own: from the requested address, with the same port, or from a name that the owner gave.
    pub(super) fn is_own_page(&self, request: &Request) -> bool {
        header_text(request, header::ORIGIN).is_none_or(|origin| self.is_own(origin, request_host(request)))
    }

    fn is_own(&self, origin: &str, host: Option<&str>) -> bool {
        host.is_some_and(|host| origin::is_at(origin, host))
            || origin::parse_authority(origin).is_some_and(|given| self.given.contains(&host_of(given).to_lowercase()))
    }

    /// Checks whether a request may be served.
    ///
    /// # Errors
    /// The reason for the refusal, for the sender.
    pub fn check_request(&self, request: &Request, is_tls: bool) -> Result<(), &'static str> {
        let is_several = |name| request.headers().get_all(name).iter().nth(1).is_some();
        if is_several(header::ORIGIN) {
            return Err(FOREIGN);
        }
        if is_several(header::HOST) {
            return Err(UNNAMED);
        }
        check_host_and_origin(self, is_tls, request_host(request), header_text(request, header::ORIGIN))
    }

    /// Reports whether `authority`, a host with or without a port, is one of them.
    fn contains_authority(&self, authority: &str) -> bool {
        let name = canonical_name(&host_of(authority).to_lowercase());
        let address = name.parse::<IpAddr>();
        self.names.contains(&name) || address.is_ok_and(|address| self.any_address || address.is_loopback())
    }
}

/// Returns the one spelling of an address, which has several, such as `::ffff:127.0.0.1` for `127.0.0.1`. A name is as it is.
fn canonical_name(name: &str) -> String {
    name.parse::<IpAddr>().map_or_else(|_| name.to_owned(), |address| address.to_canonical().to_string())
}

/// Returns the one spelling of the host of an authority, without its port.
pub(super) fn canonical_host(authority: &str) -> String {
    canonical_name(host_of(authority).trim_end_matches('.').to_lowercase().as_str())
}

fn header_text(request: &Request, name: header::HeaderName) -> Option<&str> {
    request.headers().get(name).map(|value| value.to_str().unwrap_or("?"))
}

/// Returns the authority that a request is for.
pub(super) fn request_host(request: &Request) -> Option<&str> {
    header_text(request, header::HOST).or_else(|| request.uri().authority().map(|authority| authority.as_str()))
}

/// Returns the host of an authority, without brackets.
fn host_of(authority: &str) -> &str {
    if let Some(rest) = authority.strip_prefix('[') {
        let is_port = |text: &str| text.is_empty() || text.strip_prefix(':').is_some_and(is_number);
        return match rest.split_once(']') {
            Some((host, port)) if host.parse::<Ipv6Addr>().is_ok() && is_port(port) => host,
            // Else the text after the bracket would not be checked.
            Some(_) | None => authority,
        };
    }
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !host.contains(':') => host,
        _ => authority,
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Checks whether a request may be served.
fn check_host_and_origin(
    hosts: &AllowedHosts,
    is_tls: bool,
    host: Option<&str>,
    origin: Option<&str>,
) -> Result<(), &'static str> {
    if origin.is_some_and(|origin| {
        !origin::parse_authority(origin).is_some_and(|authority| hosts.contains_authority(authority))
    }) {
        return Err(FOREIGN);
    }
    match host {
        Some(host) if hosts.contains_authority(host) => Ok(()),
        // A certificate has shown already that this name is ours, and no page can leave its origin out.
        _ if is_tls && origin.is_none() => Ok(()),
        _ => Err(UNNAMED),
    }
}

/// Returns status and text of the refusal: with the name, if it is one, and with the setting that would make it the gateway's.
fn refusal_text(why: &str, host: Option<&str>) -> (StatusCode, String) {
    let is_name = |host: &&str| {
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte))
    };
    if why != UNNAMED {
        return (StatusCode::FORBIDDEN, why.to_owned());
    }
    let name = host.map(host_of).filter(is_name).map_or_else(String::new, |name| format!(": {name}"));
    (
        StatusCode::FORBIDDEN,
        format!(
            "The gateway does not answer to this name{name}. Its names are those of gateway.public_url and gateway.allowed_hosts.\n"
        ),
    )
}

pub(super) async fn guard_request(
    State((handlers, is_tls)): State<(Arc<PortHandlers>, bool)>,
    request: Request,
    next: Next,
) -> Response {
    match handlers.hosts.check_request(&request, is_tls) {
        Ok(()) => next.run(request).await,
        // Load balancers ask without a name, and the answer is the same for everybody.
        Err(UNNAMED) if request.uri().path() == LIVEZ => next.run(request).await,
        Err(why) => {
            let (status, message) = refusal_text(why, request_host(&request));
            if !request.uri().path().starts_with("/api/") {
                return (status, message).into_response();
            }
            let detail = if why == FOREIGN { CROSS_ORIGIN } else { message.trim_end() };
            HttpProblem::new(status, detail).response_for(request.uri().path())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AllowedHosts, FOREIGN, UNNAMED, check_host_and_origin, refusal_text};

    #[test]
    fn a_page_of_another_program_of_this_machine_is_not_our_own() {
        let hosts = AllowedHosts::new("127.0.0.1".parse().unwrap(), ["gate.example.org".to_owned()]);
        for (origin, host, want) in [
            ("http://localhost:8443", "localhost:8443", true),
            ("http://LOCALHOST:80", "localhost", true),
            ("https://gate.example.org", "localhost:8443", true),
            ("http://localhost:3000", "localhost:8443", false),
            ("http://127.5.5.5:1", "localhost:8443", false),
            ("http://127.0.0.1:8443", "localhost:8443", false),
            ("null", "localhost:8443", false),
        ] {
            assert_eq!(hosts.is_own(origin, Some(host)), want, "{origin} at {host}");
        }
    }

    #[test]
    fn a_refused_host_name_is_reported_with_the_settings() {
        for (host, name) in [(Some("gate.example.org:8443"), ": gate.example.org"), (Some("<b>"), ""), (None, "")] {
            let want = "Its names are those of gateway.public_url and gateway.allowed_hosts.\n";
            assert_eq!(
                refusal_text(UNNAMED, host).1,
                format!("The gateway does not answer to this name{name}. {want}")
            );
        }
        assert_eq!(refusal_text(FOREIGN, Some("a.b")).1, FOREIGN);
    }

    #[test]
    fn only_names_of_the_gateway_are_answered() {
        let hosts = AllowedHosts::new("10.0.0.5".parse().unwrap(), ["gate.example.org".to_owned()]);
        let any = AllowedHosts::new("0.0.0.0".parse().unwrap(), []);
        for (case, hosts, tls, host, origin, want) in [
            ("loopback", &hosts, false, Some("127.0.0.1:8443"), None, true),
            ("a name of loopback", &hosts, false, Some("localhost:1"), None, true),
            ("loopback in IPv6 form", &hosts, false, Some("[::ffff:127.0.0.1]:1"), None, true),
            ("loopback as a browser writes that", &hosts, false, Some("[::ffff:7f00:1]:1"), None, true),
            ("another address in IPv6 form", &hosts, false, Some("[::ffff:192.0.2.9]:1"), None, false),
            ("loopback in brackets", &hosts, false, Some("[::1]:8443"), None, true),
            ("the address that is bound", &hosts, false, Some("10.0.0.5:8443"), None, true),
            ("its public name", &hosts, false, Some("Gate.Example.org"), None, true),
            ("another name", &hosts, false, Some("evil.example"), None, false),
            ("another name behind brackets", &hosts, false, Some("[::1].evil.example"), None, false),
            ("more behind brackets", &hosts, false, Some("[::1]127.0.0.1"), None, false),
            ("no port behind brackets", &hosts, false, Some("[::1]:x"), None, false),
            ("a name in brackets", &hosts, false, Some("[localhost]"), None, false),
            ("a page behind brackets", &hosts, false, Some("localhost:1"), Some("http://[::1].evil.example"), false),
            ("another address", &hosts, false, Some("10.0.0.6:8443"), None, false),
            ("any address, where it listens on all", &any, false, Some("10.0.0.6:8443"), None, true),
            ("a name, where it listens on all", &any, false, Some("evil.example"), None, false),
            ("no name at all", &hosts, false, None, None, false),
            ("any name over TLS", &hosts, true, Some("evil.example"), None, true),
            ("a foreign page", &hosts, false, Some("localhost:1"), Some("https://evil.example"), false),
            ("a foreign page over TLS", &hosts, true, Some("gate.example.org"), Some("https://evil.example"), false),
            ("a page of nowhere", &hosts, false, Some("localhost:1"), Some("null"), false),
            ("its own page", &hosts, false, Some("localhost:1"), Some("http://localhost:1"), true),
            (
                "a page that leads here under another name",
                &hosts,
                true,
                Some("evil.example"),
                Some("https://gate.example.org"),
                false,
            ),
        ] {
            assert_eq!(check_host_and_origin(hosts, tls, host, origin).is_ok(), want, "{case}");
        }
    }
}
