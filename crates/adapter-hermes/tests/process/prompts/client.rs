//! Client like a browser or a phone, for pending gates, with streams that a test reads when it asks for it.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    time::Instant,
};

use countersign_testkit::process::{
    GatewayFixture, GatewayServer, WAIT_TIMEOUT,
    http::{EventStream, HttpClient},
    provider::ProviderReply,
};
use serde_json::{Value, json};

/// Sends a request of a client without cookies. Returns the status and the JSON of the reply.
pub(crate) fn ask(gateway: &GatewayServer, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
    let http = HttpClient::new(&gateway.address).with_header("content-type", "application/json");
    let reply = http.send_request(method, path, &body.map(Value::to_string).unwrap_or_default());
    (reply.status, reply.json())
}

pub(crate) fn get(gateway: &GatewayServer, path: &str) -> Value {
    let (status, body) = ask(gateway, "GET", path, None);
    assert_eq!(status, 200, "{path}: {body}");
    body
}

pub(crate) fn post(gateway: &GatewayServer, path: &str, body: Value) -> (u16, Value) {
    ask(gateway, "POST", path, Some(&body))
}

/// Sends an answer to an approval.
pub(crate) fn respond(gateway: &GatewayServer, session: &str, choice: &str, id: Option<&str>) -> (u16, Value) {
    let mut body = json!({ "session_id": session, "choice": choice });
    if let Some(id) = id {
        body["approval_id"] = id.into();
    }
    post(gateway, "/api/approval/respond", body)
}

/// Returns the pending gates of a session, of one kind.
pub(crate) fn pending(gateway: &GatewayServer, kind: &str, session: &str) -> Value {
    get(gateway, &format!("/api/{kind}/pending?session_id={session}"))
}

/// One event of a stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SseFrame {
    pub(crate) event: String,
    pub(crate) data: Value,
}

impl SseFrame {
    /// Returns the name of the gate at the head, and the number of pending ones.
    pub(crate) fn state(&self) -> (Option<&str>, u64) {
        let head = &self.data["pending"];
        let id = head["approval_id"].as_str().or_else(|| head["clarify_id"].as_str());
        (id, self.data["pending_count"].as_u64().unwrap())
    }
}

/// Open stream. It is read only on request.
pub(crate) struct SseStream {
    lines: BufReader<TcpStream>,
    /// Rest of the chunk that is being read.
    chunk: Vec<u8>,
}

impl SseStream {
    /// Opens a stream; returns the status and text of a refusal.
    pub(crate) fn open(gateway: &GatewayServer, path: &str) -> Result<Self, (u16, String)> {
        let mut stream = TcpStream::connect(&gateway.address).unwrap();
        stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", gateway.address).unwrap();
        let mut lines = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(lines.read_line(&mut head).unwrap() > 0, "no head: {head:?}");
        }
        let head = head.to_lowercase();
        if !head.contains("content-type: text/event-stream") {
            return Err((head.split_whitespace().nth(1).unwrap().parse().unwrap(), head));
        }
        assert!(head.contains("cache-control: no-cache") && !head.contains("content-encoding"), "{head}");
        Ok(Self { lines, chunk: Vec::new() })
    }

    pub(crate) fn for_session(gateway: &GatewayServer, kind: &str, session: &str) -> Self {
        Self::open(gateway, &format!("/api/{kind}/stream?session_id={session}")).unwrap_or_else(|why| panic!("{why:?}"))
    }

    /// Returns the next event, or `None` at the end. Keep-alive comments are skipped.
    pub(crate) fn read(&mut self) -> Option<SseFrame> {
        let (mut event, mut data) = (String::new(), None);
        let deadline = Instant::now() + WAIT_TIMEOUT;
        loop {
            let line = self.line()?;
            // An idle stream continues to send keep-alive comments.
            assert!(Instant::now() < deadline, "nothing came");
            assert!(!line.starts_with("id:") && !line.starts_with("retry:"), "{line}");
            if let Some(name) = line.strip_prefix("event: ") {
                event = name.to_owned();
            } else if let Some(text) = line.strip_prefix("data: ") {
                data = Some(serde_json::from_str(text).unwrap());
            } else if let (true, Some(data)) = (line.is_empty(), data.take()) {
                return Some(SseFrame { event, data });
            }
        }
    }

    /// Returns the next event.
    pub(crate) fn next(&mut self) -> SseFrame {
        self.read().expect("the stream goes on")
    }

    /// Returns the next event of that name.
    pub(crate) fn next_named(&mut self, event: &str) -> Value {
        loop {
            let frame = self.next();
            if frame.event == event {
                return frame.data;
            }
        }
    }

    /// Returns the next state that fits: only the newest one has to come.
    pub(crate) fn until(&mut self, fits: impl Fn(&SseFrame) -> bool) -> SseFrame {
        loop {
            let frame = self.next();
            if fits(&frame) {
                return frame;
            }
        }
    }

    fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.chunk.iter().position(|byte| *byte == b'\n') {
                let line = self.chunk.drain(..=end).collect::<Vec<u8>>();
                return Some(String::from_utf8(line).unwrap().trim_end().to_owned());
            }
            let mut size = String::new();
            // A connection that is closed and one that breaks off are both the end.
            self.lines.read_line(&mut size).ok().filter(|count| *count > 0)?;
            let size = usize::from_str_radix(size.trim(), 16).unwrap();
            let mut chunk = vec![0; size + 2];
            self.lines.read_exact(&mut chunk).ok()?;
            chunk.truncate(size);
            if size == 0 {
                return None;
            }
            self.chunk.extend(chunk);
        }
    }
}

/// Runs a turn in a new session, in which the model gives these replies, one for each request.
pub(crate) fn chat(
    talk: &GatewayFixture,
    gateway: &GatewayServer,
    script: impl IntoIterator<Item = ProviderReply>,
) -> (String, EventStream) {
    let http = HttpClient::new(&gateway.address);
    let session = http.create_session();
    talk.provider.script_replies(script);
    let stream = http.start_chat(&session, "begin");
    let turn = http.stream_chat(&stream);
    (session, turn)
}
