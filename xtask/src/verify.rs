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
    budgets, loadtest, tidy,
    verify::tally::{TestRunner, TestTally},
    workspace::{Workspace, cargo_path},
};

/// Extent of the verification.
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
    let mut tally = TestTally::default();
    let begun = Instant::now();
    let outcome = run_steps(workspace, options, &mut tally);
    let took = begun.elapsed().as_secs_f64();
    match &outcome {
        Ok(()) => {
            if let Some(line) =
                (options == Options::Everything).then(|| budgets::time_report(workspace, took)).flatten()
            {
                println!("\n{line}");
            }
            println!("\nverify: everything holds ({took:.1} s)");
        }
        Err(error) => println!("\nverify: FAILED: {error:#} ({took:.1} s)"),
    }
    if tally != TestTally::default() {
        println!("{tally}");
    }
    if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_steps(workspace: &Workspace, options: Options, tally: &mut TestTally) -> anyhow::Result<()> {
    run_step("install what is missing", install::run)?;
    run_step("format", || CargoCall::new(workspace).args(&["fmt", "--all", "--check"]).run())?;
    run_step("clippy", || {
        CargoCall::new(workspace).args(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]).run()
    })?;
    // Clippy has read the same code with more features: what is left are names that no code uses without them.
    run_step("check, without features", || {
        CargoCall::new(workspace).args(&["check", "-p", "countersign", "--no-default-features"]).deny_warnings()
    })?;
    run_step("tidy", || match tidy::findings(workspace)?.as_slice() {
        [] => Ok(()),
        found => {
            found.iter().for_each(|finding| println!("{finding}"));
            bail!("{} to put right", found.len())
        }
    })?;
    run_step("tests", || {
        let (runner, arguments): (_, &[&str]) = if has_nextest(&workspace.root) {
            // A second try tells a test that a busy machine upset from one that fails; the summary names it as flaky, to be mended.
            (TestRunner::Nextest, &["nextest", "run", "--workspace", "--no-fail-fast", "--retries", "1"])
        } else {
            (
                TestRunner::Libtest,
                &["test", "--workspace", "--lib", "--bins", "--tests", "--examples", "--no-fail-fast"],
            )
        };
        // A runner that is broken can end with 0 and have run nothing.
        match CargoCall::new(workspace).args(arguments).run_tests(runner, tally)? {
            TestTally { passed: 0, .. } => bail!("no test ran"),
            _ => Ok(()),
        }
    })?;
    run_step("killed while it works", || loadtest::kill_briefly(workspace))?;
    run_step("budgets", || budgets::check_binaries(workspace))?;
    if options == Options::Fast {
        return Ok(());
    }
    run_step("doc tests", || {
        CargoCall::new(workspace)
            .args(&["test", "--workspace", "--doc", "--no-fail-fast"])
            .run_tests(TestRunner::Libtest, tally)
            .map(drop)
    })?;
    run_step("docs", || {
        CargoCall::new(workspace).args(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings").run()
    })
}

fn run_step(name: &str, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    println!("\n== {name}");
    let begun = Instant::now();
    let outcome = work();
    let word = if outcome.is_ok() { "ok" } else { "FAILED" };
    println!("== {name}: {word} ({:.1} s)", begun.elapsed().as_secs_f64());
    outcome.with_context(|| name.to_owned())
}

fn has_nextest(root: &Path) -> bool {
    let version = Command::new(cargo_path()).args(["nextest", "--version"]).current_dir(root).output();
    version.is_ok_and(|output| output.status.success() && !output.stdout.is_empty())
}

/// One call of cargo at the root of the workspace.
struct CargoCall(Command);

impl CargoCall {
    fn new(workspace: &Workspace) -> Self {
        let mut command = Command::new(cargo_path());
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

    /// Runs a check whose warnings are errors.
    fn deny_warnings(mut self) -> anyhow::Result<()> {
        self.0.arg("--message-format=json").stdout(Stdio::piped());
        let mut child = self.0.spawn().context("cargo could not be started")?;
        let stdout = child.stdout.take().context("no standard output")?;
        let mut count = 0;
        for line in BufReader::new(stdout).lines() {
            if let Some(text) = diagnostic_text(&line?) {
                println!("{text}");
                count += 1;
            }
        }
        let status = child.wait().context("cargo was lost")?;
        if !status.success() {
            bail!("cargo ended with {status}");
        }
        if count > 0 {
            bail!("{count} warnings");
        }
        Ok(())
    }

    /// Runs tests, passing their output through and counting them by the runner's own summaries.
    fn run_tests(mut self, runner: TestRunner, tally: &mut TestTally) -> anyhow::Result<TestTally> {
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

/// Returns the text of a compiler's message, if the line of cargo's output is one.
fn diagnostic_text(line: &str) -> Option<String> {
    let event: serde_json::Value = serde_json::from_str(line).ok()?;
    (event["reason"] == "compiler-message").then(|| event["message"]["rendered"].as_str().unwrap_or(line).to_owned())
}

fn pass_through(runner: TestRunner, from: impl Read, mut to: impl Write) -> TestTally {
    let mut counted = TestTally::default();
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        counted += TestTally::of_line(runner, &String::from_utf8_lossy(&line));
        // A closed terminal must not end the tests.
        let _ = to.write_all(&line).and_then(|()| to.flush());
        line.clear();
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::diagnostic_text;

    #[test]
    fn messages_of_the_compiler_are_recognised() {
        for (line, want) in [
            (
                r#"{"reason":"compiler-message","message":{"level":"warning","rendered":"warning: unused"}}"#,
                Some("warning: unused"),
            ),
            (r#"{"reason":"compiler-artifact","target":{"name":"xtask"}}"#, None),
            (r#"{"reason":"build-finished","success":true}"#, None),
            ("plain text", None),
        ] {
            assert_eq!(diagnostic_text(line).as_deref(), want, "{line}");
        }
    }
}
