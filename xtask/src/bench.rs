//! `cargo xtask bench`: figures of the release binary, each beside its yardstick from the same run on the same machine.
//!
//! A figure that cannot be taken is printed as not available with its reason, and the others go on.

mod burst;
mod figure;
mod host;
mod provider;
mod scratch;

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::{
    bench::{
        figure::{Figure, Unit, median},
        host::Host,
        provider::Provider,
        scratch::Scratch,
    },
    workspace::{Workspace, cargo},
};

/// How often a start is measured.
const STARTS: usize = 15;

/// What to measure and how to print it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    json: bool,
    cold: bool,
    binary: Option<PathBuf>,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> anyhow::Result<Self> {
        let mut options = Self::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--json" => options.json = true,
                "--cold" => options.cold = true,
                "--binary" => options.binary = Some(arguments.next().context("--binary wants a file")?.into()),
                unknown => bail!("bench does not know {unknown:?}"),
            }
        }
        Ok(options)
    }
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    let binary = match &options.binary {
        Some(binary) => binary.canonicalize().with_context(|| format!("{} is not there", binary.display()))?,
        None => {
            build(workspace, &workspace.target)?;
            workspace.target.join("release/countersign")
        }
    };
    let mut figures = Vec::new();
    let mut measure = |figure: Figure, take: &mut dyn FnMut() -> anyhow::Result<(f64, Option<f64>)>| {
        eprintln!("measuring: {}", figure.name);
        figures.push(figure.taken(take()));
    };
    measure(Figure::new("spawn to the answer of get_state", Unit::Millis).target(5.0), &mut || start(&binary));
    measure(Figure::new("resident memory, idle", Unit::Mebibytes).target(15.0), &mut || {
        Ok((idle_memory(&binary)?, None))
    });
    let mut burst = burst::measure(&binary).map_err(|error| format!("{error:#}"));
    let mut of_burst = |pick: fn(&burst::Burst) -> (f64, Option<f64>)| {
        burst.as_mut().map(|burst| pick(burst)).map_err(|why| anyhow::anyhow!("{why}"))
    };
    measure(Figure::new("5,000 deltas: prompt to agent_end", Unit::Millis).target(20.0), &mut || {
        of_burst(|burst| (burst.millis, Some(burst.raw_millis)))
    });
    measure(Figure::new("5,000 deltas: bytes on stdout per byte of text", Unit::Ratio).target(15.0), &mut || {
        of_burst(|burst| (burst.bytes_per_byte, None))
    });
    measure(Figure::new("events through the owner, durable", Unit::PerSecond), &mut || {
        let report = report_of(&binary, "owner")?;
        Ok((number(&report, "events_per_second")?, report["yardstick_per_second"].as_f64()))
    });
    let mut restart = report_of(&binary, "restart").map_err(|error| format!("{error:#}"));
    let mut of_restart = |name: &str| {
        let report = restart.as_mut().map_err(|why| anyhow::anyhow!("{why}"))?;
        Ok((number(report, name)?, report["yardstick_ms"].as_f64()))
    };
    measure(Figure::new("restart with 100,000 events, no snapshot", Unit::Millis).target(300.0), &mut || {
        of_restart("whole_ms")
    });
    measure(Figure::new("restart with 100,000 events, after a clean end", Unit::Millis).target(300.0), &mut || {
        of_restart("ready_ms")
    });
    measure(Figure::new("release binary", Unit::Mebibytes), &mut || Ok((mebibytes(binary.metadata()?.len()), None)));
    if options.cold {
        measure(Figure::new("cold release build", Unit::Seconds), &mut || {
            let scratch = Scratch::new("cold")?;
            let begun = Instant::now();
            build(workspace, scratch.path())?;
            Ok((begun.elapsed().as_secs_f64(), None))
        });
    }
    if options.json {
        figures.iter().for_each(|figure| println!("{}", figure.json()));
    } else {
        print!("{}", figure::table(&figures));
    }
    Ok(ExitCode::SUCCESS)
}

fn build(workspace: &Workspace, target: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(cargo());
    command.args(["build", "--release", "-p", "countersign", "--target-dir"]).arg(target);
    let status = command.current_dir(&workspace.root).status().context("cargo could not be started")?;
    if !status.success() {
        bail!("the release build ended with {status}");
    }
    Ok(())
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
    Ok((median(took).context("nothing was measured")?, bare_start(binary).ok()))
}

fn bare_start(binary: &Path) -> anyhow::Result<f64> {
    let scratch = Scratch::new("bare")?;
    let mut took = Vec::new();
    for round in 0..STARTS {
        let file = scratch.path().join(format!("{round}.db"));
        let begun = Instant::now();
        let mut child = Command::new(binary)
            .args(["__bench-yardstick", "sqlite"])
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

/// VmRSS of a process that has answered and has nothing to do.
fn idle_memory(binary: &Path) -> anyhow::Result<f64> {
    let provider = Provider::start(Vec::new())?;
    let scratch = Scratch::with_agent(&provider.base_url())?;
    let mut host = Host::spawn(binary, &scratch)?;
    host.ask("get_state", &[])?;
    std::thread::sleep(Duration::from_millis(300));
    let status = std::fs::read_to_string(format!("/proc/{}/status", host.id())).context("no /proc here")?;
    host.end()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS in /proc")?;
    let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse().context("VmRSS is no number")?;
    Ok(mebibytes(kibibytes * 1024))
}

/// What the binary's own benchmark `name` printed: one JSON object.
fn report_of(binary: &Path, name: &str) -> anyhow::Result<Value> {
    let scratch = Scratch::new(name)?;
    let output = Command::new(binary).args(["__bench", name]).current_dir(scratch.path()).output()?;
    if !output.status.success() {
        bail!("__bench {name} ended with {}", output.status);
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("__bench {name} printed no JSON"))
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
