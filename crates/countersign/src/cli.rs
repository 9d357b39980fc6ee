//! The command line.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Agents propose, policy decides, people countersign, and only then does anything happen.
#[derive(Parser)]
#[command(name = "countersign", version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a coding agent for a host that speaks JSON lines over stdio (`countersign omp --mode rpc …`)
    #[command(disable_help_flag = true)]
    Omp {
        /// The flags of `omp`; see docs/protocol/omp.md
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<String>,
    },
}

pub(crate) fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Omp { flags } => crate::stdio::omp(flags),
    }
}
