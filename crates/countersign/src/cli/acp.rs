//! `acp` and its flags.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use countersign_core::policy::ApprovalMode;
use countersign_gateway::control::AcpOptions;

use super::{
    proxies::AcpProxyArgs,
    target::{GlobalArgs, TargetArgs},
};
use crate::acp;

#[derive(Args)]
pub(super) struct AcpArgs {
    /// Provider of the model of new sessions
    #[arg(long, value_name = "PROVIDER")]
    provider: Option<String>,
    /// Model of new sessions: its id, or provider/id
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Loosest approval mode: always-ask, write or yolo; the editor can choose a stricter one
    ///
    /// With always-ask and write, a person approves each call that may change something, regardless of rules that allow it. With yolo,
    /// the default, the rules decide.
    #[arg(long, value_name = "MODE", value_parser = parse_mode)]
    approval_mode: Option<ApprovalMode>,
    /// Agent directory with models, keys and rules, for an editor without a gateway [default: that of omp]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["config", "data"])]
    agent_dir: Option<PathBuf>,
    /// Open sessions without the MCP servers that the editor names; otherwise such sessions are refused
    #[arg(long)]
    ignore_mcp_servers: bool,
    #[command(flatten)]
    proxy: AcpProxyArgs,
    #[command(flatten)]
    at: TargetArgs,
}

impl AcpArgs {
    pub(super) fn run(self, before: GlobalArgs) -> anyhow::Result<ExitCode> {
        let Self { provider, model, approval_mode, agent_dir, ignore_mcp_servers, proxy, at } = self;
        let at = at.merge_globals(before);
        let of_agent = [
            ("--provider", provider.is_some()),
            ("--model", model.is_some()),
            ("--approval-mode", approval_mode.is_some()),
            ("--agent-dir", agent_dir.is_some()),
            ("--ignore-mcp-servers", ignore_mcp_servers),
        ];
        if proxy.has_agent() {
            if let Some((flag, _)) = of_agent.iter().find(|(_, is_set)| *is_set) {
                anyhow::bail!("{flag} cannot be used with --agent: that agent has its own models, settings and rules");
            }
            return proxy.run(&at);
        }
        proxy.check_unused()?;
        let is_named = at.config.is_some() || at.data.is_some();
        if is_named && agent_dir.is_some() {
            anyhow::bail!("--agent-dir cannot be used with --config or --data: a gateway has its own models and rules");
        }
        let approval = approval_mode.unwrap_or_default();
        let options = AcpOptions { provider, model, approval, ignores_servers: ignore_mcp_servers };
        // A folder that an editor opens may have a configuration of its own, which does not count.
        let gateway = if agent_dir.is_some() { None } else { Some(at.named_data_dir()?) };
        let place = match gateway {
            Some(place) if is_named => acp::AgentPlace::Gateway(place),
            gateway => acp::AgentPlace::AgentDir { folder: agent_dir, gateway: gateway.map(|place| place.folder) },
        };
        acp::run(place, options)
    }
}

fn parse_mode(value: &str) -> Result<ApprovalMode, String> {
    let accepted = ApprovalMode::ALL.map(ApprovalMode::name).join(", ");
    ApprovalMode::from_name(value).ok_or_else(|| format!("expected one of {accepted}"))
}
