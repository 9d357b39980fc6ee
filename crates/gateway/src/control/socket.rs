//! Control socket: one line a request, one line an answer, and for `watch` a line after each change.

use std::{sync::Arc, time::Duration};

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
    self, PortStream,
    peer::{self, LocalPeer},
    tunnel::{TunnelClient, TunnelKey, TunnelServer},
};
use countersign_http::log_throttle::LogThrottle;
use countersign_http::open_connections::OpenConnections;
use countersign_runtime::OwnerHandle;
use countersign_view::principals;
use futures_util::FutureExt as _;
use nix::sys::resource::{Resource, getrlimit};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Semaphore, watch},
};
use tokio_util::sync::CancellationToken;

use super::{
    ControlReply, Request, answer_request,
    bound_socket::{BoundSocket, PeerCheck},
    data_dir_lock::DataDirLock,
    own_requests::{answer_level_request, level_reply, peek_level_request},
    proxied_call::ProxiedConnection,
};
use crate::{
    cluster::TunnelOpener, mcp_approvals, mcp_changes::apply_changes, mcp_tool_changes::revoke_changed_tools,
    mcp_tools::McpTools,
};

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

/// Handling of the connections of a control socket.
#[derive(Clone)]
pub(crate) enum SocketTarget {
    /// The realm of this process serves them.
    Realm(SocketParts),
    /// Another node does.
    Relay(TunnelOpener),
}

/// Control socket that is served until it is dropped.
#[derive(Debug)]
pub struct ControlSocket {
    _bound: BoundSocket,
    serving: tokio::task::JoinHandle<()>,
}

impl ControlSocket {
    /// Opens the socket in a folder, for the gateway's own user, root, and the `others` of this machine, by number. A lock
    /// next to it proves that no other gateway has it: the one of the log is taken with the first record only.
    ///
    /// # Errors
    /// An error of the system.
    pub fn open(owned: DataDirLock, parts: SocketParts, others: Vec<u32>) -> std::io::Result<Self> {
        let levels = Arc::clone(&parts.levels);
        let (_only, targets) = watch::channel(SocketTarget::Realm(parts));
        Self::open_switched(owned, targets, others, levels)
    }

    /// Opens the socket of a node, which gives each connection to the target that is the newest then. `levels` are those of this process,
    /// which it changes itself.
    ///
    /// # Errors
    /// An error of the system.
    pub(crate) fn open_switched(
        owned: DataDirLock,
        targets: watch::Receiver<SocketTarget>,
        others: Vec<u32>,
        levels: Arc<LogLevels>,
    ) -> std::io::Result<Self> {
        let (bound, listener) = BoundSocket::bind(owned, others)?;
        let check = bound.peer_check();
        let serving = tokio::spawn(async move {
            let mut failing = LogThrottle::default();
            let places = Arc::new(Semaphore::new(connection_limit()));
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
                let Some((stream, user, is_own_user)) = check.admit(stream) else { continue };
                let Ok(local) = LocalPeer::from_stream(&stream) else { continue };
                let (targets, check, pid) = (targets.clone(), check.clone(), local.pid());
                let levels = Arc::clone(&levels);
                tokio::spawn(async move {
                    let _place = place;
                    // Neither may it see the gates of others.
                    if !local.may_decide().await {
                        return check.refuse(stream, listen::peer::REFUSED_HERE).await;
                    }
                    dispatch_connection(stream, (user, is_own_user, pid), targets, &check, &levels).await;
                });
            }
        });
        Ok(Self { _bound: bound, serving })
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Serves a connection, or relays it. One that waits for another node gets the new target when that changes.
async fn dispatch_connection(
    mut stream: UnixStream,
    (user, is_own_user, pid): (u32, bool, Option<i32>),
    mut targets: watch::Receiver<SocketTarget>,
    check: &PeerCheck,
    levels: &LogLevels,
) {
    loop {
        let target = targets.borrow_and_update().clone();
        let opener = match target {
            SocketTarget::Realm(parts) => {
                let by = principals::of_machine(user);
                let caller = SocketCaller { user, by, may_attach: is_own_user, process: CallerProcess::Local(pid) };
                tokio::select! {
                    // A client that disconnects in the middle needs no answer.
                    _ = Box::pin(serve_connection(stream, &parts, &caller)) => {}
                    () = next_target(&mut targets) => {}
                }
                return;
            }
            SocketTarget::Relay(opener) => opener,
        };
        let peeked = tokio::select! {
            peeked = tokio::time::timeout(SILENCE, peek_level_request(&stream)) => peeked,
            () = next_target(&mut targets) => continue,
        };
        match peeked {
            // The level is that of this process, not of the one that serves the realm.
            Ok(Ok(Some(request))) => {
                let refusal = match is_own_user {
                    true if peer::is_guarded(pid).await => Some(peer::REFUSED_GUARDED),
                    true => None,
                    false => Some(LEVEL_OF_OWN_USER),
                };
                if answer_level_request(&mut stream, request, levels, refusal).await.is_err() {
                    return;
                }
                continue;
            }
            Ok(Ok(None)) => {}
            // It has gone, or says nothing.
            Ok(Err(_)) | Err(_) => return,
        }
        let client = TunnelClient::Socket { user, is_own_user, is_guarded: peer::is_guarded(pid).await };
        tokio::select! {
            opened = opener.open_soon(&client) => {
                return match opened {
                    Ok((owner, tunnel)) => opener.copy(stream, &owner, tunnel).await,
                    Err(why) => check.refuse(stream, &why).await,
                };
            }
            () = next_target(&mut targets) => {}
        }
    }
}

/// Makes the server of tunnels for a realm whose control socket has these parts.
pub(crate) fn tunnel_server(key: TunnelKey, process: String, parts: SocketParts) -> Arc<TunnelServer> {
    Arc::new(TunnelServer {
        key,
        process,
        socket: Box::new(move |stream, client| serve_relayed(stream, client, parts.clone()).boxed()),
    })
}

/// Waits until the socket has another target. A gateway that is alone has one only.
async fn next_target(targets: &mut watch::Receiver<SocketTarget>) {
    if targets.changed().await.is_err() {
        std::future::pending().await
    }
}

/// Serves a client of the control socket of another node, until one of both ends the connection.
async fn serve_relayed(mut stream: Box<dyn PortStream>, client: TunnelClient, parts: SocketParts) {
    let TunnelClient::Socket { user, is_own_user, is_guarded } = client else { return };
    let Ok((ours, mut theirs)) = UnixStream::pair() else { return };
    let by = principals::of_machine(user);
    let caller = SocketCaller { user, by, may_attach: is_own_user, process: CallerProcess::Relayed { is_guarded } };
    // The copy ends by itself once both have ended, so that the last reply is not lost, and drops its end of the pair with it.
    let copying = async move { copy_bidirectional(&mut stream, &mut theirs).await };
    // An error is the end of one of them.
    let _ = tokio::join!(copying, Box::pin(serve_connection(ours, &parts, &caller)));
}

/// Returns the largest number of connections at a time: the other parts of the gateway need descriptors.
fn connection_limit() -> usize {
    const SHARE: u64 = 4;
    let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
    usize::try_from(descriptors / SHARE).unwrap_or(MOST).clamp(1, MOST)
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
    process: CallerProcess,
}

/// Process of a peer.
enum CallerProcess {
    /// One of this machine, if the system names it.
    Local(Option<i32>),
    /// One of the machine of another node, which found out whether it is an agent that asks this gateway before its calls.
    Relayed { is_guarded: bool },
}

impl CallerProcess {
    async fn is_guarded(&self) -> bool {
        match self {
            Self::Local(pid) => peer::is_guarded(*pid).await,
            Self::Relayed { is_guarded } => *is_guarded,
        }
    }

    const fn pid(&self) -> Option<i32> {
        match self {
            Self::Local(pid) => *pid,
            Self::Relayed { .. } => None,
        }
    }
}

async fn serve_connection(stream: UnixStream, parts: &SocketParts, caller: &SocketCaller) -> std::io::Result<()> {
    let SocketParts { attach_server, mcp, acp, hooks, mcp_tools, levels, open_connections } = parts;
    let (reading, mut writing) = stream.into_split();
    let mut reading = BufReader::new(reading);
    let SocketCaller { user, by, may_attach, process } = caller;
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
        if request.as_ref().is_ok_and(|request| !is_for_agents(request)) && process.is_guarded().await {
            write_reply(&mut writing, &ControlReply::Error(peer::REFUSED_GUARDED.to_owned())).await?;
            continue;
        }
        if let (CallerProcess::Relayed { .. }, Ok(request)) = (process, &request)
            && is_of_one_machine(request)
        {
            write_reply(&mut writing, &ControlReply::Error(OTHER_MACHINE.to_owned())).await?;
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
                peer::remember_hook(process.pid()).await;
                return answer_hook(hooks, &hook, reading, &mut writing).await;
            }
            Ok(Request::ProxiedCall(call)) => {
                let _open = open_connections.hooks.increment_guard();
                let may_answer = !process.is_guarded().await;
                peer::remember_proxy(process.pid()).await;
                let proxied = ProxiedConnection { hooks, handle: &attach_server.handle, by, may_answer };
                return proxied.answer_call(&call, reading, &mut writing).await;
            }
            Ok(Request::ProxiedRun(call)) => match hooks.compare_proxied(&call).await {
                Ok(()) => ControlReply::Ok(json!({})),
                Err(problem) => ControlReply::Error(problem),
            },
            Ok(Request::LogLevel { .. }) if !may_attach => ControlReply::Error(LEVEL_OF_OWN_USER.to_owned()),
            Ok(Request::LogLevel { level }) => level_reply(levels, level.as_deref()),
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

/// Refusal of a request for the log level.
const LEVEL_OF_OWN_USER: &str = "only the gateway's own user may change the log level";

/// Refusal of a request that another node relays.
const OTHER_MACHINE: &str = "this node of the cluster does not serve the realm, and the request is about files and processes of this \
    machine: send it to the node that serves the realm (`countersign cluster status`)";

/// Reports whether a request is about files and processes of the machine that it comes from, which another node cannot judge.
const fn is_of_one_machine(request: &Request) -> bool {
    matches!(
        request,
        Request::Attach(_) | Request::Acp(_) | Request::Hook(_) | Request::ProxiedCall(_) | Request::ProxiedRun(_)
    )
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
        | Request::DeniedMcp { .. }
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
            // Before the end of the wait: a decision of this moment is kept for the same call repeated.
            delivery.abandon();
            cancel.cancel();
            drop(answering.await);
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
