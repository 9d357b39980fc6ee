//! Flags of the proxies before other agents.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::{Args, ValueEnum};
use countersign_agent_proxy::{EditorApprovals, OpenSettings};

use super::target::{GlobalArgs, TargetArgs};
use crate::proxy::{self, AcpProxyOptions, CodexProxyOptions, DecidingGateway};

/// Places at which a person answers.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum ApprovalPlaces {
    /// In the editor too; the first answer counts
    #[default]
    Editor,
    /// At the gateway only
    Gateway,
}

/// Usual wait for a gateway that ended, in seconds.
const RECONNECT: u64 = 60;

/// Flags of both proxies.
#[derive(Args)]
struct ProxyArgs {
    /// Accept an agent that acts without asking, and has no mode in which it asks
    #[arg(long)]
    accept_open: bool,
    /// Longest wait for a gateway that ended while a call waited, in seconds; then the call is denied
    #[arg(long, value_name = "SECONDS", default_value_t = RECONNECT, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    reconnect: u64,
}

impl ProxyArgs {
    const fn open(&self) -> OpenSettings {
        if self.accept_open { OpenSettings::Accept } else { OpenSettings::Refuse }
    }

    /// Returns the gateway. A configuration in the current folder does not count: it may be that of a foreign repository.
    fn gateway(&self, at: &TargetArgs) -> anyhow::Result<DecidingGateway> {
        let reconnect = Duration::from_secs(self.reconnect);
        Ok(DecidingGateway { place: at.named_data_dir()?, reconnect })
    }
}

/// Flags of `acp` for an agent of others.
#[derive(Args)]
pub(super) struct AcpProxyArgs {
    /// Command of an agent that speaks ACP: be a proxy before it, and let the gateway decide what it asks for
    ///
    /// For example `countersign acp --agent "gemini --acp"` as the command of the agent in your editor.
    #[arg(long, value_name = "COMMAND")]
    agent: Option<String>,
    /// Where a person answers
    #[arg(long, value_name = "PLACE", requires = "agent", value_enum, default_value_t)]
    approvals: ApprovalPlaces,
    #[command(flatten)]
    proxy: ProxyArgs,
}

impl AcpProxyArgs {
    /// Reports whether an agent is named.
    pub(super) const fn has_agent(&self) -> bool {
        self.agent.is_some()
    }

    /// Refuses flags that only a proxy has.
    pub(super) fn check_unused(&self) -> anyhow::Result<()> {
        if self.proxy.accept_open || self.proxy.reconnect != RECONNECT {
            anyhow::bail!(
                "--accept-open and --reconnect need --agent: they are flags of the proxy before another agent"
            );
        }
        Ok(())
    }

    /// Runs the proxy before the agent that is named. `at` has the flags before the subcommand too.
    pub(super) fn run(self, at: &TargetArgs) -> anyhow::Result<ExitCode> {
        let Self { agent, approvals, proxy } = self;
        let agent = agent.ok_or_else(|| anyhow::anyhow!("--agent is missing: expected the command of an agent"))?;
        let approvals = match approvals {
            ApprovalPlaces::Editor => EditorApprovals::Editor,
            ApprovalPlaces::Gateway => EditorApprovals::Gateway,
        };
        let options = AcpProxyOptions { agent, approvals, open: proxy.open() };
        proxy.gateway(at).and_then(|gateway| proxy::run_acp(gateway, options))
    }
}

/// `codex` and its flags.
#[derive(Args)]
pub(super) struct CodexArgs {
    /// Path of Codex
    #[arg(long, value_name = "FILE", default_value = "codex")]
    program: PathBuf,
    #[command(flatten)]
    proxy: ProxyArgs,
    #[command(flatten)]
    at: TargetArgs,
    /// Arguments of `codex app-server`
    #[arg(last = true, value_name = "ARGUMENTS")]
    arguments: Vec<String>,
}

impl CodexArgs {
    pub(super) fn run(self, before: GlobalArgs) -> anyhow::Result<ExitCode> {
        let Self { program, proxy, at, arguments } = self;
        let gateway = proxy.gateway(&at.merge_globals(before))?;
        proxy::run_codex(gateway, CodexProxyOptions { program, arguments, open: proxy.open() })
    }
}
