//! `cargo xtask bench`: figures of the release binary, each with its yardstick from the same run on the same machine.
//!
//! A figure that cannot be taken is printed as not available with its reason, and the others continue.

mod agent_gate;
mod audit;
mod bridge;
mod burst;
mod cluster;
mod figure;
mod gates;
mod gsv;
mod hooks;
mod host_tool;
mod latency;
mod long_session;
mod mcp;
pub(crate) mod node;
mod picture;
#[path = "../../store/tests/postgres/server.rs"]
#[allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    dead_code,
    reason = "a server of tests, which says why it is skipped"
)]
mod postgres_server;
mod proxies;
mod report;
mod rules_file;
mod scale;
pub(crate) mod streams;

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
    bench::figure::{BenchFigure, FigureGroup, FigureUnit, GrowthCurve, median},
    fixture::{host::HostProcess, provider::ProviderStub, scratch::ScratchFolder},
    in_process,
    workspace::{WorkspacePaths, product_binary},
};

/// Number of measured starts.
const STARTS: usize = 15;

pub(crate) use streams::{FAN_OUT, fan_out};

/// Labels of the figures of prompt streams: the name and target of the last frame, and the names of an answer, of memory and of its return.
type OfStreams = ((&'static str, f64), Option<[&'static str; 3]>);
const ONE: OfStreams = (("hermes: request to frame at one stream", 0.5), None);
const HUNDRED: OfStreams = (("hermes: request to frame at the last of 100", 2.0), None);
const ALL: OfStreams = (
    ("hermes: request to frame at the last of 10,000", 120.0),
    Some([
        "hermes: an answer while 10,000 streams are open",
        "hermes: memory of a stream",
        "hermes: memory after 10,000 streams have left, over that before",
    ]),
);

/// Figures to measure and output format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    json: bool,
    cold: bool,
    binary: Option<PathBuf>,
    /// Only figures with this in their names.
    only: Option<String>,
    /// Path of the page.
    report: Option<PathBuf>,
    /// Folder for a picture of each group.
    pictures: Option<PathBuf>,
    /// Also measures ten million records, which take minutes and gigabytes of disk.
    large: bool,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> anyhow::Result<Self> {
        let mut options = Self::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--json" => options.json = true,
                "--cold" => options.cold = true,
                "--large" => options.large = true,
                "--only" => options.only = Some(arguments.next().context("--only needs a part of a name")?.clone()),
                "--report" => options.report = Some(arguments.next().context("--report needs a file")?.into()),
                "--pictures" => {
                    options.pictures = Some(arguments.next().context("--pictures needs a folder")?.into());
                }
                "--binary" => options.binary = Some(arguments.next().context("--binary needs a file")?.into()),
                unknown => bail!("unknown option of bench: {unknown:?}"),
            }
        }
        Ok(options)
    }

    fn selects_figure(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|part| name.contains(part))
    }
}

/// Measurement from which several figures are picked. Runs at the first use.
struct SharedMeasurement<T, M>(LazyCell<Result<T, String>, M>);

impl<T, M: FnOnce() -> Result<T, String>> SharedMeasurement<T, M> {
    fn get_result(&self) -> anyhow::Result<&T> {
        (*self.0).as_ref().map_err(|why| anyhow!("{why}"))
    }
}

/// Defers `measure` to its first use.
fn lazy_measurement<T>(
    measure: impl FnOnce() -> anyhow::Result<T>,
) -> SharedMeasurement<T, impl FnOnce() -> Result<T, String>> {
    SharedMeasurement(LazyCell::new(|| measure().map_err(|error| format!("{error:#}"))))
}

/// Figures of a run, in the order of their measurement.
struct FigureSuite<'a> {
    options: &'a Options,
    /// Group of the figures that come next.
    group: FigureGroup,
    figures: Vec<BenchFigure>,
}

impl<'a> FigureSuite<'a> {
    const fn new(options: &'a Options) -> Self {
        Self { options, group: FigureGroup::Start, figures: Vec::new() }
    }

    /// Takes a figure if the options select it: its value and its yardstick.
    fn measure(&mut self, figure: BenchFigure, take: &mut dyn FnMut() -> anyhow::Result<(f64, Option<f64>)>) {
        self.add_figure(figure, |figure| figure.with_result(take()));
    }

    /// Takes the growth of a cost with its input, if the options select it.
    fn measure_curve(&mut self, name: &'static str, take: &mut dyn FnMut() -> anyhow::Result<GrowthCurve>) {
        self.add_figure(BenchFigure::of_growth(name), |figure| figure.with_curve(take()));
    }

    fn add_figure(&mut self, figure: BenchFigure, take: impl FnOnce(BenchFigure) -> BenchFigure) {
        if self.options.selects_figure(figure.name) {
            eprint!("measuring: {}: ", figure.name);
            let figure = take(figure.in_group(self.group));
            eprintln!("{}", figure.value_text());
            self.figures.push(figure);
        }
    }
}

/// Measures as `options` say, which were read from `arguments`.
pub(crate) fn run(options: &Options, arguments: &[String]) -> anyhow::Result<ExitCode> {
    crate::require_release("bench")?;
    let binary = product_binary(options.binary.as_deref())?;
    let mut suite = FigureSuite::new(options);
    suite.group = FigureGroup::Start;
    suite.measure(
        BenchFigure::new("spawn to the answer of get_state", FigureUnit::Millis).with_target(5.0),
        &mut || measure_start(&binary),
    );
    suite.measure(BenchFigure::new("resident memory, idle", FigureUnit::Mebibytes).with_target(15.0), &mut || {
        Ok((idle_memory(&binary, resident_mebibytes)?, None))
    });
    suite.measure(BenchFigure::new("private memory, idle", FigureUnit::Mebibytes), &mut || {
        Ok((idle_memory(&binary, private_mebibytes)?, None))
    });
    suite.group = FigureGroup::OmpAndGjc;
    let burst = lazy_measurement(|| burst::measure(&binary));
    let of_burst = |pick: fn(&burst::BurstFigures) -> (f64, Option<f64>)| burst.get_result().map(pick);
    suite.measure(
        BenchFigure::new("5,000 deltas: prompt to agent_end", FigureUnit::Millis).with_target(20.0),
        &mut || of_burst(|burst| (burst.millis, Some(burst.raw_millis))),
    );
    suite.measure(
        BenchFigure::new("5,000 deltas: bytes on stdout per byte of text", FigureUnit::Ratio).with_target(15.0),
        &mut || of_burst(|burst| (burst.bytes_per_byte, None)),
    );
    let round_trip = "gjc: a call of a host tool, less the raw pipe";
    suite.measure(BenchFigure::new(round_trip, FigureUnit::Millis).with_target(0.3), &mut || {
        host_tool::measure(&binary).map(|lent| (lent.millis, Some(lent.raw_millis)))
    });
    let gates = lazy_measurement(|| gates::measure(&binary));
    let of_gates = |pick: fn(&gates::GateFigures) -> f64| {
        let gates = gates.get_result()?;
        Ok((pick(gates), Some(gates.raw)))
    };
    suite.measure(
        BenchFigure::new("gjc: gate raised to its frame, record included", FigureUnit::Millis).with_target(0.5),
        &mut || of_gates(|gates| gates.raised),
    );
    suite.measure(
        BenchFigure::new("gjc: answer to the waiter's next event, record included", FigureUnit::Millis)
            .with_target(1.0),
        &mut || of_gates(|gates| gates.answered),
    );
    suite.group = FigureGroup::Record;
    suite.measure(
        BenchFigure::new("1,000 pending gates: kill -9 to all of them listed", FigureUnit::Millis).with_target(50.0),
        &mut || agent_gate::measure_restore(&binary, 1_000),
    );
    suite.group = FigureGroup::OmpAndGjc;
    suite.measure(
        BenchFigure::new("gjc bridge: command to frame at the last of 100", FigureUnit::Millis).with_target(2.0),
        &mut || bridge::fan_out(&binary),
    );
    suite.group = FigureGroup::Record;
    suite.measure(BenchFigure::new("events through the owner, durable", FigureUnit::PerSecond), &mut || {
        let report = report_of("owner")?;
        Ok((number_field(&report, "events_per_second")?, report["yardstick_per_second"].as_f64()))
    });
    let restart = lazy_measurement(|| report_of("restart"));
    let of_restart = |name: &str| {
        let report = restart.get_result()?;
        Ok((number_field(report, name)?, report["yardstick_ms"].as_f64()))
    };
    suite.measure(
        BenchFigure::new("restart with 100,000 events, no snapshot", FigureUnit::Millis).with_target(300.0),
        &mut || of_restart("whole_ms"),
    );
    suite.measure(
        BenchFigure::new("restart with 100,000 events, after a clean end", FigureUnit::Millis).with_target(300.0),
        &mut || of_restart("ready_ms"),
    );
    suite.group = FigureGroup::AgentGate;
    let allowed = lazy_measurement(|| agent_gate::measure_allowed(&binary));
    let of_allowed = |pick: fn(&agent_gate::AllowedFigures) -> (f64, Option<f64>)| allowed.get_result().map(pick);
    let one = "agent-gate allow, one at a time, HTTP call and record included";
    suite.measure(BenchFigure::new(one, FigureUnit::PerSecond).target_yardsticks(0.6), &mut || {
        of_allowed(|allowed| (allowed.per_second, Some(allowed.raw_per_second)))
    });
    suite.measure(
        BenchFigure::new("agent-gate allow, one at a time, p99", FigureUnit::Millis).target_yardsticks(3.0),
        &mut || of_allowed(|allowed| (allowed.p99, Some(allowed.raw_p99))),
    );
    suite.measure(
        BenchFigure::new("agent-gate allow, 64 in flight", FigureUnit::PerSecond).with_target(4_700.0),
        &mut || of_allowed(|allowed| (allowed.many_per_second, None)),
    );
    suite.measure(
        BenchFigure::new("agent-gate allow, one at a time: processor time of a call", FigureUnit::Millis)
            .with_target(0.3),
        &mut || of_allowed(|allowed| (allowed.processor, None)),
    );
    suite.measure(
        BenchFigure::new("agent-gate allow, 64 in flight: processor time of a call", FigureUnit::Millis)
            .with_target(0.1),
        &mut || of_allowed(|allowed| (allowed.many_processor, None)),
    );
    suite.measure(
        BenchFigure::new("agent-gate, tap on the card to the agent's reply", FigureUnit::Millis).with_target(5.0),
        &mut || agent_gate::time_approval(&binary),
    );
    let approval = lazy_measurement(|| latency::measure_approval(&binary));
    suite.measure(
        BenchFigure::new("gate to card: request to the message at the messenger", FigureUnit::Millis).with_target(10.0),
        &mut || Ok((approval.get_result()?.card, None)),
    );
    suite.measure(
        BenchFigure::new("decision to exec: tap to the call at the service", FigureUnit::Millis).with_target(5.0),
        &mut || Ok((approval.get_result()?.exec, None)),
    );
    suite.group = FigureGroup::Record;
    // The yardstick is how often the reader was cut off.
    suite.measure(
        BenchFigure::new("events lost or duplicated under reconnect", FigureUnit::Count).with_target(0.0),
        &mut || latency::measure_lost(&binary).map(|(lost, cuts)| (lost, Some(cuts))),
    );
    suite.group = FigureGroup::Gsv;
    // The yardstick is the node's own time.
    suite.measure(
        BenchFigure::new("gsv: a call of a node's tool, over the node's own time", FigureUnit::Millis).with_target(1.0),
        &mut || node::measure(&binary).map(|called| (called.over, Some(called.own))),
    );
    suite.measure(
        BenchFigure::new("gsv: round trip of a request", FigureUnit::Millis).target_yardsticks(2.0),
        &mut || gsv::round_trip(&binary),
    );
    gsv::measure_many(&binary, &mut suite);
    suite.group = FigureGroup::Start;
    suite.measure(BenchFigure::new("serve: spawn to ready", FigureUnit::Millis).with_target(50.0), &mut || {
        Ok((agent_gate::measure_ready(&binary, STARTS)?, bare_start().ok()))
    });
    suite.measure(
        BenchFigure::new("serve: resident memory, idle", FigureUnit::Mebibytes).with_target(20.0),
        &mut || Ok((agent_gate::with_idle_gateway(&binary, resident_mebibytes)?, None)),
    );
    suite.measure(BenchFigure::new("serve: private memory, idle", FigureUnit::Mebibytes), &mut || {
        Ok((agent_gate::with_idle_gateway(&binary, private_mebibytes)?, None))
    });
    suite.group = FigureGroup::Hermes;
    for (count, names) in [(1, ONE), (100, HUNDRED), (streams::MANY, ALL)] {
        let open = lazy_measurement(|| streams::measure(&binary, count));
        let of_streams = |pick: fn(&streams::StreamFigures) -> (f64, Option<f64>)| open.get_result().map(pick);
        let (last, target) = names.0;
        suite.measure(BenchFigure::new(last, FigureUnit::Millis).with_target(target), &mut || {
            of_streams(|open| (open.last, Some(open.raw_last)))
        });
        if let Some([answer, memory, kept]) = names.1 {
            suite.measure(BenchFigure::new(answer, FigureUnit::Millis).with_target(5.0), &mut || {
                of_streams(|open| (open.answer, None))
            });
            suite.measure(BenchFigure::new(memory, FigureUnit::Kibibytes).with_target(24.0), &mut || {
                of_streams(|open| (open.bytes / 1024.0, None))
            });
            suite.measure(BenchFigure::new(kept, FigureUnit::Ratio).with_target(1.5), &mut || {
                of_streams(|open| (open.kept, None))
            });
        }
    }
    suite.group = FigureGroup::Policy;
    let policy = lazy_measurement(|| report_of("policy"));
    let of_policy = |name: &str| {
        let report = policy.get_result()?;
        Ok((number_field(report, name)?, report["yardstick_us"].as_f64()))
    };
    suite.measure(BenchFigure::new("policy decision at 10 rules", FigureUnit::Micros).with_target(2.0), &mut || {
        of_policy("at_10_us")
    });
    suite.measure(BenchFigure::new("policy decision at 1,000 rules", FigureUnit::Micros).with_target(2.0), &mut || {
        of_policy("at_1000_us")
    });
    suite
        .measure(BenchFigure::new("policy decision at 10,000 rules", FigureUnit::Micros).with_target(2.0), &mut || {
            of_policy("at_10000_us")
        });
    rules_file::measure_all(&binary, &mut suite);
    suite.group = FigureGroup::OmpAndGjc;
    let session = lazy_measurement(|| long_session::measure(&binary));
    suite.measure(
        BenchFigure::new("omp: a session file of 250 MB to get_state", FigureUnit::Seconds).with_target(5.0),
        &mut || {
            let long = &session.get_result()?.long;
            Ok((long.seconds, Some(long.raw_seconds)))
        },
    );
    suite.measure(
        BenchFigure::new("omp: a session file of 250 MB, peak of memory", FigureUnit::Mebibytes).with_target(200.0),
        &mut || Ok((session.get_result()?.long.mebibytes, None)),
    );
    suite.measure(
        BenchFigure::new("omp: a session file to get_state, 250 MB over 25 MB", FigureUnit::Ratio).with_target(15.0),
        &mut || {
            let session = session.get_result()?;
            Ok((session.long.seconds / session.short.seconds, None))
        },
    );
    suite.group = FigureGroup::Start;
    suite.measure(BenchFigure::new("release binary", FigureUnit::Mebibytes), &mut || {
        Ok((to_mebibytes(binary.metadata()?.len()), None))
    });
    if options.cold {
        suite.measure(BenchFigure::new("cold release build", FigureUnit::Seconds), &mut || {
            let scratch = ScratchFolder::new("cold")?;
            let workspace = WorkspacePaths::read_metadata()?;
            let begun = Instant::now();
            workspace.build_product(scratch.path())?;
            Ok((begun.elapsed().as_secs_f64(), None))
        });
    }
    audit::measure_all(&binary, &mut suite);
    mcp::measure_all(&binary, &mut suite);
    hooks::measure_all(&binary, &mut suite);
    proxies::measure_all(&binary, &mut suite);
    cluster::measure_all(&binary, &mut suite);
    scale::measure_all(&binary, options.large, &mut suite);
    let figures = suite.figures;
    if let Some(file) = &options.report {
        let page = report::render_page(&figures, &report::RunConditions::for_this_machine(&binary, arguments));
        std::fs::write(file, page).with_context(|| file.display().to_string())?;
        eprintln!("{}", file.display());
    }
    if let Some(folder) = &options.pictures {
        picture::write_pictures(folder, &figures)?;
    }
    if options.json {
        figures.iter().for_each(|figure| println!("{}", figure.to_json()));
    } else {
        print!("{}", figure::figure_table(&figures));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the milliseconds from the start of the process to its answer, and the same for one that only opens a file and prints.
fn measure_start(binary: &Path) -> anyhow::Result<(f64, Option<f64>)> {
    let provider = ProviderStub::start(Vec::new())?;
    let mut took = Vec::new();
    for _ in 0..STARTS {
        let scratch = ScratchFolder::with_agent(&provider.base_url())?;
        let begun = Instant::now();
        let mut host = HostProcess::spawn(binary, &scratch)?;
        host.send_and_wait("get_state", &[])?;
        took.push(to_millis(begun.elapsed()));
        host.end_process()?;
    }
    Ok((median(took).context("nothing was measured")?, bare_start().ok()))
}

fn bare_start() -> anyhow::Result<f64> {
    let scratch = ScratchFolder::new("bare")?;
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
        let millis = to_millis(begun.elapsed());
        if !child.wait()?.success() || line.is_empty() {
            bail!("the process of the yardstick failed");
        }
        took.push(millis);
    }
    median(took).context("nothing was measured")
}

/// Measures the memory of a process that has answered and has nothing to do.
fn idle_memory(binary: &Path, look: fn(u32) -> anyhow::Result<f64>) -> anyhow::Result<f64> {
    let provider = ProviderStub::start(Vec::new())?;
    let scratch = ScratchFolder::with_agent(&provider.base_url())?;
    let mut host = HostProcess::spawn(binary, &scratch)?;
    host.send_and_wait("get_state", &[])?;
    std::thread::sleep(Duration::from_millis(300));
    let memory = look(host.id());
    host.end_process()?;
    memory
}

/// Returns the VmRSS of a process, in MiB.
fn resident_mebibytes(id: u32) -> anyhow::Result<f64> {
    resident_bytes(id).map(to_mebibytes)
}

/// Returns the private memory of the process, in MiB. The rest is the program's file, of which the kernel maps more or less around each
/// page that is touched, depending on its cache.
fn private_mebibytes(id: u32) -> anyhow::Result<f64> {
    memory_bytes(id, "RssAnon:").map(to_mebibytes)
}

/// Returns the VmRSS in bytes.
pub(crate) fn resident_bytes(id: u32) -> anyhow::Result<u64> {
    memory_bytes(id, "VmRSS:")
}

fn memory_bytes(id: u32, name: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).context("/proc is not available")?;
    let line =
        status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name} in /proc"))?;
    let kibibytes: u64 = line
        .trim()
        .trim_end_matches("kB")
        .trim()
        .parse()
        .with_context(|| format!("{name} in /proc is not a number"))?;
    Ok(kibibytes * 1024)
}

/// Returns the JSON object that the in-process benchmark `name` prints.
fn report_of(name: &str) -> anyhow::Result<Value> {
    let output = Command::new(std::env::current_exe()?).args([in_process::BENCH, name]).output()?;
    if !output.status.success() {
        bail!("{} {name} ended with {}", in_process::BENCH, output.status);
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("{} {name} did not print JSON", in_process::BENCH))
}

fn number_field(report: &Value, field: &str) -> anyhow::Result<f64> {
    report[field].as_f64().with_context(|| format!("no {field} in {report}"))
}

fn to_millis(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}

#[expect(clippy::cast_precision_loss, reason = "sizes here are far below 2^52")]
fn to_mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
