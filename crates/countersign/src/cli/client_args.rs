//! Arguments of every command of an agent's own client.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use crate::agent;

/// Where the gateway is, and who asks.
#[derive(Args)]
pub(super) struct ClientArgs {
    /// Address of the gateway, for example ws://127.0.0.1:8443
    #[arg(long, env = "AGENTPASS_URL", value_name = "URL")]
    url: Option<String>,
    /// Token of the agent
    #[arg(long, env = "AGENT_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Timeout in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 900.0)]
    timeout: f64,
    /// PEM file of additional trusted certificates, for wss:// addresses
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

impl From<ClientArgs> for agent::ClientOptions {
    fn from(args: ClientArgs) -> Self {
        let timeout = Duration::try_from_secs_f64(args.timeout).unwrap_or(Duration::from_secs(900));
        Self { url: args.url, token: args.token, timeout, ca: args.ca }
    }
}
