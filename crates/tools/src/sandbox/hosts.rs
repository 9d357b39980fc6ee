//! Hosts that commands may reach: how the settings, and calls that ask for more, write them.
//!
//! It must not resolve a name.

use std::{borrow::Cow, fmt, net::IpAddr, str::FromStr};

use serde::{Deserialize, Serialize};

/// The ports of an entry that names none.
const USUAL: [u16; 2] = [80, 443];

/// An entry: a name, all names below one, or an address, and perhaps a port. Without one it means 80 and 443.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPattern {
    named: HostMatcher,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum HostMatcher {
    One(HostAddress),
    /// Every name that ends with a dot and this.
    Below(String),
}

/// A name, lower-case and without a dot at its end, or an address that was written as one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HostAddress {
    Name(String),
    Address(IpAddr),
}

/// Target of a connection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HostTarget {
    pub(crate) place: HostAddress,
    pub(crate) port: u16,
}

/// Reason that a text names no host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid host {text:?}: {why}; for example crates.io, *.debian.org, api.example.com:8443, 192.0.2.7:80 and \
     [2001:db8::7]:443 are valid"
)]
pub struct HostError {
    text: String,
    why: Cow<'static, str>,
}

impl HostPattern {
    /// Expected form, for errors.
    pub const EXPECTED: &'static str = "a host such as crates.io, *.debian.org or api.example.com:8443";

    /// Reads an entry for one host, in the one form in which rules are matched against it.
    pub(crate) fn parse_exact(text: &str) -> Result<Self, HostError> {
        let wrong = |why: Cow<'static, str>| HostError { text: text.to_owned(), why };
        match text.parse::<Self>()? {
            Self { named: HostMatcher::Below(_), .. } => {
                Err(wrong("a call must name each host, without a wildcard".into()))
            }
            host if host.to_string() != text => Err(wrong(format!("write it as {host}").into())),
            host => Ok(host),
        }
    }

    /// Returns true if the entry allows `target`.
    pub(crate) fn allows_target(&self, target: &HostTarget) -> bool {
        let port = self.port.map_or_else(|| USUAL.contains(&target.port), |port| port == target.port);
        port && match (&self.named, &target.place) {
            (HostMatcher::One(place), requested) => place == requested,
            (HostMatcher::Below(above), HostAddress::Name(name)) => {
                name.strip_suffix(above.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
            (HostMatcher::Below(_), HostAddress::Address(_)) => false,
        }
    }
}

impl HostTarget {
    /// Reads `host:port`, or `host` if `usual` gives the default port.
    pub(crate) fn parse(text: &str, usual: Option<u16>) -> Result<Self, HostError> {
        let wrong = |why: &'static str| HostError { text: text.to_owned(), why: why.into() };
        let (host, port) = split_port(text).map_err(wrong)?;
        let port = port.or(usual).ok_or_else(|| wrong("a port is missing"))?;
        Ok(Self { place: parse_host(host).map_err(wrong)?, port })
    }
}

impl FromStr for HostPattern {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        let wrong = |why: &'static str| HostError { text: text.to_owned(), why: why.into() };
        let (host, port) = split_port(text).map_err(wrong)?;
        let named = match host.strip_prefix("*.") {
            None => HostMatcher::One(parse_host(host).map_err(wrong)?),
            Some(above) => match parse_host(above).map_err(wrong)? {
                HostAddress::Name(name) if name.contains('.') => HostMatcher::Below(name),
                HostAddress::Name(_) => {
                    return Err(wrong("a wildcard needs a domain with a dot after it, such as *.debian.org"));
                }
                HostAddress::Address(_) => return Err(wrong("a wildcard cannot be used with an IP address")),
            },
        };
        Ok(Self { named, port })
    }
}

/// Splits a host and a port, if there is one. An address of version 6 is in brackets.
fn split_port(text: &str) -> Result<(&str, Option<u16>), &'static str> {
    if text.contains("://") || text.contains('/') {
        return Err("it is a URL; write only the host");
    }
    let (host, port) = match (text.starts_with('['), text.rfind(']')) {
        (true, Some(end)) => match text[end + 1..].strip_prefix(':') {
            Some(port) => (&text[..=end], Some(port)),
            None if text[end + 1..].is_empty() => (text, None),
            None => return Err("only a port may follow the bracket"),
        },
        (true, None) => return Err("the bracket is not closed"),
        (false, _) => match text.split_once(':') {
            None => (text, None),
            Some((_, port)) if port.contains(':') => return Err("an IPv6 address must be in brackets"),
            Some((host, port)) => (host, Some(port)),
        },
    };
    let Some(port) = port else { return Ok((host, None)) };
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    match port.parse::<u16>() {
        Ok(port @ 1..) if is_number => Ok((host, Some(port))),
        Ok(_) | Err(_) => Err("the port must be a number from 1 to 65535"),
    }
}

fn parse_host(text: &str) -> Result<HostAddress, &'static str> {
    if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let address = inner.parse().map_err(|_| "the brackets must contain an IPv6 address")?;
        // One of version 4 in the form of version 6 leads to the same place, and is shown and ruled as that.
        return Ok(HostAddress::Address(IpAddr::V6(address).to_canonical()));
    }
    if let Ok(address) = text.parse() {
        return Ok(HostAddress::Address(IpAddr::V4(address)));
    }
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    if name.is_empty() {
        return Err("the name is missing");
    }
    if !name.is_ascii() {
        return Err("write an internationalized name in its ASCII form, such as xn--bcher-kva.de");
    }
    if name.contains('*') {
        return Err("a star is allowed only at the beginning, before a dot");
    }
    let is_label = |label: &str| {
        matches!(label.len(), 1..=63)
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    if name.len() > 253 || !name.split('.').all(is_label) {
        return Err("it is not a valid host name");
    }
    // Libraries that resolve names read `127.1` and `0x7f000001` as addresses.
    let last = name.rsplit('.').next().unwrap_or_default();
    if last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x") {
        return Err("it looks like an IP address, but is not in the standard form");
    }
    Ok(HostAddress::Name(name))
}

impl fmt::Display for HostAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

impl fmt::Display for HostTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.place, self.port)
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.named {
            HostMatcher::One(place) => place.fmt(f)?,
            HostMatcher::Below(above) => write!(f, "*.{above}")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl TryFrom<String> for HostPattern {
    type Error = HostError;

    fn try_from(text: String) -> Result<Self, HostError> {
        text.parse()
    }
}

impl From<HostPattern> for String {
    fn from(host: HostPattern) -> Self {
        host.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::{HostPattern, HostTarget};

    #[test]
    fn an_entry_lets_what_it_names_and_nothing_else() {
        for (entry, target, want) in [
            ("crates.io", "crates.io:443", true),
            ("Crates.IO.", "crates.io.:80", true),
            ("crates.io", "crates.io:8080", false),
            ("crates.io", "static.crates.io:443", false),
            ("crates.io:8443", "crates.io:8443", true),
            ("crates.io:8443", "crates.io:443", false),
            ("*.debian.org", "deb.debian.org:80", true),
            ("*.debian.org", "a.b.debian.org:80", true),
            ("*.debian.org", "debian.org:80", false),
            ("*.debian.org", "notdebian.org:80", false),
            ("127.0.0.1:9", "127.0.0.1:9", true),
            ("127.0.0.1:9", "[::ffff:127.0.0.1]:9", true),
            ("127.0.0.1:9", "[::7f00:1]:9", false),
            ("[::1]:443", "[0:0::1]:443", true),
        ] {
            let entry: HostPattern = entry.parse().unwrap();
            assert_eq!(entry.allows_target(&HostTarget::parse(target, None).unwrap()), want, "{entry} {target}");
        }
    }

    #[test]
    fn a_call_names_a_host_in_the_form_in_which_rules_are_matched() {
        for (text, written) in [
            ("evil.org", None),
            ("evil.org:443", None),
            ("[2001:db8::7]:443", None),
            ("Evil.ORG", Some("evil.org")),
            ("evil.org.:443", Some("evil.org:443")),
            ("[::ffff:127.0.0.1]:80", Some("127.0.0.1:80")),
            ("[2001:DB8:0::7]:443", Some("[2001:db8::7]:443")),
            ("evil.org:0443", Some("evil.org:443")),
        ] {
            let error = HostPattern::parse_exact(text).err().map(|error| error.to_string());
            let is_so = error
                .as_ref()
                .is_none_or(|message| message.contains(&format!("write it as {};", written.unwrap_or("-"))));
            assert!(is_so && error.is_some() == written.is_some(), "{text}: {error:?}");
        }
    }

    #[test]
    fn what_is_no_host_is_refused_with_the_reason() {
        for (text, why) in [
            ("", "missing"),
            ("*", "star"),
            ("*.org", "domain with a dot"),
            ("a.*.org", "star"),
            ("https://a.org", "only the host"),
            ("a.org:0", "port"),
            ("a.org:+1", "port"),
            ("::1", "brackets"),
            ("[::1", "closed"),
            ("b\u{fc}cher.de", "xn--"),
            ("a b.org", "not a valid host name"),
            ("user@a.org", "not a valid host name"),
            ("127.1", "looks like an IP address"),
            ("0x7f000001", "looks like an IP address"),
            ("2130706433", "looks like an IP address"),
        ] {
            let error = text.parse::<HostPattern>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
