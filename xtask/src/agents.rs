//! `cargo xtask agents`: programs that people run, at the debug binary and with a scripted model.
//!
//! Opt-in: it installs the pinned versions with npm. No run leaves loopback, and each has a home of its own.

mod host_program;
mod mcp_cases;
mod process;
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
        host_program::HostProgram,
        mcp_cases::{CaseContext, McpCase},
    },
    workspace::{Workspace, cargo_path},
};

const USAGE: &str = "usage: cargo xtask agents [--only claude|codex|gemini|opencode] [--programs DIR] [--binary FILE]";

/// Options of the command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Options {
    /// The only program; none means all.
    only: Option<HostProgram>,
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
                "--programs" => options.programs = Some(std::path::absolute(value)?),
                "--binary" => options.binary = Some(std::path::absolute(value)?),
                _ => bail!(USAGE),
            }
        }
        Ok(options)
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
        if runs.exists() {
            fs::remove_dir_all(&runs)?;
        }
        for case in McpCase::for_program(program) {
            let context = CaseContext {
                program,
                programs: &programs,
                binary: &binary,
                folder: runs.join(case.name()),
                stub: &stub,
            };
            let begun = Instant::now();
            let outcome = case.run(&context);
            failed += usize::from(outcome.is_err());
            let text = match outcome {
                Ok(facts) => format!("ok: {facts}"),
                Err(error) => format!("FAILED: {error:#}"),
            };
            println!("  {:<20} {:>5.1} s  {text}", case.name(), begun.elapsed().as_secs_f64());
        }
    }
    println!("\nfiles of each run: {}", folder.join("runs").display());
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
    use super::{HostProgram, Options};

    #[test]
    fn one_program_and_the_folder_of_all_can_be_named() {
        let options = |line: &str| Options::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(options("").unwrap(), Options::default());
        let named = options("--only codex --programs p --binary b").unwrap();
        assert_eq!(named.only, Some(HostProgram::Codex));
        assert!([named.programs, named.binary].iter().all(|path| path.as_ref().unwrap().is_absolute()));
        let unknown = options("--only codec").unwrap_err().to_string();
        assert_eq!(unknown, "unknown program \"codec\": one of claude, codex, gemini, opencode");
        assert!(options("--only").is_err() && options("--fast x").is_err());
    }
}
