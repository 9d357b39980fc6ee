//! `agents`.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::target::TargetArgs;
use crate::agents::{self, AgentsAction};

#[derive(Subcommand)]
pub(super) enum AgentsCommand {
    /// Who they are, and where the token of each comes from
    List,
    /// Add one and print its token, once
    ///
    /// The token is written into the file, which nobody but its owner can read from then on; with --env a variable is.
    Add {
        /// Its name: letters, digits, dots, - and _
        id: String,
        #[command(flatten)]
        token: AgentTokenArgs,
    },
    /// Give one another token and print it, once
    ///
    /// A token that comes from a variable still does: set the variable to what is printed.
    Rotate {
        /// Its name
        id: String,
        #[command(flatten)]
        token: AgentTokenArgs,
    },
    /// Remove one
    Remove {
        /// Its name
        id: String,
    },
}

/// Where a token is kept.
#[derive(Args)]
pub(super) struct AgentTokenArgs {
    /// Write ${NAME} into the file, and print what that variable is to be set to
    #[arg(long, value_name = "NAME", value_parser = agents::parse_variable)]
    env: Option<String>,
}

pub(super) fn run(what: AgentsCommand, at: &TargetArgs) -> anyhow::Result<ExitCode> {
    let what = match what {
        AgentsCommand::List => AgentsAction::List,
        AgentsCommand::Add { id, token } => AgentsAction::Add { id, variable: token.env },
        AgentsCommand::Rotate { id, token } => AgentsAction::Rotate { id, variable: token.env },
        AgentsCommand::Remove { id } => AgentsAction::Remove { id },
    };
    agents::run(at.config_path().as_deref(), at.data.as_deref(), &what, at.output_format())
}
