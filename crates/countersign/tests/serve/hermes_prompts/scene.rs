//! What a browser or a phone does, and a model that says what its message tells it to.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    thread,
};

use serde_json::{Value, json};

use crate::gateway::{Gateway, PATIENCE};

/// A request of a client without cookies. The status and the JSON of the reply.
pub(crate) fn ask(gateway: &Gateway, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
    let mut stream = connect(gateway);
    let body = body.map(Value::to_string).unwrap_or_default();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", gateway.address);
    write!(stream, "{head}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (status(head), serde_json::from_str(body).unwrap_or_else(|_| panic!("no JSON: {text}")))
}

fn connect(gateway: &Gateway) -> TcpStream {
    let stream = TcpStream::connect(&gateway.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn status(head: &str) -> u16 {
    head.split_whitespace().nth(1).unwrap().parse().unwrap()
}

pub(crate) fn get(gateway: &Gateway, path: &str) -> Value {
    let (status, told) = ask(gateway, "GET", path, None);
    assert_eq!(status, 200, "{path}: {told}");
    told
}

pub(crate) fn post(gateway: &Gateway, path: &str, body: Value) -> (u16, Value) {
    ask(gateway, "POST", path, Some(&body))
}

/// An answer to an approval.
pub(crate) fn respond(gateway: &Gateway, session: &str, choice: &str, id: Option<&str>) -> (u16, Value) {
    let mut body = json!({ "session_id": session, "choice": choice });
    if let Some(id) = id {
        body["approval_id"] = id.into();
    }
    post(gateway, "/api/approval/respond", body)
}

/// What waits in a session, of one kind.
pub(crate) fn pending(gateway: &Gateway, kind: &str, session: &str) -> Value {
    get(gateway, &format!("/api/{kind}/pending?session_id={session}"))
}

/// One event of a stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Frame {
    pub(crate) event: String,
    pub(crate) data: Value,
}

impl Frame {
    /// The name of what is at the head, and how much waits.
    pub(crate) fn state(&self) -> (Option<&str>, u64) {
        let head = &self.data["pending"];
        let id = head["approval_id"].as_str().or(head["clarify_id"].as_str());
        (id, self.data["pending_count"].as_u64().unwrap())
    }
}

/// A stream that is open. Nothing of it is read before it is asked for.
pub(crate) struct Stream {
    lines: BufReader<TcpStream>,
    /// What is left of the chunk that is being read.
    chunk: Vec<u8>,
}

impl Stream {
    /// Opens a stream; the status and text of a refusal.
    pub(crate) fn open(gateway: &Gateway, path: &str) -> Result<Self, (u16, String)> {
        let mut stream = connect(gateway);
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", gateway.address).unwrap();
        let mut lines = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(lines.read_line(&mut head).unwrap() > 0, "no head: {head:?}");
        }
        let head = head.to_lowercase();
        if !head.contains("content-type: text/event-stream") {
            return Err((status(&head), head));
        }
        assert!(head.contains("cache-control: no-cache") && !head.contains("content-encoding"), "{head}");
        Ok(Self { lines, chunk: Vec::new() })
    }

    pub(crate) fn of(gateway: &Gateway, kind: &str, session: &str) -> Self {
        Self::open(gateway, &format!("/api/{kind}/stream?session_id={session}")).unwrap_or_else(|why| panic!("{why:?}"))
    }

    /// The next event, or `None` at the end. What only keeps the stream alive is passed over.
    pub(crate) fn read(&mut self) -> Option<Frame> {
        let (mut event, mut data) = (String::new(), None);
        loop {
            let line = self.line()?;
            assert!(!line.starts_with("id:") && !line.starts_with("retry:"), "{line}");
            if let Some(name) = line.strip_prefix("event: ") {
                event = name.to_owned();
            } else if let Some(text) = line.strip_prefix("data: ") {
                data = Some(serde_json::from_str(text).unwrap());
            } else if let (true, Some(data)) = (line.is_empty(), data.take()) {
                return Some(Frame { event, data });
            }
        }
    }

    /// The next event.
    pub(crate) fn next(&mut self) -> Frame {
        self.read().expect("the stream goes on")
    }

    /// The next event of that name.
    pub(crate) fn named(&mut self, event: &str) -> Value {
        loop {
            let frame = self.next();
            if frame.event == event {
                return frame.data;
            }
        }
    }

    /// The next state that fits: the newest one alone has to come.
    pub(crate) fn until(&mut self, fits: impl Fn(&Frame) -> bool) -> Frame {
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

/// A model: the message holds the calls of each step as JSON behind `do:`, and when they are done it says "finished".
pub(crate) struct Provider {
    pub(crate) url: String,
}

impl Provider {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || answer(stream));
            }
        });
        Self { url }
    }

    /// The lines of a configuration that uses it.
    pub(crate) fn config(&self) -> String {
        format!(
            "model: {{ provider: local, id: small }}\nproviders:\n  local:\n    api: openai-completions\n    base_url: \"{}\"\n    \
             api_key: none\n    models: [ {{ id: small, context_window: 128000, max_tokens: 8192 }} ]\nagents_dir: agents\n",
            self.url
        )
    }
}

/// What a message has to say for these calls, one step after the other.
pub(crate) fn task(steps: &[&[(&str, Value)]]) -> String {
    format!("do:{}", json!(steps))
}

fn answer(stream: TcpStream) {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|count| count > 2) {
        if let Some(size) = line.to_lowercase().strip_prefix("content-length:") {
            length = size.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let messages = body["messages"].as_array().unwrap();
    let text = |message: &Value| match &message["content"] {
        Value::String(text) => text.clone(),
        other => other[0]["text"].as_str().unwrap_or_default().to_owned(),
    };
    let at = messages.iter().rposition(|message| message["role"] == "user").unwrap();
    let steps: Value = text(&messages[at]).strip_prefix("do:").map_or(json!([]), |task| task.parse().unwrap());
    let step = messages[at..].iter().filter(|message| message["tool_calls"].is_array()).count();
    let delta = match steps[step].as_array() {
        Some(calls) => {
            let calls = calls.iter().enumerate().map(|(index, call)| {
                let function = json!({ "name": call[0], "arguments": call[1].to_string() });
                json!({ "index": index, "id": format!("call_{step}_{index}"), "type": "function", "function": function })
            });
            json!({ "role": "assistant", "tool_calls": calls.collect::<Vec<Value>>() })
        }
        None => {
            let results = messages[at..].iter().filter(|message| message["role"] == "tool").map(text);
            let told = results.collect::<Vec<_>>().join(" | ");
            json!({ "role": "assistant", "content": format!("finished: {told}") })
        }
    };
    let end = if delta["tool_calls"].is_array() { "tool_calls" } else { "stop" };
    let chunk = |choice: Value| {
        let data = json!({ "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "small", "choices": [choice] });
        format!("data: {data}\n\n")
    };
    let first = chunk(json!({ "index": 0, "delta": delta, "finish_reason": null }));
    let last = chunk(json!({ "index": 0, "delta": {}, "finish_reason": end }));
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let _ = write!(reader.get_mut(), "{head}{first}{last}data: [DONE]\n\n");
}

/// A new session, and a turn in it.
pub(crate) fn chat(gateway: &Gateway, steps: &[&[(&str, Value)]]) -> String {
    let (status, made) = post(gateway, "/api/session/new", json!({}));
    assert_eq!(status, 200, "{made}");
    let session = made["session"]["session_id"].as_str().unwrap().to_owned();
    say(gateway, &session, steps);
    session
}

/// Another turn. The name of its stream.
pub(crate) fn say(gateway: &Gateway, session: &str, steps: &[&[(&str, Value)]]) -> String {
    let (status, told) =
        post(gateway, "/api/chat/start", json!({ "session_id": session, "message": task(steps) }));
    assert_eq!(status, 200, "{told}");
    told["stream_id"].as_str().unwrap().to_owned()
}

/// What the model said last, once no turn runs.
pub(crate) fn said(gateway: &Gateway, session: &str) -> String {
    crate::gateway::soon("the end of the turn", || {
        let told = get(gateway, &format!("/api/session?session_id={session}"));
        let messages = told["session"]["messages"].as_array()?;
        let is_over = told["session"]["active_stream_id"].is_null();
        let last = messages.iter().rev().find(|message| message["role"] == "assistant")?;
        is_over.then(|| last["content"].to_string())
    })
}
