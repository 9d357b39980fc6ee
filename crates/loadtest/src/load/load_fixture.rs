//! The gateway under load, and what it talks to: a service that counts what is done, and a model that takes its time.

use std::{
    collections::HashMap,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
};

use crate::fixture::{
    gateway::{self, GatewayProcess},
    scratch::ScratchFolder,
    web,
};

/// Number of pieces of an answer of the model, with a pause after each.
const PIECES: usize = 25;
const PAUSE: Duration = Duration::from_millis(200);

const RULES: &str = r#"
defaults: [ { pattern: "*", action: ask } ]
rules:
  - { pattern: "look(*", action: allow }
  - { pattern: "ls*", action: allow }
"#;

/// Number of times that the service did each thing.
#[derive(Clone, Default)]
pub(crate) struct EffectCounts(Arc<Mutex<HashMap<String, u32>>>);

impl EffectCounts {
    /// Returns the number of times that `thing` was done.
    pub(crate) fn times_done(&self, thing: &str) -> u32 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(thing).copied().unwrap_or_default()
    }

    /// Returns the number of things that were done more than once.
    pub(crate) fn repeated_count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().filter(|times| **times > 1).count()
    }

    /// Counts what a request of this path does, if it does something.
    pub(crate) fn count_request(&self, path: &str) {
        if let Some(thing) = path.strip_prefix("/turn/") {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(thing.to_owned()).or_default() += 1;
        }
    }
}

/// Everything that the load plays with.
pub(crate) struct LoadFixture {
    pub(crate) gateway: GatewayProcess,
    pub(crate) address: SocketAddr,
    pub(crate) done: EffectCounts,
    pub(crate) model: SocketAddr,
    /// The gateway's data directory.
    pub(crate) data: PathBuf,
}

/// Returns the name of an agent, and what it shows.
pub(crate) fn agent_credentials(number: usize) -> (String, String) {
    (format!("a{number}"), format!("token-of-agent-{number}-of-the-load"))
}

impl LoadFixture {
    /// Starts all of it, with so many agents known to the gateway.
    pub(crate) fn start(binary: &Path, agents: usize) -> anyhow::Result<Self> {
        let done = EffectCounts::default();
        let counted = done.clone();
        let service = web::start_server(move |request| {
            counted.count_request(&request.path);
            r#"{"state":"on"}"#.to_owned()
        })?;
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let model = listener.local_addr()?;
        tokio::spawn(serve_model(TcpListener::from_std(listener)?));
        let scratch = ScratchFolder::new("load")?;
        let data = scratch.path().join("data");
        let gateway = GatewayProcess::start_in(binary, scratch, &config_text(service, model, agents), RULES)?;
        let address = gateway.address.parse().context("the address of the gateway is invalid")?;
        Ok(Self { gateway, address, done, model, data })
    }
}

fn config_text(service: SocketAddr, model: SocketAddr, agents: usize) -> String {
    let agents: Vec<String> = (0..agents)
        .map(|number| {
            let (id, token) = agent_credentials(number);
            format!("  - {{ id: {id}, token: {token} }}\n")
        })
        .collect();
    format!(
        "{}storage: {{ type: sqlite, path: data/countersign.db }}
rate_limit: {{ max_requests_per_minute: 1000000000, max_pending_approvals: 64 }}
model: {{ provider: local, id: small-1 }}
providers:
  local:
    api: openai-completions
    base_url: \"http://{model}/v1\"
    api_key: key
    models: [ {{ id: small-1, context_window: 1000000, max_tokens: 4096 }} ]
agents:
{}",
        gateway::service_config(service),
        agents.concat()
    )
}

/// Answers each question first with a call that lists the folder, and what that gave with words that take five seconds.
async fn serve_model(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        // A client that hangs up is its own business.
        tokio::spawn(async move { serve_completion(stream).await.ok() });
    }
}

async fn serve_completion(mut stream: TcpStream) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let (reader, mut writer) = stream.split();
    let mut reader = BufReader::new(reader);
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line).await? > 0 && !line.trim().is_empty() {
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse()?;
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await?;
    let request: Value = serde_json::from_slice(&body)?;
    let last = request["messages"].as_array().and_then(|messages| messages.last());
    writer.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n").await?;
    if last.is_some_and(|message| message["role"] == "tool") {
        for number in 0..PIECES {
            writer
                .write_all(completion_chunk(&json!({ "content": format!("word {number} ") }), None).as_bytes())
                .await?;
            tokio::time::sleep(PAUSE).await;
        }
        writer.write_all(completion_chunk(&json!({}), Some("stop")).as_bytes()).await?;
    } else {
        let function = json!({ "name": "ls", "arguments": "{\"path\":\".\"}" });
        let call = json!({ "tool_calls": [{ "index": 0, "id": "c1", "type": "function", "function": function }] });
        writer.write_all(completion_chunk(&call, None).as_bytes()).await?;
        writer.write_all(completion_chunk(&json!({}), Some("tool_calls")).as_bytes()).await?;
    }
    Ok(writer.write_all(b"data: [DONE]\n\n").await?)
}

fn completion_chunk(delta: &Value, finish: Option<&str>) -> String {
    let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
    let chunk = json!({
        "id": "load", "object": "chat.completion.chunk", "created": 0, "model": "small-1", "choices": [choice],
    });
    format!("data: {chunk}\n\n")
}
