//! A peer of the gsv door: JSON frames over a WebSocket, read by nobody but the test.

use std::{net::TcpStream, time::Instant};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{
    self, Error, Message, WebSocket,
    client::{IntoClientRequest as _, client_with_config},
    http::HeaderValue,
    protocol::WebSocketConfig,
};

use crate::{
    gateway::{Gateway, PATIENCE},
    scene::TOKEN,
};

/// What a peer hears.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Heard {
    Frame(Value),
    /// It was closed, with this code and reason.
    Closed(u16, String),
    /// The line is gone without a word.
    Gone,
}

pub(crate) struct Peer {
    socket: WebSocket<TcpStream>,
    /// Frames that came while others were waited for.
    early: Vec<Value>,
    asked: u64,
}

/// The error of an answer, as code and message.
pub(crate) fn error(code: i64, message: &str) -> Value {
    json!({ "code": code, "message": message })
}

impl Peer {
    /// A line without a word of who it is.
    pub(crate) fn line(gateway: &Gateway) -> Self {
        Self::line_with(gateway, &[]).unwrap()
    }

    /// The same with more headers; the status of a refusal.
    pub(crate) fn line_with(gateway: &Gateway, headers: &[(&'static str, &str)]) -> Result<Self, u16> {
        let stream = TcpStream::connect(&gateway.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut request = format!("{}/ws", gateway.url()).into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, HeaderValue::from_str(value).unwrap());
        }
        // Thousands of them are held at once.
        let config = WebSocketConfig::default().read_buffer_size(4096).write_buffer_size(0);
        match client_with_config(request, stream, Some(config)) {
            Ok((socket, _)) => Ok(Self { socket, early: Vec::new(), asked: 0 }),
            Err(tungstenite::HandshakeError::Failure(Error::Http(response))) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    /// A client that is connected.
    pub(crate) fn client(gateway: &Gateway, id: &str) -> Self {
        let mut peer = Self::line(gateway);
        let hello = peer.ok("connect", params("client", id));
        assert_eq!(hello["type"], "hello-ok");
        peer
    }

    /// A node with these tools that is connected.
    pub(crate) fn node(gateway: &Gateway, id: &str, tools: &[&str]) -> Self {
        let mut peer = Self::line(gateway);
        let hello = peer.ok("connect", node(id, tools));
        assert_eq!(hello["type"], "hello-ok");
        peer
    }

    /// An account of a channel that is connected.
    pub(crate) fn channel(gateway: &Gateway, channel: &str, account: &str) -> Self {
        let mut peer = Self::line(gateway);
        let mut params = params("channel", account);
        params["client"]["channel"] = channel.into();
        assert_eq!(peer.ok("connect", params)["type"], "hello-ok");
        peer
    }

    pub(crate) fn send(&mut self, frame: impl ToString) {
        self.socket.send(Message::text(frame.to_string())).unwrap();
    }

    pub(crate) fn send_binary(&mut self, bytes: &[u8]) {
        self.socket.send(Message::binary(bytes.to_vec())).unwrap();
    }

    /// Writes as far as the line takes it.
    pub(crate) fn push(&mut self, frame: String) {
        let _ = self.socket.send(Message::text(frame));
    }

    /// Asks for something and goes on; the id of the request.
    pub(crate) fn post(&mut self, method: &str, params: Value) -> String {
        self.asked += 1;
        let id = format!("q{}", self.asked);
        self.send(json!({ "type": "req", "id": id, "method": method, "params": params }));
        id
    }

    /// The whole answer to a request.
    pub(crate) fn answer(&mut self, id: &str) -> Value {
        self.frame(|frame| frame["type"] == "res" && frame["id"] == id)
    }

    /// Asks for something and gives the whole answer.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.post(method, params);
        self.answer(&id)
    }

    /// Asks for something that works, and gives what it is answered.
    pub(crate) fn ok(&mut self, method: &str, params: Value) -> Value {
        let mut answer = self.ask(method, params);
        assert_eq!(answer["ok"], true, "{method}: {answer}");
        answer["payload"].take()
    }

    /// Asks for something that does not work, and gives the error.
    pub(crate) fn fails(&mut self, method: &str, params: Value) -> Value {
        let mut answer = self.ask(method, params);
        assert_eq!(answer["ok"], false, "{method}: {answer}");
        answer["error"].take()
    }

    /// The first event of this name that is `like` that has not been given yet: each member of `like` is in its payload.
    pub(crate) fn event(&mut self, name: &str, like: &Value) -> Value {
        let like = like.as_object().unwrap().clone();
        let is_like = |payload: &Value| like.iter().all(|(name, value)| payload[name] == *value);
        let mut frame =
            self.frame(|frame| frame["type"] == "evt" && frame["event"] == name && is_like(&frame["payload"]));
        frame["payload"].take()
    }

    /// The first frame that fits and was not given yet.
    fn frame(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.early.iter().position(&fits) {
            return self.early.remove(at);
        }
        // Signs of life are no frames, and would be waited between for ever.
        let until = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < until, "nothing that fits came; before: {:?}", self.early);
            match self.read() {
                Heard::Frame(frame) if fits(&frame) => return frame,
                Heard::Frame(frame) => self.early.push(frame),
                heard => panic!("the line ended: {heard:?}; before: {:?}", self.early),
            }
        }
    }

    /// The frames that came and were not asked for.
    pub(crate) fn heard(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.early)
    }

    /// All that has come before everything that was sent is answered: no event of before is on its way any more.
    pub(crate) fn caught_up(&mut self) -> Vec<Value> {
        let id = self.post("session.history", json!({ "sessionKey": "caught-up" }));
        self.answer(&id);
        std::mem::take(&mut self.early)
    }

    /// The same for a node, which may ask for less.
    pub(crate) fn caught_up_node(&mut self) -> Vec<Value> {
        let id = self.post("tools.list", json!({}));
        self.answer(&id);
        std::mem::take(&mut self.early)
    }

    /// The next thing on the line, whatever was passed over before.
    pub(crate) fn read(&mut self) -> Heard {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.socket.read() {
                Ok(Message::Text(text)) => return Heard::Frame(serde_json::from_str(&text).unwrap()),
                Ok(Message::Close(Some(close))) => return Heard::Closed(close.code.into(), close.reason.to_string()),
                Ok(Message::Close(None)) => return Heard::Closed(1005, String::new()),
                Ok(_) if Instant::now() > until => panic!("nothing came"),
                Ok(_) => {}
                Err(Error::Io(error)) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("nothing came"),
                Err(_) => return Heard::Gone,
            }
        }
    }
}

/// What a peer sends to connect.
pub(crate) fn params(mode: &str, id: &str) -> Value {
    json!({
        "minProtocol": 1,
        "maxProtocol": 1,
        "client": { "id": id, "version": "0.0.1", "platform": "linux", "mode": mode },
        "auth": { "token": TOKEN },
    })
}

/// What a node sends to connect.
pub(crate) fn node(id: &str, tools: &[&str]) -> Value {
    let mut params = params("node", id);
    let told = |name: &&str| json!({ "name": name, "description": name, "inputSchema": { "type": "object" } });
    params["tools"] = tools.iter().map(told).collect();
    let can = ["filesystem.list", "filesystem.read", "filesystem.write", "shell.exec"];
    let each: serde_json::Map<String, Value> =
        tools.iter().map(|tool| ((*tool).to_owned(), json!(["shell.exec"]))).collect();
    params["nodeRuntime"] = json!({
        "hostRole": "execution", "hostCapabilities": can, "toolCapabilities": each, "hostOs": "linux", "hostEnv": [],
    });
    params
}
