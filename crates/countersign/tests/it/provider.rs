//! A model provider on a loopback port: each request gets the next reply of a script, then "ok".
//!
//! It must not know what is tested. The two wires it speaks are in [`crate::wire`].

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::{host::PATIENCE, wire};

/// One thing that a reply does.
pub(crate) enum Part {
    Text(Vec<String>),
    Think(Vec<String>),
    Call {
        id: String,
        name: String,
        arguments: String,
    },
    /// Nothing until the latch is opened.
    Until(Latch),
    /// Nothing until the client goes.
    Hang,
    /// The stream ends here, without its end.
    Cut,
    /// An error inside the stream.
    Fault(String),
    /// These bytes, whatever they are.
    Raw(String),
}

/// What one request gets.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    /// In place of a stream.
    pub(crate) body: Option<String>,
    pub(crate) parts: Vec<Part>,
    /// Input with what was cached, output, cached.
    pub(crate) usage: (u64, u64, u64),
    pub(crate) stop: Option<&'static str>,
}

impl Reply {
    pub(crate) fn new(parts: Vec<Part>) -> Self {
        Self { status: 200, headers: Vec::new(), body: None, parts, usage: (100, 50, 0), stop: None }
    }

    pub(crate) fn counting(self, input: u64) -> Self {
        Self { usage: (input, 50, 0), ..self }
    }

    pub(crate) fn with(mut self, header: &'static str, value: &str) -> Self {
        self.headers.push((header, value.to_owned()));
        self
    }
}

pub(crate) fn text(text: &str) -> Part {
    Part::Text(vec![text.to_owned()])
}

pub(crate) fn say(said: &str) -> Reply {
    Reply::new(vec![text(said)])
}

pub(crate) fn call(id: &str, name: &str, arguments: &Value) -> Part {
    let mut arguments = arguments.clone();
    arguments.as_object_mut().unwrap().entry("_i").or_insert_with(|| "a test".into());
    Part::Call { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_string() }
}

pub(crate) fn bash(id: &str, command: &str) -> Part {
    call(id, "bash", &serde_json::json!({ "command": command }))
}

pub(crate) fn refuse(status: u16, message: &str) -> Reply {
    let body = serde_json::json!({ "type": "error", "error": { "type": "server_error", "message": message } });
    Reply { status, body: Some(body.to_string()), ..Reply::new(Vec::new()) }
}

/// Holds something back until a test opens it.
#[derive(Clone, Default)]
pub(crate) struct Latch(Arc<(Mutex<bool>, Condvar)>);

impl Latch {
    pub(crate) fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn wait(&self) {
        let open = self.0.0.lock().unwrap();
        drop(self.0.1.wait_timeout_while(open, PATIENCE, |open| !*open).unwrap());
    }
}

/// What was asked.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) head: String,
    pub(crate) body: Value,
    /// Whether the client went before the reply was over.
    pub(crate) is_gone: bool,
}

impl Request {
    pub(crate) fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().unwrap()
    }

    /// All that the model would read.
    pub(crate) fn text(&self) -> String {
        Value::from(self.messages()).to_string()
    }

    /// The result of a call, as the model reads it.
    pub(crate) fn result(&self, call: &str) -> Option<String> {
        wire::results(self.messages()).into_iter().find(|(id, _)| id == call).map(|(_, text)| text)
    }

    /// Whether each call has its result right behind its message, and each result its call.
    pub(crate) fn is_paired(&self) -> bool {
        wire::is_paired(self.messages())
    }
}

#[derive(Default)]
struct Book {
    script: VecDeque<Reply>,
    requests: Vec<Request>,
}

/// The provider. Its threads end with the process.
#[derive(Clone)]
pub(crate) struct Provider {
    pub(crate) url: String,
    book: Arc<(Mutex<Book>, Condvar)>,
}

impl Provider {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let provider = Self { url, book: Arc::default() };
        let server = provider.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let server = server.clone();
                // A client that goes is no failure here.
                thread::spawn(move || drop(server.serve(stream)));
            }
        });
        provider
    }

    /// Sets the replies to the next requests.
    pub(crate) fn script(&self, replies: impl IntoIterator<Item = Reply>) {
        self.book().script = replies.into_iter().collect();
    }

    pub(crate) fn count(&self) -> usize {
        self.book().requests.len()
    }

    pub(crate) fn last(&self) -> Request {
        self.book().requests.last().unwrap().clone()
    }

    /// The request with this number, from 0, once it is there and `fits`.
    pub(crate) fn request(&self, number: usize, fits: impl Fn(&Request) -> bool) -> Request {
        let is_missing = |book: &mut Book| !book.requests.get(number).is_some_and(&fits);
        let (book, late) = self.book.1.wait_timeout_while(self.book(), PATIENCE, is_missing).unwrap();
        assert!(!late.timed_out(), "request {number} was not to be had; {} came", book.requests.len());
        book.requests[number].clone()
    }

    pub(crate) fn asked(&self, number: usize) -> Request {
        self.request(number, |_| true)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.0.lock().unwrap()
    }

    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let length =
            head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body)?;
        let body: Value = serde_json::from_slice(&body)?;
        let wire = if head.starts_with("POST /v1/messages") { wire::Wire::Anthropic } else { wire::Wire::OpenAi };
        let (number, reply) = {
            let mut book = self.book();
            book.requests.push(Request { head, body, is_gone: false });
            self.book.1.notify_all();
            (book.requests.len() - 1, book.script.pop_front().unwrap_or_else(|| say("ok")))
        };
        let done = Self::answer(&mut stream, &mut reader, wire, &reply);
        if matches!(done, Ok(Gone::Yes) | Err(_)) {
            self.book().requests[number].is_gone = true;
            self.book.1.notify_all();
        }
        let _ = stream.shutdown(Shutdown::Both);
        Ok(())
    }

    fn answer(
        stream: &mut TcpStream,
        reader: &mut BufReader<TcpStream>,
        wire: wire::Wire,
        reply: &Reply,
    ) -> std::io::Result<Gone> {
        let headers: String = reply.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        if let Some(body) = &reply.body {
            let kind = if body.starts_with('<') { "text/html" } else { "application/json" };
            let length = body.len();
            write!(
                stream,
                "HTTP/1.1 {} X\r\n{headers}content-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}",
                reply.status
            )?;
            return Ok(Gone::No);
        }
        write!(stream, "HTTP/1.1 200 OK\r\n{headers}content-type: text/event-stream\r\nconnection: close\r\n\r\n")?;
        let mut encoder = wire::Encoder::new(wire, reply);
        stream.write_all(encoder.begin().as_bytes())?;
        for part in &reply.parts {
            match part {
                Part::Until(latch) => latch.wait(),
                Part::Hang => {
                    stream.set_read_timeout(Some(PATIENCE + Duration::from_secs(5)))?;
                    return Ok(if reader.read(&mut [0]).is_ok_and(|count| count > 0) { Gone::No } else { Gone::Yes });
                }
                Part::Cut => return Ok(Gone::No),
                Part::Raw(raw) => stream.write_all(raw.as_bytes())?,
                Part::Fault(message) => {
                    stream.write_all(encoder.fault(message).as_bytes())?;
                    return Ok(Gone::No);
                }
                Part::Text(_) | Part::Think(_) | Part::Call { .. } => {
                    stream.write_all(encoder.part(part).as_bytes())?;
                }
            }
        }
        stream.write_all(encoder.end().as_bytes())?;
        Ok(Gone::No)
    }
}

#[derive(PartialEq, Eq)]
enum Gone {
    Yes,
    No,
}
