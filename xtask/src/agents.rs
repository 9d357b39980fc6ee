//! `cargo xtask agents`: programs that people run, at the debug binary and with a scripted model.
//!
//! Opt-in: it installs the pinned versions with npm. No run leaves loopback, and each has a home of its own.

mod acp_cases;
mod acp_client;
mod acp_outcome;
mod case_context;
mod case_outcome;
mod case_run;
mod demo_project;
mod guarded_program;
mod hook_cases;
mod host_program;
mod mcp_cases;
mod outcome_table;
mod pinned_program;
mod process;
mod proxied_program;
mod proxy_cases;
mod relay;
mod scratch_gateway;

use std::{
    fmt::Display,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use anyhow::{Context as _, bail};
use countersign_scripted_model::StubServer;

use crate::{
    agents::{
        acp_cases::{AcpCase, AcpContext},
        acp_client::AcpClient,
        case_context::CaseContext,
        hook_cases::HookCase,
        host_program::HostProgram,
        mcp_cases::McpCase,
        outcome_table::OutcomeTable,
        pinned_program::PinnedProgram,
        proxy_cases::ProxyCase,
    },
    workspace::{Workspace, cargo_path},
};

const USAGE: &str = "usage: cargo xtask agents [--only claude|codex|gemini|copilot|opencode|acpx|acp-sdk] \
                     [--cases mcp|hooks|proxies|acp] [--case NAME] [--programs DIR] [--binary FILE]";
/// Folder with the tables and scripts, in the repository.
const FILES: &str = "tests/agents";

/// Kind of cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CaseKind {
    /// The program calls tools of the gateway.
    Mcp,
    /// The program asks the gateway about its own tools, through a hook.
    Hooks,
    /// The program asks its client, and the gateway stands between them.
    Proxies,
    /// The program is a client, and the gateway has its agent.
    Acp,
}

/// Options of the command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Options {
    /// The only program; none means all.
    only: Option<PinnedProgram>,
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
                "--only" => options.only = Some(find_program(value)?),
                "--cases" => {
                    options.kind = Some(match value.as_str() {
                        "mcp" => CaseKind::Mcp,
                        "hooks" => CaseKind::Hooks,
                        "proxies" => CaseKind::Proxies,
                        "acp" => CaseKind::Acp,
                        other => bail!("--cases {other}: expected mcp, hooks, proxies or acp"),
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

    fn includes_program(&self, program: PinnedProgram) -> bool {
        self.only.is_none_or(|only| only == program)
    }
}

/// Finds the program with this name.
fn find_program(name: &str) -> anyhow::Result<PinnedProgram> {
    let hosts = HostProgram::ALL.into_iter().map(HostProgram::pinned);
    let all: Vec<PinnedProgram> = hosts.chain(AcpClient::ALL.map(AcpClient::pinned)).collect();
    let names = || all.iter().map(|program| program.name).collect::<Vec<_>>().join(", ");
    let found = all.iter().find(|program| program.name == name).copied();
    found.with_context(|| format!("unknown program {name:?}: one of {}", names()))
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
    let suite = AgentSuite {
        options,
        programs: options.programs.clone().unwrap_or_else(|| folder.join("programs")),
        binary: match &options.binary {
            Some(binary) => binary.clone(),
            None => build_binary(workspace)?,
        },
        runs: folder.join("runs"),
        files: workspace.root.join(FILES),
        stub: StubServer::start()?,
    };
    let mut failed = 0;
    for program in HostProgram::ALL.into_iter().filter(|program| options.includes_program(program.pinned())) {
        if options.kind != Some(CaseKind::Acp) {
            failed += suite.run_host(program)?;
        }
    }
    for client in AcpClient::ALL.into_iter().filter(|client| options.includes_program(client.pinned())) {
        if options.kind.is_none_or(|kind| kind == CaseKind::Acp) {
            failed += suite.run_client(client)?;
        }
    }
    println!("\nfiles of each run: {}", suite.runs.display());
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Everything that all cases need.
struct AgentSuite<'a> {
    options: &'a Options,
    programs: PathBuf,
    binary: PathBuf,
    runs: PathBuf,
    /// Folder with the tables and scripts.
    files: PathBuf,
    stub: StubServer,
}

impl AgentSuite<'_> {
    /// Runs the cases of a program, and returns how many failed.
    fn run_host(&self, program: HostProgram) -> anyhow::Result<usize> {
        let mut table = self.install(program.pinned())?;
        let mut failed = 0;
        let context = |case: &str| {
            let folder = self.empty_folder(program.pinned(), case);
            CaseContext { program, programs: &self.programs, binary: &self.binary, folder, stub: &self.stub }
        };
        for case in McpCase::for_program(program) {
            if self.options.includes(CaseKind::Mcp, case.name()) {
                failed += usize::from(!report_case(case.name(), || case.run(&context(case.name()))));
            }
        }
        for case in HookCase::for_program(program) {
            if self.options.includes(CaseKind::Hooks, case.name()) {
                failed += usize::from(!table.report(case.name(), || case.run(&context(case.name()))));
            }
        }
        for case in ProxyCase::for_program(program) {
            if self.options.includes(CaseKind::Proxies, case.name()) {
                failed += usize::from(!table.report(case.name(), || case.run(&context(case.name()))));
            }
        }
        if table.is_updated && self.options.kind != Some(CaseKind::Mcp) {
            table.table.write(&[HookCase::skipped(program), ProxyCase::skipped(program)].concat())?;
        }
        Ok(failed)
    }

    /// Runs the cases of a client, and returns how many failed.
    fn run_client(&self, client: AcpClient) -> anyhow::Result<usize> {
        let mut table = self.install(client.pinned())?;
        let mut failed = 0;
        for case in AcpCase::ALL {
            if self.options.includes(CaseKind::Acp, case.name()) {
                let context = AcpContext {
                    client,
                    programs: &self.programs,
                    scripts: &self.files,
                    binary: &self.binary,
                    folder: self.empty_folder(client.pinned(), case.name()),
                    service_url: &self.stub.url,
                };
                failed += usize::from(!table.report(case.name(), || case.run(&context)));
            }
        }
        if table.is_updated {
            table.table.write(&[])?;
        }
        Ok(failed)
    }

    /// Installs a program, and returns its table.
    fn install(&self, program: PinnedProgram) -> anyhow::Result<FrozenOutcomes> {
        program.install(&self.programs)?;
        println!("\n{} {}", program.name, program.version);
        let table = OutcomeTable::read(&self.files, program)?;
        Ok(FrozenOutcomes { table, is_updated: std::env::var_os("UPDATE_GOLDEN").is_some() })
    }

    /// Returns the folder of a case, without the files of an earlier run.
    fn empty_folder(&self, program: PinnedProgram, case: &str) -> PathBuf {
        let folder = self.runs.join(program.name).join(case);
        let _ = fs::remove_dir_all(&folder);
        folder
    }
}

/// Frozen outcomes of a program, or those that become it.
struct FrozenOutcomes {
    table: OutcomeTable,
    is_updated: bool,
}

impl FrozenOutcomes {
    /// Runs a case, prints its outcome, and reports whether it is as in the table.
    fn report<T: Display>(&mut self, name: &str, run: impl FnOnce() -> anyhow::Result<T>) -> bool {
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
        assert_eq!(named.only, Some(HostProgram::Codex.pinned()));
        assert!([named.programs, named.binary].iter().all(|path| path.as_ref().unwrap().is_absolute()));
        let unknown = options("--only codec").unwrap_err().to_string();
        assert_eq!(
            unknown,
            "unknown program \"codec\": one of claude, codex, gemini, copilot, opencode, acpx, acp-sdk"
        );
        let hooks = options("--cases hooks --case hook-absent").unwrap();
        assert!(hooks.includes(CaseKind::Hooks, "hook-absent"));
        assert!(!hooks.includes(CaseKind::Hooks, "hook-garbage") && !hooks.includes(CaseKind::Mcp, "hook-absent"));
        let acp = options("--only acpx --cases acp");
        assert!(acp.is_ok_and(|acp| acp.includes(CaseKind::Acp, "acp-denied")));
        assert!(options("--cases none").is_err());
        assert!(options("--only").is_err() && options("--fast x").is_err());
    }
}
