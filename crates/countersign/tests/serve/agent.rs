//! An agent on a device: JSON-RPC over a WebSocket, read by nobody but the test.

use std::{net::TcpStream, time::Instant};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{
    self, Error, Message, WebSocket, client::IntoClientRequest as _, http::HeaderValue, protocol::CloseFrame,
};

use crate::gateway::{Gateway, PATIENCE};

/// What an agent hears.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Heard {
    Frame(Value),
    /// It was closed, with this code and reason.
    Closed(u16, String),
    /// The line is gone without a word.
    Gone,
}

pub(crate) struct Agent {
    socket: WebSocket<TcpStream>,
    /// Frames that came while another one was waited for.
    early: Vec<Value>,
}

impl Agent {
    /// Connects without a word of who it is.
    pub(crate) fn connect(gateway: &Gateway) -> Self {
        Self::connect_with(gateway, &[]).unwrap()
    }

    /// Connects with more headers; the status of a refusal.
    pub(crate) fn connect_with(gateway: &Gateway, headers: &[(&'static str, &str)]) -> Result<Self, u16> {
        let stream = TcpStream::connect(&gateway.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut request = gateway.url().into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, HeaderValue::from_str(value).unwrap());
        }
        match tungstenite::client(request, stream) {
            Ok((socket, _)) => Ok(Self { socket, early: Vec::new() }),
            Err(tungstenite::HandshakeError::Failure(Error::Http(response))) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    /// Connects and shows who it is.
    pub(crate) fn join(gateway: &Gateway, token: &str) -> Self {
        let mut agent = Self::connect(gateway);
        let reply = agent.auth(token);
        assert_eq!(reply, json!({ "jsonrpc": "2.0", "result": { "status": "authenticated" }, "id": "auth-1" }));
        agent
    }

    pub(crate) fn auth(&mut self, token: &str) -> Value {
        self.ask(json!({ "jsonrpc": "2.0", "method": "auth", "params": { "token": token }, "id": "auth-1" }))
    }

    pub(crate) fn send(&mut self, frame: impl ToString) {
        self.socket.send(Message::text(frame.to_string())).unwrap();
    }

    pub(crate) fn send_binary(&mut self, frame: impl Into<Vec<u8>>) {
        let frame: Vec<u8> = frame.into();
        self.socket.send(Message::binary(frame)).unwrap();
    }

    /// Sends a pong, whether or not there was a ping.
    pub(crate) fn pong(&mut self, payload: &[u8]) {
        self.socket.send(Message::Pong(payload.to_vec().into())).unwrap();
    }

    /// Writes as far as the line takes it.
    pub(crate) fn push(&mut self, frame: String) {
        let _ = self.socket.send(Message::text(frame));
    }

    /// Asks for an action and goes on.
    pub(crate) fn request(&mut self, id: impl Into<Value>, tool: &str, args: Value) {
        let id: Value = id.into();
        let params = json!({ "tool": tool, "args": args });
        self.send(json!({ "jsonrpc": "2.0", "method": "tool_request", "params": params, "id": id }));
    }

    /// Sends something and waits for the reply to it.
    pub(crate) fn ask(&mut self, frame: Value) -> Value {
        self.send(&frame);
        self.reply(&frame["id"])
    }

    /// Asks for an action and waits for the reply without its envelope.
    pub(crate) fn call(&mut self, id: impl Into<Value>, tool: &str, args: Value) -> Value {
        let id = id.into();
        self.request(id.clone(), tool, args);
        outcome(&self.reply(&id))
    }

    /// What it missed.
    pub(crate) fn pending(&mut self, id: impl Into<Value>) -> Value {
        let id: Value = id.into();
        let mut reply = self.ask(json!({ "jsonrpc": "2.0", "method": "get_pending_results", "params": {}, "id": id }));
        reply["result"].take()
    }

    /// The reply under an id, which may have come before.
    pub(crate) fn reply(&mut self, id: &Value) -> Value {
        if let Some(at) = self.early.iter().position(|frame| frame["id"] == *id) {
            return self.early.remove(at);
        }
        loop {
            match self.hear() {
                Heard::Frame(frame) if frame["id"] == *id => return frame,
                Heard::Frame(frame) => self.early.push(frame),
                other => panic!("instead of a reply to {id}: {other:?}"),
            }
        }
    }

    /// Waits until so many frames that fit have come, and keeps all of them for later.
    pub(crate) fn gather(&mut self, count: usize, fits: impl Fn(&Value) -> bool) {
        while self.early.iter().filter(|frame| fits(frame)).count() < count {
            let Heard::Frame(frame) = self.hear() else { panic!("the line ended") };
            self.early.push(frame);
        }
    }

    /// The next frame, or the end.
    pub(crate) fn next(&mut self) -> Heard {
        if self.early.is_empty() { self.hear() } else { Heard::Frame(self.early.remove(0)) }
    }

    fn hear(&mut self) -> Heard {
        let deadline = Instant::now() + PATIENCE;
        loop {
            // Pings go on coming where nothing else does.
            assert!(Instant::now() < deadline, "nothing came");
            match self.socket.read() {
                Ok(Message::Text(text)) => return Heard::Frame(serde_json::from_str(&text).unwrap()),
                Ok(Message::Close(Some(CloseFrame { code, reason }))) => {
                    // The reply to it goes out with the next read.
                    let _ = self.socket.read();
                    return Heard::Closed(code.into(), reason.to_string());
                }
                Ok(Message::Close(None)) => return Heard::Closed(1005, String::new()),
                Ok(_) => {}
                Err(Error::Io(error)) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("nothing came"),
                Err(_) => return Heard::Gone,
            }
        }
    }

    /// Shows that everything so far was received: the reply to a later request comes behind it.
    pub(crate) fn settle(&mut self) {
        for id in ["settle-1", "settle-2"] {
            self.ask(json!({ "method": "list_tools", "id": id }));
        }
        // The record is asked behind the receipt, so that this is in it.
        self.pending("settle-3");
    }
}

/// The result or the error of a reply.
pub(crate) fn outcome(reply: &Value) -> Value {
    reply.get("result").or_else(|| reply.get("error")).cloned().unwrap()
}

/// An error as a reply has it.
pub(crate) fn error(code: i64, message: &str) -> Value {
    json!({ "code": code, "message": message })
}

/// Something that was done.
pub(crate) fn executed(data: Value) -> Value {
    json!({ "status": "executed", "data": data })
}
