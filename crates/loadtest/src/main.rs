//! Measures the product binary, puts it under load and kills it while it works: `cargo xtask bench`, `load` and `kill`.
//!
//! | module | purpose |
//! |---|---|
//! | `bench` | figures of the binary, each with its yardstick |
//! | `fixture` | gateway, host, provider, service and clients, which all three share |
//! | `in_process` | figures of the engine, taken in a process that links it |
//! | `load` | one gateway with many clients of every kind |
//! | `kill` | one gateway that is killed and restarted while clients work with it |

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool talks on its streams")]

mod bench;
mod fixture;
mod in_process;
mod kill;
mod load;
mod workspace;

use std::process::ExitCode;

const USAGE: &str = concat!("usage: countersign-loadtest COMMAND\n\n", include_str!("../usage.txt"));

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("loadtest: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    let Some((command, rest)) = arguments.split_first() else {
        eprint!("{USAGE}");
        return Ok(ExitCode::from(2));
    };
    if arguments.iter().any(|argument| matches!(argument.as_str(), "--help" | "-h")) {
        print!("{USAGE}");
        return Ok(ExitCode::SUCCESS);
    }
    match command.as_str() {
        "bench" => bench::run(&bench::Options::parse(rest)?, rest),
        "load" => load::run(&load::Options::parse(rest)?),
        "kill" => kill::run(&kill::Options::parse(rest)?),
        bench::FAN_OUT => bench::fan_out(rest),
        fixture::mcp_server::MCP_SERVER => fixture::mcp_server::serve(rest),
        fixture::hook_process::SOCKET_CLIENT => fixture::hook_process::run_client(rest),
        in_process::BENCH => in_process::run(rest),
        in_process::YARDSTICK => in_process::run_yardstick(rest),
        unknown => {
            eprint!("loadtest: unknown command {unknown:?}\n{USAGE}");
            Ok(ExitCode::from(2))
        }
    }
}

/// Refuses to measure with a debug build: its slow clients would be what is measured.
fn require_release(command: &str) -> anyhow::Result<()> {
    if cfg!(debug_assertions) {
        anyhow::bail!("{command} needs the release build of this program: run `cargo xtask {command}`");
    }
    Ok(())
}
