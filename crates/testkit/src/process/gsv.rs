//! A peer of gsv: JSON frames over a WebSocket.

use std::{net::TcpStream, time::Instant};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{
    self, Error, Message, WebSocket,
    client::{IntoClientRequest as _, client_with_config},
    http::HeaderValue,
    protocol::WebSocketConfig,
};

use crate::process::{
    FakeProvider, GatewayFixture, GatewayServer, WAIT_TIMEOUT,
    provider::{ReplyPart, call_part},
};

/// Token of peers.
pub const TOKEN: &str = "tok-clients-31bd";
/// Rules of most tests: changes need approval, the rest does not.
pub const RULES: &str = "
defaults:
  - { pattern: 'gsv__EditFile(marks)', action: ask }
  - { pattern: 'gsv__WriteFile(*.txt)', action: ask }
  - { pattern: '*', action: allow }
";

/// Returns the lines of a configuration with workspaces and two models at `provider`.
pub(crate) fn model_config(provider: &FakeProvider) -> String {
    format!(
        "agents_dir: agents\nmodel: {{ provider: local, id: small-1 }}\nproviders:\n  local:\n    api: openai-completions\n    base_url: {}/v1\n    api_key: key\n    models: [ {{ id: small-1, context_window: 100000, max_tokens: 4096 }}, {{ id: small-2, input: [text, image], context_window: 100000, max_tokens: 4096 }} ]\n",
        provider.url
    )
}

/// Returns a call that needs approval, and writes a file.
pub fn write_part(id: &str, path: &str) -> ReplyPart {
    call_part(id, "gsv__WriteFile", &json!({ "path": path, "content": "by the agent\n" }))
}

/// Returns a call that needs approval, and appends a mark each time that it runs.
pub fn mark_part(id: &str) -> ReplyPart {
    call_part(id, "gsv__EditFile", &json!({ "path": "marks", "oldString": "marks:", "newString": "marks: once" }))
}

impl GatewayFixture {
    /// Creates the file to which [`mark_part`] appends its marks.
    pub fn create_marks(&self) {
        let folder = self.folder.join("agents/main");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("marks"), "marks:\n").unwrap();
    }

    /// Returns the marks of calls of [`mark_part`].
    pub fn read_marks(&self) -> String {
        std::fs::read_to_string(self.folder.join("agents/main/marks")).unwrap()
    }
}

/// Event on the connection of a peer.
#[derive(Clone, Debug, PartialEq)]
pub enum GsvSocketEvent {
    /// Frame.
    Frame(Value),
    /// The gateway closed it, with this code and reason.
    Closed(u16, String),
    /// End without a close frame.
    Gone,
}

/// Client, node or channel.
pub struct GsvPeer {
    socket: WebSocket<TcpStream>,
    /// Frames that came while others were waited for.
    early: Vec<Value>,
    request_count: u64,
}

/// Returns an error as an answer has it.
pub fn error_body(code: i64, message: &str) -> Value {
    json!({ "code": code, "message": message })
}

impl GsvPeer {
    /// Opens a connection and sends nothing.
    pub fn open_connection(gateway: &GatewayServer) -> Self {
        Self::open_connection_with(gateway, &[]).unwrap()
    }

    /// Opens the same with more headers.
    ///
    /// # Errors
    ///
    /// The status of a refusal.
    pub fn open_connection_with(gateway: &GatewayServer, headers: &[(&'static str, &str)]) -> Result<Self, u16> {
        let stream = TcpStream::connect(&gateway.address).unwrap();
        stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut request = format!("{}/ws", gateway.websocket_url()).into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, HeaderValue::from_str(value).unwrap());
        }
        // Thousands of them are held at once.
        let config = WebSocketConfig::default().read_buffer_size(4096).write_buffer_size(0);
        match client_with_config(request, stream, Some(config)) {
            Ok((socket, _)) => Ok(Self { socket, early: Vec::new(), request_count: 0 }),
            Err(tungstenite::HandshakeError::Failure(Error::Http(response))) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    /// Connects a client.
    pub fn connect_client(gateway: &GatewayServer, id: &str) -> Self {
        let mut peer = Self::open_connection(gateway);
        let hello = peer.expect_ok("connect", connect_params("client", id));
        assert_eq!(hello["type"], "hello-ok");
        peer
    }

    /// Connects a node with these tools.
    pub fn connect_node(gateway: &GatewayServer, id: &str, tools: &[&str]) -> Self {
        let mut peer = Self::open_connection(gateway);
        let hello = peer.expect_ok("connect", node_params(id, tools));
        assert_eq!(hello["type"], "hello-ok");
        peer
    }

    /// Connects an account of a channel.
    pub fn connect_channel(gateway: &GatewayServer, channel: &str, account: &str) -> Self {
        let mut peer = Self::open_connection(gateway);
        let mut params = connect_params("channel", account);
        params["client"]["channel"] = channel.into();
        assert_eq!(peer.expect_ok("connect", params)["type"], "hello-ok");
        peer
    }

    /// Sends a frame.
    pub fn send_frame(&mut self, frame: impl ToString) {
        self.socket.send(Message::text(frame.to_string())).unwrap();
    }

    /// Sends a binary frame.
    pub fn send_binary(&mut self, bytes: &[u8]) {
        self.socket.send(Message::binary(bytes.to_vec())).unwrap();
    }

    /// Sends a frame even if the connection breaks.
    pub fn try_send_frame(&mut self, frame: String) {
        let _ = self.socket.send(Message::text(frame));
    }

    /// Sends a request and does not wait. Returns its id.
    pub fn send_request(&mut self, method: &str, params: Value) -> String {
        self.request_count += 1;
        let id = format!("q{}", self.request_count);
        self.send_frame(json!({ "type": "req", "id": id, "method": method, "params": params }));
        id
    }

    /// Returns the whole answer to a request.
    pub fn wait_response(&mut self, id: &str) -> Value {
        self.wait_frame(|frame| frame["type"] == "res" && frame["id"] == id)
    }

    /// Sends a request. Returns the whole answer.
    pub fn call_method(&mut self, method: &str, params: Value) -> Value {
        let id = self.send_request(method, params);
        self.wait_response(&id)
    }

    /// Sends a request that must succeed. Returns the payload of the answer.
    pub fn expect_ok(&mut self, method: &str, params: Value) -> Value {
        let mut answer = self.call_method(method, params);
        assert_eq!(answer["ok"], true, "{method}: {answer}");
        answer["payload"].take()
    }

    /// Sends a request that must fail. Returns the error.
    pub fn expect_error(&mut self, method: &str, params: Value) -> Value {
        let mut answer = self.call_method(method, params);
        assert_eq!(answer["ok"], false, "{method}: {answer}");
        answer["error"].take()
    }

    /// Returns the first event with this name that was not returned yet and whose payload has each member of `like`.
    pub fn wait_event(&mut self, name: &str, like: &Value) -> Value {
        let like = like.as_object().unwrap().clone();
        let is_like = |payload: &Value| like.iter().all(|(name, value)| payload[name] == *value);
        let mut frame =
            self.wait_frame(|frame| frame["type"] == "evt" && frame["event"] == name && is_like(&frame["payload"]));
        frame["payload"].take()
    }

    /// Returns the first frame that fits and was not returned yet.
    fn wait_frame(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.early.iter().position(&fits) {
            return self.early.remove(at);
        }
        // Pings are no frames, and would extend the wait without end.
        let until = Instant::now() + WAIT_TIMEOUT;
        loop {
            assert!(Instant::now() < until, "no matching frame came; before: {:?}", self.early);
            match self.read_frame() {
                GsvSocketEvent::Frame(frame) if fits(&frame) => return frame,
                GsvSocketEvent::Frame(frame) => self.early.push(frame),
                other => panic!("the connection ended: {other:?}; before: {:?}", self.early),
            }
        }
    }

    /// Returns the frames that came while others were waited for.
    pub fn take_early_frames(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.early)
    }

    /// Returns all frames up to the answer to a new request: no earlier event is on its way any more.
    pub fn caught_up(&mut self) -> Vec<Value> {
        let id = self.send_request("session.history", json!({ "sessionKey": "caught-up" }));
        self.wait_response(&id);
        std::mem::take(&mut self.early)
    }

    /// Returns the same for a node, which may send fewer requests.
    pub fn caught_up_node(&mut self) -> Vec<Value> {
        let id = self.send_request("tools.list", json!({}));
        self.wait_response(&id);
        std::mem::take(&mut self.early)
    }

    /// Returns the next frame or the end, whatever came before.
    pub fn read_frame(&mut self) -> GsvSocketEvent {
        let until = Instant::now() + WAIT_TIMEOUT;
        loop {
            match self.socket.read() {
                Ok(Message::Text(text)) => return GsvSocketEvent::Frame(serde_json::from_str(&text).unwrap()),
                Ok(Message::Close(Some(close))) => {
                    return GsvSocketEvent::Closed(close.code.into(), close.reason.to_string());
                }
                Ok(Message::Close(None)) => return GsvSocketEvent::Closed(1005, String::new()),
                Ok(_) if Instant::now() > until => panic!("nothing came"),
                Ok(_) => {}
                Err(Error::Io(error)) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("nothing came"),
                Err(_) => return GsvSocketEvent::Gone,
            }
        }
    }
}

/// Returns the parameters with which a peer connects.
pub fn connect_params(mode: &str, id: &str) -> Value {
    json!({
        "minProtocol": 1,
        "maxProtocol": 1,
        "client": { "id": id, "version": "0.0.1", "platform": "linux", "mode": mode },
        "auth": { "token": TOKEN },
    })
}

/// Returns the parameters with which a node connects.
pub fn node_params(id: &str, tools: &[&str]) -> Value {
    let mut params = connect_params("node", id);
    let tool_entry = |name: &&str| json!({ "name": name, "description": name, "inputSchema": { "type": "object" } });
    params["tools"] = tools.iter().map(tool_entry).collect();
    let can = ["filesystem.list", "filesystem.read", "filesystem.write", "shell.exec"];
    let each: serde_json::Map<String, Value> =
        tools.iter().map(|tool| ((*tool).to_owned(), json!(["shell.exec"]))).collect();
    params["nodeRuntime"] = json!({
        "hostRole": "execution", "hostCapabilities": can, "toolCapabilities": each, "hostOs": "linux", "hostEnv": [],
    });
    params
}
