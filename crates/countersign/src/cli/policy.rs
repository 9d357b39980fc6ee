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
    /// Say what is wrong with a file of rules, and what its author may not expect; ends with 1 if `serve` would not take it
    Check {
        /// The rules [default: permissions.yaml, beside the configuration if one is named]
        file: Option<PathBuf>,
        #[command(flatten)]
        about: PolicyArgs,
    },
    /// Say what becomes of a request, which rule decides that, and which rules nearly did
    ///
    /// Nothing happens by it. What people granted or denied for a while is not looked at.
    Explain {
        /// The tool: of a service, of the gateway's own runs, such as bash, or of a node, NODE__TOOL
        tool: String,
        /// Its arguments; values are texts
        #[arg(value_name = "KEY=VALUE")]
        arguments: Vec<String>,
        /// More arguments, of any kind, as a JSON object
        #[arg(long, value_name = "JSON")]
        args: Option<String>,
        /// The agent that asks
        #[arg(long, value_name = "ID", default_value = countersign_config::DEFAULT_AGENT)]
        agent: String,
        /// The rules [default: permissions.yaml, beside the configuration if one is named]
        #[arg(long, value_name = "FILE")]
        permissions: Option<PathBuf>,
        #[command(flatten)]
        about: PolicyArgs,
    },
    /// Try the cases of a file of rules and of the one beside it whose name ends in `.test.yaml`; ends with 1 if one fails
    Test {
        /// The rules [default: permissions.yaml, beside the configuration if one is named]
        file: Option<PathBuf>,
        #[command(flatten)]
        about: PolicyArgs,
    },
}

/// What rules are about.
#[derive(Args)]
pub(super) struct PolicyArgs {
    /// The configuration, whose agents and tools the rules are about [default: config.yaml beside the rules, if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The adapter whose calls are judged: agent-gate, console, api, gsv, hermes, omp or gjc [default: that of the agent directory
    /// which the rules lie in, else the gateway's, which depends on the tool]
    #[arg(long, value_name = "NAME")]
    door: Option<String>,
    /// Print JSON, for a program
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
