//! `agents`.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::target::TargetArgs;
use crate::agents::{self, AgentsAction};

#[derive(Subcommand)]
pub(super) enum AgentsCommand {
    /// List agents and the source of each token
    List,
    /// Add an agent, and print its token once
    ///
    /// The token is written into the configuration file, which only its owner can read from then on. With --env, the
    /// file names a variable instead.
    Add {
        /// Name of the agent: letters, digits, dots, - and _
        id: String,
        #[command(flatten)]
        token: AgentTokenArgs,
    },
    /// Replace the token of an agent, and print the new one once
    ///
    /// If the token comes from a variable, set that variable to the printed token.
    Rotate {
        /// Name of the agent
        id: String,
        #[command(flatten)]
        token: AgentTokenArgs,
    },
    /// Remove an agent
    Remove {
        /// Name of the agent
        id: String,
    },
}

/// Where a token is kept.
#[derive(Args)]
pub(super) struct AgentTokenArgs {
    /// Write ${NAME} into the file, and print the value for that variable
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
    at.check_found_config()?;
    agents::run(at.config_path().as_deref(), at.data.as_deref(), &what, at.output_format())
}
