//! Does for the workspace what cargo alone cannot: verify it whole, keep it tidy, fuzz it, package it.
//!
//! It depends on none of the workspace's crates, so that it builds in seconds and works when they do not.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool talks on its streams")]

mod agents;
mod browser;
mod budgets;
mod conformance;
mod fuzz;
mod loadtest;
mod npm;
mod package;
mod process;
mod reference;
mod tidy;
mod verify;
mod workspace;

use std::process::ExitCode;

use crate::workspace::Workspace;

const USAGE: &str = concat!(
    "\
usage: cargo xtask COMMAND

  verify [--fast]               format, clippy, tidy, all tests, docs; --fast leaves out doc tests and docs
  tidy [--measure]              the rules of the house that no lint knows; --measure prints the figures of names and texts
",
    include_str!("../../crates/loadtest/usage.txt"),
    "  browser [--binary FILE]       the console in Chromium: what it does, how it looks, what axe finds; pictures in target/browser
  conformance [--suite-version VERSION] [--only server|client] [--scenario NAME] [--binary FILE]
                                the public MCP conformance suites against the gateway and the client; needs npm
  agents [--only PROGRAM] [--cases mcp|hooks|proxies|acp] [--case NAME] [--programs DIR] [--binary FILE]
                                Claude Code, Codex, Gemini CLI, Copilot CLI and opencode with a scripted model at a gateway,
                                and acpx and a client on the ACP SDK with the gateway's agent;
                                installs the pinned versions (1.4 GB) with npm into target/agents/programs, or uses those in DIR
  package [--binary FILE]       the manual, completions, parts list and Debian package of the release binary, into target/package
  reference                     the pages of docs/reference that are made of the code
  fuzz [TARGET] [--minutes N] [--seed N] [--guided [--keep] | --replay FILE]
                                a decoder against mutated input; without a target, each in turn;
                                --guided steers by what code was reached, --keep keeps what it found
"
);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    let Some((command, rest)) = arguments.split_first() else {
        eprint!("{USAGE}");
        return Ok(ExitCode::from(2));
    };
    if rest.iter().any(|argument| matches!(argument.as_str(), "--help" | "-h")) {
        print!("{USAGE}");
        return Ok(ExitCode::SUCCESS);
    }
    match command.as_str() {
        "verify" => Ok(verify::run(&Workspace::read_metadata()?, verify::Options::parse(rest)?)),
        "tidy" => tidy::run(&Workspace::read_metadata()?, tidy::Options::parse(rest)?),
        "bench" | "load" | "kill" => loadtest::run(command, rest),
        "browser" => browser::run(&Workspace::read_metadata()?, &browser::Options::parse(rest)?),
        "conformance" => conformance::run(&Workspace::read_metadata()?, &conformance::Options::parse(rest)?),
        "agents" => agents::run(rest),
        "package" => package::run(&Workspace::read_metadata()?, &package::Options::parse(rest)?),
        "reference" => reference::run(&Workspace::read_metadata()?),
        "fuzz" => fuzz::run(&Workspace::read_metadata()?, &fuzz::Options::parse(rest)?),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        unknown => {
            eprint!("xtask: unknown command {unknown:?}\n{USAGE}");
            Ok(ExitCode::from(2))
        }
    }
}
