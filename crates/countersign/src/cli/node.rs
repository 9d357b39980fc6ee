//! The command line of `node`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use countersign_node_client as node;

pub(super) const AFTER_HELP: &str = "\
The token is never an argument, because every user of this machine could read it:
  --token-file FILE   the file contains only the token; it is read again for
                      every connection
  --token-env VAR     the variable contains the token
                      [default: COUNTERSIGN_NODE_TOKEN]
The token is `clients.token` of the gateway's configuration.

Example, on the machine that lends its tools:
  countersign node --url wss://gate.example.org/ws --id kitchen \\
    --workspace ~/shared --token-file ~/.node-token

Agents of the gateway can then call kitchen__Bash, kitchen__Process, kitchen__Read, kitchen__Write, kitchen__Edit, kitchen__Glob and \
kitchen__Grep, each under the gateway's rules. The file tools cannot leave the workspace, also not through symlinks. Commands \
start in the workspace, have the rights of this user, and are not confined (docs/node.md).

The node reconnects automatically. Exit codes: 0 after SIGTERM or SIGINT, 1 if the gateway rejects the node or its setup is \
invalid, 2 if the command line could not be parsed.";

#[derive(Args)]
pub(super) struct NodeArgs {
    /// Address of the gateway, for example wss://gate.example.org/ws
    #[arg(long, value_name = "URL")]
    url: String,
    /// Name of this machine for agents: its tools are NAME__Bash and so on
    #[arg(long, value_name = "NAME")]
    id: String,
    /// Folder that agents work in
    #[arg(long, value_name = "DIR")]
    workspace: PathBuf,
    /// Variable that contains the token
    #[arg(long, value_name = "VAR", conflicts_with = "token_file")]
    token_env: Option<String>,
    /// File that contains the token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Folder of the call journal, the log and permissions.yaml [default: ~/.local/share/countersign/nodes/NAME]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Rules for calls that this node denies although the gateway allows them [default: permissions.yaml in the data
    /// directory, if it exists]
    #[arg(long, value_name = "FILE")]
    permissions: Option<PathBuf>,
    /// PEM file of additional trusted certificates
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Connect to another machine without TLS, which sends the token unencrypted
    #[arg(long)]
    insecure: bool,
    /// Log format on stderr
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    log_format: NodeLogFormatArg,
}

#[derive(Clone, Copy, ValueEnum)]
enum NodeLogFormatArg {
    /// Human-readable lines
    Text,
    /// One JSON object per line
    Json,
}

impl NodeArgs {
    /// Returns the options, with the data directory that stood before the command.
    pub(super) fn into_options(self, data: Option<PathBuf>) -> node::NodeOptions {
        node::NodeOptions {
            url: self.url,
            id: self.id,
            workspace: self.workspace,
            token_env: self.token_env,
            token_file: self.token_file,
            data: self.data.or(data),
            permissions: self.permissions,
            ca: self.ca,
            plain: if self.insecure { node::InsecurePolicy::Anywhere } else { node::InsecurePolicy::ToLoopback },
            form: match self.log_format {
                NodeLogFormatArg::Text => node::NodeLogFormat::Text,
                NodeLogFormatArg::Json => node::NodeLogFormat::Json,
            },
        }
    }
}
