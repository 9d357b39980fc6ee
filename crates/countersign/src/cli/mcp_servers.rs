//! `mcp-servers`.

use std::process::ExitCode;

use clap::Subcommand;

use super::target::TargetArgs;
use crate::mcp_servers::{self, McpServersAction};

#[derive(Subcommand)]
pub(super) enum McpServersCommand {
    /// List the MCP servers of the configuration, and their approved tools; starts none
    List,
    /// Start MCP servers, and compare their tools with the approved ones; approves nothing
    ///
    /// The exit code is 1 if a server cannot be started, or if you have not approved its definition and its tools as they are.
    Test {
        /// Name of the server [default: all]
        name: Option<String>,
    },
    /// Show an MCP server with its tools, and approve it if you agree
    ///
    /// Shows the command or the address before it starts, then every tool with its description, and asks twice. A tool
    /// that the server changes later is not called until it is approved again. A running gateway offers the tools at
    /// once.
    Approve {
        /// Name of the server
        name: String,
        /// Approve without asking, for scripts
        #[arg(long)]
        yes: bool,
    },
    /// Withdraw the approval of an MCP server; a running gateway offers its tools no longer
    Revoke {
        /// Name of the server
        name: String,
    },
}

pub(super) fn run(what: McpServersCommand, at: &TargetArgs) -> anyhow::Result<ExitCode> {
    let what = match what {
        McpServersCommand::List => McpServersAction::List,
        McpServersCommand::Test { name } => McpServersAction::Test { name },
        McpServersCommand::Approve { name, yes } => McpServersAction::Approve { name, yes },
        McpServersCommand::Revoke { name } => McpServersAction::Revoke { name },
    };
    at.check_found_config()?;
    mcp_servers::run(at.config_path().as_deref(), at.data.clone(), &what, at.output_format())
}
