//! `cargo xtask load`: agents, hosts, nodes, browsers and people at one gateway, all at once, and what came of it.
//!
//! They share the processors with the gateway. Each client knows its expected results; any other result is an error, and the command
//! fails. Times and memory are reported on a page with charts; the command does not fail for speed.

mod agents;
mod chats;
mod gauge;
pub(crate) mod load_fixture;
mod machines;
mod page;
mod people;
mod tally;
mod watchers;

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use anyhow::{Context as _, bail};
use tokio::{runtime::Builder, sync::watch, task::JoinSet};

use crate::{
    bench::streams::more_descriptors,
    load::{
        gauge::{GaugeSample, memory_growth},
        load_fixture::LoadFixture,
        machines::AttachedHostSettings,
        tally::{ActivityKind, LoadTally, per_mille},
    },
    workspace::{WorkspacePaths, product_binary},
};

/// Number of nodes, and of hosts.
const NODES: usize = 2;
const HOSTS: usize = 4;
/// Target for the time of an answer, in milliseconds, 99 times of 100.
const ANSWER: f32 = 50.0;
/// Maximum growth of memory after the first third, as a fraction.
const GROWTH: f64 = 0.1;
/// Number of streams that are opened at once, with a pause between two such groups.
const AT_ONCE: usize = 100;
const BETWEEN: Duration = Duration::from_millis(50);
/// Maximum time for pending work after the end.
const END: Duration = Duration::from_secs(150);
/// Every fourth request of an agent requires approval.
const ONE_ASKS: f64 = 4.0;

/// Number of participants of each kind, and duration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Options {
    minutes: f64,
    agents: usize,
    streams: usize,
    runs: usize,
    /// Answers of people a second.
    answers: f64,
    binary: Option<PathBuf>,
    report: Option<PathBuf>,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> anyhow::Result<Self> {
        let mut options =
            Self { minutes: 1.0, agents: 1_000, streams: 10_000, runs: 200, answers: 50.0, binary: None, report: None };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().with_context(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--minutes" => options.minutes = value()?.parse().context("--minutes needs a number")?,
                "--agents" => options.agents = value()?.parse().context("--agents needs a number")?,
                "--streams" => options.streams = value()?.parse().context("--streams needs a number")?,
                "--runs" => options.runs = value()?.parse().context("--runs needs a number")?,
                "--answers" => options.answers = value()?.parse().context("--answers needs a number")?,
                "--binary" => options.binary = Some(value()?.into()),
                "--report" => options.report = Some(value()?.into()),
                unknown => bail!("unknown option of load: {unknown:?}"),
            }
        }
        if !(options.minutes > 0.0 && options.minutes <= 1440.0 && options.answers > 0.0) || options.agents == 0 {
            bail!("--minutes (at most 1440), --agents and --answers must be above 0");
        }
        Ok(options)
    }
}

/// Outcome of a run.
pub(crate) struct LoadOutcome {
    options: Options,
    tally: Arc<LoadTally>,
    looks: Vec<GaugeSample>,
    /// Number of things that the service had to do more than once.
    repeated: usize,
    took: Duration,
}

/// Something that was looked for, and whether it was so.
pub(crate) struct LoadCheck {
    holds: bool,
    text: String,
    /// True if it is about speed or size, for which nothing fails.
    is_measure: bool,
}

impl LoadOutcome {
    /// Returns a description of the participants.
    pub(crate) fn setting_text(&self) -> String {
        let Options { agents, streams, runs, answers, .. } = &self.options;
        format!(
            "{:.1} minutes; {agents} agents, {streams} open streams, {runs} chats, {NODES} nodes, {HOSTS} attached hosts, \
             about {answers} gates a second",
            self.took.as_secs_f64() / 60.0
        )
    }

    /// Returns `count` as a rate per second.
    #[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
    pub(crate) fn rate_per_second(&self, count: usize) -> f64 {
        count as f64 / self.took.as_secs_f64()
    }

    /// Returns a description of the requests that a documented limit refused.
    pub(crate) fn limits_text(&self) -> String {
        let times = self.tally.limited.load(Ordering::Relaxed);
        format!(
            "stated limits: {times} calls opened no approval because their agent had been denied three times in a row"
        )
    }

    pub(crate) fn run_checks(&self) -> Vec<LoadCheck> {
        let wrongs: u64 = self.tally.failure_counts().values().sum();
        let took = self.tally.sorted_times(ActivityKind::Answered);
        let longest = per_mille(&took, 990);
        let grown = memory_growth(&self.looks);
        let missing: Vec<&str> = ActivityKind::ALL
            .into_iter()
            .filter(|row| self.tally.activity_count(*row) == 0)
            .map(ActivityKind::name)
            .collect();
        vec![
            LoadCheck { holds: wrongs == 0, text: format!("failures: {wrongs}"), is_measure: false },
            LoadCheck {
                holds: self.repeated == 0,
                text: format!("repeated effects: {}", self.repeated),
                is_measure: false,
            },
            LoadCheck {
                holds: missing.is_empty(),
                text: format!("every kind of client took part{}", if missing.is_empty() { "" } else { ", except: " })
                    + &missing.join(", "),
                is_measure: false,
            },
            LoadCheck {
                holds: longest.is_some_and(|longest| longest <= ANSWER),
                text: format!("99 of 100 answers within {ANSWER} ms ({:.1} ms)", longest.unwrap_or_default()),
                is_measure: true,
            },
            LoadCheck {
                holds: grown.is_some_and(|grown| grown <= GROWTH),
                text: format!(
                    "memory flat after the first third (grew by {:.1} % from there to the end)",
                    grown.unwrap_or_default() * 100.0
                ),
                is_measure: true,
            },
        ]
    }
}

/// Plays as `options` say.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    crate::require_release("load")?;
    let binary = product_binary(options.binary.as_deref())?;
    more_descriptors();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(run_load(options, binary))?;
    runtime.shutdown_background();
    let report = match &options.report {
        Some(report) => report.clone(),
        None => WorkspacePaths::read_metadata()?.target.join("load.html"),
    };
    std::fs::write(&report, page::render_page(&outcome)).with_context(|| format!("{}", report.display()))?;
    println!("{}", outcome.setting_text());
    let mut is_right = true;
    for check in outcome.run_checks() {
        println!("{}: {}", if check.holds { "passed" } else { "failed" }, check.text);
        is_right &= check.holds || check.is_measure;
    }
    println!("{}", outcome.limits_text());
    for (what, times) in outcome.tally.failure_counts() {
        println!("failure, {times} times: {what}");
    }
    println!("report: {}", report.display());
    Ok(if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn run_load(options: &Options, binary: PathBuf) -> anyhow::Result<LoadOutcome> {
    let world = LoadFixture::start(&binary, options.agents)?;
    let tally = Arc::new(LoadTally::new());
    let (end, over) = watch::channel(false);
    let people = tokio::spawn(people::run_people(world.address, Arc::clone(&tally)));
    let gauge = tokio::spawn(gauge::sample_until_over(world.gateway.id(), Duration::from_secs(1), Arc::clone(&tally)));

    let mut watching = JoinSet::new();
    for number in 0..options.streams {
        let agent = number % options.agents;
        watching.spawn(watchers::run_watcher(world.address, agent, Arc::clone(&tally), over.clone()));
        if number % AT_ONCE == AT_ONCE - 1 {
            tokio::time::sleep(BETWEEN).await;
        }
    }

    let mut working = JoinSet::new();
    #[expect(clippy::cast_precision_loss, reason = "there are few enough agents")]
    let pace = Duration::from_secs_f64(options.agents as f64 / options.answers / ONE_ASKS);
    for number in 0..options.agents {
        let after = staggered_start(pace, number, options.agents);
        let (done, tally) = (world.done.clone(), Arc::clone(&tally));
        working.spawn(agents::run_agent(world.address, number, (after, pace), done, tally));
    }
    for number in 0..options.runs {
        let after = staggered_start(Duration::from_secs(5), number, options.runs);
        working.spawn(chats::run_chat(world.address, after, Arc::clone(&tally)));
    }
    let mut machines = Vec::new();
    for number in 0..NODES {
        let (binary, address, tally) = (binary.clone(), world.gateway.address.clone(), Arc::clone(&tally));
        machines.push(std::thread::spawn(move || machines::run_node(&binary, &address, number, &tally)));
    }
    let hosting =
        AttachedHostSettings { binary, data: world.data.clone(), base_url: format!("http://{}/v1", world.model) };
    for _ in 0..HOSTS {
        let (hosting, tally) = (hosting.clone(), Arc::clone(&tally));
        machines.push(std::thread::spawn(move || machines::run_host(&hosting, &tally)));
    }

    let minutes = Duration::from_secs_f64(options.minutes * 60.0);
    while tally.elapsed() < minutes {
        tokio::time::sleep(Duration::from_secs(10).min(minutes.saturating_sub(tally.elapsed()))).await;
        eprintln!(
            "{:>5.0} s: {} streams, {} calls allowed, {} answers, {} runs, {} failures",
            tally.elapsed().as_secs_f64(),
            tally.streams.load(Ordering::Relaxed),
            tally.activity_count(ActivityKind::Allowed),
            tally.activity_count(ActivityKind::Answered),
            tally.activity_count(ActivityKind::Run),
            tally.failure_counts().values().sum::<u64>()
        );
    }
    tally.end_load();
    let took = tally.elapsed();
    if tokio::time::timeout(END, async { while working.join_next().await.is_some() {} }).await.is_err() {
        tally.record_failure("a client did not finish in time");
    }
    for machine in machines {
        if machine.join().is_err() {
            tally.record_failure("the thread of a node or host panicked");
        }
    }
    end.send(true)?;
    while watching.join_next().await.is_some() {}
    people.abort();
    let looks = gauge.await?;
    Ok(LoadOutcome { options: options.clone(), repeated: world.done.repeated_count(), tally, looks, took })
}

/// Returns the delay after which this one of so many begins, so that not all do at once.
fn staggered_start(over: Duration, number: usize, of: usize) -> Duration {
    over * u32::try_from(number).unwrap_or(u32::MAX) / u32::try_from(of).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_what_is_none_is_named() {
        let read = |arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
            Options::parse(&arguments).map_err(|error| format!("{error:#}"))
        };
        let options = read(&["--minutes", "0.5", "--agents", "20", "--answers", "5"]).unwrap();
        assert_eq!((options.minutes, options.agents, options.answers), (0.5, 20, 5.0));
        for (arguments, want) in [
            (&["--speed"] as &[&str], "unknown option of load: \"--speed\""),
            (&["--minutes"], "--minutes needs a value"),
            (&["--minutes", "0"], "--minutes (at most 1440), --agents and --answers must be above 0"),
            (&["--agents", "0"], "--minutes (at most 1440), --agents and --answers must be above 0"),
        ] {
            assert_eq!(read(arguments).unwrap_err(), want, "{arguments:?}");
        }
    }

    #[test]
    fn they_begin_one_after_the_other() {
        let over = Duration::from_secs(10);
        assert_eq!(
            [0, 1, 3].map(|number| staggered_start(over, number, 4)),
            [0.0, 2.5, 7.5].map(Duration::from_secs_f64)
        );
    }
}
