//! A program that uses the gateway over HTTP: plain requests, and the stream of events cut wherever the test likes.

use std::{
    io::{self, Read as _, Write as _},
    net::TcpStream,
};

use serde_json::{Value, json};

use crate::gateway::{Gateway, PATIENCE};

/// What was answered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Value,
}

/// Asks at `address`, with more headers and a JSON body. An error is a line that broke.
pub(crate) fn ask(
    address: &str,
    (method, path): (&str, &str),
    headers: &[(&str, &str)],
    body: Option<&Value>,
) -> io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let text = body.map(ToString::to_string).unwrap_or_default();
    if body.is_some() {
        more += "content-type: application/json\r\n";
    }
    let length = text.len();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{more}");
    stream.write_all(format!("{head}content-length: {length}\r\n\r\n{text}").as_bytes())?;
    let mut told = String::new();
    stream.read_to_string(&mut told)?;
    let (head, text) = told.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let status = head.split_whitespace().nth(1).and_then(|word| word.parse().ok());
    Ok(Answer {
        status: status.ok_or(io::ErrorKind::InvalidData)?,
        head: head.to_owned(),
        body: serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
    })
}

/// A program with a token.
pub(crate) struct Program<'a> {
    pub(crate) gateway: &'a Gateway,
    pub(crate) token: String,
}

impl Program<'_> {
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], None)
    }

    /// The body of a reply that is as it should be.
    pub(crate) fn read(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.body
    }

    pub(crate) fn post(&self, path: &str, body: Value) -> Answer {
        self.ask("POST", path, &[], Some(&body))
    }

    pub(crate) fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Answer {
        let bearer = format!("Bearer {}", self.token);
        let headers = [headers, &[("authorization", bearer.as_str())]].concat();
        ask(&self.gateway.address, (method, path), &headers, body).unwrap()
    }
}

/// One server-sent event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    pub(crate) data: Value,
}

impl Event {
    fn parse(text: &str) -> Option<Self> {
        let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let data = serde_json::from_str(line("data")?).unwrap();
        Some(Self { id: line("id").map(str::to_owned), name: line("event").unwrap().to_owned(), data })
    }
}

/// A stream of events.
pub(crate) struct Events {
    stream: TcpStream,
    text: Vec<u8>,
}

impl Events {
    /// Begins to follow. The answer to such a request ends where the line does.
    pub(crate) fn open(address: &str, query: &str, headers: &[(&str, &str)]) -> io::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        write!(stream, "GET /api/v1/events{query} HTTP/1.0\r\nhost: {address}\r\n{more}\r\n")?;
        let mut events = Self { stream, text: Vec::new() };
        while !events.text.windows(4).any(|end| end == b"\r\n\r\n") {
            events.read(1)?;
        }
        let head = String::from_utf8(std::mem::take(&mut events.text)).unwrap();
        assert!(head.starts_with("HTTP/1.0 200 ") || head.starts_with("HTTP/1.1 200 "), "{head}");
        Ok(events)
    }

    /// Reads at most so many bytes more.
    pub(crate) fn read(&mut self, most: usize) -> io::Result<usize> {
        let mut bytes = vec![0; most];
        let count = self.stream.read(&mut bytes)?;
        self.text.extend_from_slice(&bytes[..count]);
        if count == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(count) }
    }

    /// The events that are whole.
    pub(crate) fn whole(&mut self) -> Vec<Event> {
        let mut found = Vec::new();
        while let Some(end) = self.text.windows(2).position(|end| end == b"\n\n") {
            let rest = self.text.split_off(end + 2);
            let text = String::from_utf8(std::mem::replace(&mut self.text, rest)).unwrap();
            found.extend(Event::parse(&text));
        }
        found
    }

    /// All events until one fits, that one with them.
    pub(crate) fn until(&mut self, fits: impl Fn(&Event) -> bool) -> Vec<Event> {
        let mut found = Vec::new();
        loop {
            for event in self.whole() {
                let is_last = fits(&event);
                found.push(event);
                if is_last {
                    return found;
                }
            }
            self.read(64 << 10).unwrap();
        }
    }
}
