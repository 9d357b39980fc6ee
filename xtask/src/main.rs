//! Does for the workspace what cargo alone cannot: verify it whole, keep it tidy, measure it, fuzz it.
//!
//! It depends on none of the workspace's crates, so that it builds in seconds and works when they do not.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool talks on its streams")]

mod bench;
mod browser;
mod fuzz;
mod kill;
mod load;
mod package;
mod reference;
mod tidy;
mod verify;
mod workspace;

use std::process::ExitCode;

use crate::workspace::Workspace;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  verify [--fast]               format, clippy, tidy, all tests, docs; --fast leaves out doc tests and docs
  tidy                          the rules of the house that no lint knows
  bench [--json] [--cold] [--only PART] [--binary FILE] [--report FILE]
                                figures of the release binary, each beside its yardstick from the same run;
                                --cold builds once more from nothing, --only takes the figures with PART in their names,
                                --binary measures FILE and builds nothing, --report writes a page with all of it
  browser [--binary FILE]       the console in Chromium: what it does, how it looks, what axe finds; pictures in target/browser
  load [--minutes N] [--agents N] [--streams N] [--runs N] [--answers N] [--binary FILE] [--report FILE]
                                agents, hosts, nodes, browsers and people at one gateway; a page with pictures of what came of it
  kill [--minutes N] [--seed N] [--binary FILE]
                                a gateway that is killed at random while it works: nothing that was told is lost, nothing is done twice
  package [--binary FILE]       the manual, completions, parts list and Debian package of the release binary, into target/package
  reference                     the pages of docs/reference that are made of the code
  fuzz [TARGET] [--minutes N] [--seed N] [--guided [--keep] | --replay FILE]
                                a decoder against mutated input; without a target, each in turn;
                                --guided steers by what code was reached, --keep keeps what it found
";

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
        "verify" => Ok(verify::run(&Workspace::read()?, verify::Options::parse(rest)?)),
        "tidy" => tidy::run(&Workspace::read()?),
        "bench" => bench::run(&Workspace::read()?, &bench::Options::parse(rest)?, rest),
        bench::FAN_OUT => bench::fan_out(rest),
        "browser" => browser::run(&Workspace::read()?, &browser::Options::parse(rest)?),
        "load" => load::run(&Workspace::read()?, &load::Options::parse(rest)?, rest),
        "kill" => kill::run(&Workspace::read()?, &kill::Options::parse(rest)?),
        "package" => package::run(&Workspace::read()?, &package::Options::parse(rest)?),
        "reference" => reference::run(&Workspace::read()?),
        "fuzz" => fuzz::run(&Workspace::read()?, &fuzz::Options::parse(rest)?),
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
