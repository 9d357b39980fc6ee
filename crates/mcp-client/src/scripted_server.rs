//! A server in the tests' own process: a script answers each message with steps.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use countersign_runtime::tools::exec::ExecLauncher;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, duplex};

use crate::{
    McpServers,
    definition::{ServerDefinition, ServerTransport},
    options::{McpLimits, McpOptions},
    questions::QuestionAsker,
};

/// What a server does next.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Sends a message.
    Send(Value),
    /// Writes these bytes, which need not be a message.
    Write(Vec<u8>),
    /// Ends.
    End,
}

type Script = dyn Fn(&Value) -> Vec<Step> + Send + Sync;

/// A server that follows a script.
#[derive(Clone)]
pub struct ScriptedServer {
    script: Arc<Script>,
    seen: Arc<Mutex<Vec<Value>>>,
    starts: Arc<AtomicUsize>,
}

impl ScriptedServer {
    pub(crate) fn new(script: impl Fn(&Value) -> Vec<Step> + Send + Sync + 'static) -> Self {
        Self { script: Arc::new(script), seen: Arc::default(), starts: Arc::default() }
    }

    /// A server of before 2026 that lists `tools` and answers everything else by `script`.
    pub(crate) fn older(tools: Value, script: impl Fn(&Value) -> Vec<Step> + Send + Sync + 'static) -> Self {
        Self::new(move |message| match method(message) {
            "server/discover" => vec![error(message, -32601, "unknown method")],
            "initialize" => vec![answer(
                message,
                json!({
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
                    "serverInfo": {"name": "scripted", "version": "1"},
                }),
            )],
            "tools/list" => vec![answer(message, json!({"tools": tools}))],
            _ => script(message),
        })
    }

    /// A server of 2026 that lists `tools` and answers everything else by `script`.
    pub(crate) fn newer(tools: Value, script: impl Fn(&Value) -> Vec<Step> + Send + Sync + 'static) -> Self {
        Self::new(move |message| match method(message) {
            "server/discover" => vec![answer(
                message,
                json!({
                    "resultType": "complete",
                    "supportedVersions": ["2026-07-28"],
                    "capabilities": {"tools": {}},
                    "ttlMs": 0,
                    "cacheScope": "private",
                }),
            )],
            "tools/list" => {
                let result = json!({"resultType": "complete", "tools": tools, "ttlMs": 0, "cacheScope": "private"});
                vec![answer(message, result)]
            }
            _ => script(message),
        })
    }

    /// Returns what it would do with a message, for a script that changes a part of it.
    pub(crate) fn steps(&self, message: &Value) -> Vec<Step> {
        (self.script)(message)
    }

    /// Starts it and returns its pipes.
    pub(crate) fn start(&self) -> DuplexStream {
        self.starts.fetch_add(1, Ordering::SeqCst);
        let (ours, theirs) = duplex(64 << 10);
        tokio::spawn(self.clone().serve(theirs));
        ours
    }

    async fn serve(self, stream: DuplexStream) {
        let (read, mut write) = tokio::io::split(stream);
        let mut lines = BufReader::new(read).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let message: Value = serde_json::from_str(&line).unwrap();
            self.seen.lock().unwrap().push(message.clone());
            for step in (self.script)(&message) {
                let bytes = match step {
                    Step::Send(message) => (message.to_string() + "\n").into_bytes(),
                    Step::Write(bytes) => bytes,
                    Step::End => return,
                };
                if write.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        }
    }

    /// All messages with this method so far.
    pub(crate) fn seen_requests(&self, of: &str) -> Vec<Value> {
        self.seen.lock().unwrap().iter().filter(|message| method(message) == of).cloned().collect()
    }

    /// Methods of all messages so far; answers to requests of the server are `answer`.
    pub(crate) fn seen_methods(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().map(|message| method(message).to_owned()).collect()
    }

    /// Messages without a method: answers to requests of the server.
    pub(crate) fn seen_answers(&self) -> Vec<Value> {
        self.seen.lock().unwrap().iter().filter(|message| method(message) == "answer").cloned().collect()
    }

    pub(crate) fn starts(&self) -> usize {
        self.starts.load(Ordering::SeqCst)
    }

    /// All servers of a gateway: this one alone, called `box`.
    pub(crate) fn servers(&self) -> McpServers {
        self.servers_with(McpLimits::default())
    }

    pub(crate) fn servers_with(&self, limits: McpLimits) -> McpServers {
        self.servers_for(limits, None)
    }

    /// The same, with people who answer.
    pub(crate) fn servers_for(&self, limits: McpLimits, asker: Option<Arc<dyn QuestionAsker>>) -> McpServers {
        let definition = ServerDefinition::new("box", ServerTransport::Scripted(self.clone()));
        let launcher = ExecLauncher::new(std::path::Path::new("/bin/false"));
        let options = McpOptions { limits, asker, ..McpOptions::new(launcher, "/".into()) };
        McpServers::new(vec![definition], options).unwrap()
    }
}

pub(crate) fn method(message: &Value) -> &str {
    message["method"].as_str().unwrap_or("answer")
}

pub(crate) fn answer(message: &Value, result: Value) -> Step {
    Step::Send(json!({"jsonrpc": "2.0", "id": message["id"], "result": result}))
}

pub(crate) fn error(message: &Value, code: i32, text: &str) -> Step {
    Step::Send(json!({"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": text}}))
}

pub(crate) fn text_result(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

pub(crate) fn tool(name: &str) -> Value {
    json!({"name": name, "description": "Does it.", "inputSchema": {"type": "object"}})
}
