//! A version of the suites at one version of the protocol: its scenarios, and the run of one.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use crate::conformance::{TestedSide, outcome::ScenarioOutcome};

/// Version of the protocol that extensions have in lists of scenarios. They belong to no version.
const EXTENSION: &str = "extension";
/// Time limit of a scenario. The suites have shorter ones of their own.
const LIMIT: Duration = Duration::from_secs(120);
/// Interval of the check whether a scenario has ended.
const POLL: Duration = Duration::from_millis(20);

/// One run of the suites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Suite {
    /// Version of the package.
    pub(super) version: &'static str,
    /// Version of the protocol on the wire. Without it, each scenario has its own.
    protocol: Option<&'static str>,
}

/// All runs. A package that knows both generations of the protocol runs at each.
pub(super) const SUITES: &[Suite] = &[
    Suite { version: "0.1.16", protocol: None },
    Suite { version: "0.2.0-alpha.12", protocol: Some("2025-11-25") },
    Suite { version: "0.2.0-alpha.12", protocol: Some("2026-07-28") },
];

/// Party that a suite tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SuiteTarget {
    Server { url: String },
    Client { command: PathBuf },
}

/// A suite with everything that its run needs.
pub(super) struct RunnableSuite<'a> {
    suite: Suite,
    node: &'a Path,
    program: PathBuf,
    target: &'a SuiteTarget,
}

impl Suite {
    /// Returns the name of the file with its expected failures.
    pub(super) fn expected_file(&self) -> String {
        format!("expected-{}.yml", self.name())
    }

    fn name(&self) -> String {
        match self.protocol {
            Some(protocol) => format!("{}-at-{protocol}", self.version),
            None => self.version.to_owned(),
        }
    }

    /// Returns the suite in the folder `tests`, ready to test `target`.
    pub(super) fn on<'a>(&self, node: &'a Path, tests: &Path, target: &'a SuiteTarget) -> RunnableSuite<'a> {
        let program = tests.join(format!("node_modules/conformance-{}/dist/index.js", self.version));
        RunnableSuite { suite: *self, node, program, target }
    }
}

impl SuiteTarget {
    const fn side(&self) -> TestedSide {
        match self {
            Self::Server { .. } => TestedSide::Server,
            Self::Client { .. } => TestedSide::Client,
        }
    }
}

impl RunnableSuite<'_> {
    /// Returns its heading.
    pub(super) fn title(&self) -> String {
        format!("{} {}", self.target.side().name(), self.suite.name())
    }

    /// Returns the name of a folder for its results.
    pub(super) fn folder_name(&self) -> String {
        format!("{}-{}", self.target.side().name(), self.suite.name())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.node);
        command.arg(&self.program).stdin(Stdio::null());
        command
    }

    /// Returns the names of its scenarios.
    pub(super) fn list_scenarios(&self) -> anyhow::Result<Vec<String>> {
        let side = format!("--{}", self.target.side().name());
        let output = self.command().args(["list", &side]).output().context("node could not be started")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let all: Vec<String> = read_scenarios(&text, self.suite.protocol).map(str::to_owned).collect();
        if !output.status.success() || all.is_empty() {
            bail!("{} lists no scenarios: {}", self.suite.name(), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(all)
    }

    /// Runs a scenario, with its results in a folder below `results`.
    pub(super) fn run_scenario(&self, name: &str, results: &Path) -> anyhow::Result<ScenarioOutcome> {
        let folder = results.join(name.replace('/', "-"));
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        let mut command = self.command();
        command.arg(self.target.side().name()).args(["--scenario", name, "--output-dir"]).arg(&folder);
        match self.target {
            SuiteTarget::Server { url } => command.args(["--url", url]),
            SuiteTarget::Client { command: client } => command.arg("--command").arg(client),
        };
        if let Some(protocol) = self.suite.protocol {
            // Extensions are on no version's list and refuse a flag for one, but a flag overrules that.
            command.args(["--spec-version", protocol, "--force"]);
        }
        let log = fs::File::create(folder.join("log.txt"))?;
        let child = command.stdout(log.try_clone()?).stderr(log).spawn().context("node could not be started")?;
        let ended_well = wait_end(child).with_context(|| name.to_owned())?;
        ScenarioOutcome::read(&folder, ended_well)
    }
}

/// Waits until a process ends. True if it reports no failure.
fn wait_end(mut child: Child) -> anyhow::Result<bool> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if begun.elapsed() > LIMIT {
            child.kill()?;
            child.wait()?;
            return Ok(false);
        }
        thread::sleep(POLL);
    }
}

/// Reads a list with lines such as `  - ping [2025-06-18,2025-11-25]`. Of a version of the protocol, extensions belong to the newest.
fn read_scenarios<'a>(text: &'a str, protocol: Option<&'a str>) -> impl Iterator<Item = &'a str> {
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("- ")?.strip_suffix(']')?.split_once(" ["));
    lines.filter_map(move |(name, versions)| {
        let is_newest = protocol.is_some() && protocol == newest_protocol();
        let fits = |version: &str| protocol == Some(version) || (version == EXTENSION && is_newest);
        (protocol.is_none() || versions.split(',').any(fits)).then_some(name)
    })
}

fn newest_protocol() -> Option<&'static str> {
    SUITES.iter().filter_map(|suite| suite.protocol).max()
}

#[cfg(test)]
mod tests {
    use super::read_scenarios;

    #[test]
    fn scenarios_of_a_version_are_chosen_and_extensions_run_at_the_newest() {
        let text = "Server scenarios (test against a server):\n  - ping [2025-06-18,2025-11-25]\n  - caching [2026-07-28]\n  \
            - tasks-x [extension]\n";
        let names = |protocol| read_scenarios(text, protocol).collect::<Vec<_>>();
        assert_eq!(names(None), ["ping", "caching", "tasks-x"]);
        assert_eq!(names(Some("2025-11-25")), ["ping"]);
        assert_eq!(names(Some("2026-07-28")), ["caching", "tasks-x"]);
    }
}
