//! Fake gateway for tests, and a node that is connected to it.

use std::{
    io::ErrorKind,
    net::{TcpListener, TcpStream},
    time::{Duration, Instant},
};

use countersign_testkit::process::WAIT_TIMEOUT;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{self, Message, WebSocket, protocol::CloseFrame};

/// Address to which nodes connect.
pub(crate) struct FakeGateway(TcpListener);

impl FakeGateway {
    pub(crate) fn start() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    pub(crate) fn url(&self) -> String {
        format!("ws://{}/ws", self.0.local_addr().unwrap())
    }

    /// Returns the next connection, before its first frame.
    fn accept_connection(&self) -> FakeConnection {
        self.0.set_nonblocking(true).unwrap();
        let deadline = Instant::now() + WAIT_TIMEOUT;
        let stream = loop {
            match self.0.accept() {
                Ok((stream, _)) => break stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    assert!(Instant::now() < deadline, "nobody connects");
                    std::thread::park_timeout(Duration::from_millis(5));
                }
                Err(error) => panic!("{error}"),
            }
        };
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        FakeConnection { socket: tungstenite::accept(stream).unwrap(), early: Vec::new(), hello: Value::Null }
    }

    /// Accepts a node that connects, and its `connect`.
    pub(crate) fn accept(&self) -> FakeConnection {
        let mut line = self.accept_connection();
        let request = line.next_request("connect");
        line.answer(&request, json!({ "type": "hello-ok", "protocol": 1 }));
        line.hello = request["params"].clone();
        line
    }

    /// Refuses a node that connects.
    pub(crate) fn refuse(&self, code: i64, message: &str) -> Value {
        let mut line = self.accept_connection();
        let request = line.next_request("connect");
        line.refuse(&request, code, message);
        request["params"].clone()
    }
}

/// Connection of a node.
pub(crate) struct FakeConnection {
    socket: WebSocket<TcpStream>,
    early: Vec<Value>,
    /// Its `connect` request.
    pub(crate) hello: Value,
}

impl FakeConnection {
    fn send(&mut self, frame: &Value) {
        self.socket.send(Message::text(frame.to_string())).unwrap();
    }

    pub(crate) fn event(&mut self, event: &str, payload: Value) {
        self.send(&json!({ "type": "evt", "event": event, "payload": payload }));
    }

    pub(crate) fn raw(&mut self, text: &str) {
        self.socket.send(Message::text(text)).unwrap();
    }

    pub(crate) fn invoke(&mut self, call: &str, tool: &str, args: Value) {
        self.event("tool.invoke", json!({ "callId": call, "tool": tool, "args": args }));
    }

    pub(crate) fn resume(&mut self, call: &str) {
        self.event("tool.resume", json!({ "callId": call }));
    }

    pub(crate) fn answer(&mut self, request: &Value, payload: Value) {
        self.send(&json!({ "type": "res", "id": request["id"], "ok": true, "payload": payload }));
    }

    pub(crate) fn refuse(&mut self, request: &Value, code: i64, message: &str) {
        let error = json!({ "code": code, "message": message });
        self.send(&json!({ "type": "res", "id": request["id"], "ok": false, "error": error }));
    }

    /// Waits for the next request that fits, whatever came before it.
    fn request(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.early.iter().position(&fits) {
            return self.early.remove(at);
        }
        loop {
            match self.socket.read().unwrap() {
                Message::Text(text) => {
                    let frame: Value = serde_json::from_str(&text).unwrap();
                    if fits(&frame) {
                        return frame;
                    }
                    self.early.push(frame);
                }
                Message::Close(frame) => panic!("it was closed: {frame:?}"),
                _ => {}
            }
        }
    }

    pub(crate) fn next_request(&mut self, method: &str) -> Value {
        self.request(|frame| frame["type"] == "req" && frame["method"] == method)
    }

    /// Waits for the result of a call, without an answer.
    pub(crate) fn result(&mut self, call: &str) -> Value {
        self.request(|frame| frame["method"] == "tool.result" && frame["params"]["callId"] == call)
    }

    /// Waits for the result of a call, and acknowledges it.
    pub(crate) fn outcome(&mut self, call: &str) -> Value {
        let request = self.result(call);
        self.answer(&request, json!({ "ok": true }));
        request["params"].clone()
    }

    /// Makes a call that succeeds, and returns its result.
    pub(crate) fn call(&mut self, call: &str, tool: &str, args: Value) -> Value {
        self.invoke(call, tool, args);
        let mut outcome = self.outcome(call);
        assert_eq!(outcome.get("error"), None, "{call}: {outcome}");
        outcome["result"].take()
    }

    /// Makes a call that fails, and returns its error.
    pub(crate) fn fails(&mut self, call: &str, tool: &str, args: Value) -> String {
        self.invoke(call, tool, args);
        let outcome = self.outcome(call);
        assert_eq!(outcome.get("result"), None, "{call}: {outcome}");
        outcome["error"].as_str().unwrap().to_owned()
    }

    /// Returns the requests that were not read, once all of them have come that were sent before now.
    pub(crate) fn unread_frames(&mut self) -> Vec<Value> {
        self.socket.send(Message::Ping(Vec::new().into())).unwrap();
        loop {
            match self.socket.read().unwrap() {
                Message::Text(text) => self.early.push(serde_json::from_str(&text).unwrap()),
                Message::Pong(_) => return std::mem::take(&mut self.early),
                _ => {}
            }
        }
    }

    /// Closes the connection.
    pub(crate) fn close(mut self, code: u16, reason: &str) {
        let frame = CloseFrame { code: code.into(), reason: reason.to_owned().into() };
        self.socket.close(Some(frame)).unwrap();
        while self.socket.read().is_ok() {}
    }

    /// Reads until the node closes the connection, and returns the frames and the close frame.
    pub(crate) fn end(mut self) -> (Vec<Value>, Option<(u16, String)>) {
        loop {
            match self.socket.read() {
                Ok(Message::Text(text)) => self.early.push(serde_json::from_str(&text).unwrap()),
                Ok(Message::Close(frame)) => {
                    return (self.early, frame.map(|frame| (frame.code.into(), frame.reason.to_string())));
                }
                Ok(_) => {}
                Err(_) => return (self.early, None),
            }
        }
    }
}
