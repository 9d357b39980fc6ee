//! A client of `/api/v1`: plain requests, and the stream of events, cut wherever the test likes.

use std::{
    io::{self, Read as _, Write as _},
    net::TcpStream,
};

use serde_json::{Value, json};

use super::{GatewayServer, WAIT_TIMEOUT, api_contract};

/// Reply, read whole.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiReply {
    /// Status code.
    pub status: u16,
    /// Status line and headers.
    pub head: String,
    /// JSON of the body, or its text.
    pub body: Value,
}

/// Sends a request to `address`, with more headers and a JSON body.
///
/// # Errors
///
/// If the connection breaks before the reply is whole.
pub fn send_request(
    address: &str,
    (method, path): (&str, &str),
    headers: &[(&str, &str)],
    sent: Option<&Value>,
) -> io::Result<ApiReply> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(WAIT_TIMEOUT))?;
    let mut more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let text = sent.map(ToString::to_string).unwrap_or_default();
    if sent.is_some() {
        more += "content-type: application/json\r\n";
    }
    let length = text.len();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{more}");
    stream.write_all(format!("{head}content-length: {length}\r\n\r\n{text}").as_bytes())?;
    let mut raw_reply = String::new();
    stream.read_to_string(&mut raw_reply)?;
    let (head, text) = raw_reply.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let status = head.split_whitespace().nth(1).and_then(|word| word.parse().ok());
    let status = status.ok_or(io::ErrorKind::InvalidData)?;
    let body = serde_json::from_str(text).unwrap_or_else(|_| json!(text));
    let reply = ApiReply { status, head: head.to_owned(), body };
    api_contract::check_reply((method, path), sent, &reply);
    Ok(reply)
}

/// Client with a token.
pub struct ApiClient<'a> {
    /// Gateway that it uses.
    pub gateway: &'a GatewayServer,
    /// Token that goes with every request.
    pub token: String,
}

impl ApiClient<'_> {
    /// Sends a GET request.
    pub fn get(&self, path: &str) -> ApiReply {
        self.request_with_headers("GET", path, &[], None)
    }

    /// Returns the body of a reply that has the status 200.
    pub fn get_body(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.body
    }

    /// Sends JSON.
    pub fn post(&self, path: &str, body: Value) -> ApiReply {
        self.request_with_headers("POST", path, &[], Some(&body))
    }

    /// Sends a request with more headers.
    pub fn request_with_headers(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> ApiReply {
        let bearer = format!("Bearer {}", self.token);
        let headers = [headers, &[("authorization", bearer.as_str())]].concat();
        send_request(&self.gateway.address, (method, path), &headers, body).unwrap()
    }
}

/// One server-sent event.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiEvent {
    /// Id of the event, if it has one.
    pub id: Option<String>,
    /// Name of the event.
    pub name: String,
    /// JSON of the data.
    pub data: Value,
}

impl ApiEvent {
    fn parse_event(text: &str) -> Option<Self> {
        let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let data = serde_json::from_str(line("data")?).unwrap();
        let event = Self { id: line("id").map(str::to_owned), name: line("event").unwrap().to_owned(), data };
        api_contract::check_event(&event);
        Some(event)
    }
}

/// Stream of events. It is read only on request.
pub struct ApiEvents {
    stream: TcpStream,
    text: Vec<u8>,
}

impl ApiEvents {
    /// Opens the stream over HTTP/1.0, so that the reply ends with the connection.
    ///
    /// # Errors
    ///
    /// If the connection breaks before the head is whole.
    pub fn open(address: &str, query: &str, headers: &[(&str, &str)]) -> io::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(WAIT_TIMEOUT))?;
        let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        write!(stream, "GET /api/v1/events{query} HTTP/1.0\r\nhost: {address}\r\n{more}\r\n")?;
        let mut events = Self { stream, text: Vec::new() };
        while !events.text.windows(4).any(|end| end == b"\r\n\r\n") {
            events.read_bytes(1)?;
        }
        let head = String::from_utf8(std::mem::take(&mut events.text)).unwrap();
        assert!(head.starts_with("HTTP/1.0 200 ") || head.starts_with("HTTP/1.1 200 "), "{head}");
        Ok(events)
    }

    /// Reads at most `most` bytes more.
    ///
    /// # Errors
    ///
    /// If the connection breaks or ends.
    pub fn read_bytes(&mut self, most: usize) -> io::Result<usize> {
        let mut bytes = vec![0; most];
        let count = self.stream.read(&mut bytes)?;
        self.text.extend_from_slice(&bytes[..count]);
        if count == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(count) }
    }

    /// Returns the events that are whole and were not returned yet.
    pub fn take_events(&mut self) -> Vec<ApiEvent> {
        std::iter::from_fn(|| self.take_event()).collect()
    }

    /// Returns the first event that is whole and was not returned yet.
    fn take_event(&mut self) -> Option<ApiEvent> {
        while let Some(end) = self.text.windows(2).position(|end| end == b"\n\n") {
            let rest = self.text.split_off(end + 2);
            let text = String::from_utf8(std::mem::replace(&mut self.text, rest)).unwrap();
            if let Some(event) = ApiEvent::parse_event(&text) {
                return Some(event);
            }
        }
        None
    }

    /// Returns all events up to the first that fits. Those behind it are left for the next call.
    pub fn read_until(&mut self, fits: impl Fn(&ApiEvent) -> bool) -> Vec<ApiEvent> {
        let mut found = Vec::new();
        loop {
            while let Some(event) = self.take_event() {
                let is_last = fits(&event);
                found.push(event);
                if is_last {
                    return found;
                }
            }
            self.read_bytes(64 << 10).unwrap();
        }
    }
}
