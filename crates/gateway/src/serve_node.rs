//! Process of a node: one port, and behind it the realm or the relay to the node that has it.
//!
//! Every change of the owner is a restart of the realm: it is opened as after a crash, and closed as at an end.

use std::{net::IpAddr, path::PathBuf, pin::Pin, sync::Arc, time::Duration};

use countersign_config::{ClusterConfig, Config, logging::LogLevels};
use countersign_http::listen::{self, ConnectionQuota, PortService, tunnel::TunnelKey};
use countersign_runtime::store::{
    ClusterTables, DatabaseError, KnownHead, LeaseClaim, LogOpenError, NodeIdentity, PostgresOptions,
};
use tokio::{
    runtime::Handle,
    sync::{Notify, mpsc, watch},
    task::{JoinHandle, JoinSet, spawn_blocking},
    time::{Instant, sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    cluster::{HeldLease, LeaseKeeper, NodeRole, NodeState, REALM, RealmProgress, TunnelOpener},
    control::{ControlSocket, DataDirLock, SocketTarget},
    notice::{NoticeFn, NoticeLevel},
    platform::Platform,
    port::PortAddress,
    realm::{GatewayRealm, PreparedRealm, RealmNode, RealmOptions, folder_error},
    serve::bind_port,
    serve_error::ServeError,
    traces::TraceDestination,
};

/// Parts that a process brings to a node.
#[derive(Debug)]
pub struct NodeOptions {
    /// Executable file of the program.
    pub program: PathBuf,
    /// Version of the program.
    pub version: String,
    /// Log levels.
    pub levels: Arc<LogLevels>,
}

/// Pause between two attempts to join the cluster.
const JOIN_PAUSE: Duration = Duration::from_millis(100);
/// Time limit of leaving the cluster.
const FAREWELL: Duration = Duration::from_secs(2);

/// Time limit of closing a realm once a signal ends the process: a silent database must not keep it.
const CLOSING: Duration = Duration::from_secs(10);

/// Node that runs.
struct ClusterNode {
    config: Config,
    cluster: ClusterConfig,
    notice: NoticeFn,
    options: NodeOptions,
    identity: NodeIdentity,
    tables: Arc<ClusterTables>,
    /// Newest entry that this process has written, in whatever lease.
    known_head: KnownHead,
    opener: TunnelOpener,
    state: watch::Receiver<NodeState>,
    services: watch::Sender<PortService>,
    sockets: watch::Sender<SocketTarget>,
    progress: watch::Sender<RealmProgress>,
    /// Rings when it gave a lease up.
    changed: Arc<Notify>,
    held: HeldLease,
    quota: ConnectionQuota,
    address: PortAddress,
}

/// Why a realm ended at a node.
enum RealmEnd {
    /// A signal ends the process.
    Stopped,
    /// The lease was lost, or is to be given up.
    LeaseEnded,
    /// The realm could not be opened, or its record cannot be worked with any more.
    Failed,
}

/// Runs a node of a cluster until `stop`. `ready` gets its URL once it takes connections; `reload` gives a value whenever the rules are
/// to be read again; `notice` is for users.
///
/// # Errors
/// [`ServeError`]. No record is lost by any of them.
pub async fn serve_node(
    config: Config,
    cluster: ClusterConfig,
    options: NodeOptions,
    notice: impl Fn(NoticeLevel, &str) + Send + Sync + 'static,
    ready: impl FnOnce(&str),
    mut reload: mpsc::Receiver<()>,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let notice: NoticeFn = Arc::new(notice);
    config.check_binding()?;
    // All that would keep the realm from opening here is reported before the node joins.
    let prepared = PreparedRealm::for_node(config.clone(), Arc::clone(&notice))?;
    let folder = config.storage.folder.clone();
    let owned = DataDirLock::acquire_lock(&folder).map_err(|problem| folder_error(&folder, problem))?;
    let port = bind_port(&prepared)?;
    let users = prepared.users().to_vec();
    drop(prepared);
    let address = PortAddress::of_port(&port)?;
    let Some(database) = &config.storage.database else { return Err(ServeError::NoDatabase) };
    let failed = |problem: DatabaseError| ServeError::Log {
        path: config.storage.log.clone(),
        problem: LogOpenError::Database(problem),
    };
    let known_head = KnownHead::default();
    let options_of_tables = PostgresOptions { known_head: known_head.clone(), ..database.to_options() };
    let tables = Arc::new(ClusterTables::new(&options_of_tables).map_err(failed)?);
    let identity = NodeIdentity {
        name: cluster.name.clone(),
        process: uuid::Uuid::new_v4().to_string(),
        // The port that the system gave, where it was to choose one.
        advertise: match cluster.advertise.strip_suffix(":0") {
            Some(host) => format!("{host}:{}", address.bound.port()),
            None => cluster.advertise.clone(),
        },
        program: options.version.clone(),
        addresses: own_addresses(),
        lease: cluster.lease,
    };
    tables.prepare().await.map_err(failed)?;
    join_cluster(&tables, &identity).await.map_err(failed)?;

    let (state_sender, state) = watch::channel(NodeState::default());
    let (progress, watched) = watch::channel(RealmProgress::new());
    let (changed, held) = (Arc::new(Notify::new()), HeldLease::default());
    let keeper = LeaseKeeper::new(
        Arc::clone(&tables),
        identity.clone(),
        state_sender,
        watched,
        Arc::clone(&changed),
        held.clone(),
    );
    let authorities = cluster.ca_file.as_ref().map(std::fs::read).transpose();
    let authorities = authorities.map_err(|problem| ServeError::of_io("cluster.ca_file", problem))?;
    let opener = TunnelOpener::new(
        (TunnelKey::from_secret(&cluster.secret), identity.process.clone()),
        authorities.as_deref(),
        state.clone(),
    )?;
    let (sockets, socket) = watch::channel(SocketTarget::Relay(opener.clone()));
    let levels = Arc::clone(&options.levels);
    let control =
        ControlSocket::open_switched(owned, socket, users, levels).map_err(|problem| folder_error(&folder, problem))?;
    let (services, service) = watch::channel(PortService::relayed(Arc::new(opener.clone())));
    if let Some(few) = listen::few_descriptors_warning_of_node() {
        notice(NoticeLevel::Warning, &few);
    }
    let most = usize::try_from(config.limits.max_connections).unwrap_or(usize::MAX);
    let quota = ConnectionQuota::of_node(most);
    let url = address.url(&config.gateway.host);
    let (closing, mut closes) = watch::channel(false);
    let mut tasks = JoinSet::new();
    let end = async move { drop(closes.wait_for(|closing| *closing).await) };
    tasks.spawn(port.serve_services(service, quota.clone(), end));
    let node = ClusterNode {
        config,
        cluster,
        notice,
        options,
        identity,
        tables,
        known_head,
        opener,
        state,
        services,
        sockets,
        progress,
        changed,
        held,
        quota,
        address,
    };
    // On a task of its own: the opening of a record may block.
    let mut keeping = AbortOnDropHandle::new(tokio::spawn(keeper.run()));
    let announcing = AbortOnDropHandle::new(tokio::spawn(announce_owner(node.state.clone(), Arc::clone(&node.notice))));
    ready(&url);

    tokio::pin!(stop);
    let outcome = tokio::select! {
        ended = node.serve_realms(&mut reload, stop) => ended,
        problem = &mut keeping => match problem {
            Ok(problem) => Err(node.database_error(problem)),
            Err(_) => Err(ServeError::Lost),
        },
    };
    drop((keeping, announcing, control));
    closing.send_replace(true);
    node.services.borrow().end();
    let leaving = async {
        let left = (node.tables.release(&node.identity, REALM).await, node.tables.leave(&node.identity).await);
        if let (Err(error), _) | (_, Err(error)) = left {
            tracing::warn!(%error, "the node did not leave the cluster; others take the realm when its lease has ended");
        }
        while tasks.join_next().await.is_some() {}
    };
    // A database or a client that does not answer must not keep the process.
    let _ = timeout(FAREWELL, leaving).await;
    outcome
}

impl ClusterNode {
    /// Serves the realm whenever the node holds its lease, until `stop`.
    async fn serve_realms(
        &self,
        reload: &mut mpsc::Receiver<()>,
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), ServeError> {
        let mut state = self.state.clone();
        let mut last = 0;
        loop {
            let is_new = |state: &NodeState| state.role == NodeRole::Owner && state.term > last;
            let term = tokio::select! {
                () = &mut stop => return Ok(()),
                taken = state.wait_for(is_new) => match taken {
                    Ok(state) => state.term,
                    Err(_) => return Err(ServeError::Lost),
                },
            };
            last = term;
            match self.serve_realm(term, reload, stop.as_mut()).await {
                RealmEnd::Stopped => return Ok(()),
                RealmEnd::LeaseEnded => {}
                RealmEnd::Failed => {
                    // Another node may be able to.
                    let pause = 2 * self.identity.lease;
                    self.progress.send_modify(|progress| progress.not_before = Instant::now() + pause);
                }
            }
            self.progress.send_modify(|progress| progress.abandoned = term);
            // Another node may have the lease as soon as it is given up.
            self.held.lose();
            let released = tokio::select! {
                released = timeout(self.identity.lease, self.tables.release(&self.identity, REALM)) => released,
                // The node gives it up again when it leaves.
                () = &mut stop => return Ok(()),
            };
            if let Ok(Err(error)) = released {
                tracing::warn!(%error, "the lease was not given up; it ends by itself, since it is not renewed");
            }
            self.progress.send_modify(|progress| progress.ended = term);
            self.changed.notify_one();
        }
    }

    /// Opens the realm and serves it until it ends, the lease ends or `stop`.
    async fn serve_realm(
        &self,
        term: u64,
        reload: &mut mpsc::Receiver<()>,
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> RealmEnd {
        let failed = |error: ServeError| {
            let text = format!("node {} cannot serve the realm {REALM}: {error}", self.identity.name);
            (self.notice)(NoticeLevel::Warning, &text);
            RealmEnd::Failed
        };
        let mut opening = match self.start_opening(term) {
            Ok(opening) => opening,
            Err(error) => return failed(error),
        };
        let opened = tokio::select! {
            opened = &mut opening => opened,
            () = &mut stop => {
                match timeout(FAREWELL, opening).await {
                    Ok(Ok(Ok(realm))) => self.close_in_time(term, realm.close(std::future::ready(()))).await,
                    Ok(_) | Err(_) => self.abandon(term),
                }
                return RealmEnd::Stopped;
            }
        };
        let realm = match opened {
            Ok(Ok(realm)) => realm,
            Ok(Err(error)) => return failed(error),
            // It panicked.
            Err(_) => return RealmEnd::Failed,
        };
        let service = PortService::serving(realm.doors(), &self.quota, self.address.scheme == "https");
        self.services.send_replace(service.clone()).end();
        self.sockets.send_replace(SocketTarget::Realm(realm.socket_parts()));
        let mut state = self.state.clone();
        let reloading = async {
            while let Some(()) = reload.recv().await {
                realm.reload().await;
            }
            std::future::pending().await
        };
        let end = tokio::select! {
            () = &mut stop => RealmEnd::Stopped,
            () = realm.closed() => RealmEnd::Failed,
            _ = state.wait_for(|state| state.role != NodeRole::Owner || state.term != term) => RealmEnd::LeaseEnded,
            () = reloading => RealmEnd::Failed,
        };
        // In an orderly move the lease is kept until the realm is closed; otherwise it is not renewed any more.
        let is_leaving = {
            let state = state.borrow();
            state.role == NodeRole::Leaving && state.term == term
        };
        if !is_leaving && !matches!(end, RealmEnd::Stopped) {
            self.progress.send_modify(|progress| progress.abandoned = term);
        }
        self.services.send_replace(PortService::relayed(Arc::new(self.opener.clone()))).end();
        self.sockets.send_replace(SocketTarget::Relay(self.opener.clone()));
        let mut closing = Box::pin(realm.close(async { service.closed().await }));
        if !matches!(end, RealmEnd::Stopped) {
            tokio::select! {
                () = &mut closing => return end,
                () = &mut stop => {}
            }
        }
        self.close_in_time(term, closing).await;
        RealmEnd::Stopped
    }

    /// Waits until a realm is closed, but not without end: the process ends.
    async fn close_in_time(&self, term: u64, closing: impl Future<Output = ()>) {
        if timeout(CLOSING, closing).await.is_err() {
            tracing::warn!("the realm was not closed in time; the next owner continues as after a crash");
            self.abandon(term);
        }
    }

    /// Gives up a realm that is not closed: no effect of it begins any more.
    fn abandon(&self, term: u64) {
        self.progress.send_modify(|progress| progress.abandoned = term);
        self.held.lose();
    }

    /// Opens the realm on a thread of its own, since the opening of a record may block.
    fn start_opening(&self, term: u64) -> Result<JoinHandle<Result<GatewayRealm, ServeError>>, ServeError> {
        let prepared = PreparedRealm::for_node(self.config.clone(), Arc::clone(&self.notice))?;
        let lease = LeaseClaim { realm: REALM.to_owned(), process: self.identity.process.clone(), term };
        let options = RealmOptions {
            platform: Platform::of_node(self.options.program.clone(), lease, self.known_head.clone()),
            address: self.address,
            levels: Arc::clone(&self.options.levels),
            collector: TraceDestination::from_environment(&*self.notice)?,
            name: None,
            local_node_auth: None,
            node: Some(RealmNode {
                secret: self.cluster.secret.clone(),
                process: self.identity.process.clone(),
                lease: self.held.clone(),
            }),
        };
        let runtime = Handle::current();
        Ok(spawn_blocking(move || runtime.block_on(GatewayRealm::open(prepared, options))))
    }

    fn database_error(&self, problem: DatabaseError) -> ServeError {
        ServeError::Log { path: self.config.storage.log.clone(), problem: LogOpenError::Database(problem) }
    }
}

/// Returns the addresses of this machine, without loopback.
fn own_addresses() -> Vec<IpAddr> {
    let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten().filter_map(|interface| interface.address);
    let addresses = interfaces.filter_map(|address| {
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::from(address.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::from(address.ip())))
    });
    let mut addresses: Vec<IpAddr> = addresses.filter(|address| !address.is_loopback()).collect();
    addresses.sort();
    addresses.dedup();
    addresses
}

/// Adds the node. The process before it may have ended a moment ago: its name is waited for, for as long as its lease may take.
async fn join_cluster(tables: &ClusterTables, identity: &NodeIdentity) -> Result<(), DatabaseError> {
    let deadline = Instant::now() + 2 * identity.lease;
    loop {
        match tables.join(identity, &[REALM.to_owned()]).await {
            Err(DatabaseError::NodeExists { .. }) if Instant::now() < deadline => sleep(JOIN_PAUSE).await,
            joined => return joined,
        }
    }
}

/// Tells users which node serves the realm, whenever that changes.
async fn announce_owner(mut state: watch::Receiver<NodeState>, notice: NoticeFn) {
    let mut named: Option<String> = None;
    loop {
        let owner = state.borrow_and_update().owner.as_ref().map(|owner| owner.name.clone());
        if owner != named {
            match &owner {
                Some(owner) => notice(NoticeLevel::Info, &format!("node {owner} serves the realm {REALM}")),
                None => notice(NoticeLevel::Warning, &format!("no node serves the realm {REALM}")),
            }
            named = owner;
        }
        if state.changed().await.is_err() {
            return;
        }
    }
}
