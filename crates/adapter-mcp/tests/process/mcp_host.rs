//! An MCP host: `countersign mcp` in a process of its own, and requests over HTTP.

use std::{
    collections::VecDeque,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
};

use countersign_testkit::process::{
    GatewayFixture, GatewayServer, WAIT_TIMEOUT,
    http::{HttpClient, HttpClientReply},
};
use serde_json::{Value, json};

/// Version of the protocol without `initialize`.
pub(crate) const SESSIONLESS: &str = "2026-07-28";

/// Host that speaks over pipes. Its process ends with this value.
pub(crate) struct McpHost {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<Value>,
    early: VecDeque<Value>,
}

impl McpHost {
    /// Starts `countersign mcp` in the folder of the fixture.
    pub(crate) fn start(place: &GatewayFixture) -> Self {
        Self::start_with(place, &["--config", "config.yaml"])
    }

    /// Starts `countersign mcp` with these flags.
    pub(crate) fn start_with(place: &GatewayFixture, flags: &[&str]) -> Self {
        let mut command = place.binary_command();
        command.arg("mcp").args(flags);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(serde_json::from_str(&line).unwrap()).is_err() {
                    return;
                }
            }
        });
        let input = child.stdin.take();
        Self { child, input, lines, early: VecDeque::new() }
    }

    /// Starts a host that has initialized.
    pub(crate) fn start_initialized(place: &GatewayFixture) -> Self {
        let mut host = Self::start(place);
        host.initialize("2025-11-25");
        host
    }

    /// Initializes, and returns the result.
    pub(crate) fn initialize(&mut self, version: &str) -> Value {
        let result = self.request(0, "initialize", initialize_params(version));
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        result["result"].clone()
    }

    pub(crate) fn send(&mut self, message: &Value) {
        self.send_line(&message.to_string());
    }

    pub(crate) fn send_line(&mut self, line: &str) {
        self.input.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Sends a request, and returns its reply.
    pub(crate) fn request(&mut self, id: u64, method: &str, params: Value) -> Value {
        self.send(&request(id, method, params));
        self.wait_reply(id)
    }

    /// Sends a call of a tool.
    pub(crate) fn send_call(&mut self, id: u64, tool: &str, arguments: Value) {
        self.send(&request(id, "tools/call", json!({ "name": tool, "arguments": arguments })));
    }

    /// Calls a tool, and returns the result.
    pub(crate) fn call(&mut self, id: u64, tool: &str, arguments: Value) -> Value {
        self.send_call(id, tool, arguments);
        self.wait_reply(id)["result"].clone()
    }

    /// Returns the reply to a request. Earlier messages are kept.
    pub(crate) fn wait_reply(&mut self, id: u64) -> Value {
        self.wait_message(&format!("reply to {id}"), |message| message["id"] == json!(id))
    }

    /// Returns the first message that fits.
    pub(crate) fn wait_message(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.early.iter().position(&fits) {
            return self.early.remove(at).unwrap();
        }
        loop {
            let message =
                self.lines.recv_timeout(WAIT_TIMEOUT).unwrap_or_else(|_| panic!("no {what}: {:?}", self.early));
            if fits(&message) {
                return message;
            }
            self.early.push_back(message);
        }
    }

    /// Ends its input and returns the exit code.
    pub(crate) fn finish(mut self) -> Option<i32> {
        drop(self.input.take());
        self.child.wait().unwrap().code()
    }
}

impl Drop for McpHost {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn request(id: u64, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

pub(crate) fn initialize_params(version: &str) -> Value {
    json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": { "name": "test", "version": "1" } })
}

/// Adds what a request of the generation without `initialize` has.
pub(crate) fn sessionless(mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": SESSIONLESS,
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {}
    });
    params
}

/// Returns the text of a result.
pub(crate) fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {result}"))
}

/// Client over HTTP with a token.
pub(crate) struct McpHttp(pub(crate) HttpClient);

impl McpHttp {
    /// Makes a token with this scope, and a client that shows it.
    pub(crate) fn new(place: &GatewayFixture, gateway: &GatewayServer, name: &str, scope: &str) -> Self {
        let output = place.run_as_person(&["tokens", "add", name, "--scope", scope, "--json"]);
        assert_eq!(output.code, Some(0), "{output:?}");
        let token = output.json()["token"].as_str().unwrap().to_owned();
        Self(plain_client(gateway).with_header("authorization", &format!("Bearer {token}")))
    }

    pub(crate) fn with_header(&self, name: &str, value: &str) -> Self {
        Self(self.0.clone().with_header(name, value))
    }

    pub(crate) fn post(&self, message: &Value) -> HttpClientReply {
        self.0.send_request("POST", "/mcp", &message.to_string())
    }

    /// Initializes, and returns a client of the session.
    pub(crate) fn begin_session(&self) -> Self {
        let reply = self.post(&request(0, "initialize", initialize_params("2025-11-25")));
        assert_eq!(reply.status, 200, "{reply:?}");
        let session = reply.header("mcp-session-id").unwrap();
        let client = self.with_header("mcp-session-id", session).with_header("mcp-protocol-version", "2025-11-25");
        let initialized = client.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        assert_eq!(initialized.status, 202, "{initialized:?}");
        client
    }

    /// Returns a client of the generation without `initialize`, for requests of one method and tool.
    pub(crate) fn sessionless(&self, method: &str, name: Option<&str>) -> Self {
        let client = self.with_header("mcp-protocol-version", SESSIONLESS).with_header("mcp-method", method);
        match name {
            Some(name) => client.with_header("mcp-name", name),
            None => client,
        }
    }
}

/// Returns a client of the route without a token.
pub(crate) fn plain_client(gateway: &GatewayServer) -> HttpClient {
    let client = HttpClient::new(&gateway.address).with_header("accept", "application/json, text/event-stream");
    client.with_header("content-type", "application/json")
}

/// Returns the message in a reply: JSON, or the last event of a stream.
pub(crate) fn message(reply: &HttpClientReply) -> Value {
    let mut events = reply.body.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
    let last = events.rfind(|data| data.contains("jsonrpc"));
    let text = last.unwrap_or(&reply.body);
    serde_json::from_str(text).unwrap_or_else(|_| panic!("no message: {reply:?}"))
}
