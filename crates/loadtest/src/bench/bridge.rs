//! The bridge of the gjc adapter: time of a frame to all followers of a session's events.

use std::{
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    runtime::Builder,
    sync::mpsc,
    task::JoinSet,
};

use crate::{
    bench::{figure::median, streams, to_millis},
    fixture::{provider::ProviderStub, scratch::ScratchFolder},
};

/// Number of followers.
const MANY: usize = 100;
const ROUNDS: usize = 15;
const PATIENCE: Duration = Duration::from_secs(60);
const TOKEN: &str = "token-of-the-bench";
/// Text of the expected frame.
const EXPECTED_FRAME: &[u8] = b"\"command\":\"get_state\"";

/// The running process. Dropped, it is killed.
struct BridgeProcess {
    child: Child,
    address: SocketAddr,
    _scratch: ScratchFolder,
}

impl Drop for BridgeProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl BridgeProcess {
    fn start(binary: &Path) -> anyhow::Result<Self> {
        let scratch = ScratchFolder::with_agent(&ProviderStub::start(Vec::new())?.base_url())?;
        let mut child = Command::new(binary)
            .args(["gjc", "--mode", "bridge", "--insecure"])
            .current_dir(scratch.work_dir())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", scratch.path())
            .env("GJC_CODING_AGENT_DIR", scratch.agent_dir())
            .env("GJC_BRIDGE_TOKEN", TOKEN)
            .env("GJC_BRIDGE_PORT", "0")
            .env("GJC_BRIDGE_ENDPOINTS", "all")
            .env("GJC_BRIDGE_SCOPES", "message:read")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no standard output")?).read_line(&mut line)?;
        let address = line.trim().strip_prefix("countersign ready on http://").context("the bridge is not ready")?;
        Ok(Self { address: address.parse()?, child, _scratch: scratch })
    }
}

fn request_head(method: &str, path: &str, address: SocketAddr, length: usize) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {TOKEN}\r\ncontent-length: {length}\r\n\r\n"
    )
}

/// Sends a body and reads the whole answer.
async fn post_json(stream: &mut TcpStream, path: &str, body: &Value) -> anyhow::Result<Value> {
    let (address, body) = (stream.peer_addr()?, body.to_string());
    stream.write_all(format!("{}{body}", request_head("POST", path, address, body.len())).as_bytes()).await?;
    let mut text = Vec::new();
    loop {
        if stream.read_buf(&mut text).await? == 0 {
            bail!("the bridge closed the connection");
        }
        let reply = std::str::from_utf8(&text)?;
        if let Some((_, body)) = reply.split_once("\r\n\r\n")
            && let Ok(body) = serde_json::from_str(body)
        {
            return Ok(body);
        }
    }
}

/// Follows the events until `tell` is dropped: reports when it began, and when it had the frame, with its length.
async fn follow_events(
    address: SocketAddr,
    path: String,
    opened: mpsc::UnboundedSender<()>,
    tell: mpsc::UnboundedSender<(Instant, usize)>,
) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request_head("GET", &path, address, 0).as_bytes()).await?;
    let mut buffer = [0; 16 * 1024];
    if stream.read(&mut buffer).await? == 0 {
        bail!("a stream was not opened");
    }
    opened.send(())?;
    loop {
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        if buffer[..read].windows(EXPECTED_FRAME.len()).any(|part| part == EXPECTED_FRAME) {
            tell.send((Instant::now(), read))?;
        }
    }
}

/// Returns the milliseconds from a command to the frame at the last of those who follow, and the same of a server that only sends it.
pub(crate) fn fan_out(binary: &Path) -> anyhow::Result<(f64, Option<f64>)> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let bridge = BridgeProcess::start(binary)?;
    let (took, size) = runtime.block_on(async {
        let mut line = TcpStream::connect(bridge.address).await?;
        line.set_nodelay(true)?;
        let shake = json!({"protocol_version_range": {"min": 2, "max": 2}, "capabilities": [], "requested_scopes": []});
        let handshake = post_json(&mut line, "/v1/handshake", &shake).await?;
        let session = handshake["session_id"].as_str().context("the bridge returned no session id")?.to_owned();
        let (opened, mut open) = mpsc::unbounded_channel();
        let (tell, mut frames) = mpsc::unbounded_channel();
        let mut following = JoinSet::new();
        for _ in 0..MANY {
            let path = format!("/v1/sessions/{session}/events");
            following.spawn(follow_events(bridge.address, path, opened.clone(), tell.clone()));
        }
        for _ in 0..MANY {
            tokio::time::timeout(PATIENCE, open.recv()).await.context("a stream did not open in time")?;
        }
        let (mut took, mut size) = (Vec::new(), 0);
        for round in 0..=ROUNDS {
            let begun = Instant::now();
            let path = format!("/v1/sessions/{session}/commands");
            post_json(&mut line, &path, &json!({ "type": "get_state" })).await?;
            let mut last = begun;
            for _ in 0..MANY {
                let frame =
                    tokio::time::timeout(PATIENCE, frames.recv()).await.context("a frame did not arrive in time")?;
                let (at, read) = frame.context("every follower disconnected")?;
                (last, size) = (last.max(at), size.max(read));
            }
            // The first round warms up.
            if round > 0 {
                took.push(to_millis(last.duration_since(begun)));
            }
        }
        following.abort_all();
        anyhow::Ok((took, size))
    })?;
    drop(bridge);
    let raw = median(streams::time_raw_fan_out(&runtime, MANY, size)?);
    Ok((median(took).context("nothing was measured")?, raw))
}
