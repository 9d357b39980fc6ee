//! Prompt streams: time of a question to all watchers, compared with a server that only sends them the same frame, and the time left for
//! an answer while they all are open.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::{Command, ExitCode, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    runtime::{Builder, Runtime},
    sync::{broadcast, mpsc},
    task::JoinSet,
};

use crate::{
    bench::{figure::median, resident_bytes, to_millis},
    fixture::{
        gateway::{self, GatewayProcess},
        socket::{TextSocket, tool_request},
    },
};

/// The hidden argument that makes this program the yardstick.
pub(crate) const FAN_OUT: &str = "__fan-out";
/// Maximum number of watchers.
pub(crate) const MANY: usize = 10_000;
/// Number of questions.
const ROUNDS: usize = 7;
/// Number of times that all watchers come and leave.
const LEAVES: usize = 4;
/// Time that a gateway has to give memory back after its watchers have left.
const RETURN: Duration = Duration::from_secs(30);
/// Wait between two looks at the memory.
const LOOK: Duration = Duration::from_millis(500);
/// Maximum wait for an event.
const PATIENCE: Duration = Duration::from_secs(60);
/// Number of connections that are opened at once.
const AT_ONCE: usize = 256;
/// Stream of the agent of every measurement.
const PATH: &str = "/api/approval/stream?session_id=agent:default";
/// Text of a frame with a pending approval.
const RAISED: &[u8] = b"\"pending_count\":1";

/// Figures with so many open streams.
pub(crate) struct StreamFigures {
    /// Milliseconds from the request to the frame at the last of them.
    pub(crate) last: f64,
    /// The same of a server that only sends it.
    pub(crate) raw_last: f64,
    /// Milliseconds of an answer.
    pub(crate) answer: f64,
    /// Bytes of memory that each stream takes.
    pub(crate) bytes: f64,
    /// Resident memory after several rounds of streams have left, as a multiple of that before.
    pub(crate) kept: f64,
}

/// Measures with `count` streams.
pub(crate) fn measure(binary: &Path, count: usize) -> anyhow::Result<StreamFigures> {
    more_descriptors();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let gateway = GatewayProcess::start(binary, gateway::start_service()?, None)?;
    let mut agent = TextSocket::connect_agent(&gateway.address)?;
    let address: SocketAddr = gateway.address.parse()?;
    let before = resident_bytes(gateway.id())?;
    let (mut watching, mut frames) = runtime.block_on(open_watchers(address, PATH, count))?;
    let after = resident_bytes(gateway.id())?;
    let (mut last, mut answers, mut size) = (Vec::new(), Vec::new(), 0);
    for round in 0..=ROUNDS {
        let begun = Instant::now();
        agent.send_text(tool_request(u64::try_from(round)?, "turn", &json!({ "thing": format!("door{round}") })))?;
        let (at, frame) = runtime.block_on(await_frames(&mut frames, count))?;
        let took = to_millis(at.duration_since(begun));
        size = frame;
        let waiting = runtime.block_on(pending_approval(address))?;
        let sent_at = Instant::now();
        let allowed = runtime.block_on(allow_approval(address, &waiting))?;
        if allowed["ok"] != true {
            bail!("the answer was not accepted: {allowed}");
        }
        // The first round warms up.
        if round > 0 {
            last.push(took);
            answers.push(to_millis(sent_at.elapsed()));
        }
        agent.read_text()?;
    }
    watching.abort_all();
    drop((watching, frames));
    for _ in 1..LEAVES {
        let (mut watching, _) = runtime.block_on(open_watchers(address, PATH, count))?;
        watching.abort_all();
    }
    let kept = kept_memory(gateway.id(), before)?;
    drop(gateway);
    let nothing = "nothing was measured";
    #[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
    let bytes = after.saturating_sub(before) as f64 / count as f64;
    Ok(StreamFigures {
        last: median(last).context(nothing)?,
        raw_last: median(time_raw_fan_out(&runtime, count, size)?).context(nothing)?,
        answer: median(answers).context(nothing)?,
        bytes,
        kept,
    })
}

/// Returns the lowest resident memory within [`RETURN`] of now, as a multiple of `before`.
#[expect(clippy::cast_precision_loss, reason = "sizes here are far below 2^52")]
fn kept_memory(process: u32, before: u64) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let mut least = f64::INFINITY;
    while begun.elapsed() < RETURN {
        std::thread::sleep(LOOK);
        least = least.min(resident_bytes(process)? as f64 / before as f64);
        if least <= 1.0 {
            break;
        }
    }
    Ok(least)
}

/// Opens so many streams. Each reports when it saw a frame in which something waits, and how long that was.
async fn open_watchers(
    address: SocketAddr,
    path: &'static str,
    count: usize,
) -> anyhow::Result<(JoinSet<()>, mpsc::UnboundedReceiver<(Instant, usize)>)> {
    let (tell, frames) = mpsc::unbounded_channel();
    let (open, mut opened) = mpsc::channel(AT_ONCE);
    let mut watching = JoinSet::new();
    let mut waiting = 0;
    for _ in 0..count {
        let (tell, open) = (tell.clone(), open.clone());
        watching.spawn(async move {
            let Ok(mut stream) = TcpStream::connect(address).await else {
                let _ = open.send(false).await;
                return;
            };
            let head = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\naccept: text/event-stream\r\n\r\n");
            let (mut buffer, mut is_open) = ([0; 4096], false);
            if stream.write_all(head.as_bytes()).await.is_err() {
                let _ = open.send(false).await;
                return;
            }
            while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                let text = &buffer[..read];
                // The first frame comes with the head or right after it.
                if !is_open && text.windows(7).any(|seven| seven == b"initial") {
                    is_open = true;
                    let _ = open.send(true).await;
                } else if text.windows(RAISED.len()).any(|part| part == RAISED) {
                    let _ = tell.send((Instant::now(), read));
                }
            }
            if !is_open {
                let _ = open.send(false).await;
            }
        });
        waiting += 1;
        if waiting == AT_ONCE {
            is_open(&mut opened).await?;
            waiting -= 1;
        }
    }
    for _ in 0..waiting {
        is_open(&mut opened).await?;
    }
    Ok((watching, frames))
}

async fn is_open(opened: &mut mpsc::Receiver<bool>) -> anyhow::Result<()> {
    match tokio::time::timeout(PATIENCE, opened.recv()).await {
        Ok(Some(true)) => Ok(()),
        Ok(_) => bail!("a stream was not opened"),
        Err(_) => bail!("a stream did not open in time"),
    }
}

/// Returns the time at which the last of `count` had its frame, and the length of one.
pub(crate) async fn await_frames(
    frames: &mut mpsc::UnboundedReceiver<(Instant, usize)>,
    count: usize,
) -> anyhow::Result<(Instant, usize)> {
    let (mut last, mut size) = (Instant::now(), 0);
    for seen in 0..count {
        let frame = tokio::time::timeout(PATIENCE, frames.recv()).await;
        let frame = frame.with_context(|| format!("only {seen} of {count} watchers received their frame in time"))?;
        let (at, read) = frame.context("every watcher disconnected")?;
        last = if seen == 0 { at } else { last.max(at) };
        size = size.max(read);
    }
    Ok((last, size))
}

/// Returns the name of what waits, as a client knows it: two answers within a second that name nothing are one that was posted twice.
async fn pending_approval(address: SocketAddr) -> anyhow::Result<Value> {
    let path = "/api/approval/pending?session_id=agent:default";
    let pending =
        exchange_http(address, &format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")).await?;
    Ok(pending["pending"]["approval_id"].clone())
}

/// Allows what waits, on a connection of its own.
async fn allow_approval(address: SocketAddr, approval: &Value) -> anyhow::Result<Value> {
    let body = json!({ "session_id": "agent:default", "approval_id": approval, "choice": "once" }).to_string();
    let head = format!(
        "POST /api/approval/respond HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    exchange_http(address, &format!("{head}{body}")).await
}

async fn exchange_http(address: SocketAddr, request: &str) -> anyhow::Result<Value> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let (_, body) = text.split_once("\r\n\r\n").context("no reply")?;
    Ok(serde_json::from_str(body)?)
}

/// Returns the milliseconds until the last of `count` connections has a frame of `size` bytes from a process that does nothing else.
pub(crate) fn time_raw_fan_out(runtime: &Runtime, count: usize, size: usize) -> anyhow::Result<Vec<f64>> {
    let mut child = Command::new(std::env::current_exe()?)
        .args([FAN_OUT, &size.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run the process of the yardstick")?;
    let mut tell = child.stdin.take().context("no standard input")?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("no standard output")?).read_line(&mut line)?;
    let address: SocketAddr = line.trim().parse()?;
    let (mut watching, mut frames) = runtime.block_on(open_watchers(address, "/", count))?;
    let mut took = Vec::new();
    for round in 0..=ROUNDS {
        let begun = Instant::now();
        tell.write_all(b"\n")?;
        let (at, _) = runtime.block_on(await_frames(&mut frames, count))?;
        if round > 0 {
            took.push(to_millis(at.duration_since(begun)));
        }
    }
    watching.abort_all();
    drop(tell);
    child.wait()?;
    Ok(took)
}

/// Runs the yardstick: sends a frame of the size in `arguments` to every connection, for each line that it reads.
pub(crate) fn fan_out(arguments: &[String]) -> anyhow::Result<ExitCode> {
    let size: usize = arguments.first().context("how large a frame is")?.parse()?;
    more_descriptors();
    // Read to its end, as the other one is.
    let mut frame = vec![b' '; size.saturating_sub(RAISED.len())];
    frame.extend_from_slice(RAISED);
    let frame: Arc<[u8]> = frame.into();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (tell, _) = broadcast::channel::<Arc<[u8]>>(16);
    let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
    println!("{}", listener.local_addr()?);
    let sender = tell.clone();
    runtime.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut receiver = sender.subscribe();
            tokio::spawn(async move {
                let mut head = [0; 1024];
                // A client that hangs up is its own business.
                let _ = stream.read(&mut head).await;
                let begin = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nevent: initial\ndata: {}\n\n";
                let _ = stream.write_all(begin.as_bytes()).await;
                while let Ok(frame) = receiver.recv().await {
                    let _ = stream.write_all(&frame).await;
                }
            });
        }
    });
    for _ in std::io::stdin().lines() {
        let _ = tell.send(Arc::clone(&frame));
    }
    Ok(ExitCode::SUCCESS)
}

/// Raises the limit of descriptors to the system's maximum, as each connection takes one.
pub(crate) fn more_descriptors() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
