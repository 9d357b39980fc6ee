//! A node: lends files and commands of this machine to a gateway elsewhere, until a signal ends it.
//!
//! It must not parse the command line, or know how the process logs: the binary does. Its errors name the flags of `countersign node`.

mod address;
mod backoff;
mod calls;
pub mod connect_error;
mod connection;
mod data_dir;
mod handshake;
mod journal;
mod local_auth;
mod logs;
mod probes;
mod reconnect;
mod socket;
pub mod tls_roots;

use std::{ffi::OsString, io::Write as _, path::PathBuf, process::ExitCode, sync::Arc};

use anyhow::Context as _;
use countersign_protocol::gsv::{
    node::{ExecEvent, ExecState},
    tool::check_node,
};
use countersign_tools::{
    CommandEnvironment,
    exec::{self, ExecLauncher},
    node::{ExecutionChange, ExecutionEvent, ExecutionListener, NodeToolOptions, NodeToolRunner, login_path},
};
use tokio_util::sync::CancellationToken;

use address::GatewayAddress;
pub use address::{InsecurePolicy, is_loopback};
use calls::CallRunner;
use connection::NodeServices;
use data_dir::{NodeDataDir, NodeTokenSource};
use handshake::NodeHandshake;
use journal::JournalHandle;
pub use logs::NodeLogFile;
use probes::ProbeRunner;
use reconnect::ReconnectLoop;

/// Format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeLogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Options of the command line.
pub struct NodeOptions {
    /// Address of the gateway.
    pub url: String,
    /// Id of the node.
    pub id: String,
    /// Folder that it lends.
    pub workspace: PathBuf,
    /// Variable that holds the token.
    pub token_env: Option<String>,
    /// File that holds the token.
    pub token_file: Option<PathBuf>,
    /// Data directory; none means the usual one.
    pub data: Option<PathBuf>,
    /// File of rules; none means the one in the data directory.
    pub permissions: Option<PathBuf>,
    /// File of further trusted certificates.
    pub ca: Option<PathBuf>,
    /// Places to which it may connect without TLS.
    pub plain: InsecurePolicy,
    /// Format of the log.
    pub form: NodeLogFormat,
}

/// A node that may be begun.
struct PreparedNode {
    id: String,
    address: GatewayAddress,
    workspace: PathBuf,
    token: NodeTokenSource,
    data: NodeDataDir,
    environment: CommandEnvironment,
    /// Names of the variables that commands start with, less those that only keep them quiet.
    variables: Vec<String>,
    own: Vec<PathBuf>,
    rules: countersign_core::policy::CompiledRules,
}

impl NodeOptions {
    /// Looks at everything before anything is begun.
    fn into_prepared(self) -> anyhow::Result<PreparedNode> {
        let Self { url, id, workspace, token_env, token_file, data, permissions, ca, plain, .. } = self;
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        if id.is_empty() || id.starts_with('.') || !id.chars().all(is_plain) {
            anyhow::bail!("invalid --id {id:?}: expected letters, digits, -, _ and ., without a dot at the beginning");
        }
        check_node(&id).with_context(|| format!("--id {id}"))?;
        let address = GatewayAddress::from_url(&url, ca.as_deref(), plain)?;
        let workspace = data_dir::resolve_workspace(&workspace)?;
        let token = NodeTokenSource::from_options(token_env, token_file)?;
        token.read_token()?;
        let data = NodeDataDir::open(data.as_deref(), &id)?;
        if workspace.starts_with(data.folder()) {
            anyhow::bail!(
                "--workspace is in the data directory {}, which agents must not access: choose another folder",
                data.folder().display()
            );
        }
        let (rules, permissions) = data_dir::load_rules(permissions.as_deref(), &data)?;
        let mut own = vec![data.folder().to_owned(), permissions];
        if let NodeTokenSource::File(path) = &token {
            own.push(path.clone());
        }
        let hidden = |name: &str| token.hides_variable(name);
        let environment = CommandEnvironment::inherit_less(hidden);
        let variables = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let variables = variables.filter(|name| !token.hides_variable(name)).collect();
        Ok(PreparedNode { id, address, workspace, token, data, environment, variables, own, rules })
    }
}

/// Runs a node to its end.
///
/// `start_logs` begins to log in this form, also to the file that the gateway can ask for.
///
/// # Errors
/// An option that is not accepted, a file that cannot be used, or the end of the connection for good.
pub fn run(
    options: NodeOptions,
    start_logs: impl FnOnce(NodeLogFormat, NodeLogFile) -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    let form = options.form;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let ready = options.into_prepared()?;
    let path = ready.data.log_path();
    let file = NodeLogFile::open(&path).with_context(|| format!("the log {} cannot be written", path.display()))?;
    start_logs(form, file)?;
    exec::become_subreaper()?;
    let program = std::env::current_exe()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(async {
        tokio::spawn(exec::reap());
        serve_node(ready, ExecLauncher::new(&program)).await
    });
    runtime.shutdown_timeout(std::time::Duration::from_millis(500));
    exec::kill_remaining();
    outcome?;
    Ok(ExitCode::SUCCESS)
}

async fn serve_node(ready: PreparedNode, launcher: ExecLauncher) -> anyhow::Result<()> {
    let PreparedNode { id, address, workspace, token, data, mut environment, variables, own, rules } = ready;
    if let Some(warning) = token.warning() {
        tracing::warn!("{warning}");
    }
    if token == NodeTokenSource::Nowhere {
        tracing::warn!(
            "no token given: this node can connect only to a gateway on this machine that requires none. For any other gateway, \
             write its `clients.token` to a file that only you can read, and start the node with --token-file FILE"
        );
    }
    let (journal, broken) = JournalHandle::open(&data.journal_path())?;
    let number = journal.id();
    if broken != journal::InterruptedWork::default() {
        let (calls, commands) = (broken.calls, broken.commands);
        tracing::warn!(
            calls,
            commands,
            "the previous process of this node was interrupted: the outcome of these calls is unknown, and these commands ended"
        );
    }
    // A program that starts at boot has few folders in its path; users expect theirs.
    if let Some(path) = login_path(&launcher, &environment, &workspace).await {
        environment.set_variable("PATH", path);
    }
    let path = environment.get("PATH").map(OsString::from).unwrap_or_default();
    let noted = journal.clone();
    let teller = ExecutionListener::new(move |occurrence| noted.record_event(exec_event(occurrence)));
    let site = NodeToolOptions { workspace, own, environment, launcher, rules };
    let toolbox = Arc::new(NodeToolRunner::new(site, teller)?);
    let (calls, outcomes) = CallRunner::new(toolbox, journal.clone());
    let services = NodeServices { calls, journal, probes: ProbeRunner::new(path, data.log_path()) };
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    let ended = end_signal();
    tokio::spawn(async move {
        ended.await;
        tracing::info!("the node is stopping");
        stopping.cancel();
    });
    let ready = |id: &str, url: &str| {
        let mut out = std::io::stdout().lock();
        // The reader may have closed the output.
        let _ = writeln!(out, "countersign node {id} connected to {url}").and_then(|()| out.flush());
    };
    ReconnectLoop {
        hello: NodeHandshake::new(&id, variables, number),
        id,
        address,
        token,
        services,
        outcomes,
        stop,
        ready,
    }
    .run()
    .await
}

/// Converts an event of a command to the one for the gateway.
fn exec_event(occurrence: ExecutionEvent) -> ExecEvent {
    let ExecutionEvent { id, session, call, became, exit_code, signal, tail, started_at, ended_at } = occurrence;
    ExecEvent {
        event_id: id,
        session_id: session,
        event: match became {
            ExecutionChange::Started => ExecState::Started,
            ExecutionChange::Finished => ExecState::Finished,
            ExecutionChange::Failed => ExecState::Failed,
            ExecutionChange::TimedOut => ExecState::TimedOut,
        },
        call_id: Some(call),
        exit_code: exit_code.map(i64::from),
        signal,
        output_tail: Some(tail).filter(|tail| !tail.is_empty()),
        started_at: Some(started_at),
        ended_at,
    }
}

/// Becomes ready when a signal requests the end of the process, from this call on.
fn end_signal() -> impl Future<Output = ()> {
    use tokio::signal::unix::{SignalKind, signal};
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    async {
        let (Ok(mut terminate), Ok(mut interrupt)) = signals else { return std::future::pending().await };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
}
