//! An agent of agent-gate: JSON-RPC over a WebSocket.

use std::{net::TcpStream, time::Instant};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{
    self, Error, Message, WebSocket, client::IntoClientRequest as _, http::HeaderValue, protocol::CloseFrame,
};

use crate::process::{GatewayServer, WAIT_TIMEOUT};

/// Event on the connection of an agent.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentSocketEvent {
    /// Frame.
    Frame(Value),
    /// The gateway closed it, with this code and reason.
    Closed(u16, String),
    /// End without a close frame.
    Gone,
}

/// Agent on a device.
pub struct AgentClient {
    socket: WebSocket<TcpStream>,
    /// Frames that came while another one was waited for.
    early: Vec<Value>,
}

impl AgentClient {
    /// Connects without authentication.
    pub fn connect(gateway: &GatewayServer) -> Self {
        Self::connect_with(gateway, &[]).unwrap()
    }

    /// Connects with more headers.
    ///
    /// # Errors
    ///
    /// The status of a refusal.
    pub fn connect_with(gateway: &GatewayServer, headers: &[(&'static str, &str)]) -> Result<Self, u16> {
        Self::connect_at(&gateway.address, headers)
    }

    /// Connects to an address, such as that of a proxy before a gateway.
    ///
    /// # Errors
    ///
    /// The status of a refusal.
    pub fn connect_at(address: &str, headers: &[(&'static str, &str)]) -> Result<Self, u16> {
        Self::connect_below(address, "", headers)
    }

    /// Does the same at a path.
    ///
    /// # Errors
    /// The status of the refusal.
    pub fn connect_below(address: &str, path: &str, headers: &[(&'static str, &str)]) -> Result<Self, u16> {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut request = format!("ws://{address}{path}").into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, HeaderValue::from_str(value).unwrap());
        }
        match tungstenite::client(request, stream) {
            Ok((socket, _)) => Ok(Self { socket, early: Vec::new() }),
            Err(tungstenite::HandshakeError::Failure(Error::Http(response))) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    /// Connects to an address; none if the connection is refused or cut.
    pub fn try_connect_at(address: &str) -> Option<Self> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        let (socket, _) = tungstenite::client(format!("ws://{address}"), stream).ok()?;
        Some(Self { socket, early: Vec::new() })
    }

    /// Connects and authenticates.
    pub fn connect_authenticated(gateway: &GatewayServer, token: &str) -> Self {
        let mut agent = Self::connect(gateway);
        let reply = agent.authenticate(token);
        assert_eq!(reply, json!({ "jsonrpc": "2.0", "result": { "status": "authenticated" }, "id": "auth-1" }));
        agent
    }

    /// Sends a token. Returns the reply.
    pub fn authenticate(&mut self, token: &str) -> Value {
        self.exchange_frame(json!({ "jsonrpc": "2.0", "method": "auth", "params": { "token": token }, "id": "auth-1" }))
    }

    /// Sends a frame.
    pub fn send_frame(&mut self, frame: impl ToString) {
        self.socket.send(Message::text(frame.to_string())).unwrap();
    }

    /// Sends a binary frame.
    pub fn send_binary(&mut self, frame: impl Into<Vec<u8>>) {
        let frame: Vec<u8> = frame.into();
        self.socket.send(Message::binary(frame)).unwrap();
    }

    /// Sends a pong, whether or not there was a ping.
    pub fn send_pong(&mut self, payload: &[u8]) {
        self.socket.send(Message::Pong(payload.to_vec().into())).unwrap();
    }

    /// Sends a frame even if the connection breaks.
    pub fn try_send_frame(&mut self, frame: String) {
        let _ = self.socket.send(Message::text(frame));
    }

    /// Requests an action and does not wait.
    pub fn request_tool(&mut self, id: impl Into<Value>, tool: &str, args: Value) {
        let id: Value = id.into();
        let params = json!({ "tool": tool, "args": args });
        self.send_frame(json!({ "jsonrpc": "2.0", "method": "tool_request", "params": params, "id": id }));
    }

    /// Sends a frame. Returns the reply to it.
    pub fn exchange_frame(&mut self, frame: Value) -> Value {
        self.send_frame(&frame);
        self.wait_reply(&frame["id"])
    }

    /// Requests an action. Returns its result or its error.
    pub fn call_tool(&mut self, id: impl Into<Value>, tool: &str, args: Value) -> Value {
        let id = id.into();
        self.request_tool(id.clone(), tool, args);
        reply_outcome(&self.wait_reply(&id))
    }

    /// Returns the results that it missed.
    pub fn pending_results(&mut self, id: impl Into<Value>) -> Value {
        let id: Value = id.into();
        let mut reply =
            self.exchange_frame(json!({ "jsonrpc": "2.0", "method": "get_pending_results", "params": {}, "id": id }));
        reply["result"].take()
    }

    /// Returns the reply with an id, which may have come before.
    pub fn wait_reply(&mut self, id: &Value) -> Value {
        if let Some(at) = self.early.iter().position(|frame| frame["id"] == *id) {
            return self.early.remove(at);
        }
        loop {
            match self.read_frame() {
                AgentSocketEvent::Frame(frame) if frame["id"] == *id => return frame,
                AgentSocketEvent::Frame(frame) => self.early.push(frame),
                other => panic!("expected a reply to {id}, got {other:?}"),
            }
        }
    }

    /// Waits until `count` frames that fit have come, and keeps all of them for later.
    pub fn wait_frames(&mut self, count: usize, fits: impl Fn(&Value) -> bool) {
        while self.early.iter().filter(|frame| fits(frame)).count() < count {
            let AgentSocketEvent::Frame(frame) = self.read_frame() else { panic!("the line ended") };
            self.early.push(frame);
        }
    }

    /// Returns the next frame, or the end.
    #[expect(clippy::should_implement_trait, reason = "it waits for a peer, and its end is a value")]
    pub fn next(&mut self) -> AgentSocketEvent {
        if self.early.is_empty() { self.read_frame() } else { AgentSocketEvent::Frame(self.early.remove(0)) }
    }

    fn read_frame(&mut self) -> AgentSocketEvent {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        loop {
            // Pings still come if nothing else does.
            assert!(Instant::now() < deadline, "nothing came");
            match self.socket.read() {
                Ok(Message::Text(text)) => return AgentSocketEvent::Frame(serde_json::from_str(&text).unwrap()),
                Ok(Message::Close(Some(CloseFrame { code, reason }))) => {
                    // The reply to it goes out with the next read.
                    let _ = self.socket.read();
                    return AgentSocketEvent::Closed(code.into(), reason.to_string());
                }
                Ok(Message::Close(None)) => return AgentSocketEvent::Closed(1005, String::new()),
                Ok(_) => {}
                Err(Error::Io(error)) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("nothing came"),
                Err(_) => return AgentSocketEvent::Gone,
            }
        }
    }

    /// Confirms that everything so far was received: the reply to a later request comes after it.
    pub fn confirm_received(&mut self) {
        for id in ["settle-1", "settle-2"] {
            self.exchange_frame(json!({ "method": "list_tools", "id": id }));
        }
        // The log is read after the receipt, so that the receipt is in it.
        self.pending_results("settle-3");
    }
}

/// Returns the result or the error of a reply.
pub fn reply_outcome(reply: &Value) -> Value {
    reply.get("result").or_else(|| reply.get("error")).cloned().unwrap()
}

/// Returns an error as a reply has it.
pub fn error_body(code: i64, message: &str) -> Value {
    json!({ "code": code, "message": message })
}

/// Returns the result of an action that was done.
pub fn executed_result(data: Value) -> Value {
    json!({ "status": "executed", "data": data })
}
