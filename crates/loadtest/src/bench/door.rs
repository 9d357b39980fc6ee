//! The gateway's door: what an allowed request costs beside its parts, and how long an approval takes once it was tapped.

use std::{
    fs::File,
    io::Write as _,
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::{
    bench::{
        figure::{median, percentile},
        millis,
    },
    fixture::{
        gateway::{self, Gateway},
        scratch::Scratch,
        socket::{self, Socket, request},
        telephone::Telephone,
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
/// What a log writes at least of one commit, in bytes.
const PAGE: usize = 4096;

/// How often a gateway with gates that wait is killed.
const RESTARTS: usize = 9;
const PATIENCE: Duration = Duration::from_secs(60);

/// What was measured of allowed requests.
pub(crate) struct Allowed {
    pub(crate) per_second: f64,
    pub(crate) raw_per_second: f64,
    pub(crate) p99: f64,
    pub(crate) raw_p99: f64,
    pub(crate) many_per_second: f64,
}

/// Rounds of requests and of their parts take turns, so that both see the same machine.
pub(crate) fn allowed(binary: &Path) -> anyhow::Result<Allowed> {
    let service = gateway::service()?;
    let gateway = Gateway::start(binary, service, None)?;
    let mut agent = Socket::join(&gateway.address)?;
    let mut raw = Raw::new(service)?;
    let (mut ids, mut took, mut raw_took) = (0_u64.., Vec::new(), Vec::new());
    let (mut rates, mut raw_rates, mut many) = (Vec::new(), Vec::new(), Vec::new());
    // The first round warms up.
    for round in 0..=ROUNDS {
        let parts = single(|| raw.once())?;
        let requests = single(|| {
            let id = ids.next().unwrap_or_default();
            agent.send(request(id, "look", &json!({ "thing": "lamp" })))?;
            agent.executed()
        })?;
        if round > 0 {
            rates.push(per_second(requests.len(), requests.iter().sum::<f64>() / 1e3));
            raw_rates.push(per_second(parts.len(), parts.iter().sum::<f64>() / 1e3));
            took.extend(requests);
            raw_took.extend(parts);
        }
    }
    for round in 0..=ROUNDS {
        let begun = Instant::now();
        for number in 0..MANY + IN_FLIGHT {
            if number >= IN_FLIGHT {
                agent.executed()?;
            }
            if number < MANY {
                let id = ids.next().unwrap_or_default();
                agent.send(request(id, "look", &json!({ "thing": "lamp" })))?;
            }
        }
        if round > 0 {
            many.push(per_second(usize::try_from(MANY)?, begun.elapsed().as_secs_f64()));
        }
    }
    let nothing = "nothing was measured";
    Ok(Allowed {
        per_second: median(rates).context(nothing)?,
        raw_per_second: median(raw_rates).context(nothing)?,
        p99: percentile(took, 99).context(nothing)?,
        raw_p99: percentile(raw_took, 99).context(nothing)?,
        many_per_second: median(many).context(nothing)?,
    })
}

/// Milliseconds of each of a round's turns.
fn single(mut turn: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<Vec<f64>> {
    let timed = || {
        let begun = Instant::now();
        turn()?;
        Ok(millis(begun.elapsed()))
    };
    std::iter::repeat_with(timed).take(SINGLE).collect()
}

#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
fn per_second(count: usize, seconds: f64) -> f64 {
    count as f64 / seconds
}

/// The parts of an allowed request without anything between them: a frame and its echo, an HTTP call, two commits.
struct Raw {
    echo: Socket,
    service: web::Client,
    file: File,
    frame: String,
    _scratch: Scratch,
}

impl Raw {
    fn new(service: SocketAddr) -> anyhow::Result<Self> {
        let scratch = Scratch::new("raw")?;
        Ok(Self {
            echo: Socket::connect(&socket::echo()?.to_string())?,
            service: web::Client::connect(service)?,
            file: File::create(scratch.path().join("raw"))?,
            frame: request(1, "look", &json!({ "thing": "lamp" })),
            _scratch: scratch,
        })
    }

    fn once(&mut self) -> anyhow::Result<()> {
        self.echo.send(self.frame.clone())?;
        self.echo.read()?;
        self.service.get("/look/lamp")?;
        for _ in 0..2 {
            self.file.write_all(&[7; PAGE])?;
            self.file.sync_data()?;
        }
        Ok(())
    }
}

/// Milliseconds from the delivery of the tap that allows to the agent's reply, and those of the parts of a request.
pub(crate) fn approved(binary: &Path) -> anyhow::Result<(f64, Option<f64>)> {
    let service = gateway::service()?;
    let telephone = Telephone::start()?;
    let gateway = Gateway::start(binary, service, Some(telephone.address))?;
    let mut agent = Socket::join(&gateway.address)?;
    let mut raw = Raw::new(service)?;
    let (mut took, mut parts) = (Vec::new(), Vec::new());
    for number in 0..APPROVALS {
        agent.send(request(u64::try_from(number)?, "turn", &json!({ "thing": format!("door{number}") })))?;
        agent.executed()?;
        let replied = Instant::now();
        let delivered = telephone.delivered().context("nobody tapped")?;
        took.push(millis(replied.duration_since(delivered)));
        let begun = Instant::now();
        raw.once()?;
        parts.push(millis(begun.elapsed()));
    }
    Ok((median(took).context("nothing was measured")?, median(parts)))
}

/// Milliseconds from the start of the process until it is ready.
pub(crate) fn ready(binary: &Path, starts: usize) -> anyhow::Result<f64> {
    let service = gateway::service()?;
    let mut took = Vec::new();
    for _ in 0..starts {
        let begun = Instant::now();
        let _gateway = Gateway::start(binary, service, None)?;
        took.push(millis(begun.elapsed()));
    }
    median(took).context("nothing was measured")
}

/// Milliseconds from the start of the process, behind a kill, until it lists so many gates that waited; and without any.
pub(crate) fn restored(binary: &Path, count: usize) -> anyhow::Result<(f64, Option<f64>)> {
    let service = gateway::service()?;
    let (mut full, mut empty) = (Vec::new(), Vec::new());
    for (waiting, took) in [(0, &mut empty), (count, &mut full)] {
        let mut gateway = Gateway::start(binary, service, None)?;
        let mut agent = Socket::join(&gateway.address)?;
        for number in 0..waiting {
            agent.send(request(u64::try_from(number)?, "turn", &json!({ "thing": format!("door{number}") })))?;
        }
        let patience = Instant::now();
        while pending(&gateway)? != waiting {
            if patience.elapsed() > PATIENCE {
                bail!("the requests were not taken in time");
            }
        }
        for _ in 0..RESTARTS {
            let begun = Instant::now();
            gateway = gateway.again_after_kill(binary)?;
            let listed = pending(&gateway)?;
            took.push(millis(begun.elapsed()));
            if listed != waiting {
                bail!("instead of {waiting} gates {listed} wait behind the kill");
            }
        }
    }
    Ok((median(full).context("nothing was measured")?, median(empty)))
}

/// How many gates of the agent wait.
fn pending(gateway: &Gateway) -> anyhow::Result<usize> {
    let path = "/api/approval/pending?session_id=agent:default";
    let told: Value = serde_json::from_slice(&web::Client::connect(gateway.address.parse()?)?.get(path)?)?;
    usize::try_from(told["pending_count"].as_u64().context("no count of what waits")?).map_err(Into::into)
}

/// The process of a gateway with an agent that was answered and has nothing to do, for as long as `look` looks.
pub(crate) fn idle<T>(binary: &Path, look: impl FnOnce(u32) -> anyhow::Result<T>) -> anyhow::Result<T> {
    let gateway = Gateway::start(binary, gateway::service()?, None)?;
    let mut agent = Socket::join(&gateway.address)?;
    agent.send(request(1, "look", &json!({ "thing": "lamp" })))?;
    agent.executed()?;
    std::thread::sleep(Duration::from_millis(300));
    look(gateway.id())
}
