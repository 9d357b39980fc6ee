//! The gsv adapter: a request compared with a raw echo, one event to ten thousand clients, ten thousand sessions at rest, ten thousand
//! jobs.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, bail};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::{net::TcpStream, runtime::Builder, sync::mpsc, task::JoinSet};
use tokio_tungstenite::{
    client_async_with_config,
    tungstenite::{Message, protocol::WebSocketConfig},
};

use crate::{
    bench::{
        FigureSuite,
        figure::{BenchFigure, FigureUnit, median},
        lazy_measurement, resident_bytes, streams, to_millis,
    },
    fixture::{
        gateway::{self, GatewayProcess},
        socket::{self, TextSocket},
    },
};

/// Number of clients, sessions and jobs.
pub(crate) const MANY: usize = 10_000;
/// Number of measured requests, after as many that are not measured.
const REQUESTS: usize = 2_000;
const ROUNDS: usize = 7;
/// Number of clients that connect at once.
const AT_ONCE: usize = 256;
/// Number of jobs that fire, a moment apart.
const FIRINGS: u64 = 20;
const PATIENCE: Duration = Duration::from_secs(60);
/// Time for which an idle gateway is watched.
const IDLE: Duration = Duration::from_secs(3);

/// Measures the cost of many clients, sessions and jobs of the gsv adapter.
pub(super) fn measure_many(binary: &Path, suite: &mut FigureSuite<'_>) {
    let crowd = lazy_measurement(|| measure_broadcast(binary));
    let of_crowd = |pick: fn(&BroadcastFigures) -> (f64, Option<f64>)| crowd.get_result().map(pick);
    suite.measure(
        BenchFigure::new("gsv: an event at the last of 10,000 clients", FigureUnit::Millis).with_target(150.0),
        &mut || of_crowd(|crowd| (crowd.last, Some(crowd.raw_last))),
    );
    suite
        .measure(BenchFigure::new("gsv: memory of a connection", FigureUnit::Kibibytes).with_target(10.0), &mut || {
            of_crowd(|crowd| (crowd.bytes / 1024.0, None))
        });
    let sessions = lazy_measurement(|| measure_sessions(binary));
    let of_sessions = |pick: fn(&SessionFigures) -> f64| {
        let sessions = sessions.get_result()?;
        Ok((pick(sessions), None))
    };
    suite.measure(BenchFigure::new("gsv: listing 10,000 sessions", FigureUnit::Millis).with_target(20.0), &mut || {
        of_sessions(|sessions| sessions.listed)
    });
    suite.measure(
        BenchFigure::new("gsv: memory of each of 10,000 sessions at rest", FigureUnit::Kibibytes),
        &mut || of_sessions(|sessions| sessions.bytes / 1024.0),
    );
    let jobs = lazy_measurement(|| measure_jobs(binary));
    let of_jobs = |pick: fn(&JobFigures) -> (f64, Option<f64>)| jobs.get_result().map(pick);
    // The yardstick is the same gateway without a job.
    let idle = "gsv: processor time in an idle second with 10,000 jobs";
    suite.measure(BenchFigure::new(idle, FigureUnit::Millis), &mut || {
        of_jobs(|jobs| (jobs.idle, Some(jobs.idle_without)))
    });
    suite.measure(
        BenchFigure::new("gsv: delay of the latest of 20 jobs among 10,000", FigureUnit::Millis).with_target(50.0),
        &mut || of_jobs(|jobs| (jobs.late, None)),
    );
}

/// A client that asks one thing at a time.
struct GsvClient {
    socket: TextSocket,
    request_count: usize,
    /// Events that came while an answer was waited for.
    events: VecDeque<Value>,
}

impl GsvClient {
    fn connect_as(address: &str, id: &str) -> anyhow::Result<Self> {
        let mut client =
            Self { socket: TextSocket::connect_to(address, "/ws")?, request_count: 0, events: VecDeque::new() };
        client.send_request("connect", &connect_params(id))?;
        Ok(client)
    }

    /// Sends a request and returns its result. Events on the way are kept: a run can end before its request is answered.
    fn send_request(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
        self.request_count += 1;
        let id = self.request_count.to_string();
        self.socket.send_text(json!({ "type": "req", "id": id, "method": method, "params": params }).to_string())?;
        let mut answer = loop {
            let frame = self.read_frame()?;
            if frame["type"] == "res" && frame["id"].as_str() == Some(&*id) {
                break frame;
            }
            self.events.push_back(frame);
        };
        if answer["ok"] != true {
            bail!("{method} failed: {answer}");
        }
        Ok(answer["payload"].take())
    }

    fn read_frame(&mut self) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(&self.socket.read_text()?)?)
    }

    /// Returns the next event that fits. Those before it are passed over.
    fn next_event(&mut self, fits: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        loop {
            let frame = self.events.pop_front().map_or_else(|| self.read_frame(), Ok)?;
            if fits(&frame) {
                return Ok(frame);
            }
        }
    }

    /// Says something in a session and waits for the end of its run. There is no model: it ends at once.
    fn send_message(&mut self, key: &str, run: &str) -> anyhow::Result<()> {
        self.send_request("chat.send", &json!({ "sessionKey": key, "message": "hello", "runId": run }))?;
        self.next_event(|frame| frame["event"] == "chat" && frame["payload"]["runId"] == run).map(drop)
    }
}

fn connect_params(id: &str) -> Value {
    json!({ "minProtocol": 1, "client": { "id": id, "mode": "client" } })
}

/// Returns the milliseconds of a request that is answered at once, and of as many bytes that are sent back.
pub(crate) fn round_trip(binary: &Path) -> anyhow::Result<(f64, Option<f64>)> {
    let gateway = GatewayProcess::start(binary, gateway::start_service()?, None)?;
    let mut client = GsvClient::connect_as(&gateway.address, "bench")?;
    let mut echo = TextSocket::connect(&socket::start_echo()?.to_string())?;
    let params = json!({ "path": "session.mainKey" });
    let (mut took, mut raw) = (Vec::new(), Vec::new());
    for number in 0..REQUESTS * 2 {
        let begun = Instant::now();
        client.send_request("config.get", &params)?;
        let answered = Instant::now();
        echo.send_text(
            json!({ "type": "req", "id": number.to_string(), "method": "config.get", "params": params }).to_string(),
        )?;
        let sent_back: Value = serde_json::from_str(&echo.read_text()?)?;
        if number >= REQUESTS && sent_back["type"] == "req" {
            took.push(to_millis(answered.duration_since(begun)));
            raw.push(to_millis(answered.elapsed()));
        }
    }
    Ok((median(took).context("nothing was measured")?, median(raw)))
}

/// Time of one event to all clients.
pub(crate) struct BroadcastFigures {
    /// Milliseconds from the request to the frame at the last of them.
    pub(crate) last: f64,
    /// The same of a server that only sends it.
    pub(crate) raw_last: f64,
    /// Bytes of memory that each connection takes.
    pub(crate) bytes: f64,
}

/// Measures with [`MANY`] clients.
pub(crate) fn measure_broadcast(binary: &Path) -> anyhow::Result<BroadcastFigures> {
    streams::more_descriptors();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let gateway = GatewayProcess::start(binary, gateway::start_service()?, None)?;
    let address: SocketAddr = gateway.address.parse()?;
    let mut speaker = GsvClient::connect_as(&gateway.address, "speaker")?;
    speaker.send_message("warm", "warm")?;
    let before = resident_bytes(gateway.id())?;
    let (mut sitting, mut frames) = runtime.block_on(connect_idle_clients(address, MANY))?;
    let after = resident_bytes(gateway.id())?;
    let (mut last, mut size) = (Vec::new(), 0);
    for round in 0..=ROUNDS {
        let begun = Instant::now();
        speaker.send_message("s", &format!("run-{round}"))?;
        let (at, frame) = runtime.block_on(streams::await_frames(&mut frames, MANY))?;
        size = frame;
        // The first round warms up.
        if round > 0 {
            last.push(to_millis(at.duration_since(begun)));
        }
    }
    sitting.abort_all();
    drop(gateway);
    #[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
    let bytes = after.saturating_sub(before) as f64 / MANY as f64;
    let raw = streams::time_raw_fan_out(&runtime, MANY, size)?;
    let nothing = "nothing was measured";
    Ok(BroadcastFigures { last: median(last).context(nothing)?, raw_last: median(raw).context(nothing)?, bytes })
}

/// Connects so many clients. Each reports when it had a chat event, and how long that was.
async fn connect_idle_clients(
    address: SocketAddr,
    count: usize,
) -> anyhow::Result<(JoinSet<()>, mpsc::UnboundedReceiver<(Instant, usize)>)> {
    let (tell, frames) = mpsc::unbounded_channel();
    let mut sitting = JoinSet::new();
    for from in (0..count).step_by(AT_ONCE) {
        let coming = (from..count.min(from + AT_ONCE)).map(|number| async move {
            let stream = TcpStream::connect(address).await?;
            let config = WebSocketConfig::default().read_buffer_size(4096).write_buffer_size(0);
            let url = format!("ws://{address}/ws");
            let (mut line, _) = client_async_with_config(url, stream, Some(config)).await?;
            let params = connect_params(&format!("idle-{number}"));
            let request = json!({ "type": "req", "id": "1", "method": "connect", "params": params });
            line.send(Message::text(request.to_string())).await?;
            match line.next().await {
                Some(Ok(Message::Text(text))) if text.contains("hello-ok") => anyhow::Ok(line),
                other => bail!("expected hello-ok, got {other:?}"),
            }
        });
        let lines = tokio::time::timeout(PATIENCE, futures_util::future::try_join_all(coming)).await;
        for mut line in lines.context("the clients were not accepted in time")?? {
            let tell = tell.clone();
            sitting.spawn(async move {
                while let Some(Ok(message)) = line.next().await {
                    if let Message::Text(text) = message {
                        let _ = tell.send((Instant::now(), text.len()));
                    }
                }
            });
        }
    }
    Ok((sitting, frames))
}

/// Cost of [`MANY`] sessions at rest.
pub(crate) struct SessionFigures {
    /// Milliseconds to list a page of them.
    pub(crate) listed: f64,
    /// Bytes of memory of each.
    pub(crate) bytes: f64,
}

/// Measures sessions of one message each. The gateway is restarted after them, so that they are at rest.
pub(crate) fn measure_sessions(binary: &Path) -> anyhow::Result<SessionFigures> {
    let gateway = GatewayProcess::start(binary, gateway::start_service()?, None)?;
    let mut client = GsvClient::connect_as(&gateway.address, "bench")?;
    client.send_message("first", "first")?;
    let gateway = gateway.restart_gracefully(binary)?;
    let empty = resident_bytes(gateway.id())?;
    let mut client = GsvClient::connect_as(&gateway.address, "bench")?;
    for number in 1..MANY {
        client.send_message(&format!("session-{number}"), &format!("run-{number}"))?;
    }
    drop(client);
    let gateway = gateway.restart_gracefully(binary)?;
    let full = resident_bytes(gateway.id())?;
    let mut client = GsvClient::connect_as(&gateway.address, "bench")?;
    let mut took = Vec::new();
    for _ in 0..ROUNDS * 3 {
        let begun = Instant::now();
        let listed = client.send_request("sessions.list", &json!({}))?;
        took.push(to_millis(begun.elapsed()));
        if listed["count"] != MANY {
            bail!("expected {MANY} sessions in the list, got {}", listed["count"]);
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
    let bytes = full.saturating_sub(empty) as f64 / MANY as f64;
    Ok(SessionFigures { listed: median(took).context("nothing was measured")?, bytes })
}

/// Cost of [`MANY`] waiting jobs, and the delay of those that fire among them.
pub(crate) struct JobFigures {
    /// Milliseconds of processor time in a second in which nothing happens.
    pub(crate) idle: f64,
    /// The same without a job.
    pub(crate) idle_without: f64,
    /// Milliseconds from the time of a job to the record of its firing.
    pub(crate) late: f64,
}

pub(crate) fn measure_jobs(binary: &Path) -> anyhow::Result<JobFigures> {
    let gateway = GatewayProcess::start(binary, gateway::start_service()?, None)?;
    let mut client = GsvClient::connect_as(&gateway.address, "bench")?;
    let idle_without = idle_processor_time(&gateway)?;
    client.send_request("config.set", &json!({ "path": "cron.maxJobs", "value": MANY * 2 }))?;
    let day = 86_400_000;
    for number in 0..MANY as u64 {
        add_job(&mut client, &format!("far-{number}"), now_millis()? + day + number * 1000)?;
    }
    let waiting = idle_processor_time(&gateway)?;
    let first = now_millis()? + 2_000;
    let mut near = BTreeMap::new();
    for number in 0..FIRINGS {
        let at = first + number * 150;
        near.insert(add_job(&mut client, &format!("near-{number}"), at)?, at);
    }
    let mut late = f64::MIN;
    for _ in 0..FIRINGS {
        let event = client.next_event(|frame| frame["event"] == "chat")?;
        // A run of a job is named after the job, with a number at the end.
        let run = event["payload"]["runId"].as_str().context("a chat event has no runId")?;
        let (job, _) = run.rsplit_once('-').context("a runId names no job")?;
        let at = near.remove(job).context("a runId names an unknown job")?;
        late = late.max(firing_time(&mut client, job)? - to_millis(Duration::from_millis(at)));
    }
    Ok(JobFigures { idle: waiting, idle_without, late })
}

/// Returns the time at which the last firing of a job was recorded, in milliseconds.
fn firing_time(client: &mut GsvClient, job: &str) -> anyhow::Result<f64> {
    let patience = Instant::now();
    loop {
        let runs = client.send_request("cron.runs", &json!({ "jobId": job, "limit": 1 }))?;
        // The end of the run is sent before that of the firing is recorded.
        if let Some(at) = runs["runs"][0]["ts"].as_f64() {
            return Ok(at);
        }
        if patience.elapsed() > PATIENCE {
            bail!("no run of {job} is recorded");
        }
    }
}

/// Plans a job, and gives its id.
fn add_job(client: &mut GsvClient, name: &str, at: u64) -> anyhow::Result<String> {
    let spec = json!({ "mode": "systemEvent", "text": "tick" });
    let job = json!({ "name": name, "schedule": { "kind": "at", "atMs": at }, "spec": spec });
    let added = client.send_request("cron.add", &job)?;
    Ok(added["job"]["id"].as_str().context("the new job has no id")?.to_owned())
}

fn now_millis() -> anyhow::Result<u64> {
    Ok(u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?)
}

/// Returns the milliseconds of processor time that it takes a second without requests.
fn idle_processor_time(gateway: &GatewayProcess) -> anyhow::Result<f64> {
    let before = gateway.processor_millis()?;
    std::thread::sleep(IDLE);
    Ok((gateway.processor_millis()? - before) / IDLE.as_secs_f64())
}
