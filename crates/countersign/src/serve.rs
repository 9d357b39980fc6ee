//! `serve`: a gateway with all network adapters, until a signal ends it.

use std::{io::Write as _, path::PathBuf, process::ExitCode, sync::Arc};

use countersign_config as config;
use countersign_config::{Config, ConfigFlags, LoadedConfig};
use countersign_gateway::{
    self as gateway, GatewayRealm, NodeOptions, NoticeLevel, ServeError, control::AcpOptions, serve_node, serve_realms,
};
use countersign_tools::exec;
use countersign_view::shell_quote;
use futures_util::FutureExt as _;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc, oneshot},
};

/// Configuration, and the flags that override it.
pub(crate) struct ServeOptions {
    pub(crate) config: Option<PathBuf>,
    pub(crate) flags: ConfigFlags,
}

pub(crate) fn run(options: ServeOptions) -> anyhow::Result<ExitCode> {
    run_gateway(options.load()?, HostLine::None)
}

/// Runs a gateway that serves an MCP host on standard input and output, and ends with it.
pub(crate) fn run_for_host(options: ServeOptions) -> anyhow::Result<ExitCode> {
    run_gateway(options.load()?, HostLine::Mcp)
}

/// Runs a gateway that serves an editor on standard input and output, and ends with the last editor that uses it.
pub(crate) fn run_for_editor(loaded: LoadedConfig, options: AcpOptions) -> anyhow::Result<ExitCode> {
    run_gateway(loaded, HostLine::Acp(options))
}

impl ServeOptions {
    /// Reads the configuration.
    pub(crate) fn load(&self) -> anyhow::Result<LoadedConfig> {
        let environment = |name: &str| std::env::var(name).ok();
        config::load_config(self.config.as_deref(), &self.flags, &environment)
            .map_err(|errors| anyhow::anyhow!("Configuration error: {errors}"))
    }
}

/// Connection of a gateway to a program that started it.
#[derive(Clone, PartialEq, Eq)]
enum HostLine {
    None,
    Mcp,
    Acp(AcpOptions),
}

fn run_gateway(loaded: LoadedConfig, line: HostLine) -> anyhow::Result<ExitCode> {
    let levels = crate::logging::start_with(&loaded.config.log);
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    if line == HostLine::None && loaded.config.realms.is_empty() {
        configuration_gaps(&loaded.config).iter().for_each(|lack| tracing::warn!("{lack}"));
    }
    exec::become_subreaper()?;
    let _ = rustls::crypto::ring::default_provider().install_default();
    more_descriptors();
    let program = std::env::current_exe()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().thread_stack_size(crate::STACK).enable_all().build()?;
    let outcome = runtime.block_on(async {
        let (tell, reload) = mpsc::channel(1);
        // If a file may not grow, the write fails with an error, and the signal must not end the process before it can be reported.
        let _outgrown = signal(SignalKind::from_raw(nix::libc::SIGXFSZ));
        tokio::spawn(hang_ups(tell));
        tokio::spawn(exec::reap());
        let notice = |level: NoticeLevel, text: &str| match level {
            NoticeLevel::Info => tracing::info!("{text}"),
            NoticeLevel::Warning => tracing::warn!("{text}"),
        };
        let (tell_armed, armed) = oneshot::channel();
        let (tell_gone, gone) = oneshot::channel();
        if let Some(cluster) = loaded.config.cluster.clone() {
            if line != HostLine::None {
                return Err(ServeError::Standalone);
            }
            let node = NodeOptions { program, version: env!("CARGO_PKG_VERSION").to_owned(), levels: Arc::new(levels) };
            let ready = |url: &str| {
                let _ = tell_armed.send(end_signals());
                print_ready(url);
            };
            return serve_node(loaded.config, cluster, node, notice, ready, reload, wait_for_signal(armed)).await;
        }
        if !loaded.config.realms.is_empty() {
            if line != HostLine::None {
                return Err(ServeError::SeveralRealms);
            }
            let ready = |url: &str| {
                let _ = tell_armed.send(end_signals());
                print_ready(url);
            };
            let stop = wait_for_signal(armed);
            return serve_realms(loaded.config, program, notice, ready, reload, levels, stop).await;
        }
        let ready = |realm: &GatewayRealm| {
            // A reader of the line may request the end at once. Until here a signal ends the process as it is.
            let _ = tell_armed.send(end_signals());
            match &line {
                HostLine::None => print_ready(realm.url()),
                HostLine::Mcp | HostLine::Acp(_) => serve_host(realm, &line, tell_gone),
            }
        };
        let stop = async {
            match &line {
                HostLine::None => wait_for_signal(armed).await,
                HostLine::Mcp | HostLine::Acp(_) => {
                    tokio::select! {
                        () = wait_for_signal(armed) => {}
                        _ = gone => {}
                    }
                }
            }
        };
        let ground = gateway::Platform::of_this_machine(program);
        gateway::serve(loaded.config, ground, notice, ready, reload, levels, stop).await
    });
    runtime.shutdown_timeout(std::time::Duration::from_millis(500));
    exec::kill_remaining();
    outcome?;
    Ok(ExitCode::SUCCESS)
}

/// Prints that the gateway takes connections.
fn print_ready(url: &str) {
    let mut out = std::io::stdout().lock();
    // The reader may have closed the output.
    let _ = writeln!(out, "countersign ready on {url}").and_then(|()| out.flush());
}

/// Serves the program on standard input and output, and sends to `gone` after its end.
fn serve_host(realm: &GatewayRealm, line: &HostLine, gone: oneshot::Sender<()>) {
    let folder = shell_quote(realm.config().storage.folder.display());
    let program = if matches!(line, HostLine::Acp(_)) { "editor" } else { "host" };
    // Standard output is the program's.
    let _ = writeln!(
        std::io::stderr(),
        "countersign: a gateway of its own serves this {program}; answer approvals at {}, or with `countersign gates --data {folder}`",
        realm.url()
    );
    let user = nix::unistd::getuid().as_raw();
    let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
    let serving = match line {
        HostLine::Acp(options) => realm.serve_editor(input, output, options.clone(), user).boxed(),
        HostLine::Mcp | HostLine::None => realm.serve_mcp_host(tokio::io::BufReader::new(input), output, user).boxed(),
    };
    tokio::spawn(async move {
        serving.await;
        let _ = gone.send(());
    });
}

/// Lists the parts that a gateway starts without, with the next step, for the operator: agents, services, messengers.
fn configuration_gaps(config: &Config) -> Vec<String> {
    let (agents, services) = (config.agents.len(), config.services.len());
    let mut lacks = Vec::new();
    let is_empty = agents == 0 && services == 0 && config.mcp_servers.is_empty() && config.telegram.is_none();
    if is_empty && config.providers.is_empty() {
        let (read, file) = match &config.file {
            Some(file) => (format!("{} configures", file.display()), shell_quote(file.display())),
            None => (
                "no configuration is loaded (no --config, and no config.yaml in this folder): there is".to_owned(),
                "config.yaml".to_owned(),
            ),
        };
        lacks.push(format!(
            "{read} no agent, no service and no messenger yet. Approvers use the console and `countersign gates`; to let \
             an agent connect, run `countersign agents add ID --config {file}` and restart"
        ));
    } else if agents == 0 && services > 0 {
        lacks.push(
            "no agent is configured, so only MCP hosts use the services; add one with `countersign agents add ID`"
                .to_owned(),
        );
    } else if agents > 0 && services == 0 && config.mcp_servers.is_empty() {
        let note = "no service is configured, so agents have no tools to call; add one under `services`";
        lacks.push(note.to_owned());
    }
    lacks
}

/// Asks for the rules to be read again with every SIGHUP.
async fn hang_ups(tell: mpsc::Sender<()>) {
    let Ok(mut hang_ups) = signal(SignalKind::hangup()) else { return };
    while hang_ups.recv().await.is_some() {
        // One that waits already is enough.
        let _ = tell.try_send(());
    }
}

/// Takes SIGTERM and SIGINT from now on; none if that cannot be had.
fn end_signals() -> Option<(Signal, Signal)> {
    Some((signal(SignalKind::terminate()).ok()?, signal(SignalKind::interrupt()).ok()?))
}

/// Becomes ready when a signal requests the end of the process, from when signals are taken.
async fn wait_for_signal(armed: oneshot::Receiver<Option<(Signal, Signal)>>) {
    let Ok(Some((mut terminate, mut interrupt))) = armed.await else { return std::future::pending().await };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Raises the limit of descriptors to the system's maximum, as each connection takes one.
fn more_descriptors() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
