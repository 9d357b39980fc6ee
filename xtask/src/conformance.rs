//! `cargo xtask conformance`: runs the public MCP conformance suites against the debug binary and against the client of MCP servers.
//!
//! The suites are npm packages, pinned by `tests/conformance/package-lock.json`. Each run has a list of expected failures there, with a
//! reason a line. The command fails if anything else fails, or if an expected failure passes.

mod expected;
mod gateway;
mod node;
mod outcome;
mod suite;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, bail};

use crate::{
    conformance::{
        expected::ExpectedFailures,
        gateway::ConformanceGateway,
        outcome::{Judgement, ScenarioOutcome},
        suite::{SUITES, Suite, SuiteTarget},
    },
    npm,
    process::run_checked,
    workspace::{Workspace, cargo_path},
};

const USAGE: &str =
    "usage: cargo xtask conformance [--suite-version VERSION] [--only server|client] [--scenario NAME] [--binary FILE]";

/// Side of the protocol that a suite tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TestedSide {
    Server,
    Client,
}

impl TestedSide {
    const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
        }
    }
}

/// Options of the command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Only suites of this version.
    version: Option<String>,
    /// Only this side.
    only: Option<TestedSide>,
    /// Only this scenario.
    scenario: Option<String>,
    /// A binary that is there; none builds one.
    binary: Option<PathBuf>,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> anyhow::Result<Self> {
        let mut options = Self::default();
        let mut rest = arguments.iter();
        while let Some(flag) = rest.next() {
            let value = rest.next().context(USAGE)?;
            match (flag.as_str(), value.as_str()) {
                ("--suite-version", version) => {
                    let known: BTreeSet<&str> = SUITES.iter().map(|suite| suite.version).collect();
                    if !known.contains(version) {
                        let known: Vec<&str> = known.into_iter().collect();
                        bail!("--suite-version {version}: expected one of {}", known.join(", "));
                    }
                    options.version = Some(value.clone());
                }
                ("--only", "server") => options.only = Some(TestedSide::Server),
                ("--only", "client") => options.only = Some(TestedSide::Client),
                ("--only", other) => bail!("--only {other}: expected server or client"),
                ("--scenario", _) => options.scenario = Some(value.clone()),
                ("--binary", file) => options.binary = Some(std::path::absolute(file)?),
                _ => bail!(USAGE),
            }
        }
        Ok(options)
    }

    fn includes_suite(&self, suite: &Suite) -> bool {
        self.version.as_deref().is_none_or(|version| version == suite.version)
    }

    fn includes_side(&self, side: TestedSide) -> bool {
        self.only.is_none_or(|only| only == side)
    }

    fn includes_scenario(&self, name: &str) -> bool {
        self.scenario.as_deref().is_none_or(|only| only == name)
    }
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    let tests = workspace.root.join("tests/conformance");
    npm::install_packages(&tests)?;
    let node = node::find_node()?;
    let results = workspace.target.join("conformance");
    let mut totals = CheckTotals::default();
    for side in [TestedSide::Server, TestedSide::Client].into_iter().filter(|side| options.includes_side(*side)) {
        let running = match side {
            TestedSide::Server => {
                let binary = server_binary(workspace, options)?;
                Some(ConformanceGateway::start(&node, &tests, &binary, &results.join("gateway"))?)
            }
            TestedSide::Client => None,
        };
        let target = match &running {
            Some(gateway) => SuiteTarget::Server { url: gateway.url.clone() },
            None => SuiteTarget::Client { command: client_binary(workspace)? },
        };
        for suite in SUITES.iter().filter(|suite| options.includes_suite(suite)) {
            let expected = ExpectedFailures::read(&tests.join(suite.expected_file()), side.name())?;
            run_suite(&suite.on(&node, &tests, &target), &expected, options, &results, &mut totals)?;
        }
    }
    totals.print();
    if totals.scenarios == 0 {
        bail!("no scenario is called {}", options.scenario.as_deref().unwrap_or_default());
    }
    Ok(if totals.problems == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the scenarios of one side of a suite, and prints each.
fn run_suite(
    suite: &suite::RunnableSuite<'_>,
    expected: &ExpectedFailures,
    options: &Options,
    results: &Path,
    totals: &mut CheckTotals,
) -> anyhow::Result<()> {
    println!("\n{}", suite.title());
    let all = suite.list_scenarios()?;
    for unknown in expected.scenarios().filter(|name| !all.iter().any(|scenario| scenario == name)) {
        totals.problems += 1;
        println!("  {unknown}: NOT A SCENARIO of this suite: remove it from the expected failures");
    }
    for name in all.iter().filter(|name| options.includes_scenario(name)) {
        let outcome = suite.run_scenario(name, &results.join(suite.folder_name()))?;
        totals.add(name, &outcome, &expected.judge(name, &outcome));
    }
    Ok(())
}

/// Counts over all suites.
#[derive(Debug, Default)]
struct CheckTotals {
    scenarios: usize,
    passed: usize,
    /// Of which no check was exercised.
    skipped: usize,
    checks: usize,
    checks_passed: usize,
    problems: usize,
}

impl CheckTotals {
    fn add(&mut self, name: &str, outcome: &ScenarioOutcome, judgement: &Judgement) {
        let (passed, checks) = outcome.counts();
        self.scenarios += 1;
        self.passed += usize::from(checks > 0 && passed == checks);
        self.skipped += usize::from(checks == 0);
        self.checks += checks;
        self.checks_passed += passed;
        self.problems += judgement.problems.len();
        println!("  {name:<52} {passed:>3}/{checks}");
        for reason in &judgement.expected {
            println!("      expected: {reason}");
        }
        for problem in &judgement.problems {
            println!("      FAILED: {problem}");
        }
    }

    fn print(&self) {
        let Self { scenarios, passed, skipped, checks, checks_passed, problems } = self;
        let end = if *problems == 0 { "as expected".to_owned() } else { format!("{problems} problems") };
        println!(
            "\nconformance: {passed} of {scenarios} scenarios pass, {skipped} have nothing to check; \
             {checks_passed} of {checks} checks pass; {end}"
        );
    }
}

fn server_binary(workspace: &Workspace, options: &Options) -> anyhow::Result<PathBuf> {
    if let Some(binary) = &options.binary {
        return Ok(binary.clone());
    }
    run_checked(Command::new(cargo_path()).args(["build", "-p", "countersign"]).current_dir(&workspace.root))?;
    Ok(workspace.target.join("debug/countersign"))
}

fn client_binary(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let arguments = ["build", "-p", "countersign-mcp-client", "--example", "conformance_client"];
    run_checked(Command::new(cargo_path()).args(arguments).current_dir(&workspace.root))?;
    Ok(workspace.target.join("debug/examples/conformance_client"))
}

#[cfg(test)]
mod tests {
    use super::{Options, TestedSide};

    #[test]
    fn flags_choose_what_runs_and_bad_values_are_named() {
        let parse = |arguments: &[&str]| Options::parse(&arguments.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(parse(&[]).unwrap(), Options::default());
        let options = parse(&["--only", "client", "--suite-version", "0.1.16", "--scenario", "ping"]).unwrap();
        assert_eq!((options.only, options.scenario.as_deref()), (Some(TestedSide::Client), Some("ping")));
        assert!(options.includes_scenario("ping") && !options.includes_scenario("pong"));
        for (arguments, want) in [
            (["--suite-version", "9"], "--suite-version 9: expected one of 0.1.16, 0.2.0-alpha.12"),
            (["--only", "both"], "--only both: expected server or client"),
            (["--fast", "x"], super::USAGE),
        ] {
            assert_eq!(parse(&arguments).unwrap_err().to_string(), want);
        }
        assert!(parse(&["--only"]).is_err());
    }
}
