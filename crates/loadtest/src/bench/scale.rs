//! Costs of one gateway at growing numbers of connected agents, of sessions at rest and of records. Each figure is how much faster a
//! cost grows than its input.

use std::{
    fs,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use super::{
    FigureSuite,
    figure::{FigureGroup, FigureUnit, GrowthCurve, median},
    lazy_measurement, resident_bytes, streams, to_mebibytes, to_millis,
};
use crate::{
    fixture::{
        gateway::{self, GatewayProcess},
        scratch::ScratchFolder,
        socket::{TOKEN, TextSocket, tool_request},
        web::BlockingHttpClient,
    },
    in_process,
};

const AGENTS: [usize; 3] = [100, 1_000, 10_000];
const SESSIONS: [usize; 3] = [1_000, 10_000, 100_000];
const RECORDS: [usize; 3] = [10_000, 100_000, 1_000_000];
/// Further number of records with `--large`.
const LARGE: usize = 10_000_000;
/// Number of records of a session where records are counted.
const RECORDS_OF_SESSION: usize = 500;
/// Number of requests of one kind.
const ROUNDS: usize = 21;
/// Number of starts of a gateway.
const STARTS: usize = 5;
/// Password of the console.
const PASSWORD: &str = "password-of-the-bench";

/// Costs of one gateway at one size, in milliseconds and MiB.
#[derive(Clone, Debug, Default)]
struct GatewayCosts {
    /// From the start of the process until it is ready: the first one on this log, which has neither snapshot nor views.
    first_start: f64,
    /// The same after a clean end.
    start: f64,
    /// Connections of all agents, one after the other.
    connect: f64,
    /// Resident memory after `start`, with every agent connected.
    memory: f64,
    /// Allowed request of an agent.
    answer: f64,
    /// Page of sessions of the API.
    list: f64,
    /// Session that is read from the log, through the API.
    session: f64,
    inbox: f64,
    sessions_page: f64,
    record_page: f64,
    /// Statistics of the console, at the first request after a start.
    first_statistics: f64,
    /// The same at the next ones.
    statistics: f64,
    agents_page: f64,
}

/// Name of a figure, unit of its costs, and their place.
type CostCurve = (&'static str, FigureUnit, fn(&GatewayCosts) -> f64);

const OF_AGENTS: [CostCurve; 8] = [
    ("scale: agents, start", FigureUnit::Millis, |costs| costs.start),
    ("scale: agents, connecting all of them", FigureUnit::Millis, |costs| costs.connect),
    ("scale: agents, resident memory with all of them connected", FigureUnit::Mebibytes, |costs| costs.memory),
    ("scale: agents, an allowed request", FigureUnit::Millis, |costs| costs.answer),
    ("scale: agents, first page of sessions", FigureUnit::Millis, |costs| costs.list),
    ("scale: agents, inbox of the console", FigureUnit::Millis, |costs| costs.inbox),
    ("scale: agents, sessions in the console", FigureUnit::Millis, |costs| costs.sessions_page),
    ("scale: agents, agents in the console", FigureUnit::Millis, |costs| costs.agents_page),
];
const OF_SESSIONS: [CostCurve; 8] = [
    ("scale: sessions at rest, first start", FigureUnit::Millis, |costs| costs.first_start),
    ("scale: sessions at rest, start after a clean end", FigureUnit::Millis, |costs| costs.start),
    ("scale: sessions at rest, resident memory", FigureUnit::Mebibytes, |costs| costs.memory),
    ("scale: sessions at rest, an allowed request", FigureUnit::Millis, |costs| costs.answer),
    ("scale: sessions at rest, first page of the list", FigureUnit::Millis, |costs| costs.list),
    ("scale: sessions at rest, one of them", FigureUnit::Millis, |costs| costs.session),
    ("scale: sessions at rest, inbox of the console", FigureUnit::Millis, |costs| costs.inbox),
    ("scale: sessions at rest, sessions in the console", FigureUnit::Millis, |costs| costs.sessions_page),
];
const OF_RECORDS: [CostCurve; 8] = [
    ("scale: records, first start", FigureUnit::Millis, |costs| costs.first_start),
    ("scale: records, start after a clean end", FigureUnit::Millis, |costs| costs.start),
    ("scale: records, resident memory", FigureUnit::Mebibytes, |costs| costs.memory),
    ("scale: records, an allowed request", FigureUnit::Millis, |costs| costs.answer),
    ("scale: records, one session", FigureUnit::Millis, |costs| costs.session),
    ("scale: records, record in the console", FigureUnit::Millis, |costs| costs.record_page),
    ("scale: records, first statistics in the console", FigureUnit::Millis, |costs| costs.first_statistics),
    ("scale: records, further statistics in the console", FigureUnit::Millis, |costs| costs.statistics),
];

/// Measures every curve that the suite selects.
pub(super) fn measure_all(binary: &Path, is_large: bool, suite: &mut FigureSuite<'_>) {
    suite.group = FigureGroup::Scale;
    let agents = lazy_measurement(|| measure_sizes(&AGENTS, |agents| measure_agents(binary, agents)));
    let sessions = lazy_measurement(|| measure_sizes(&SESSIONS, |sessions| measure_log(binary, sessions, 0)));
    let records = lazy_measurement(|| {
        let sizes: Vec<usize> = RECORDS.into_iter().chain(is_large.then_some(LARGE)).collect();
        measure_sizes(&sizes, |records| measure_log(binary, records / RECORDS_OF_SESSION, records))
    });
    for curve in &OF_AGENTS {
        suite.measure_curve(curve.0, &mut || Ok(cost_curve(curve, "agents", agents.get_result()?)));
    }
    for curve in &OF_SESSIONS {
        suite.measure_curve(curve.0, &mut || Ok(cost_curve(curve, "sessions", sessions.get_result()?)));
    }
    for curve in &OF_RECORDS {
        suite.measure_curve(curve.0, &mut || Ok(cost_curve(curve, "records", records.get_result()?)));
    }
}

fn cost_curve(curve: &CostCurve, input: &'static str, costs: &[(f64, GatewayCosts)]) -> GrowthCurve {
    let points = costs.iter().map(|(size, costs)| (*size, (curve.2)(costs))).collect();
    GrowthCurve { unit: curve.1, input, points }
}

#[expect(clippy::cast_precision_loss, reason = "sizes here are far below 2^52")]
fn measure_sizes(
    sizes: &[usize],
    measure: impl Fn(usize) -> anyhow::Result<GatewayCosts>,
) -> anyhow::Result<Vec<(f64, GatewayCosts)>> {
    let costs_of = |size: &usize| {
        let costs = measure(*size).with_context(|| format!("at {size}"))?;
        eprintln!("\n  at {size}: {costs:?}");
        Ok((*size as f64, costs))
    };
    sizes.iter().map(costs_of).collect()
}

/// Measures a gateway with so many agents, each with a token and a connection of its own.
fn measure_agents(binary: &Path, count: usize) -> anyhow::Result<GatewayCosts> {
    streams::more_descriptors();
    let token = |number: usize| format!("token-of-agent-{number}-of-the-bench");
    let agents: Vec<String> =
        (0..count).map(|number| format!("  - {{ id: a{number}, token: {} }}\n", token(number))).collect();
    let config = config_text(&format!("agents:\n{}", agents.concat()))?;
    let (gateway, mut costs) = start_measured(binary, ScratchFolder::new("agents")?, &config)?;
    let begun = Instant::now();
    let connect = |number| TextSocket::connect_small_agent(&gateway.address, &token(number));
    let mut connected = (0..count).map(connect).collect::<anyhow::Result<Vec<_>>>()?;
    costs.connect = to_millis(begun.elapsed());
    let last = connected.last_mut().context("no agent is connected")?;
    costs.answer = time_answers(last)?;
    costs.memory = to_mebibytes(resident_bytes(gateway.id())?);
    time_pages(&gateway, &mut costs)?;
    Ok(costs)
}

/// Measures a gateway on a log of so many sessions at rest and records.
fn measure_log(binary: &Path, sessions: usize, records: usize) -> anyhow::Result<GatewayCosts> {
    let scratch = ScratchFolder::new("log")?;
    fill_log(&scratch, sessions, records)?;
    let config = config_text(&format!("agent: {{ token: {TOKEN} }}\n"))?;
    let (gateway, mut costs) = start_measured(binary, scratch, &config)?;
    costs.memory = to_mebibytes(resident_bytes(gateway.id())?);
    let mut agent = TextSocket::connect_agent(&gateway.address)?;
    costs.answer = time_answers(&mut agent)?;
    time_pages(&gateway, &mut costs)?;
    let mut browser = LoggedInBrowser::connect(&gateway)?;
    costs.session =
        time_turns(|round| browser.get(&format!("/api/v1/sessions/session-{}", round * sessions / ROUNDS)))?;
    Ok(costs)
}

/// Writes the log of the gateway in `scratch` and returns its path, in a process of its own: so much memory is returned only by its end.
pub(super) fn fill_log(scratch: &ScratchFolder, sessions: usize, records: usize) -> anyhow::Result<PathBuf> {
    let data = scratch.path().join("data");
    fs::DirBuilder::new().mode(0o700).create(&data)?;
    let file: PathBuf = data.join("countersign.db");
    let sizes = [sessions.to_string(), records.to_string()];
    let output = Command::new(std::env::current_exe()?)
        .args([in_process::BENCH, in_process::FILL])
        .arg(&file)
        .args(&sizes)
        .output()?;
    ensure!(output.status.success(), "the log was not written: {}", String::from_utf8_lossy(&output.stderr));
    Ok(file)
}

/// Returns the configuration of a gateway whose console has a password, with its agents.
fn config_text(agents: &str) -> anyhow::Result<String> {
    Ok(format!(
        "{}storage: {{ type: sqlite, path: data/countersign.db }}\nweb: {{ password: {PASSWORD} }}\n\
         rate_limit: {{ max_requests_per_minute: 1000000000 }}\n{agents}",
        gateway::service_config(gateway::start_service()?)
    ))
}

/// Starts a gateway for the first time, and then again after clean ends.
fn start_measured(
    binary: &Path,
    scratch: ScratchFolder,
    config: &str,
) -> anyhow::Result<(GatewayProcess, GatewayCosts)> {
    let begun = Instant::now();
    let mut gateway = GatewayProcess::start_in(binary, scratch, config, gateway::RULES)?;
    let mut costs = GatewayCosts { first_start: to_millis(begun.elapsed()), ..GatewayCosts::default() };
    let mut starts = Vec::new();
    for _ in 0..STARTS {
        let scratch = gateway.stop()?;
        let begun = Instant::now();
        gateway = GatewayProcess::run(binary, scratch)?;
        starts.push(to_millis(begun.elapsed()));
    }
    costs.start = median(starts).context("nothing was measured")?;
    Ok((gateway, costs))
}

fn time_answers(agent: &mut TextSocket) -> anyhow::Result<f64> {
    time_turns(|round| {
        agent.send_text(tool_request(u64::try_from(round)?, "look", &json!({ "thing": "lamp" })))?;
        agent.expect_executed()
    })
}

/// Measures what programs and users read.
fn time_pages(gateway: &GatewayProcess, costs: &mut GatewayCosts) -> anyhow::Result<()> {
    let mut browser = LoggedInBrowser::connect(gateway)?;
    let begun = Instant::now();
    browser.get("/console/figures")?;
    costs.first_statistics = to_millis(begun.elapsed());
    let mut time_page = |path: &str| time_turns(|_| browser.get(path));
    costs.list = time_page("/api/v1/sessions?limit=100")?;
    costs.inbox = time_page("/console/")?;
    costs.sessions_page = time_page("/console/sessions")?;
    costs.record_page = time_page("/console/record")?;
    costs.statistics = time_page("/console/figures")?;
    costs.agents_page = time_page("/console/agents")?;
    Ok(())
}

/// Returns the median of a turn in milliseconds.
fn time_turns(mut turn: impl FnMut(usize) -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let mut took = Vec::new();
    for round in 0..ROUNDS {
        let begun = Instant::now();
        turn(round)?;
        took.push(to_millis(begun.elapsed()));
    }
    median(took).context("nothing was measured")
}

/// Connection of a user after the login.
struct LoggedInBrowser {
    client: BlockingHttpClient,
    /// Header line with the cookie.
    cookie: String,
}

impl LoggedInBrowser {
    fn connect(gateway: &GatewayProcess) -> anyhow::Result<Self> {
        let mut client = BlockingHttpClient::connect(gateway.address.parse()?)?;
        let form = "content-type: application/x-www-form-urlencoded\r\n";
        let reply = client.send_request("POST", "/login", form, &format!("password={PASSWORD}"))?;
        let value_of = |line: &String| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("set-cookie").then(|| value.trim().to_owned())
        };
        let cookie = reply.headers.iter().find_map(value_of).context("the login set no cookie")?;
        let cookie = format!("cookie: {}\r\n", cookie.split(';').next().unwrap_or_default());
        Ok(Self { client, cookie })
    }

    fn get(&mut self, path: &str) -> anyhow::Result<()> {
        let reply = self.client.send_request("GET", path, &self.cookie, "")?;
        if reply.status != 200 || reply.body.is_empty() {
            let error: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
            bail!("{path} returned {} with {} bytes: {error}", reply.status, reply.body.len());
        }
        Ok(())
    }
}
