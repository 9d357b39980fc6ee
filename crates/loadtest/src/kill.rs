//! `cargo xtask kill`: a gateway that is killed at random moments while it works, started again, and looked at in the end.
//!
//! Agents, approvers and programs repeat every interrupted request under the same key. No confirmed result may be lost, and no effect may
//! happen twice. The moments come from a seed; the events between them depend on the machine.

mod agents;
mod chat_clients;
mod people;
mod restarting_gateway;
mod split_mix;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, bail};
use tokio::{runtime::Builder, sync::mpsc, task::JoinSet};

use crate::{
    kill::restarting_gateway::{KillRunState, RestartingGateway},
    workspace::product_binary,
};

/// Number of agents.
const AGENTS: usize = 12;
const TALKERS: usize = 4;
/// Maximum length of one life.
const LONGEST: Duration = Duration::from_secs(4);
/// Maximum time for pending work after the last death.
const END: Duration = Duration::from_secs(300);

/// For how long, and how.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Options {
    minutes: f64,
    seed: u64,
    binary: Option<PathBuf>,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> anyhow::Result<Self> {
        let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
        let mut options = Self { minutes: 10.0, seed, binary: None };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().with_context(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--minutes" => options.minutes = value()?.parse().context("--minutes needs a number")?,
                "--seed" => options.seed = value()?.parse().context("--seed needs a number")?,
                "--binary" => options.binary = Some(value()?.into()),
                unknown => bail!("unknown option of kill: {unknown:?}"),
            }
        }
        if !(options.minutes > 0.0 && options.minutes <= 1440.0) {
            bail!("--minutes must be above 0 and at most 1440");
        }
        Ok(options)
    }
}

pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let binary = product_binary(options.binary.as_deref())?;
    let wrongs = run_survival(&binary, options)?;
    Ok(if wrongs == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Plays, and says what came of it. How many promises were broken.
fn run_survival(binary: &Path, options: &Options) -> anyhow::Result<usize> {
    println!("seed {}, {:.1} minutes", options.seed, options.minutes);
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (mut mortal, stage) = {
        let _inside = runtime.enter();
        RestartingGateway::start(binary, AGENTS, options.seed)?
    };
    let players = ClientTasks::start(&runtime, &stage);
    let (begun, length) = (Instant::now(), Duration::from_secs_f64(options.minutes * 60.0));
    while begun.elapsed() < length {
        mortal.kill_and_restart(LONGEST)?;
    }
    stage.stop_clients();
    runtime.block_on(players.wait_for_end(&stage))?;
    let (deaths, slowest) = (mortal.deaths, mortal.slowest);
    let verified = mortal.verify_record()?;
    runtime.shutdown_background();
    println!("{} deaths by SIGKILL, {} by SIGTERM; ready again within {slowest:.1?}", deaths[0], deaths[1]);
    for (what, times) in stage.success_counts() {
        println!("{times} {what}");
    }
    println!("{} effects repeated", stage.done.repeated_count());
    println!("{verified}");
    let mut wrongs = stage.failure_texts();
    if stage.done.repeated_count() > 0 {
        wrongs.push("some effects were repeated".to_owned());
    }
    for what in &["requests executed", "requests denied", "answers of approvers", "messages accepted"] {
        // A run of a few seconds may see no denial.
        if !stage.success_counts().contains_key(what) && (options.minutes >= 1.0 || *what != "requests denied") {
            wrongs.push(format!("no {what}: this part of the test did not run"));
        }
    }
    for wrong in &wrongs {
        println!("wrong: {wrong}");
    }
    Ok(wrongs.len())
}

/// Tasks of all clients.
struct ClientTasks {
    asking: JoinSet<()>,
    answering: tokio::task::JoinHandle<()>,
    following: tokio::task::JoinHandle<people::FollowedEvents>,
}

impl ClientTasks {
    fn start(runtime: &tokio::runtime::Runtime, stage: &Arc<KillRunState>) -> Self {
        let _inside = runtime.enter();
        let (tell, gates) = mpsc::unbounded_channel();
        let mut asking = JoinSet::new();
        for number in 0..AGENTS {
            asking.spawn(agents::run_agent(Arc::clone(stage), number));
        }
        for number in 0..TALKERS {
            asking.spawn(chat_clients::run_chat_client(Arc::clone(stage), number));
        }
        Self {
            asking,
            answering: tokio::spawn(people::answer_gates(Arc::clone(stage), gates)),
            following: tokio::spawn(people::follow_record(Arc::clone(stage), tell)),
        }
    }

    /// Waits until all clients have their results, and compares the follower's events with the record.
    async fn wait_for_end(mut self, stage: &KillRunState) -> anyhow::Result<()> {
        if tokio::time::timeout(END, async { while self.asking.join_next().await.is_some() {} }).await.is_err() {
            stage.record_failure("a client did not finish in time".to_owned());
        }
        let (status, head) = stage.connect_client().await?.get("/api/v1/audit/head").await?;
        let until = head["lsn"].as_u64().with_context(|| format!("{status} {head}"))?;
        let record = people::read_record(stage, until).await?;
        stage.release_followers(until);
        let seen = tokio::time::timeout(END, self.following)
            .await
            .context("the follower of the record did not finish in time")??;
        self.answering.await?;
        compare_records(stage, &seen, &record);
        Ok(())
    }
}

/// Checks that one follower saw over all deaths the events of the record, each once and in order; a gate resolves at most once.
fn compare_records(stage: &KillRunState, seen: &people::FollowedEvents, record: &people::FollowedEvents) {
    let end = record.last().map_or(0, |(lsn, _)| *lsn);
    let seen: Vec<_> = seen.iter().filter(|(lsn, _)| *lsn <= end).collect();
    if !seen.iter().copied().eq(record) {
        let at = seen.iter().zip(record).position(|(seen, recorded)| *seen != recorded);
        stage.record_failure(format!(
            "a follower received {} of {} events; the first difference is at {at:?}",
            seen.len(),
            record.len()
        ));
    }
    if record.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
        stage.record_failure("the events of the record were not sent in order".to_owned());
    }
    let mut resolved: BTreeMap<&str, u32> = BTreeMap::new();
    for (_, what) in record {
        if let Some(gate) = what.strip_prefix("gate.resolved ") {
            *resolved.entry(gate).or_default() += 1;
        }
    }
    for (gate, times) in resolved.iter().filter(|(_, times)| **times > 1) {
        stage.record_failure(format!("{gate} was resolved {times} times"));
    }
    for _ in record {
        stage.record_success("events received exactly once");
    }
    for _ in resolved {
        stage.record_success("gates resolved");
    }
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
        let options = read(&["--minutes", "0.5", "--seed", "3", "--binary", "b"]).unwrap();
        assert_eq!(options, Options { minutes: 0.5, seed: 3, binary: Some("b".into()) });
        for (arguments, want) in [
            (&["--speed"] as &[&str], "unknown option of kill: \"--speed\""),
            (&["--seed"], "--seed needs a value"),
            (&["--minutes", "0"], "--minutes must be above 0 and at most 1440"),
        ] {
            assert_eq!(read(arguments).unwrap_err(), want, "{arguments:?}");
        }
    }
}
