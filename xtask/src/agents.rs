//! `cargo xtask agents`: programs that people run, at the debug binary and with a scripted model.
//!
//! Opt-in: it installs the pinned versions with npm. No run leaves loopback, and each has a home of its own.

mod case_context;
mod case_outcome;
mod case_run;
mod guarded_program;
mod hook_cases;
mod host_program;
mod mcp_cases;
mod outcome_table;
mod process;
mod proxied_program;
mod proxy_cases;
mod relay;
mod scratch_gateway;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use anyhow::{Context as _, bail};
use countersign_scripted_model::StubServer;

use crate::{
    agents::{
        case_context::CaseContext, case_outcome::CaseOutcome, hook_cases::HookCase, host_program::HostProgram,
        mcp_cases::McpCase, outcome_table::OutcomeTable, proxy_cases::ProxyCase,
    },
    workspace::{Workspace, cargo_path},
};

const USAGE: &str = "usage: cargo xtask agents [--only claude|codex|gemini|copilot|opencode] [--cases mcp|hooks|proxies] [--case NAME] \
                     [--programs DIR] [--binary FILE]";

/// Kind of cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CaseKind {
    /// The program calls tools of the gateway.
    Mcp,
    /// The program asks the gateway about its own tools, through a hook.
    Hooks,
    /// The program asks its client, and the gateway stands between them.
    Proxies,
}

/// Options of the command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Options {
    /// The only program; none means all.
    only: Option<HostProgram>,
    /// The only kind of cases; none means all.
    kind: Option<CaseKind>,
    /// The only case.
    case: Option<String>,
    /// Folder of the programs; none means one below the target folder.
    programs: Option<PathBuf>,
    /// A binary that is there; none builds one.
    binary: Option<PathBuf>,
}

impl Options {
    fn parse(arguments: &[String]) -> anyhow::Result<Self> {
        let mut options = Self::default();
        let mut rest = arguments.iter();
        while let Some(flag) = rest.next() {
            let value = rest.next().context(USAGE)?;
            match flag.as_str() {
                "--only" => options.only = Some(HostProgram::from_name(value)?),
                "--cases" => {
                    options.kind = Some(match value.as_str() {
                        "mcp" => CaseKind::Mcp,
                        "hooks" => CaseKind::Hooks,
                        "proxies" => CaseKind::Proxies,
                        other => bail!("--cases {other}: expected mcp, hooks or proxies"),
                    });
                }
                "--case" => options.case = Some(value.clone()),
                "--programs" => options.programs = Some(std::path::absolute(value)?),
                "--binary" => options.binary = Some(std::path::absolute(value)?),
                _ => bail!(USAGE),
            }
        }
        Ok(options)
    }

    fn includes(&self, kind: CaseKind, case: &str) -> bool {
        self.kind.is_none_or(|only| only == kind) && self.case.as_deref().is_none_or(|only| only == case)
    }
}

/// Runs the command, or a relay between a program and its server.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    match arguments {
        [first, log, command @ ..] if first == relay::RELAY => relay::run(Path::new(log), command),
        _ => run_cases(&Workspace::read_metadata()?, &Options::parse(arguments)?),
    }
}

fn run_cases(workspace: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    let folder = workspace.target.join("agents");
    let programs = options.programs.clone().unwrap_or_else(|| folder.join("programs"));
    let binary = match &options.binary {
        Some(binary) => binary.clone(),
        None => build_binary(workspace)?,
    };
    let stub = StubServer::start()?;
    let mut failed = 0;
    for program in HostProgram::ALL.into_iter().filter(|program| options.only.is_none_or(|only| only == *program)) {
        program.install(&programs)?;
        println!("\n{} {}", program.name(), program.version());
        let runs = folder.join("runs").join(program.name());
        let context = |case: &str| {
            let folder = runs.join(case);
            // That of an earlier run, if there is one.
            let _ = fs::remove_dir_all(&folder);
            CaseContext { program, programs: &programs, binary: &binary, folder, stub: &stub }
        };
        for case in McpCase::for_program(program) {
            if options.includes(CaseKind::Mcp, case.name()) {
                failed += usize::from(!report_case(case.name(), || case.run(&context(case.name()))));
            }
        }
        let mut table = FrozenOutcomes {
            table: OutcomeTable::read(&workspace.root.join("tests/agents"), program)?,
            is_updated: std::env::var_os("UPDATE_GOLDEN").is_some(),
        };
        for case in HookCase::for_program(program) {
            if options.includes(CaseKind::Hooks, case.name()) {
                failed += usize::from(!table.report(case.name(), || case.run(&context(case.name()))));
            }
        }
        for case in ProxyCase::for_program(program) {
            if options.includes(CaseKind::Proxies, case.name()) {
                failed += usize::from(!table.report(case.name(), || case.run(&context(case.name()))));
            }
        }
        if table.is_updated && options.kind != Some(CaseKind::Mcp) {
            table.table.write(&[HookCase::skipped(program), ProxyCase::skipped(program)].concat())?;
        }
    }
    println!("\nfiles of each run: {}", folder.join("runs").display());
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Frozen outcomes of a program, or those that become it.
struct FrozenOutcomes {
    table: OutcomeTable,
    is_updated: bool,
}

impl FrozenOutcomes {
    /// Runs a case, prints its outcome, and reports whether it is as in the table.
    fn report(&mut self, name: &str, run: impl FnOnce() -> anyhow::Result<CaseOutcome>) -> bool {
        report_case(name, || {
            let outcome = run()?.to_string();
            if self.is_updated {
                self.table.set(name, &outcome);
            }
            match self.table.difference(name, &outcome) {
                None => Ok(outcome),
                Some(difference) => bail!(difference),
            }
        })
    }
}

/// Runs a case, prints its outcome, and reports whether it is as expected.
fn report_case(name: &str, run: impl FnOnce() -> anyhow::Result<String>) -> bool {
    let begun = Instant::now();
    let outcome = run();
    let is_good = outcome.is_ok();
    let text = match outcome {
        Ok(facts) => format!("ok: {facts}"),
        Err(error) => format!("FAILED: {error:#}"),
    };
    println!("  {name:<28} {:>5.1} s  {text}", begun.elapsed().as_secs_f64());
    is_good
}

fn build_binary(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let mut cargo = std::process::Command::new(cargo_path());
    let status = cargo.args(["build", "-p", "countersign"]).current_dir(&workspace.root).status()?;
    if !status.success() {
        bail!("cargo build ended with {status}");
    }
    Ok(workspace.target.join("debug/countersign"))
}

#[cfg(test)]
mod tests {
    use super::{CaseKind, HostProgram, Options};

    #[test]
    fn one_program_and_the_folder_of_all_can_be_named() {
        let options = |line: &str| Options::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(options("").unwrap(), Options::default());
        let named = options("--only codex --programs p --binary b").unwrap();
        assert_eq!(named.only, Some(HostProgram::Codex));
        assert!([named.programs, named.binary].iter().all(|path| path.as_ref().unwrap().is_absolute()));
        let unknown = options("--only codec").unwrap_err().to_string();
        assert_eq!(unknown, "unknown program \"codec\": one of claude, codex, gemini, copilot, opencode");
        let hooks = options("--cases hooks --case hook-absent").unwrap();
        assert!(hooks.includes(CaseKind::Hooks, "hook-absent"));
        assert!(!hooks.includes(CaseKind::Hooks, "hook-garbage") && !hooks.includes(CaseKind::Mcp, "hook-absent"));
        assert!(options("--cases none").is_err());
        assert!(options("--only").is_err() && options("--fast x").is_err());
    }
}
