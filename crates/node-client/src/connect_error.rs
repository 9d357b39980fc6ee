//! Why a gateway was not reached, in words that help.

use std::fmt;

use anyhow::bail;
use tokio_tungstenite::tungstenite::http::Uri;

/// Beginning of each error of rustls about the certificate of a server.
const CERTIFICATE: &str = "invalid peer certificate: ";

/// Reason why the certificate of a server is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateFault {
    /// No trusted CA signed it.
    Untrusted,
    /// It is that of a CA.
    IsCa,
    /// A trusted CA has the name of its CA, and another key.
    OtherKey,
    /// It is for another host name.
    OtherName,
    /// It has expired.
    Expired,
    /// It is not valid yet.
    Early,
    /// Anything else.
    Invalid,
}

impl CertificateFault {
    /// Texts of rustls for each reason, with and without its context.
    const TEXTS: [(&str, Self); 9] = [
        ("CaUsedAsEndEntity", Self::IsCa),
        ("UnknownIssuer", Self::Untrusted),
        ("BadSignature", Self::OtherKey),
        ("NotValidForName", Self::OtherName),
        ("certificate not valid for name", Self::OtherName),
        ("Expired", Self::Expired),
        ("certificate expired", Self::Expired),
        ("NotValidYet", Self::Early),
        ("certificate not valid yet", Self::Early),
    ];

    /// Recognises the text of a failure to connect. `None` if it is not about a certificate.
    pub fn from_text(text: &str) -> Option<Self> {
        let (_, reason) = text.split_once(CERTIFICATE)?;
        let known = Self::TEXTS.iter().find(|(words, _)| reason.contains(words));
        Some(known.map_or(Self::Invalid, |(_, fault)| *fault))
    }

    /// Returns the reason for people.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Untrusted => "its certificate is not signed by a trusted CA",
            Self::IsCa => "its certificate is a CA certificate (CA:TRUE), which clients reject for a server",
            Self::OtherKey => "its certificate is not signed with the key of the trusted CA of this name",
            Self::OtherName => "its certificate is for another host name",
            Self::Expired => "its certificate has expired",
            Self::Early => "its certificate is not valid yet",
            Self::Invalid => "its certificate is invalid",
        }
    }

    /// Returns what to do. `trust` says how the client gets a trusted CA.
    pub fn advice(self, trust: &str) -> String {
        match self {
            Self::Untrusted => trust.to_owned(),
            Self::IsCa => format!("create it with basicConstraints=CA:FALSE, and {trust}"),
            Self::OtherKey => format!("if its CA was renewed, {trust}"),
            Self::OtherName => "connect to a name that it has, or create it for this name".to_owned(),
            Self::Expired => "renew it".to_owned(),
            Self::Early => "check the clocks of this machine and of the server".to_owned(),
            Self::Invalid => format!("create it again, and {trust}"),
        }
    }
}

/// Other error texts of libraries, and their causes.
const KNOWN: [(&str, &str); 3] = [
    ("invalid HTTP version", "the server uses TLS: use wss://"),
    ("received corrupt message", "the server does not use TLS: use ws://, if the connection is protected otherwise"),
    ("HTTP version must be", "the server does not speak WebSocket: no gateway runs there"),
];

/// Returns the text of a failure to connect, with its cause if it is known, for a client with the flag `--ca`.
pub fn explain_failure(failure: &dyn fmt::Display) -> String {
    let text = failure.to_string();
    if let Some(fault) = CertificateFault::from_text(&text) {
        let explained = format!("{}: {}", fault.description(), fault.advice("trust it with --ca FILE"));
        let reason = text.split_once(CERTIFICATE).map_or("", |(_, reason)| reason);
        return if fault == CertificateFault::Invalid { format!("{explained} ({reason})") } else { explained };
    }
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
    use std::{io, sync::Arc, time::Duration};

    use rustls::{
        CertificateError, OtherError,
        pki_types::{ServerName, UnixTime},
    };

    use super::{CertificateFault, check_port, explain_failure};

    /// Returns the text of the library that refuses a certificate.
    fn refusal(error: CertificateError) -> String {
        format!("IO error: {}", rustls::Error::InvalidCertificate(error))
    }

    #[test]
    fn each_refusal_of_a_certificate_is_recognised() {
        let (time, name) = (UnixTime::since_unix_epoch(Duration::from_secs(9)), ServerName::try_from("a.org").unwrap());
        let as_ca = OtherError(Arc::new(io::Error::other("CaUsedAsEndEntity")));
        for (error, want, is_about_ca) in [
            (CertificateError::UnknownIssuer, CertificateFault::Untrusted, true),
            (CertificateError::Other(as_ca), CertificateFault::IsCa, true),
            (CertificateError::BadSignature, CertificateFault::OtherKey, true),
            (CertificateError::NotValidForName, CertificateFault::OtherName, false),
            (
                CertificateError::NotValidForNameContext { expected: name, presented: vec!["b.org".to_owned()] },
                CertificateFault::OtherName,
                false,
            ),
            (CertificateError::Expired, CertificateFault::Expired, false),
            (CertificateError::ExpiredContext { time, not_after: time }, CertificateFault::Expired, false),
            (CertificateError::NotValidYet, CertificateFault::Early, false),
            (CertificateError::NotValidYetContext { time, not_before: time }, CertificateFault::Early, false),
            (CertificateError::BadEncoding, CertificateFault::Invalid, true),
        ] {
            let text = refusal(error);
            assert_eq!(CertificateFault::from_text(&text), Some(want), "{text}");
            let explained = explain_failure(&text);
            assert!(explained.starts_with(want.description()), "{text}: {explained}");
            assert_eq!(explained.contains("--ca FILE"), is_about_ca, "{text}: {explained}");
        }
        assert_eq!(CertificateFault::from_text("Connection refused (os error 111)"), None);
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
