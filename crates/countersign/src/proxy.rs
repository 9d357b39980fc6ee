//! `acp --agent` and `codex`: proxies before other agents, whose calls the gateway decides.
//!
//! Rules of the protocols are in the crate agent-proxy. Here are the process of the agent, our streams and the gateway.

mod gateway_decider;
mod policy_file;

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Duration,
};

use anyhow::{Context as _, bail};
use countersign_agent_proxy::{
    AcpOptions, AcpProxy, AgentProcess, CodexOptions, CodexProxy, CodexVersion, EditorApprovals, GuardedAgent,
    Interceptor, OpenSettings, PROVEN_VERSION, Proxy, ProxyEnd, split_words,
};

use crate::{
    data_dir::DataDir,
    exit::{fail_with, print_notice},
};
use gateway_decider::GatewayDecider;
use policy_file::PolicyFile;

/// Time in which a program prints its version.
const VERSION_LIMIT: Duration = Duration::from_secs(20);

/// Gateway that decides.
pub(crate) struct DecidingGateway {
    /// Its data directory.
    pub(crate) place: DataDir,
    /// Longest wait for one that has gone.
    pub(crate) reconnect: Duration,
}

/// Options of a proxy before an agent of ACP.
pub(crate) struct AcpProxyOptions {
    /// Command line of the agent.
    pub(crate) agent: String,
    pub(crate) approvals: EditorApprovals,
    pub(crate) open: OpenSettings,
}

/// Options of a proxy before the app-server of Codex.
pub(crate) struct CodexProxyOptions {
    pub(crate) program: PathBuf,
    /// Arguments of `codex app-server`.
    pub(crate) arguments: Vec<String>,
    pub(crate) open: OpenSettings,
}

/// Runs a proxy between the editor on standard input and output and an agent.
pub(crate) fn run_acp(gateway: DecidingGateway, options: AcpProxyOptions) -> anyhow::Result<ExitCode> {
    let words = split_words(&options.agent).with_context(|| format!("--agent {:?}", options.agent))?;
    let agent = GuardedAgent::from_words(&words);
    let guard = agent.inner_guard();
    let mut command = agent_command(Path::new(&words[0]));
    command.args(&words[1..]).args(&guard.arguments).envs(guard.environment.iter().copied());
    let policy =
        guard.policy.map(|(flag, text)| Ok::<_, anyhow::Error>((flag, PolicyFile::create(text)?))).transpose()?;
    if let Some((flag, file)) = &policy {
        command.arg(flag).arg(file.path());
    }
    print_notice(&format!("what gets past this proxy: {}", guard.notice));
    let cwd = working_dir()?;
    let proxy = AcpProxy::new(AcpOptions { approvals: options.approvals, open: options.open, agent, cwd });
    run_proxy(proxy, GatewayDecider::new("acp", gateway), command)
}

/// Runs a proxy between a client on standard input and output and `codex app-server`.
pub(crate) fn run_codex(gateway: DecidingGateway, options: CodexProxyOptions) -> anyhow::Result<ExitCode> {
    if options.open == OpenSettings::Refuse {
        let version = probe_version(&options.program)?;
        if version < PROVEN_VERSION {
            bail!(
                "{} has the version {version}: expected {PROVEN_VERSION} or newer, with which the proxy was proven. \
                 `--accept-open` accepts it",
                options.program.display()
            );
        }
    }
    let mut command = agent_command(&options.program);
    command.arg("app-server").args(&options.arguments);
    let proxy = CodexProxy::new(CodexOptions { open: options.open, cwd: working_dir()? });
    run_proxy(proxy, GatewayDecider::new("codex", gateway), command)
}

fn agent_command(program: &Path) -> Command {
    Command::new(program)
}

fn working_dir() -> anyhow::Result<String> {
    let folder = std::env::current_dir().context("cannot find the current folder")?;
    folder.into_os_string().into_string().ok().context("the path of the current folder is not UTF-8")
}

fn probe_version(program: &Path) -> anyhow::Result<CodexVersion> {
    let shown = program.display();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let output = runtime.block_on(async {
        let mut command = tokio::process::Command::new(program);
        command.arg("--version").stdin(std::process::Stdio::null()).kill_on_drop(true);
        tokio::time::timeout(VERSION_LIMIT, command.output()).await
    });
    let output = output
        .with_context(|| format!("{shown} --version did not end within {} s", VERSION_LIMIT.as_secs()))?
        .with_context(|| format!("cannot start {shown}: expected Codex in PATH, or its path with --program"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    CodexVersion::parse(&text).with_context(|| {
        format!("{shown} --version printed {:?}: expected `codex-cli {PROVEN_VERSION}` or newer", text.trim())
    })
}

fn run_proxy(interceptor: impl Interceptor, decider: GatewayDecider, command: Command) -> anyhow::Result<ExitCode> {
    // One thread: messages are passed on, and nothing is computed.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let end = runtime.block_on(async {
        let (mut agent, input, output) = AgentProcess::start(command)?;
        let proxy = Proxy::new(interceptor, decider, print_notice);
        let ended = async {
            match agent.wait().await {
                Ok(status) => format!("the agent ended with {status}"),
                Err(error) => format!("the agent cannot be waited for: {error}"),
            }
        };
        let client = (tokio::io::stdin(), tokio::io::stdout());
        let end = Box::pin(proxy.run(client, (output, input), ended, stop_signal())).await;
        agent.end().await;
        anyhow::Ok(end)
    });
    // A blocked read of standard input must not hold up the end.
    runtime.shutdown_background();
    Ok(match end? {
        ProxyEnd::Client | ProxyEnd::Stopped => ExitCode::SUCCESS,
        ProxyEnd::Agent(reason) => fail_with(&reason),
    })
}

/// Becomes ready when a signal requests the end.
async fn stop_signal() {
    use tokio::signal::unix::{SignalKind, signal};

    let Ok(mut hangup) = signal(SignalKind::hangup()) else { return std::future::pending().await };
    tokio::select! {
        _ = hangup.recv() => {}
        () = crate::signals::shutdown_signal() => {}
    }
}
