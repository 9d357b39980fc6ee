//! The command line of `node`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::node;

pub(super) const AFTER_HELP: &str = "\
The token is never an argument, where everybody on this machine could read it:
  --token-file FILE   the file holds the token and nothing else; it is read
                      again for every connection
  --token-env VAR     the variable holds it; without either
                      COUNTERSIGN_NODE_TOKEN does, if it is set
It is `clients.token` of the gateway's configuration.

Begin, on the machine that lends its tools:
  countersign node --url wss://gate.example.org/ws --id kitchen \\
    --workspace ~/shared --token-file ~/.node-token

Agents of the gateway then have kitchen__Bash, kitchen__Process, kitchen__Read, kitchen__Write, kitchen__Edit, kitchen__Glob and \
kitchen__Grep, each under the gateway's rules. Files are confined to the workspace, links followed; commands run in it with the \
rights of this user and are not confined (docs/node.md).

It comes back by itself when the gateway was away. Ends with 0 when somebody ends it (SIGTERM, SIGINT), 1 if the gateway does not \
take it or something here is not as it should be, 2 if the command line cannot be read.";

#[derive(Args)]
pub(super) struct NodeArgs {
    /// The gateway, such as wss://gate.example.org/ws
    #[arg(long, value_name = "URL")]
    url: String,
    /// What agents know this machine by: its tools are called ID__Bash and so on
    #[arg(long, value_name = "NAME")]
    id: String,
    /// The folder that agents work in
    #[arg(long, value_name = "DIR")]
    workspace: PathBuf,
    /// The variable that holds the token
    #[arg(long, value_name = "VAR", conflicts_with = "token_file")]
    token_env: Option<String>,
    /// The file that holds the token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Where the journal of calls, the log and permissions.yaml lie [default: ~/.local/share/countersign/nodes/NAME]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// What is denied here whatever the gateway allows [default: permissions.yaml in the data directory, if it is there]
    #[arg(long, value_name = "FILE")]
    permissions: Option<PathBuf>,
    /// Certificates that are trusted besides the system's, as PEM
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Send the token over a line without TLS to another machine
    #[arg(long)]
    insecure: bool,
    /// How what happens is told on stderr
    #[arg(long, value_enum, value_name = "FORM", default_value = "text")]
    log_format: NodeLogFormatArg,
}

#[derive(Clone, Copy, ValueEnum)]
enum NodeLogFormatArg {
    /// Lines for people
    Text,
    /// A JSON object a line
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
