//! `cargo xtask bench`: figures of the release binary, each beside its yardstick from the same run on the same machine.
//!
//! A figure that cannot be taken is printed as not available with its reason, and the others go on.

mod bridge;
mod burst;
mod door;
mod figure;
mod gates;
mod gsv;
mod lent;
pub(crate) mod node;
mod report;
mod rules_file;
pub(crate) mod streams;
mod unseen;

use std::{
    cell::LazyCell,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, bail};
use serde_json::Value;

use crate::{
    bench::figure::{Figure, Unit, median},
    fixture::{host::Host, provider::Provider, scratch::Scratch},
    in_process,
    workspace::{Workspace, product_binary},
};

/// How often a start is measured.
const STARTS: usize = 15;

pub(crate) use streams::FAN_OUT;

/// Is the yardstick of streams.
pub(crate) fn fan_out(arguments: &[String]) -> anyhow::Result<ExitCode> {
    streams::fan_out(arguments.first().context("how large a frame is")?.parse()?)
}

/// What is told of prompt streams: the name and target of the last frame, and the names of an answer and of memory.
type OfStreams = ((&'static str, f64), Option<(&'static str, &'static str)>);
const ONE: OfStreams = (("hermes: request to frame at one stream", 0.5), None);
const HUNDRED: OfStreams = (("hermes: request to frame at the last of 100", 2.0), None);
const ALL: OfStreams = (
    ("hermes: request to frame at the last of 10,000", 120.0),
    Some(("hermes: an answer while 10,000 streams are open", "hermes: memory of a stream")),
);

/// What to measure and how to print it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    json: bool,
    cold: bool,
    binary: Option<PathBuf>,
    /// Only figures with this in their names.
    only: Option<String>,
    /// Where the page goes.
    report: Option<PathBuf>,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> anyhow::Result<Self> {
        let mut options = Self::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--json" => options.json = true,
                "--cold" => options.cold = true,
                "--only" => options.only = Some(arguments.next().context("--only wants a part of a name")?.clone()),
                "--report" => options.report = Some(arguments.next().context("--report wants a file")?.into()),
                "--binary" => options.binary = Some(arguments.next().context("--binary wants a file")?.into()),
                unknown => bail!("bench does not know {unknown:?}"),
            }
        }
        Ok(options)
    }

    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|part| name.contains(part))
    }
}

/// What several figures are picked from. It is measured when the first of them is wanted.
struct Shared<T, M>(LazyCell<Result<T, String>, M>);

impl<T, M: FnOnce() -> Result<T, String>> Shared<T, M> {
    fn taken(&self) -> anyhow::Result<&T> {
        (*self.0).as_ref().map_err(|why| anyhow!("{why}"))
    }
}

/// Leaves `measure` for when it is wanted.
fn shared<T>(measure: impl FnOnce() -> anyhow::Result<T>) -> Shared<T, impl FnOnce() -> Result<T, String>> {
    Shared(LazyCell::new(|| measure().map_err(|error| format!("{error:#}"))))
}

/// Measures as `options` say, which were read from `arguments`.
pub(crate) fn run(options: &Options, arguments: &[String]) -> anyhow::Result<ExitCode> {
    crate::require_release("bench")?;
    let binary = product_binary(options.binary.as_deref())?;
    let mut figures = Vec::new();
    let mut measure = |figure: Figure, take: &mut dyn FnMut() -> anyhow::Result<(f64, Option<f64>)>| {
        if options.wants(figure.name) {
            eprint!("measuring: {}: ", figure.name);
            let figure = figure.taken(take());
            eprintln!("{}", figure.value());
            figures.push(figure);
        }
    };
    measure(Figure::new("spawn to the answer of get_state", Unit::Millis).target(5.0), &mut || start(&binary));
    measure(Figure::new("resident memory, idle", Unit::Mebibytes).target(15.0), &mut || {
        Ok((idle_memory(&binary, resident)?, None))
    });
    measure(Figure::new("private memory, idle", Unit::Mebibytes), &mut || Ok((idle_memory(&binary, private)?, None)));
    let burst = shared(|| burst::measure(&binary));
    let of_burst = |pick: fn(&burst::Burst) -> (f64, Option<f64>)| burst.taken().map(pick);
    measure(Figure::new("5,000 deltas: prompt to agent_end", Unit::Millis).target(20.0), &mut || {
        of_burst(|burst| (burst.millis, Some(burst.raw_millis)))
    });
    measure(Figure::new("5,000 deltas: bytes on stdout per byte of text", Unit::Ratio).target(15.0), &mut || {
        of_burst(|burst| (burst.bytes_per_byte, None))
    });
    let round_trip = "gjc: a call of a host tool, less the raw pipe";
    measure(Figure::new(round_trip, Unit::Millis).target(0.3), &mut || {
        lent::measure(&binary).map(|lent| (lent.millis, Some(lent.raw_millis)))
    });
    let gates = shared(|| gates::measure(&binary));
    let of_gates = |pick: fn(&gates::Gates) -> f64| {
        let gates = gates.taken()?;
        Ok((pick(gates), Some(gates.raw)))
    };
    measure(Figure::new("gjc: gate raised to its frame, record included", Unit::Millis).target(0.5), &mut || {
        of_gates(|gates| gates.raised)
    });
    measure(
        Figure::new("gjc: answer to the waiter's next event, record included", Unit::Millis).target(1.0),
        &mut || of_gates(|gates| gates.answered),
    );
    measure(Figure::new("1,000 pending gates: kill -9 to all of them listed", Unit::Millis).target(50.0), &mut || {
        door::restored(&binary, 1_000)
    });
    measure(Figure::new("gjc bridge: command to frame at the last of 100", Unit::Millis).target(2.0), &mut || {
        bridge::fan_out(&binary)
    });
    measure(Figure::new("events through the owner, durable", Unit::PerSecond), &mut || {
        let report = report_of("owner")?;
        Ok((number(&report, "events_per_second")?, report["yardstick_per_second"].as_f64()))
    });
    let restart = shared(|| report_of("restart"));
    let of_restart = |name: &str| {
        let report = restart.taken()?;
        Ok((number(report, name)?, report["yardstick_ms"].as_f64()))
    };
    measure(Figure::new("restart with 100,000 events, no snapshot", Unit::Millis).target(300.0), &mut || {
        of_restart("whole_ms")
    });
    measure(Figure::new("restart with 100,000 events, after a clean end", Unit::Millis).target(300.0), &mut || {
        of_restart("ready_ms")
    });
    let allowed = shared(|| door::allowed(&binary));
    let of_allowed = |pick: fn(&door::Allowed) -> (f64, Option<f64>)| allowed.taken().map(pick);
    let one = "agent-gate allow, one at a time, HTTP call and record included";
    measure(Figure::new(one, Unit::PerSecond).target_yardsticks(0.6), &mut || {
        of_allowed(|allowed| (allowed.per_second, Some(allowed.raw_per_second)))
    });
    measure(Figure::new("agent-gate allow, one at a time, p99", Unit::Millis).target_yardsticks(3.0), &mut || {
        of_allowed(|allowed| (allowed.p99, Some(allowed.raw_p99)))
    });
    measure(Figure::new("agent-gate allow, 64 in flight", Unit::PerSecond).target(4_700.0), &mut || {
        of_allowed(|allowed| (allowed.many_per_second, None))
    });
    measure(Figure::new("agent-gate, tap on the card to the agent's reply", Unit::Millis).target(5.0), &mut || {
        door::approved(&binary)
    });
    let approval = shared(|| unseen::approval(&binary));
    measure(
        Figure::new("gate to card: request to the message at the messenger", Unit::Millis).target(10.0),
        &mut || Ok((approval.taken()?.card, None)),
    );
    measure(Figure::new("decision to exec: tap to the call at the service", Unit::Millis).target(5.0), &mut || {
        Ok((approval.taken()?.exec, None))
    });
    // The yardstick is how often the reader was cut off.
    measure(Figure::new("events lost or told twice under reconnect", Unit::Count).target(0.0), &mut || {
        unseen::lost(&binary).map(|(lost, cuts)| (lost, Some(cuts)))
    });
    // The yardstick is the node's own time.
    measure(
        Figure::new("gsv: a call of a node's tool, over the node's own time", Unit::Millis).target(1.0),
        &mut || node::measure(&binary).map(|called| (called.over, Some(called.own))),
    );
    measure(Figure::new("gsv: round trip of a request", Unit::Millis).target_yardsticks(2.0), &mut || {
        gsv::round_trip(&binary)
    });
    gsv_figures(&binary, &mut measure);
    measure(Figure::new("serve: spawn to ready", Unit::Millis).target(50.0), &mut || {
        Ok((door::ready(&binary, STARTS)?, bare_start().ok()))
    });
    measure(Figure::new("serve: resident memory, idle", Unit::Mebibytes).target(20.0), &mut || {
        Ok((door::idle(&binary, resident)?, None))
    });
    measure(Figure::new("serve: private memory, idle", Unit::Mebibytes), &mut || {
        Ok((door::idle(&binary, private)?, None))
    });
    for (count, names) in [(1, ONE), (100, HUNDRED), (streams::MANY, ALL)] {
        let open = shared(|| streams::measure(&binary, count));
        let of_streams = |pick: fn(&streams::Streams) -> (f64, Option<f64>)| open.taken().map(pick);
        let (last, target) = names.0;
        measure(Figure::new(last, Unit::Millis).target(target), &mut || {
            of_streams(|open| (open.last, Some(open.raw_last)))
        });
        if let Some((answer, memory)) = names.1 {
            measure(Figure::new(answer, Unit::Millis).target(5.0), &mut || of_streams(|open| (open.answer, None)));
            measure(Figure::new(memory, Unit::Kibibytes).target(24.0), &mut || {
                of_streams(|open| (open.bytes / 1024.0, None))
            });
        }
    }
    let policy = shared(|| report_of("policy"));
    let of_policy = |name: &str| {
        let report = policy.taken()?;
        Ok((number(report, name)?, report["yardstick_us"].as_f64()))
    };
    measure(Figure::new("policy decision at 10 rules", Unit::Micros).target(2.0), &mut || of_policy("at_10_us"));
    measure(Figure::new("policy decision at 1,000 rules", Unit::Micros).target(2.0), &mut || of_policy("at_1000_us"));
    measure(Figure::new("policy decision at 10,000 rules", Unit::Micros).target(2.0), &mut || of_policy("at_10000_us"));
    let rules = shared(|| rules_file::measure(&binary));
    // The yardstick is the time at 1,000 rules.
    measure(Figure::new("10,000 rules: file to decision", Unit::Millis).target(300.0), &mut || {
        let rules = rules.taken()?;
        Ok((rules.at_10_000, Some(rules.at_1_000)))
    });
    measure(Figure::new("rules: file to decision, 10,000 over 1,000", Unit::Ratio).target(15.0), &mut || {
        let rules = rules.taken()?;
        Ok((rules.at_10_000 / rules.at_1_000, None))
    });
    measure(Figure::new("release binary", Unit::Mebibytes), &mut || Ok((mebibytes(binary.metadata()?.len()), None)));
    if options.cold {
        measure(Figure::new("cold release build", Unit::Seconds), &mut || {
            let scratch = Scratch::new("cold")?;
            let workspace = Workspace::read()?;
            let begun = Instant::now();
            workspace.build_product(scratch.path())?;
            Ok((begun.elapsed().as_secs_f64(), None))
        });
    }
    if let Some(file) = &options.report {
        let page = report::page(&figures, &report::Setting::here(&binary, arguments));
        std::fs::write(file, page).with_context(|| file.display().to_string())?;
        eprintln!("{}", file.display());
    }
    if options.json {
        figures.iter().for_each(|figure| println!("{}", figure.json()));
    } else {
        print!("{}", figure::table(&figures));
    }
    Ok(ExitCode::SUCCESS)
}

/// What many clients, sessions and jobs of the gsv door cost.
fn gsv_figures(
    binary: &Path,
    measure: &mut impl FnMut(Figure, &mut dyn FnMut() -> anyhow::Result<(f64, Option<f64>)>),
) {
    let crowd = shared(|| gsv::crowd(binary));
    let of_crowd = |pick: fn(&gsv::Crowd) -> (f64, Option<f64>)| crowd.taken().map(pick);
    measure(Figure::new("gsv: an event at the last of 10,000 clients", Unit::Millis).target(150.0), &mut || {
        of_crowd(|crowd| (crowd.last, Some(crowd.raw_last)))
    });
    measure(Figure::new("gsv: memory of a connection", Unit::Kibibytes).target(10.0), &mut || {
        of_crowd(|crowd| (crowd.bytes / 1024.0, None))
    });
    let sessions = shared(|| gsv::sessions(binary));
    let of_sessions = |pick: fn(&gsv::Sessions) -> f64| {
        let sessions = sessions.taken()?;
        Ok((pick(sessions), None))
    };
    measure(Figure::new("gsv: listing 10,000 sessions", Unit::Millis).target(20.0), &mut || {
        of_sessions(|sessions| sessions.listed)
    });
    measure(Figure::new("gsv: memory of each of 10,000 sessions at rest", Unit::Kibibytes), &mut || {
        of_sessions(|sessions| sessions.bytes / 1024.0)
    });
    let jobs = shared(|| gsv::jobs(binary));
    let of_jobs = |pick: fn(&gsv::Jobs) -> (f64, Option<f64>)| jobs.taken().map(pick);
    // The yardstick is the same gateway without a job.
    let idle = "gsv: processor time in an idle second with 10,000 jobs";
    measure(Figure::new(idle, Unit::Millis), &mut || of_jobs(|jobs| (jobs.idle, Some(jobs.idle_without))));
    measure(
        Figure::new("gsv: the latest of 20 jobs among 10,000, behind its time", Unit::Millis).target(50.0),
        &mut || of_jobs(|jobs| (jobs.late, None)),
    );
}

/// Milliseconds from the start of the process to its answer, and the same for one that only opens a file and prints.
fn start(binary: &Path) -> anyhow::Result<(f64, Option<f64>)> {
    let provider = Provider::start(Vec::new())?;
    let mut took = Vec::new();
    for _ in 0..STARTS {
        let scratch = Scratch::with_agent(&provider.base_url())?;
        let begun = Instant::now();
        let mut host = Host::spawn(binary, &scratch)?;
        host.ask("get_state", &[])?;
        took.push(millis(begun.elapsed()));
        host.end()?;
    }
    Ok((median(took).context("nothing was measured")?, bare_start().ok()))
}

fn bare_start() -> anyhow::Result<f64> {
    let scratch = Scratch::new("bare")?;
    let mut took = Vec::new();
    for round in 0..STARTS {
        let file = scratch.path().join(format!("{round}.db"));
        let begun = Instant::now();
        let mut child = Command::new(std::env::current_exe()?)
            .arg(in_process::YARDSTICK)
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let stdout = child.stdout.take().context("no standard output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let millis = millis(begun.elapsed());
        if !child.wait()?.success() || line.is_empty() {
            bail!("the yardstick is not there");
        }
        took.push(millis);
    }
    median(took).context("nothing was measured")
}

/// Memory of a process that has answered and has nothing to do.
fn idle_memory(binary: &Path, look: fn(u32) -> anyhow::Result<f64>) -> anyhow::Result<f64> {
    let provider = Provider::start(Vec::new())?;
    let scratch = Scratch::with_agent(&provider.base_url())?;
    let mut host = Host::spawn(binary, &scratch)?;
    host.ask("get_state", &[])?;
    std::thread::sleep(Duration::from_millis(300));
    let memory = look(host.id());
    host.end()?;
    memory
}

/// VmRSS of a process, in MiB.
fn resident(id: u32) -> anyhow::Result<f64> {
    resident_bytes(id).map(mebibytes)
}

/// What of it is the process's own, in MiB. The rest is the program's file, of which the kernel maps more or less around each
/// page that is touched, as it happens to lie in its cache.
fn private(id: u32) -> anyhow::Result<f64> {
    memory_bytes(id, "RssAnon:").map(mebibytes)
}

/// VmRSS in bytes.
pub(crate) fn resident_bytes(id: u32) -> anyhow::Result<u64> {
    memory_bytes(id, "VmRSS:")
}

fn memory_bytes(id: u32, name: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).context("no /proc here")?;
    let line =
        status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name} in /proc"))?;
    let kibibytes: u64 =
        line.trim().trim_end_matches("kB").trim().parse().with_context(|| format!("{name} no number"))?;
    Ok(kibibytes * 1024)
}

/// The JSON object that the in-process benchmark `name` prints.
fn report_of(name: &str) -> anyhow::Result<Value> {
    let output = Command::new(std::env::current_exe()?).args([in_process::BENCH, name]).output()?;
    if !output.status.success() {
        bail!("{} {name} ended with {}", in_process::BENCH, output.status);
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("{} {name} printed no JSON", in_process::BENCH))
}

fn number(report: &Value, field: &str) -> anyhow::Result<f64> {
    report[field].as_f64().with_context(|| format!("no {field} in {report}"))
}

fn millis(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}

#[expect(clippy::cast_precision_loss, reason = "sizes here are far below 2^52")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
