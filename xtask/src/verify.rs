//! `cargo xtask verify`: everything that must hold before a push, step by step, up to the first that does not.
//!
//! Every step uses the dev profile and the whole workspace, so that no unit is compiled twice for another set of
//! features.

mod install;
mod tally;

use std::{
    io::{BufRead as _, BufReader, Read, Write},
    path::Path,
    process::{Command, ExitCode, Stdio},
    thread,
    time::Instant,
};

use anyhow::{Context as _, bail};

use crate::{
    loadtest, tidy,
    verify::tally::{Runner, Tally},
    workspace::{Workspace, cargo},
};

/// How much is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Options {
    Everything,
    /// Without doc tests and docs.
    Fast,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> anyhow::Result<Self> {
        match arguments {
            [] => Ok(Self::Everything),
            [only] if only == "--fast" => Ok(Self::Fast),
            _ => bail!("verify takes nothing but --fast"),
        }
    }
}

/// Runs the steps and reports them. The last line is `N passed, N failed` once tests have run.
pub(crate) fn run(workspace: &Workspace, options: Options) -> ExitCode {
    let mut tally = Tally::default();
    let begun = Instant::now();
    let outcome = steps(workspace, options, &mut tally);
    let took = begun.elapsed().as_secs_f64();
    match &outcome {
        Ok(()) => println!("\nverify: everything holds ({took:.1} s)"),
        Err(error) => println!("\nverify: FAILED: {error:#} ({took:.1} s)"),
    }
    if tally != Tally::default() {
        println!("{tally}");
    }
    if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn steps(workspace: &Workspace, options: Options, tally: &mut Tally) -> anyhow::Result<()> {
    step("install what is missing", install::run)?;
    step("format", || Cargo::new(workspace).args(&["fmt", "--all", "--check"]).run())?;
    step("clippy", || {
        Cargo::new(workspace).args(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]).run()
    })?;
    step("clippy, without features", || {
        Cargo::new(workspace)
            .args(&["clippy", "-p", "countersign", "--no-default-features", "--", "-D", "warnings"])
            .run()
    })?;
    step("tidy", || match tidy::findings(workspace)?.as_slice() {
        [] => Ok(()),
        found => {
            found.iter().for_each(|finding| println!("{finding}"));
            bail!("{} to put right", found.len())
        }
    })?;
    step("tests", || {
        let (runner, arguments): (_, &[&str]) = if has_nextest(&workspace.root) {
            // A second try tells a test that a busy machine upset from one that fails; the summary names it as flaky, to be mended.
            (Runner::Nextest, &["nextest", "run", "--workspace", "--no-fail-fast", "--retries", "1"])
        } else {
            (Runner::Libtest, &["test", "--workspace", "--lib", "--bins", "--tests", "--examples", "--no-fail-fast"])
        };
        // A runner that is broken can end with 0 and have run nothing.
        match Cargo::new(workspace).args(arguments).test(runner, tally)? {
            Tally { passed: 0, .. } => bail!("no test ran"),
            _ => Ok(()),
        }
    })?;
    step("killed while it works", || loadtest::kill_briefly(workspace))?;
    if options == Options::Fast {
        return Ok(());
    }
    step("doc tests", || {
        Cargo::new(workspace)
            .args(&["test", "--workspace", "--doc", "--no-fail-fast"])
            .test(Runner::Libtest, tally)
            .map(drop)
    })?;
    step("docs", || {
        Cargo::new(workspace).args(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings").run()
    })
}

fn step(name: &str, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    println!("\n== {name}");
    let begun = Instant::now();
    let outcome = work();
    let word = if outcome.is_ok() { "ok" } else { "FAILED" };
    println!("== {name}: {word} ({:.1} s)", begun.elapsed().as_secs_f64());
    outcome.with_context(|| name.to_owned())
}

fn has_nextest(root: &Path) -> bool {
    let asked = Command::new(cargo()).args(["nextest", "--version"]).current_dir(root).output();
    asked.is_ok_and(|output| output.status.success() && !output.stdout.is_empty())
}

/// One call of cargo at the root of the workspace.
struct Cargo(Command);

impl Cargo {
    fn new(workspace: &Workspace) -> Self {
        let mut command = Command::new(cargo());
        command.current_dir(&workspace.root);
        Self(command)
    }

    fn args(mut self, arguments: &[&str]) -> Self {
        self.0.args(arguments);
        self
    }

    fn env(mut self, name: &str, value: &str) -> Self {
        self.0.env(name, value);
        self
    }

    fn run(mut self) -> anyhow::Result<()> {
        let status = self.0.status().context("cargo could not be started")?;
        if !status.success() {
            bail!("cargo ended with {status}");
        }
        Ok(())
    }

    /// Runs tests, passing their output through and counting them by the runner's own summaries.
    fn test(mut self, runner: Runner, tally: &mut Tally) -> anyhow::Result<Tally> {
        self.0.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.0.spawn().context("cargo could not be started")?;
        let stdout = child.stdout.take().context("no standard output")?;
        let stderr = child.stderr.take().context("no standard error")?;
        let aside = thread::spawn(move || pass_through(runner, stderr, std::io::stderr()));
        let mut counted = pass_through(runner, stdout, std::io::stdout());
        counted += aside.join().unwrap_or_default();
        let status = child.wait().context("cargo was lost")?;
        *tally += counted;
        if !status.success() {
            bail!("cargo ended with {status}, {counted}");
        }
        Ok(counted)
    }
}

fn pass_through(runner: Runner, from: impl Read, mut to: impl Write) -> Tally {
    let mut counted = Tally::default();
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        counted += Tally::of_line(runner, &String::from_utf8_lossy(&line));
        // A closed terminal must not end the tests.
        let _ = to.write_all(&line).and_then(|()| to.flush());
        line.clear();
    }
    counted
}
