//! A model provider on a loopback port: each request gets the next reply of a script, then "ok".
//!
//! It must not know the test. The wires that it speaks are in `wire`.

mod wire;

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::process::{Latch, WAIT_TIMEOUT};

/// Part of a reply.
pub enum ReplyPart {
    /// Deltas of text.
    Text(Vec<String>),
    /// Deltas of reasoning.
    Think(Vec<String>),
    /// A call of a tool.
    Call {
        /// Id of the call.
        id: String,
        /// Name of the tool.
        name: String,
        /// JSON of the arguments.
        arguments: String,
    },
    /// Nothing until the latch is opened.
    Until(Latch),
    /// Nothing until the client goes.
    Hang,
    /// End of the connection here, in the middle of the stream.
    Cut,
    /// An error inside the stream.
    Fault(String),
    /// Any bytes.
    Raw(String),
}

/// Reply to one request.
pub struct ProviderReply {
    /// Status code.
    pub status: u16,
    /// Headers in addition to those of every reply.
    pub headers: Vec<(&'static str, String)>,
    /// Body in place of a stream.
    pub body: Option<String>,
    /// Parts of the stream.
    pub parts: Vec<ReplyPart>,
    /// Tokens: input with the cached ones, output, cached.
    pub usage: (u64, u64, u64),
    /// Reason of the end, in place of the default one.
    pub stop: Option<&'static str>,
}

impl ProviderReply {
    /// Creates a stream with these parts.
    pub fn new(parts: Vec<ReplyPart>) -> Self {
        Self { status: 200, headers: Vec::new(), body: None, parts, usage: (100, 50, 0), stop: None }
    }

    /// Sets the tokens of the input.
    #[must_use]
    pub fn with_input_tokens(self, input: u64) -> Self {
        Self { usage: (input, 50, 0), ..self }
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, header: &'static str, value: &str) -> Self {
        self.headers.push((header, value.to_owned()));
        self
    }
}

/// Returns one delta of text.
pub fn text_part(text: &str) -> ReplyPart {
    ReplyPart::Text(vec![text.to_owned()])
}

/// Returns a reply with one text.
pub fn text_reply(content: &str) -> ProviderReply {
    ProviderReply::new(vec![text_part(content)])
}

/// Returns a call of a tool, with a reason.
pub fn call_part(id: &str, name: &str, arguments: &Value) -> ReplyPart {
    let mut arguments = arguments.clone();
    arguments.as_object_mut().unwrap().entry("_i").or_insert_with(|| "a test".into());
    ReplyPart::Call { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_string() }
}

/// Returns a call of `bash`.
pub fn bash_part(id: &str, command: &str) -> ReplyPart {
    call_part(id, "bash", &serde_json::json!({ "command": command }))
}

/// Returns an error in place of a stream.
pub fn error_reply(status: u16, message: &str) -> ProviderReply {
    let body = serde_json::json!({ "type": "error", "error": { "type": "server_error", "message": message } });
    ProviderReply { status, body: Some(body.to_string()), ..ProviderReply::new(Vec::new()) }
}

/// Request to the provider.
#[derive(Clone, Debug)]
pub struct ProviderRequest {
    /// Request line and headers.
    pub head: String,
    /// JSON of the body.
    pub body: Value,
    /// True if the client went before the reply was over.
    pub is_gone: bool,
}

impl ProviderRequest {
    /// Returns the messages of the conversation.
    pub fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().unwrap()
    }

    /// Returns the names of the tools that are offered to the model.
    pub fn tool_names(&self) -> Vec<&str> {
        let tools = self.body["tools"].as_array().into_iter().flatten();
        tools.filter_map(|tool| tool["function"]["name"].as_str().or_else(|| tool["name"].as_str())).collect()
    }

    /// Returns the text of all messages.
    pub fn messages_text(&self) -> String {
        Value::from(self.messages()).to_string()
    }

    /// Returns the result of a call, as the model reads it.
    pub fn call_result(&self, call: &str) -> Option<String> {
        wire::tool_results(self.messages()).into_iter().find(|(id, _)| id == call).map(|(_, text)| text)
    }

    /// Returns whether each call has its result right after its message, and each result its call.
    pub fn is_paired(&self) -> bool {
        wire::is_paired(self.messages())
    }
}

#[derive(Default)]
struct ProviderState {
    script: VecDeque<ProviderReply>,
    requests: Vec<ProviderRequest>,
}

/// Provider. Its threads end with the process.
#[derive(Clone)]
pub struct FakeProvider {
    /// URL without a path.
    pub url: String,
    state: Arc<(Mutex<ProviderState>, Condvar)>,
}

impl FakeProvider {
    /// Starts it on a port of its own.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let provider = Self { url, state: Arc::default() };
        let server = provider.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let server = server.clone();
                // A client that goes is no failure here.
                thread::spawn(move || drop(server.handle_connection(stream)));
            }
        });
        provider
    }

    /// Sets the replies to the next requests.
    pub fn script_replies(&self, replies: impl IntoIterator<Item = ProviderReply>) {
        self.lock_state().script = replies.into_iter().collect();
    }

    /// Returns the number of requests so far.
    pub fn request_count(&self) -> usize {
        self.lock_state().requests.len()
    }

    /// Returns the last request.
    pub fn last_request(&self) -> ProviderRequest {
        self.lock_state().requests.last().unwrap().clone()
    }

    /// Returns the request with this number, from 0, as soon as it is there and fits.
    pub fn wait_request_when(&self, number: usize, fits: impl Fn(&ProviderRequest) -> bool) -> ProviderRequest {
        let is_missing = |state: &mut ProviderState| !state.requests.get(number).is_some_and(&fits);
        let (state, late) = self.state.1.wait_timeout_while(self.lock_state(), WAIT_TIMEOUT, is_missing).unwrap();
        assert!(!late.timed_out(), "request {number} did not come; {} came", state.requests.len());
        state.requests[number].clone()
    }

    /// Returns the request with this number, from 0, as soon as it is there.
    pub fn wait_request(&self, number: usize) -> ProviderRequest {
        self.wait_request_when(number, |_| true)
    }

    fn lock_state(&self) -> MutexGuard<'_, ProviderState> {
        self.state.0.lock().unwrap()
    }

    fn handle_connection(&self, mut stream: TcpStream) -> std::io::Result<()> {
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
        let wire = if head.starts_with("POST /v1/messages") {
            wire::ProviderWire::Anthropic
        } else {
            wire::ProviderWire::OpenAi
        };
        let (number, reply) = {
            let mut state = self.lock_state();
            state.requests.push(ProviderRequest { head, body, is_gone: false });
            self.state.1.notify_all();
            (state.requests.len() - 1, state.script.pop_front().unwrap_or_else(|| text_reply("ok")))
        };
        let done = Self::write_reply(&mut stream, &mut reader, wire, &reply);
        if matches!(done, Ok(ClientGone::Yes) | Err(_)) {
            self.lock_state().requests[number].is_gone = true;
            self.state.1.notify_all();
        }
        let _ = stream.shutdown(Shutdown::Both);
        Ok(())
    }

    fn write_reply(
        stream: &mut TcpStream,
        reader: &mut BufReader<TcpStream>,
        wire: wire::ProviderWire,
        reply: &ProviderReply,
    ) -> std::io::Result<ClientGone> {
        let headers: String = reply.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        if let Some(body) = &reply.body {
            let kind = if body.starts_with('<') { "text/html" } else { "application/json" };
            let length = body.len();
            write!(
                stream,
                "HTTP/1.1 {} X\r\n{headers}content-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}",
                reply.status
            )?;
            return Ok(ClientGone::No);
        }
        write!(stream, "HTTP/1.1 200 OK\r\n{headers}content-type: text/event-stream\r\nconnection: close\r\n\r\n")?;
        let mut encoder = wire::ReplyEncoder::new(wire, reply);
        stream.write_all(encoder.start_events().as_bytes())?;
        for part in &reply.parts {
            match part {
                ReplyPart::Until(latch) => latch.wait_open(),
                ReplyPart::Hang => {
                    stream.set_read_timeout(Some(WAIT_TIMEOUT + Duration::from_secs(5)))?;
                    return Ok(if reader.read(&mut [0]).is_ok_and(|count| count > 0) {
                        ClientGone::No
                    } else {
                        ClientGone::Yes
                    });
                }
                ReplyPart::Cut => return Ok(ClientGone::No),
                ReplyPart::Raw(raw) => stream.write_all(raw.as_bytes())?,
                ReplyPart::Fault(message) => {
                    stream.write_all(encoder.error_event(message).as_bytes())?;
                    return Ok(ClientGone::No);
                }
                ReplyPart::Text(_) | ReplyPart::Think(_) | ReplyPart::Call { .. } => {
                    stream.write_all(encoder.part_events(part).as_bytes())?;
                }
            }
        }
        stream.write_all(encoder.end_events().as_bytes())?;
        Ok(ClientGone::No)
    }
}

#[derive(PartialEq, Eq)]
enum ClientGone {
    Yes,
    No,
}
