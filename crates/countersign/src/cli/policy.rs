//! `policy`.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};

use super::target::GlobalArgs;
use crate::{
    audit::OutputFormat,
    policy::{self, ExplainInput, PolicyFiles, PolicySelection},
};

#[derive(Subcommand)]
pub(super) enum PolicyCommand {
    /// Print errors and warnings of a rules file; the exit code is 1 if it has an error
    Check {
        /// The rules [default: permissions.yaml, next to the configuration if one is given]
        file: Option<PathBuf>,
        #[command(flatten)]
        about: PolicyArgs,
    },
    /// Explain the verdict on a call: the rule that decides, and rules that nearly decided
    ///
    /// Dry run: nothing is executed. Standing approvals and active denials are not considered.
    Explain {
        /// Name of the tool: of a service, of the gateway's own runs, such as bash, or of a node, NODE__TOOL
        tool: String,
        /// Arguments of the tool; all values are strings
        #[arg(value_name = "KEY=VALUE")]
        arguments: Vec<String>,
        /// More arguments, of any type, as a JSON object
        #[arg(long, value_name = "JSON")]
        args: Option<String>,
        /// Agent that requests the call
        #[arg(long, value_name = "ID", default_value = countersign_config::DEFAULT_AGENT)]
        agent: String,
        /// The rules [default: permissions.yaml, next to the configuration if one is given]
        #[arg(long, value_name = "FILE")]
        permissions: Option<PathBuf>,
        #[command(flatten)]
        about: PolicyArgs,
    },
    /// Run the test cases of a rules file and of its `.test.yaml` file
    ///
    /// The exit code is 1 if a case fails. Without cases it is 0, with a notice on stderr.
    Test {
        /// The rules [default: permissions.yaml, next to the configuration if one is given]
        file: Option<PathBuf>,
        #[command(flatten)]
        about: PolicyArgs,
    },
}

/// What rules are about.
#[derive(Args)]
pub(super) struct PolicyArgs {
    /// Configuration with the agents and tools of the rules [default: config.yaml next to the rules, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Adapter of the call, a door in rules: agent-gate, console, api, gsv, hermes, mcp, claude, codex, gemini, copilot, acp, opencode,
    /// omp or gjc [default: the adapter whose agent
    /// directory contains the rules, else an adapter of the gateway, depending on the tool]
    #[arg(long, value_name = "NAME")]
    door: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(what: PolicyCommand, before: GlobalArgs) -> anyhow::Result<ExitCode> {
    let (file, about) = match &what {
        PolicyCommand::Check { file, about } | PolicyCommand::Test { file, about } => (file, about),
        PolicyCommand::Explain { permissions, about, .. } => (permissions, about),
    };
    let asker = match &what {
        PolicyCommand::Explain { agent, .. } => Some(agent.as_str()),
        PolicyCommand::Check { .. } | PolicyCommand::Test { .. } => None,
    };
    let named =
        PolicySelection { rules: file.as_deref(), config: about.config.as_deref(), door: about.door.as_deref(), asker };
    let files = PolicyFiles::new(&named, before.config)?;
    let form = if about.json { OutputFormat::Json } else { OutputFormat::Text };
    match what {
        PolicyCommand::Check { .. } => policy::check_policy(&files, form),
        PolicyCommand::Test { .. } => policy::test_policy(&files, form),
        PolicyCommand::Explain { tool, arguments, args, agent, .. } => {
            policy::explain_policy(&files, &ExplainInput { tool, arguments, args, agent }, form)
        }
    }
}
