//! The agent-gate adapter: cost of an allowed request compared with its parts, and time of an approval after the answer.

use std::{
    fs::File,
    net::SocketAddr,
    os::unix::fs::FileExt as _,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::{
    bench::{
        figure::{median, percentile},
        to_millis,
    },
    fixture::{
        bot_api_stub::BotApiStub,
        gateway::{self, GatewayProcess},
        scratch::ScratchFolder,
        socket::{self, TextSocket, tool_request},
        web,
    },
};

const ROUNDS: usize = 5;
/// Requests of a round, one at a time.
const SINGLE: usize = 400;
/// Requests of a round, and how many of them are in flight at once.
const MANY: u64 = 5_000;
const IN_FLIGHT: u64 = 64;
/// More would be held back: a bot may send so many messages at once.
const APPROVALS: usize = 10;
/// Minimum that a log writes for one commit, in bytes.
const PAGE: usize = 4096;

/// Number of kills of a gateway with pending gates.
const RESTARTS: usize = 9;
const PATIENCE: Duration = Duration::from_secs(60);

/// Figures of allowed requests.
pub(crate) struct AllowedFigures {
    pub(crate) per_second: f64,
    pub(crate) raw_per_second: f64,
    pub(crate) p99: f64,
    pub(crate) raw_p99: f64,
    pub(crate) many_per_second: f64,
    /// Milliseconds of the gateway's processor time of a request, one at a time and with [`IN_FLIGHT`] in flight.
    pub(crate) processor: f64,
    pub(crate) many_processor: f64,
}

/// Rounds of requests and of their parts take turns, so that both see the same machine.
pub(crate) fn measure_allowed(binary: &Path) -> anyhow::Result<AllowedFigures> {
    let service = gateway::start_service()?;
    let gateway = GatewayProcess::start(binary, service, None)?;
    let mut agent = TextSocket::connect_agent(&gateway.address)?;
    let mut raw = RawParts::new(service)?;
    let (mut ids, mut took, mut raw_took) = (0_u64.., Vec::new(), Vec::new());
    let (mut rates, mut raw_rates, mut many) = (Vec::new(), Vec::new(), Vec::new());
    let (mut processor, mut many_processor) = (Vec::new(), Vec::new());
    // The first round warms up.
    for round in 0..=ROUNDS {
        let parts = time_turns(|| raw.run_once())?;
        let used = gateway.processor_millis()?;
        let requests = time_turns(|| {
            let id = ids.next().unwrap_or_default();
            agent.send_text(tool_request(id, "look", &json!({ "thing": "lamp" })))?;
            agent.expect_executed()
        })?;
        if round > 0 {
            processor.push(per_request(gateway.processor_millis()? - used, requests.len()));
            rates.push(per_second(requests.len(), requests.iter().sum::<f64>() / 1e3));
            raw_rates.push(per_second(parts.len(), parts.iter().sum::<f64>() / 1e3));
            took.extend(requests);
            raw_took.extend(parts);
        }
    }
    for round in 0..=ROUNDS {
        let (begun, used) = (Instant::now(), gateway.processor_millis()?);
        for number in 0..MANY + IN_FLIGHT {
            if number >= IN_FLIGHT {
                agent.expect_executed()?;
            }
            if number < MANY {
                let id = ids.next().unwrap_or_default();
                agent.send_text(tool_request(id, "look", &json!({ "thing": "lamp" })))?;
            }
        }
        if round > 0 {
            many.push(per_second(usize::try_from(MANY)?, begun.elapsed().as_secs_f64()));
            many_processor.push(per_request(gateway.processor_millis()? - used, usize::try_from(MANY)?));
        }
    }
    let nothing = "nothing was measured";
    Ok(AllowedFigures {
        per_second: median(rates).context(nothing)?,
        raw_per_second: median(raw_rates).context(nothing)?,
        p99: percentile(took, 99).context(nothing)?,
        raw_p99: percentile(raw_took, 99).context(nothing)?,
        many_per_second: median(many).context(nothing)?,
        processor: median(processor).context(nothing)?,
        many_processor: median(many_processor).context(nothing)?,
    })
}

/// Returns the milliseconds of each of a round's turns.
pub(super) fn time_turns(mut turn: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<Vec<f64>> {
    let timed = || {
        let begun = Instant::now();
        turn()?;
        Ok(to_millis(begun.elapsed()))
    };
    std::iter::repeat_with(timed).take(SINGLE).collect()
}

#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
fn per_second(count: usize, seconds: f64) -> f64 {
    count as f64 / seconds
}

#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
fn per_request(millis: f64, count: usize) -> f64 {
    millis / count as f64
}

/// The parts of an allowed request without anything between them: a frame and its echo, an HTTP call, two commits.
struct RawParts {
    echo: TextSocket,
    service: web::BlockingHttpClient,
    file: File,
    frame: String,
    _scratch: ScratchFolder,
}

impl RawParts {
    fn new(service: SocketAddr) -> anyhow::Result<Self> {
        let scratch = ScratchFolder::new("raw")?;
        Ok(Self {
            echo: TextSocket::connect(&socket::start_echo()?.to_string())?,
            service: web::BlockingHttpClient::connect(service)?,
            file: preallocated_file(&scratch.path().join("raw"))?,
            frame: tool_request(1, "look", &json!({ "thing": "lamp" })),
            _scratch: scratch,
        })
    }

    fn run_once(&mut self) -> anyhow::Result<()> {
        self.echo.send_text(self.frame.clone())?;
        self.echo.read_text()?;
        self.service.get("/look/lamp")?;
        for _ in 0..2 {
            self.file.write_all_at(&[7; PAGE], 0)?;
            self.file.sync_data()?;
        }
        Ok(())
    }
}

/// Makes a file of one page. A log writes over pages that it has; syncing a file that grows would also sync its new size, and make the
/// yardstick slower than the disk is.
fn preallocated_file(path: &Path) -> std::io::Result<File> {
    let file = File::create(path)?;
    file.write_all_at(&[0; PAGE], 0)?;
    file.sync_all()?;
    Ok(file)
}

/// Returns the milliseconds from the delivery of the tap that allows to the agent's reply, and those of the parts of a request.
pub(crate) fn time_approval(binary: &Path) -> anyhow::Result<(f64, Option<f64>)> {
    let service = gateway::start_service()?;
    let bot_api = BotApiStub::start()?;
    let gateway = GatewayProcess::start(binary, service, Some(bot_api.address))?;
    let mut agent = TextSocket::connect_agent(&gateway.address)?;
    let mut raw = RawParts::new(service)?;
    let (mut took, mut parts) = (Vec::new(), Vec::new());
    for number in 0..APPROVALS {
        agent.send_text(tool_request(u64::try_from(number)?, "turn", &json!({ "thing": format!("door{number}") })))?;
        agent.expect_executed()?;
        let replied = Instant::now();
        let delivered = bot_api.last_delivered().context("the card was not tapped")?;
        took.push(to_millis(replied.duration_since(delivered)));
        let begun = Instant::now();
        raw.run_once()?;
        parts.push(to_millis(begun.elapsed()));
    }
    Ok((median(took).context("nothing was measured")?, median(parts)))
}

/// Returns the milliseconds from the start of the process until it is ready.
pub(crate) fn measure_ready(binary: &Path, starts: usize) -> anyhow::Result<f64> {
    let service = gateway::start_service()?;
    let mut took = Vec::new();
    for _ in 0..starts {
        let begun = Instant::now();
        let _gateway = GatewayProcess::start(binary, service, None)?;
        took.push(to_millis(begun.elapsed()));
    }
    median(took).context("nothing was measured")
}

/// Returns the milliseconds from the start of the process, after a kill, until it lists `count` gates that were pending; and without any.
pub(crate) fn measure_restore(binary: &Path, count: usize) -> anyhow::Result<(f64, Option<f64>)> {
    let service = gateway::start_service()?;
    let (mut full, mut empty) = (Vec::new(), Vec::new());
    for (waiting, took) in [(0, &mut empty), (count, &mut full)] {
        let mut gateway = GatewayProcess::start(binary, service, None)?;
        let mut agent = TextSocket::connect_agent(&gateway.address)?;
        for number in 0..waiting {
            agent.send_text(tool_request(
                u64::try_from(number)?,
                "turn",
                &json!({ "thing": format!("door{number}") }),
            ))?;
        }
        let patience = Instant::now();
        while count_pending(&gateway)? != waiting {
            if patience.elapsed() > PATIENCE {
                bail!("the requests were not accepted in time");
            }
        }
        for _ in 0..RESTARTS {
            let begun = Instant::now();
            gateway = gateway.restart_after_kill(binary)?;
            let listed = count_pending(&gateway)?;
            took.push(to_millis(begun.elapsed()));
            if listed != waiting {
                bail!("{listed} gates are pending after the kill, expected {waiting}");
            }
        }
    }
    Ok((median(full).context("nothing was measured")?, median(empty)))
}

/// Returns the number of pending gates of the agent.
fn count_pending(gateway: &GatewayProcess) -> anyhow::Result<usize> {
    let path = "/api/approval/pending?session_id=agent:default";
    let body: Value = serde_json::from_slice(&web::BlockingHttpClient::connect(gateway.address.parse()?)?.get(path)?)?;
    usize::try_from(body["pending_count"].as_u64().context("the reply has no pending_count")?).map_err(Into::into)
}

/// Starts a gateway with an agent that was answered and has nothing to do, for as long as `look` looks.
pub(crate) fn with_idle_gateway<T>(binary: &Path, look: impl FnOnce(u32) -> anyhow::Result<T>) -> anyhow::Result<T> {
    let gateway = GatewayProcess::start(binary, gateway::start_service()?, None)?;
    let mut agent = TextSocket::connect_agent(&gateway.address)?;
    agent.send_text(tool_request(1, "look", &json!({ "thing": "lamp" })))?;
    agent.expect_executed()?;
    std::thread::sleep(Duration::from_millis(300));
    look(gateway.id())
}
