//! Control socket: one line a request, one line an answer, and for `watch` a line after each change.

use std::{
    fs::File,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use countersign_adapter_acp::AcpAdapter;
use countersign_adapter_gjc as gjc;
use countersign_adapter_hooks::{HookAdapter, HookRequest};
use countersign_adapter_mcp::McpAdapter;
use countersign_adapter_omp::{attach::AttachServer, serve_attached};
use countersign_config::logging::LogLevels;
use countersign_core::{
    engine::{Event, RecordedFact},
    id::PrincipalId,
};
use countersign_foreign_calls::Delivery;
use countersign_http::listen::{
    self,
    log_throttle::LogThrottle,
    peer::{self, LocalPeer},
};
use countersign_http::open_connections::OpenConnections;
use countersign_runtime::OwnerHandle;
use countersign_view::principals;
use nix::sys::resource::{Resource, getrlimit};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{
        UnixListener, UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::Semaphore,
};
use tokio_util::sync::CancellationToken;

use super::{ControlReply, Request, answer_request, data_dir_lock::DataDirLock, proxied_call::ProxiedConnection};
use crate::{mcp_approvals, mcp_changes::apply_changes, mcp_tool_changes::revoke_changed_tools, mcp_tools::McpTools};

/// Longest request, in bytes.
const LONGEST: u64 = 1 << 20;
/// Longest request that attaches a session: it contains its host's rules and environment, in bytes.
const LONGEST_HANDOVER: u64 = 32 << 20;

/// Wait after a failure to accept: most likely the process has no descriptors left.
const RECOVERY: Duration = Duration::from_millis(50);

/// Most connections at a time.
const MOST: usize = 1024;
/// Time in which the first request must arrive.
const SILENCE: Duration = Duration::from_secs(30);
/// Time in which a refused command must send its request.
const PATIENCE: Duration = Duration::from_secs(1);
/// Most refused requests that are read at a time.
const REFUSALS: usize = 64;

/// Control socket that is served until it is dropped.
#[derive(Debug)]
pub struct ControlSocket {
    path: PathBuf,
    /// Lock file, held for as long as the socket is ours.
    _owned: File,
    serving: tokio::task::JoinHandle<()>,
}

impl ControlSocket {
    /// Opens the socket in a folder, for the gateway's own user, root, and the `others` of this machine, by number. A lock
    /// next to it proves that no other gateway has it: the one of the log is taken with the first record only.
    ///
    /// # Errors
    /// An error of the system.
    pub fn open(owned: DataDirLock, parts: SocketParts, others: Vec<u32>) -> std::io::Result<Self> {
        let (path, owned) = owned.into_parts();
        match std::fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let listener = UnixListener::bind(&path)?;
        // Each peer is checked by its user; the mode only keeps the others from connecting at all.
        let mode = if others.is_empty() { 0o600 } else { 0o666 };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))?;
        // Its owner is our user; the system may report another one for our own process.
        let own = std::fs::metadata(&path)?.uid();
        let serving = tokio::spawn(async move {
            let mut failing = LogThrottle::default();
            let places = Arc::new(Semaphore::new(connection_limit()));
            let refusals = Arc::new(Semaphore::new(REFUSALS));
            loop {
                let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
                let stream = match listener.accept().await {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        if let Some(before) = failing.try_log() {
                            tracing::warn!(%error, before, "failed to accept a connection to the control socket");
                        }
                        tokio::time::sleep(RECOVERY).await;
                        continue;
                    }
                };
                // The folder may be open to more users than the socket's own mode allows.
                let Ok(peer) = stream.peer_cred() else { continue };
                if !may_enter(peer.uid(), own, &others) {
                    // It keeps no place of others, and of many such connections most get no answer.
                    if let Ok(refusal) = Arc::clone(&refusals).try_acquire_owned() {
                        tokio::spawn(async move {
                            let _refusal = refusal;
                            let text = unlisted_text(peer.uid());
                            drop(tokio::time::timeout(PATIENCE, refuse_request(stream, &text)).await);
                        });
                    }
                    continue;
                }
                let Ok(local) = LocalPeer::from_stream(&stream) else { continue };
                let caller = SocketCaller {
                    user: peer.uid(),
                    by: principals::of_machine(peer.uid()),
                    may_attach: may_enter(peer.uid(), own, &[]),
                    pid: local.pid(),
                };
                let parts = parts.clone();
                let refusals = Arc::clone(&refusals);
                tokio::spawn(async move {
                    let _place = place;
                    // Neither may it see the gates of others.
                    if !local.may_decide().await {
                        return drop(tokio::time::timeout(PATIENCE, refuse_connection(stream, &refusals)).await);
                    }
                    // A client that disconnects in the middle needs no answer.
                    let _ = Box::pin(serve_connection(stream, &parts, &caller)).await;
                });
            }
        });
        Ok(Self { path, _owned: owned, serving })
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.serving.abort();
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Returns the largest number of connections at a time: the other parts of the gateway need descriptors.
fn connection_limit() -> usize {
    const SHARE: u64 = 4;
    let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
    usize::try_from(descriptors / SHARE).unwrap_or(MOST).clamp(1, MOST)
}

/// Reports whether a user of this machine may list and answer gates.
fn may_enter(user: u32, own: u32, others: &[u32]) -> bool {
    user == own || user == 0 || others.contains(&user)
}

/// Parts of a realm that the socket serves.
#[derive(Clone)]
pub struct SocketParts {
    /// Sessions of hosts.
    pub attach_server: Arc<AttachServer>,
    /// Hosts of MCP.
    pub mcp: Arc<McpAdapter>,
    /// Editors.
    pub acp: Arc<AcpAdapter>,
    /// Hooks of agents.
    pub hooks: Arc<HookAdapter>,
    /// Tools of MCP servers.
    pub mcp_tools: Arc<McpTools>,
    /// Log levels.
    pub levels: Arc<LogLevels>,
    /// Counts of open connections.
    pub open_connections: OpenConnections,
}

/// Peer of a connection.
struct SocketCaller {
    user: u32,
    by: PrincipalId,
    /// True if it is the gateway's own user, or root: sessions have that user's rights.
    may_attach: bool,
    /// Its process, if the system names it.
    pid: Option<i32>,
}

async fn serve_connection(stream: UnixStream, parts: &SocketParts, caller: &SocketCaller) -> std::io::Result<()> {
    let SocketParts { attach_server, mcp, acp, hooks, mcp_tools, levels, open_connections } = parts;
    let (reading, mut writing) = stream.into_split();
    let mut reading = BufReader::new(reading);
    let SocketCaller { user, by, may_attach, pid } = caller;
    let longest = if *may_attach { LONGEST_HANDOVER } else { LONGEST };
    let mut had_request = false;
    loop {
        let mut line = String::new();
        let mut limited = (&mut reading).take(longest);
        let read = limited.read_line(&mut line);
        // A peer without requests keeps no place.
        let length = if had_request { read.await? } else { tokio::time::timeout(SILENCE, read).await?? };
        if length == 0 {
            return Ok(());
        }
        had_request = true;
        let request = serde_json::from_str(&line);
        // Agents ask about their own calls. They neither decide, nor see what others ask.
        if request.as_ref().is_ok_and(|request| !is_for_agents(request)) && peer::is_guarded(*pid).await {
            write_reply(&mut writing, &ControlReply::Error(peer::REFUSED_GUARDED.to_owned())).await?;
            continue;
        }
        let answered = match request {
            Ok(Request::Watch) => return watch_gates(&mut writing, &attach_server.handle, by).await,
            Ok(Request::Attach(_)) if !may_attach => {
                ControlReply::Error("only the gateway's own user may attach sessions".to_owned())
            }
            Ok(Request::Attach(handover)) => {
                let _open = open_connections.attached.increment_guard();
                let line = Box::pin(serve_attached(
                    Arc::clone(attach_server),
                    gjc::configured_dialect,
                    *handover,
                    reading,
                    writing,
                ));
                // It ends with the gateway, which waits for it.
                return attach_server.open.track_future(line).await;
            }
            Ok(Request::Mcp) => {
                write_reply(&mut writing, &ControlReply::Ok(json!({}))).await?;
                let _open = open_connections.mcp.increment_guard();
                mcp.serve_stream(reading, writing, &principals::of_mcp_host(*user)).await;
                return Ok(());
            }
            Ok(Request::Acp(_)) if !may_attach => {
                ControlReply::Error("only the gateway's own user may connect an editor".to_owned())
            }
            Ok(Request::Acp(options)) => {
                write_reply(&mut writing, &ControlReply::Ok(json!({}))).await?;
                let _open = open_connections.acp.increment_guard();
                Box::pin(acp.serve_stream(reading, writing, *options, by)).await;
                return Ok(());
            }
            Ok(Request::Hook(hook)) => {
                let _open = open_connections.hooks.increment_guard();
                peer::remember_hook(*pid).await;
                return answer_hook(hooks, &hook, reading, &mut writing).await;
            }
            Ok(Request::ProxiedCall(call)) => {
                let _open = open_connections.hooks.increment_guard();
                let may_answer = !peer::is_guarded(*pid).await;
                peer::remember_proxy(*pid).await;
                let proxied = ProxiedConnection { hooks, handle: &attach_server.handle, by, may_answer };
                return proxied.answer_call(&call, reading, &mut writing).await;
            }
            Ok(Request::ProxiedRun(call)) => match hooks.compare_proxied(&call).await {
                Ok(()) => ControlReply::Ok(json!({})),
                Err(problem) => ControlReply::Error(problem),
            },
            Ok(Request::LogLevel { .. }) if !may_attach => {
                ControlReply::Error("only the gateway's own user may change the log level".to_owned())
            }
            Ok(Request::LogLevel { level }) => match levels.change_levels(level.as_deref()) {
                Ok(level) => ControlReply::Ok(json!({ "level": level })),
                Err(why) => ControlReply::Error(why),
            },
            Ok(Request::ReloadMcp { .. }) if !may_attach => {
                ControlReply::Error("only the gateway's own user may approve MCP servers".to_owned())
            }
            Ok(Request::ReloadMcp { server }) => {
                if let Err(error) = revoke_changed_tools(&attach_server.handle, mcp_tools, by).await {
                    tracing::error!(%error, "standing approvals of changed MCP tools are not revoked yet");
                }
                mcp_tools.reload_server(&server).await;
                if let Err(problem) = mcp_approvals::record_changes(&attach_server.handle, mcp_tools).await {
                    tracing::error!(problem, "changes of MCP approvals are not recorded yet");
                }
                match apply_changes(&attach_server.handle, mcp_tools, Some(&server), by).await {
                    Ok(()) => ControlReply::Ok(json!({ "tools": mcp_tools.offered_names() })),
                    Err(error) => ControlReply::Error(error.to_string()),
                }
            }
            Ok(request) => answer_request(&attach_server.handle, request, by).await,
            Err(error) => ControlReply::Error(format!("invalid request: {error}")),
        };
        write_reply(&mut writing, &answered).await?;
    }
}

/// Reports whether an agent of others, or a command of it, may send this.
const fn is_for_agents(request: &Request) -> bool {
    match request {
        Request::Hook(_) | Request::Mcp | Request::ProxiedCall(_) | Request::ProxiedRun(_) => true,
        Request::Gates
        | Request::Gate { .. }
        | Request::Watch
        | Request::Allow { .. }
        | Request::Deny { .. }
        | Request::Answer { .. }
        | Request::Grants
        | Request::Denials
        | Request::WaitingForHosts
        | Request::Attach(_)
        | Request::Acp(_)
        | Request::LogLevel { .. }
        | Request::ReloadMcp { .. }
        | Request::Revoke { .. } => false,
    }
}

/// Answers a hook. A hook that has gone before leaves its gate open, and the decision to the same call repeated.
async fn answer_hook(
    hooks: &HookAdapter,
    hook: &HookRequest,
    mut reading: BufReader<OwnedReadHalf>,
    writing: &mut OwnedWriteHalf,
) -> std::io::Result<()> {
    let (delivery, cancel) = (Delivery::default(), CancellationToken::new());
    let mut answering = Box::pin(hooks.answer(hook, None, &delivery, &cancel));
    let mut rest = [0_u8; 1];
    let reply = tokio::select! {
        reply = &mut answering => reply,
        // Its process sends one line and stays: anything else is its end.
        _ = reading.read(&mut rest) => {
            cancel.cancel();
            drop(answering.await);
            delivery.abandon();
            return Ok(());
        }
    };
    drop(answering);
    let written = match serde_json::to_value(&reply) {
        Ok(reply) => write_reply(writing, &ControlReply::Ok(reply)).await,
        Err(error) => Err(std::io::Error::other(error)),
    };
    if written.is_ok() {
        delivery.confirm()
    } else {
        delivery.abandon()
    }
    written
}

/// Returns the answer to a user of this machine who is not listed.
fn unlisted_text(user: u32) -> String {
    format!(
        "the user {user} of this machine may not use this gateway: add {user} to `local` of a person under `people` in its configuration"
    )
}

/// Refuses the first request of a connection.
async fn refuse_request(stream: UnixStream, text: &str) -> std::io::Result<()> {
    let (reading, mut writing) = stream.into_split();
    // It is read, or the end of the connection would overtake the answer.
    BufReader::new(reading).take(LONGEST).read_line(&mut String::new()).await?;
    write_reply(&mut writing, &ControlReply::Error(text.to_owned())).await
}

/// Refuses every request of an agent's command.
async fn refuse_connection(stream: UnixStream, refusals: &Semaphore) -> std::io::Result<()> {
    let (reading, mut writing) = stream.into_split();
    // Its request is read, or the end of the connection would overtake the answer. A peer with many such connections is answered unread.
    if let Ok(_refusal) = refusals.try_acquire() {
        BufReader::new(reading).take(LONGEST).read_line(&mut String::new()).await?;
    }
    write_reply(&mut writing, &ControlReply::Error(listen::peer::REFUSED_HERE.to_owned())).await
}

pub(super) async fn write_reply(writing: &mut OwnedWriteHalf, answered: &ControlReply) -> std::io::Result<()> {
    let mut line = serde_json::to_string(answered).map_err(std::io::Error::other)?;
    line.push('\n');
    writing.write_all(line.as_bytes()).await
}

/// Writes the pending gates now, and again after each possible change.
async fn watch_gates(writing: &mut OwnedWriteHalf, handle: &OwnerHandle, by: &PrincipalId) -> std::io::Result<()> {
    let of_gates = |recorded: &Arc<RecordedFact>| matches!(recorded.fact.event, Event::Gate(_)).then_some(());
    let Some(mut changes) = handle.follow_facts(of_gates).await else { return Ok(()) };
    loop {
        let answered = answer_request(handle, Request::Gates, by).await;
        write_reply(writing, &answered).await?;
        // Changes of the same moment are in one answer.
        if changes.next_batch(usize::MAX).await.is_none() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
        net::UnixStream,
    };

    use super::{may_enter, refuse_request, unlisted_text};

    #[tokio::test]
    async fn a_user_who_is_not_listed_learns_where_to_be_listed() {
        let (client, gateway) = UnixStream::pair().unwrap();
        let refusing = tokio::spawn(async move { refuse_request(gateway, &unlisted_text(1001)).await });
        let (reading, mut writing) = client.into_split();
        writing.write_all(b"{\"ask\":\"gates\"}\n").await.unwrap();
        let mut line = String::new();
        BufReader::new(reading).read_line(&mut line).await.unwrap();
        refusing.await.unwrap().unwrap();
        for part in ["\"error\"", "1001", "`local`", "`people`"] {
            assert!(line.contains(part), "{line}");
        }
    }

    #[test]
    fn only_the_gateways_user_root_and_people_with_an_account_here_come_in() {
        for (user, others, want) in
            [(1000, &[][..], true), (0, &[], true), (1001, &[], false), (1001, &[1001], true), (1002, &[1001], false)]
        {
            assert_eq!(may_enter(user, 1000, others), want, "{user} beside {others:?}");
        }
    }
}
