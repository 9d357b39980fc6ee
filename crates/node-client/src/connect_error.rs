//! Why a gateway was not reached, in words that help.

use std::fmt;

use anyhow::bail;
use tokio_tungstenite::tungstenite::http::Uri;

/// Error texts of libraries, and their causes.
const KNOWN: [(&str, &str); 7] = [
    (
        "CaUsedAsEndEntity",
        "its certificate is a CA certificate (CA:TRUE), which clients reject for a server: create it with \
        basicConstraints=CA:FALSE, and trust it with --ca FILE",
    ),
    ("UnknownIssuer", "its certificate is not signed by a trusted CA: trust it with --ca FILE"),
    ("invalid HTTP version", "the server uses TLS: use wss://"),
    ("NotValidForName", "its certificate is for another host name"),
    ("Expired", "its certificate has expired"),
    ("received corrupt message", "the server does not use TLS: use ws://, if the connection is protected otherwise"),
    ("HTTP version must be", "the server does not speak WebSocket: no gateway runs there"),
];

/// Returns the text of a failure to connect, with its cause if it is known.
pub fn explain_failure(failure: &dyn fmt::Display) -> String {
    let text = failure.to_string();
    let known = KNOWN.iter().find(|(words, _)| text.contains(words));
    known.map_or(text, |(_, meant)| (*meant).to_owned())
}

/// Checks that the port of an address is valid.
///
/// # Errors
/// It is not: the connection would go to another port.
pub fn check_port(uri: &Uri) -> anyhow::Result<()> {
    let host = uri.host().unwrap_or_default();
    let named = uri.authority().and_then(|authority| authority.as_str().strip_prefix(host)?.strip_prefix(':'));
    match named {
        Some(port) if port.parse::<u16>().unwrap_or_default() == 0 => bail!("invalid port {port}: expected 1 to 65535"),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{check_port, explain_failure};

    #[test]
    fn a_certificate_that_is_not_trusted_names_what_trusts_it() {
        for message in [
            "invalid peer certificate: UnknownIssuer",
            "invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))",
        ] {
            assert!(explain_failure(&message).contains("--ca FILE"), "{message}");
        }
    }

    #[test]
    fn errors_of_libraries_become_plain_texts() {
        for (message, want) in [
            (
                "IO error: invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))",
                "its certificate is a CA certificate",
            ),
            (
                "invalid peer certificate: UnknownIssuer",
                "its certificate is not signed by a trusted CA: trust it with --ca FILE",
            ),
            ("received corrupt message of type InvalidContentType", "the server does not use TLS"),
            ("Connection refused (os error 111)", "Connection refused"),
        ] {
            assert!(explain_failure(&message).starts_with(want), "{message}");
        }
    }

    #[test]
    fn a_port_that_there_is_not_is_no_other() {
        for (address, want) in [
            ("ws://127.0.0.1:99999/ws", false),
            ("ws://127.0.0.1:0", false),
            ("ws://127.0.0.1:/ws", false),
            ("ws://[::1]:8443/ws", true),
            ("wss://gateway.example.org", true),
        ] {
            assert_eq!(check_port(&address.parse().unwrap()).is_ok(), want, "{address}");
        }
    }
}
