//! A client over HTTP: one request at a time, and streams of events that are read as they come.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Shutdown, TcpStream},
    sync::{Arc, Condvar, Mutex},
    thread,
};

use serde_json::Value;

use crate::process::WAIT_TIMEOUT;

/// Reply, read whole.
#[derive(Debug)]
pub struct HttpClientReply {
    /// Status code.
    pub status: u16,
    /// Status line and headers.
    pub head: String,
    /// Text of the body.
    pub body: String,
}

impl HttpClientReply {
    /// Returns the JSON of the body.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("the body is not JSON: {self:?}"))
    }

    /// Returns the value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        find_header(&self.head, name)
    }
}

fn find_header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
}

/// Client of one address, with headers that go with every request.
#[derive(Clone, Debug)]
pub struct HttpClient {
    /// Address of the server.
    pub address: String,
    /// Name and value of each header.
    pub headers: Vec<(String, String)>,
}

impl HttpClient {
    /// Creates a client without headers.
    pub fn new(address: &str) -> Self {
        Self { address: address.to_owned(), headers: Vec::new() }
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends a GET request.
    pub fn get(&self, path: &str) -> HttpClientReply {
        self.send_request("GET", path, "")
    }

    /// Sends JSON.
    pub fn post(&self, path: &str, body: &Value) -> HttpClientReply {
        self.clone().with_header("content-type", "application/json").send_request("POST", path, &body.to_string())
    }

    /// Sends a request with any body.
    pub fn send_request(&self, method: &str, path: &str, body: &str) -> HttpClientReply {
        let mut stream = self.open_request(method, path, body);
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let at =
            bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or_else(|| panic!("{method} {path}: no head"));
        let head = String::from_utf8(bytes[..at].to_vec()).unwrap();
        let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
        HttpClientReply { status, body: String::from_utf8_lossy(&bytes[at + 4..]).into_owned(), head }
    }

    /// Sends a POST request, and returns its connection before the reply.
    pub fn open_post(&self, path: &str, body: &str) -> TcpStream {
        self.open_request("POST", path, body)
    }

    /// Sends a POST request whose reply is a stream of events.
    pub fn open_post_stream(&self, path: &str, body: &str) -> EventStream {
        EventStream::from_stream(self.open_request("POST", path, body))
    }

    fn open_request(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        let host = if self.headers.iter().any(|(name, _)| name == "host") {
            String::new()
        } else {
            format!("host: {}\r\n", self.address)
        };
        let headers: String = self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\n{host}{headers}connection: close\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        stream
    }

    /// Opens a stream of events.
    pub fn open_stream(&self, path: &str) -> EventStream {
        EventStream::from_stream(self.open_request("GET", path, ""))
    }
}

/// One server-sent event.
#[derive(Clone, Debug, PartialEq)]
pub struct SseEvent {
    /// Id of the event, if it has one.
    pub id: Option<String>,
    /// Name of the event, `message` if it has none.
    pub name: String,
    /// JSON of the data.
    pub data: Value,
}

#[derive(Default)]
struct SseBuffer {
    events: Vec<SseEvent>,
    is_over: bool,
}

/// Stream of events that is read by a thread of its own.
pub struct EventStream {
    buffer: Arc<(Mutex<SseBuffer>, Condvar)>,
    stream: TcpStream,
}

impl EventStream {
    fn from_stream(stream: TcpStream) -> Self {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).unwrap() > 0, "the stream ended within its head: {head}");
        }
        let is_chunked = find_header(&head, "transfer-encoding") == Some("chunked");
        let buffer: Arc<(Mutex<SseBuffer>, Condvar)> = Arc::default();
        let shared = Arc::clone(&buffer);
        thread::spawn(move || {
            let mut text = String::new();
            while let Some(more) = read_chunk(&mut reader, is_chunked) {
                text.push_str(&more);
                while let Some((event, rest)) = text.split_once("\n\n") {
                    if let Some(event) = parse_event(event) {
                        shared.0.lock().unwrap().events.push(event);
                        shared.1.notify_all();
                    }
                    text = rest.to_owned();
                }
            }
            shared.0.lock().unwrap().is_over = true;
            shared.1.notify_all();
        });
        Self { buffer, stream }
    }

    /// Returns the events that have come so far.
    pub fn events_so_far(&self) -> Vec<SseEvent> {
        self.buffer.0.lock().unwrap().events.clone()
    }

    /// Returns the first event for which `fits`, as soon as it is there.
    pub fn wait_event(&self, what: &str, fits: impl Fn(&SseEvent) -> bool) -> SseEvent {
        let buffer = self.buffer.0.lock().unwrap();
        let missing = |buffer: &mut SseBuffer| !buffer.is_over && !buffer.events.iter().any(&fits);
        let (buffer, late) = self.buffer.1.wait_timeout_while(buffer, WAIT_TIMEOUT, missing).unwrap();
        let found = buffer.events.iter().find(|event| fits(event)).cloned();
        found.unwrap_or_else(|| panic!("no {what} (late: {}) in {:#?}", late.timed_out(), buffer.events))
    }

    /// Returns the first event with this name, as soon as it is there.
    pub fn wait_named(&self, name: &str) -> SseEvent {
        self.wait_event(name, |event| event.name == name)
    }

    /// Returns all events, as soon as the stream has ended.
    pub fn wait_end(&self) -> Vec<SseEvent> {
        let buffer = self.buffer.0.lock().unwrap();
        let (buffer, late) = self.buffer.1.wait_timeout_while(buffer, WAIT_TIMEOUT, |buffer| !buffer.is_over).unwrap();
        assert!(!late.timed_out(), "the stream did not end: {:#?}", buffer.events);
        buffer.events.clone()
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

fn read_chunk(reader: &mut BufReader<TcpStream>, is_chunked: bool) -> Option<String> {
    if !is_chunked {
        let mut line = String::new();
        return (reader.read_line(&mut line).ok()? > 0).then_some(line);
    }
    let mut size = String::new();
    reader.read_line(&mut size).ok()?;
    let size = usize::from_str_radix(size.trim(), 16).ok().filter(|size| *size > 0)?;
    let mut chunk = vec![0; size + 2];
    reader.read_exact(&mut chunk).ok()?;
    chunk.truncate(size);
    String::from_utf8(chunk).ok()
}

fn parse_event(text: &str) -> Option<SseEvent> {
    let (mut id, mut name, mut data) = (None, "message".to_owned(), None);
    for line in text.lines() {
        match line.split_once(": ") {
            Some(("id", value)) => id = Some(value.to_owned()),
            Some(("event", value)) => name = value.to_owned(),
            Some(("data", value)) => data = serde_json::from_str(value).ok(),
            _ => {}
        }
    }
    Some(SseEvent { id, name, data: data? })
}
