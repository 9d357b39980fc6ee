//! The head of a command's request to the proxy: `CONNECT`, or a page by its whole address.
//!
//! It must not do I/O. The head for a host is rewritten: the target alone names the host.

use crate::sandbox::hosts::HostTarget;

/// The longest head.
pub(super) const LONGEST: usize = 32 << 10;
/// The most fields of one.
const FIELDS: usize = 100;

/// Request to the proxy.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ProxyRequest {
    /// A tunnel.
    Tunnel(HostTarget),
    /// A page; this is the head for its host, and how what follows is bounded.
    Page { target: HostTarget, head: Vec<u8>, body: BodyFraming },
}

/// Framing of the body after a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyFraming {
    /// So many bytes.
    Length(u64),
    /// Chunks, of which the last is marked.
    Chunked,
}

/// Header fields of one connection, and those for the proxy alone.
const OURS: &[&str] = &[
    "host",
    "connection",
    "keep-alive",
    "upgrade",
    "te",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "http2-settings",
];

/// Reads the head at the beginning of `bytes`, with its length; `None` if it is not whole.
///
/// # Errors
/// Description of the error.
pub(super) fn parse_head(bytes: &[u8]) -> Result<Option<(ProxyRequest, usize)>, &'static str> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err("this is an HTTP proxy, but the request is not HTTP"),
    };
    let (Some(method), Some(url), Some(version)) = (request.method, request.path, request.version) else {
        return Err("the request line is incomplete");
    };
    if method == "CONNECT" {
        let target =
            HostTarget::parse(url, None).map_err(|_| "CONNECT needs a host and a port, such as crates.io:443")?;
        return Ok(Some((ProxyRequest::Tunnel(target), length)));
    }
    let (target, path) = split_url(url)?;
    let body = body_framing(request.headers)?;
    let mut head = format!("{method} {path} HTTP/1.{version}\r\nHost: ").into_bytes();
    let host = if target.port == 80 { target.place.to_string() } else { target.to_string() };
    head.extend(host.bytes());
    head.extend(b"\r\nConnection: close\r\n");
    let between: Vec<String> = header_values(request.headers, "connection")
        .flat_map(|value| value.split(|byte| *byte == b','))
        .map(|name| String::from_utf8_lossy(name).trim().to_ascii_lowercase())
        .collect();
    // Fields for the length stay, even if the client names them in `Connection`.
    let stays = |name: &str| name == "content-length" || name == "transfer-encoding";
    for field in request.headers.iter() {
        let name = field.name.to_ascii_lowercase();
        if OURS.contains(&name.as_str()) || (between.contains(&name) && !stays(&name)) {
            continue;
        }
        head.extend(field.name.bytes());
        head.extend(b": ");
        head.extend(field.value);
        head.extend(b"\r\n");
    }
    head.extend(b"\r\n");
    Ok(Some((ProxyRequest::Page { target, head, body }, length)))
}

/// Splits `http://host:port/path` into the target and the request to it.
fn split_url(url: &str) -> Result<(HostTarget, String), &'static str> {
    let rest = match url.get(..7) {
        Some(scheme) if scheme.eq_ignore_ascii_case("http://") => &url[7..],
        Some(_) | None => {
            return Err("this is a proxy: request a URL that begins with http://, or a tunnel with CONNECT");
        }
    };
    if rest.contains('#') {
        return Err("a requested URL must not contain #");
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if authority.contains('@') {
        return Err("a requested URL must not contain a user name or password");
    }
    let target = HostTarget::parse(authority, Some(80)).map_err(|_| "the URL has no valid host")?;
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Ok((target, path))
}

fn body_framing(fields: &[httparse::Header<'_>]) -> Result<BodyFraming, &'static str> {
    let lengths: Vec<&[u8]> = header_values(fields, "content-length").collect();
    let codings: Vec<&[u8]> = header_values(fields, "transfer-encoding").collect();
    match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => Ok(BodyFraming::Length(0)),
        ([], [one]) if one.eq_ignore_ascii_case(b"chunked") => Ok(BodyFraming::Chunked),
        ([], _) => Err("Transfer-Encoding must be chunked if it is present"),
        ([length], []) => {
            let text = str::from_utf8(length).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            text.and_then(|text| text.parse().ok()).map(BodyFraming::Length).ok_or("Content-Length is not a number")
        }
        ([_, _, ..], []) => Err("Content-Length occurs twice"),
        ([..], [..]) => Err("Content-Length and Transfer-Encoding are both present"),
    }
}

fn header_values<'a>(fields: &'a [httparse::Header<'a>], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
}

#[cfg(test)]
mod tests {
    use super::{BodyFraming, ProxyRequest, parse_head};

    fn page(text: &str) -> Result<(String, String, BodyFraming), &'static str> {
        match parse_head(text.as_bytes())?.unwrap().0 {
            ProxyRequest::Page { target, head, body } => {
                Ok((target.to_string(), String::from_utf8(head).unwrap(), body))
            }
            ProxyRequest::Tunnel(target) => Ok((target.to_string(), String::new(), BodyFraming::Length(0))),
        }
    }

    #[test]
    fn a_host_is_sent_what_it_is_to_know() {
        let request = "GET http://A.org?x=1 HTTP/1.1\r\nHost: other.org\r\nConnection: Upgrade, X-Mine\r\nUpgrade: websocket\r\n\
            X-Mine: 1\r\nProxy-Authorization: Basic eDp5\r\nAccept: */*\r\n\r\n";
        let head = "GET /?x=1 HTTP/1.1\r\nHost: a.org\r\nConnection: close\r\nAccept: */*\r\n\r\n";
        assert_eq!(page(request), Ok(("a.org:80".to_owned(), head.to_owned(), BodyFraming::Length(0))));
        let (target, head, body) =
            page("POST http://[::1]:81/a HTTP/1.0\r\nConnection: Content-Length\r\nContent-Length: 3\r\n\r\nabc")
                .unwrap();
        assert_eq!((target.as_str(), body), ("[::1]:81", BodyFraming::Length(3)));
        assert!(head.starts_with("POST /a HTTP/1.0\r\nHost: [::1]:81\r\n") && head.contains("Content-Length: 3"));
        assert_eq!(page("CONNECT [::1]:443 HTTP/1.1\r\n\r\n").unwrap().0, "[::1]:443");
        assert_eq!(parse_head(b"CONNECT a.org:443 HTTP/1.1\r\nHost"), Ok(None));
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_not_sent_on() {
        for (request, why) in [
            ("GET /page HTTP/1.1\r\nHost: a.org\r\n\r\n", "this is a proxy"),
            ("GET https://a.org/ HTTP/1.1\r\n\r\n", "this is a proxy"),
            ("GET unix:/run/docker.sock HTTP/1.1\r\n\r\n", "this is a proxy"),
            ("GET http://user:pass@a.org/ HTTP/1.1\r\n\r\n", "password"),
            ("GET http://a.org@b.org/ HTTP/1.1\r\n\r\n", "password"),
            ("GET http:///x HTTP/1.1\r\n\r\n", "no valid host"),
            ("GET http://127.1/ HTTP/1.1\r\n\r\n", "no valid host"),
            ("GET http://a.org/#x HTTP/1.1\r\n\r\n", "#"),
            ("CONNECT a.org HTTP/1.1\r\n\r\n", "CONNECT"),
            ("CONNECT http://a.org:443 HTTP/1.1\r\n\r\n", "CONNECT"),
            ("POST http://a.org/ HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "both"),
            ("POST http://a.org/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "twice"),
            ("POST http://a.org/ HTTP/1.1\r\nContent-Length: +1\r\n\r\n", "number"),
            ("POST http://a.org/ HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "chunked"),
            ("\u{5}\u{1}\u{0}", "not HTTP"),
        ] {
            let error = page(request).unwrap_err();
            assert!(error.contains(why), "{request}: {error}");
        }
    }
}
