//! The head of what a command asks the proxy for: `CONNECT`, or a page by its whole address.
//!
//! It must not do I/O. What a host is sent is written anew: the target alone says which host is meant.

use crate::sandbox::hosts::Target;

/// The longest head.
pub(super) const LONGEST: usize = 32 << 10;
/// The most fields of one.
const FIELDS: usize = 100;

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// A tunnel.
    Tunnel(Target),
    /// A page; this is the head for its host, and how what follows is bounded.
    Page { target: Target, head: Vec<u8>, body: Body },
}

/// What follows a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// So many bytes.
    Length(u64),
    /// Parts, of which the last says that it is.
    Chunked,
}

/// Fields that are between two ends of one connection, and what is said to the proxy alone.
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
/// What is wrong with it.
pub(super) fn read(bytes: &[u8]) -> Result<Option<(Asked, usize)>, &'static str> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err("this is a proxy for HTTP, and that was not HTTP"),
    };
    let (Some(method), Some(asked), Some(version)) = (request.method, request.path, request.version) else {
        return Err("the first line is not whole");
    };
    if method == "CONNECT" {
        let target =
            Target::parse(asked, None).map_err(|_| "CONNECT names a host and a port, such as crates.io:443")?;
        return Ok(Some((Asked::Tunnel(target), length)));
    }
    let (target, path) = whole(asked)?;
    let body = body(request.headers)?;
    let mut head = format!("{method} {path} HTTP/1.{version}\r\nHost: ").into_bytes();
    let host = if target.port == 80 { target.place.to_string() } else { target.to_string() };
    head.extend(host.bytes());
    head.extend(b"\r\nConnection: close\r\n");
    let between: Vec<String> = values(request.headers, "connection")
        .flat_map(|value| value.split(|byte| *byte == b','))
        .map(|name| String::from_utf8_lossy(name).trim().to_ascii_lowercase())
        .collect();
    // What says how long it is stays, whoever calls it a matter of the connection.
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
    Ok(Some((Asked::Page { target, head, body }, length)))
}

/// Parts `http://host:port/path` into what is reached and what is asked there.
fn whole(asked: &str) -> Result<(Target, String), &'static str> {
    let rest = match asked.get(..7) {
        Some(scheme) if scheme.eq_ignore_ascii_case("http://") => &asked[7..],
        Some(_) | None => return Err("this is a proxy: ask for http:// and a host, or for a tunnel with CONNECT"),
    };
    if rest.contains('#') {
        return Err("an address that is asked for has no # in it");
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if authority.contains('@') {
        return Err("no name and no password stands before the host in an address that is asked for");
    }
    let target = Target::parse(authority, Some(80)).map_err(|_| "the address names no host that can be")?;
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Ok((target, path))
}

fn body(fields: &[httparse::Header<'_>]) -> Result<Body, &'static str> {
    let lengths: Vec<&[u8]> = values(fields, "content-length").collect();
    let codings: Vec<&[u8]> = values(fields, "transfer-encoding").collect();
    match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => Ok(Body::Length(0)),
        ([], [one]) if one.eq_ignore_ascii_case(b"chunked") => Ok(Body::Chunked),
        ([], _) => Err("Transfer-Encoding is chunked, or not there"),
        ([length], []) => {
            let text = str::from_utf8(length).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            text.and_then(|text| text.parse().ok()).map(Body::Length).ok_or("Content-Length is no number")
        }
        ([_, _, ..], []) => Err("Content-Length is there twice"),
        ([..], [..]) => Err("Content-Length and Transfer-Encoding are both there"),
    }
}

fn values<'a>(fields: &'a [httparse::Header<'a>], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
}

#[cfg(test)]
mod tests {
    use super::{Asked, Body, read};

    fn page(text: &str) -> Result<(String, String, Body), &'static str> {
        match read(text.as_bytes())?.unwrap().0 {
            Asked::Page { target, head, body } => Ok((target.to_string(), String::from_utf8(head).unwrap(), body)),
            Asked::Tunnel(target) => Ok((target.to_string(), String::new(), Body::Length(0))),
        }
    }

    #[test]
    fn a_host_is_sent_what_it_is_to_know() {
        let asked = "GET http://A.org?x=1 HTTP/1.1\r\nHost: other.org\r\nConnection: Upgrade, X-Mine\r\nUpgrade: websocket\r\n\
            X-Mine: 1\r\nProxy-Authorization: Basic eDp5\r\nAccept: */*\r\n\r\n";
        let head = "GET /?x=1 HTTP/1.1\r\nHost: a.org\r\nConnection: close\r\nAccept: */*\r\n\r\n";
        assert_eq!(page(asked), Ok(("a.org:80".to_owned(), head.to_owned(), Body::Length(0))));
        let (target, head, body) =
            page("POST http://[::1]:81/a HTTP/1.0\r\nConnection: Content-Length\r\nContent-Length: 3\r\n\r\nabc")
                .unwrap();
        assert_eq!((target.as_str(), body), ("[::1]:81", Body::Length(3)));
        assert!(head.starts_with("POST /a HTTP/1.0\r\nHost: [::1]:81\r\n") && head.contains("Content-Length: 3"));
        assert_eq!(page("CONNECT [::1]:443 HTTP/1.1\r\n\r\n").unwrap().0, "[::1]:443");
        assert_eq!(read(b"CONNECT a.org:443 HTTP/1.1\r\nHost"), Ok(None));
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_not_sent_on() {
        for (asked, why) in [
            ("GET /page HTTP/1.1\r\nHost: a.org\r\n\r\n", "this is a proxy"),
            ("GET https://a.org/ HTTP/1.1\r\n\r\n", "this is a proxy"),
            ("GET unix:/run/docker.sock HTTP/1.1\r\n\r\n", "this is a proxy"),
            ("GET http://user:pass@a.org/ HTTP/1.1\r\n\r\n", "password"),
            ("GET http://a.org@b.org/ HTTP/1.1\r\n\r\n", "password"),
            ("GET http:///x HTTP/1.1\r\n\r\n", "no host"),
            ("GET http://127.1/ HTTP/1.1\r\n\r\n", "no host"),
            ("GET http://a.org/#x HTTP/1.1\r\n\r\n", "#"),
            ("CONNECT a.org HTTP/1.1\r\n\r\n", "CONNECT"),
            ("CONNECT http://a.org:443 HTTP/1.1\r\n\r\n", "CONNECT"),
            ("POST http://a.org/ HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "both"),
            ("POST http://a.org/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "twice"),
            ("POST http://a.org/ HTTP/1.1\r\nContent-Length: +1\r\n\r\n", "number"),
            ("POST http://a.org/ HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "chunked"),
            ("\u{5}\u{1}\u{0}", "not HTTP"),
        ] {
            let told = page(asked).unwrap_err();
            assert!(told.contains(why), "{asked}: {told}");
        }
    }
}
