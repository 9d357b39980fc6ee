//! Requests and replies of HTTP/1.1 as far as the programs need them: one request a connection.

use std::io::{self, BufRead, Read as _, Write};

/// Most bytes of the lines before a body.
const LARGEST_HEAD: u64 = 256 * 1024;
/// Most bytes of a body.
const LARGEST_BODY: u64 = 64 * 1024 * 1024;

/// Request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpRequest {
    /// Path with its query.
    pub(crate) target: String,
    pub(crate) body: Vec<u8>,
}

/// Reply to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpReply {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    pub(crate) body: Vec<u8>,
}

impl HttpRequest {
    /// Returns the path without the query.
    pub(crate) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// Reads a request with a body of a length or in chunks.
    ///
    /// # Errors
    /// `InvalidData` if it is no such request or too long.
    pub(crate) fn read(from: &mut impl BufRead) -> io::Result<Self> {
        let mut head = from.by_ref().take(LARGEST_HEAD);
        let first = read_line(&mut head)?;
        let target = first.split(' ').nth(1).ok_or_else(|| invalid("no target"))?.to_owned();
        let (mut length, mut is_chunked) = (0, false);
        loop {
            let line = read_line(&mut head)?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| invalid("a header without a colon"))?;
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().map_err(|_| invalid("content-length"))?;
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                is_chunked = value.trim().eq_ignore_ascii_case("chunked");
            }
        }
        let body = if is_chunked { read_chunks(from)? } else { read_bytes(from, length)? };
        Ok(Self { target, body })
    }
}

impl HttpReply {
    /// Creates a reply with JSON.
    pub(crate) fn json(status: u16, value: &serde_json::Value) -> Self {
        Self { status, content_type: "application/json", body: value.to_string().into_bytes() }
    }

    /// Writes it. The connection ends after it.
    pub(crate) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let (status, length) = (self.status, self.body.len());
        let content_type = self.content_type;
        write!(to, "HTTP/1.1 {status} -\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n")?;
        to.write_all(b"connection: close\r\n\r\n")?;
        to.write_all(&self.body)?;
        to.flush()
    }
}

fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    if !line.ends_with('\n') {
        return Err(invalid("the request ends early or is too long"));
    }
    Ok(line.trim_end().to_owned())
}

fn read_bytes(from: &mut impl BufRead, length: u64) -> io::Result<Vec<u8>> {
    if length > LARGEST_BODY {
        return Err(invalid("the body is too long"));
    }
    let mut body = Vec::new();
    from.by_ref().take(length).read_to_end(&mut body)?;
    if body.len() as u64 != length {
        return Err(invalid("the body ends early"));
    }
    Ok(body)
}

fn read_chunks(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = read_line(&mut from.by_ref().take(LARGEST_HEAD))?;
        let size = line.split(';').next().unwrap_or_default();
        let length = u64::from_str_radix(size, 16).map_err(|_| invalid("size of a chunk"))?;
        if body.len() as u64 + length > LARGEST_BODY {
            return Err(invalid("the body is too long"));
        }
        body.append(&mut read_bytes(from, length)?);
        read_line(&mut from.by_ref().take(LARGEST_HEAD))?;
        if length == 0 {
            return Ok(body);
        }
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("invalid request: {what}"))
}

#[cfg(test)]
mod tests {
    use super::{HttpReply, HttpRequest};

    fn read(text: &str) -> Result<(String, String), String> {
        let request = HttpRequest::read(&mut text.as_bytes()).map_err(|error| error.to_string())?;
        Ok((request.path().to_owned(), String::from_utf8(request.body).unwrap()))
    }

    #[test]
    fn a_body_has_a_length_or_chunks() {
        let want = |path: &str, body: &str| Ok((path.to_owned(), body.to_owned()));
        for (text, want) in [
            ("GET /a?b=c HTTP/1.1\r\nhost: x\r\n\r\n", want("/a", "")),
            ("POST /a HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", want("/a", "{}")),
            (
                "POST /a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{\"\r\na\r\na\":[1, 2]}\r\n0\r\n\r\n",
                want("/a", "{\"a\":[1, 2]}"),
            ),
            ("POST /a HTTP/1.1\r\ncontent-length: 3\r\n\r\n{}", Err("invalid request: the body ends early".to_owned())),
            (
                "POST /a HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n",
                Err("invalid request: the body is too long".to_owned()),
            ),
            ("\r\n", Err("invalid request: no target".to_owned())),
            ("GET / HTTP/1.1\r\n", Err("invalid request: the request ends early or is too long".to_owned())),
        ] {
            assert_eq!(read(text), want, "{text}");
        }
    }

    #[test]
    fn a_reply_ends_its_connection() {
        let mut bytes = Vec::new();
        HttpReply::json(404, &serde_json::json!({})).write(&mut bytes).unwrap();
        let want =
            "HTTP/1.1 404 -\r\ncontent-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
        assert_eq!(String::from_utf8(bytes).unwrap(), want);
    }
}
