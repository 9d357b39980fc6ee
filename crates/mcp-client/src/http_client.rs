//! The HTTP client for servers and token endpoints.
//!
//! It must not know what is sent. Addresses stay out of all texts.

use std::time::Duration;

use reqwest::{Client, ClientBuilder, redirect};
use url::{Host, Url};

use crate::send_error::SendError;

/// Time limit of a TCP and TLS connection.
const CONNECT_WAIT: Duration = Duration::from_secs(20);

/// Sorts a failure of the HTTP client that has no status. Its own text has the address.
pub(crate) fn client_error(error: &reqwest::Error) -> SendError {
    let why = root_cause(error);
    if error.is_connect() || error.is_builder() {
        SendError::NotSent(format!("cannot connect: {why}"))
    } else {
        SendError::Lost(format!("the connection broke: {why}"))
    }
}

fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    // An error without a source names the address.
    if std::ptr::addr_eq(cause, error) { "no reason given".to_owned() } else { cause.to_string() }
}

/// Builds a client that follows no redirect, because a header would go with it.
pub(crate) fn http_client(url: &str) -> Result<Client, String> {
    let url = Url::parse(url).map_err(|_| "its url is invalid".to_owned())?;
    let builder: ClientBuilder = match (is_loopback(&url), url.scheme()) {
        (true, "http") => Client::builder().no_proxy().tls_certs_only([]),
        (true, _) => Client::builder().no_proxy(),
        (false, _) => Client::builder(),
    };
    let builder = builder.redirect(redirect::Policy::none()).connect_timeout(CONNECT_WAIT);
    builder.build().map_err(|error| format!("cannot set up TLS: {}", root_cause(&error)))
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}
