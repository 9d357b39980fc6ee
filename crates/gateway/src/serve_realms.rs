//! Process that serves several realms at one port. Each is a gateway of its own, and is opened again by itself after a failure.

use std::{path::PathBuf, sync::Arc, time::Duration};

use countersign_adapter_gsv::LocalNodeAuth;
use countersign_config::{Config, RealmConfig, logging::LogLevels};
use countersign_http::listen::{self, BoundPort, ConnectionQuota, RealmRoutes};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::sleep,
};

use crate::{
    notice::{NoticeFn, NoticeLevel},
    platform::Platform,
    port::PortAddress,
    realm::{GatewayRealm, PreparedRealm, RealmOptions},
    serve::{bind_address, bind_health},
    serve_error::ServeError,
    traces::TraceDestination,
};

/// Pause before a realm that failed is opened again; each time in a row twice as long, up to the most.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Parts of a process that its realms share.
#[derive(Clone)]
struct RealmProcess {
    program: PathBuf,
    levels: Arc<LogLevels>,
    notice: NoticeFn,
    address: PortAddress,
    routes: Arc<RealmRoutes>,
    local_node_auth: LocalNodeAuth,
    /// Grows with each request to reload the rules.
    reloads: watch::Receiver<u64>,
    /// True once the process ends.
    closing: watch::Receiver<bool>,
    /// True once the port has closed its connections.
    port_closed: watch::Receiver<bool>,
}

/// Runs the realms of `config` until `stop`. `ready` gets the URL of the port once all are open; `reload` gives a value whenever the rules
/// are to be read again; `levels` are the log levels, `notice` is for users.
///
/// # Errors
/// [`ServeError`], with the name of the realm. No record is lost by any of them.
pub async fn serve_realms(
    config: Config,
    program: PathBuf,
    notice: impl Fn(NoticeLevel, &str) + Send + Sync + 'static,
    ready: impl FnOnce(&str),
    mut reload: mpsc::Receiver<()>,
    levels: LogLevels,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let notice: NoticeFn = Arc::new(notice);
    for realm in &config.realms {
        realm.config.check_binding().map_err(|problem| of_realm(&realm.name, problem.into()))?;
    }
    // All are checked and locked before the port is bound and any record is opened.
    let mut prepared = Vec::new();
    for realm in &config.realms {
        let checked = PreparedRealm::new(realm.config.clone(), realm_notice(&realm.name, &notice));
        prepared.push((realm.clone(), checked.map_err(|problem| of_realm(&realm.name, problem))?));
    }
    let tls = config.gateway.tls.as_ref().map(|tls| listen::load_tls(&tls.cert, &tls.key)).transpose()?;
    let port = bind_address(&config.gateway, tls)?;
    let health = bind_health(&config)?;
    let address = PortAddress::of_port(&port)?;
    if let Some(few) = listen::few_descriptors_warning() {
        notice(NoticeLevel::Warning, &few);
    }
    let most = usize::try_from(config.limits.max_connections).unwrap_or(usize::MAX);
    let quota = ConnectionQuota::of_this_process(most);
    let (reload_sender, reloads) = watch::channel(0);
    let (closing_sender, closing) = watch::channel(false);
    let (closed_sender, port_closed) = watch::channel(false);
    let names = config.realms.iter().map(|realm| (realm.name.clone(), realm.hosts.clone()));
    let process = RealmProcess {
        program,
        levels: Arc::new(LogLevels::new(move |requested| match requested {
            Some(_) => Err("the log is that of all realms: set log.level in the file that lists them".to_owned()),
            None => levels.change_levels(None),
        })),
        notice,
        address,
        routes: RealmRoutes::new(names, &quota),
        local_node_auth: LocalNodeAuth::listen_beside(address.bound.port()),
        reloads,
        closing,
        port_closed,
    };
    let mut realms = JoinSet::new();
    for (realm, checked) in prepared {
        match process.open(&realm.name, checked).await {
            Ok(opened) => realms.spawn(process.clone().run_realm(realm, opened)),
            Err(problem) => {
                closing_sender.send_replace(true);
                closed_sender.send_replace(true);
                while realms.join_next().await.is_some() {}
                return Err(of_realm(&realm.name, problem));
            }
        };
    }
    let serving = tokio::spawn(serve_ports(port, health, quota, process.clone()));
    ready(&address.url(&config.gateway.host));

    tokio::pin!(stop);
    let reloading = async {
        while reload.recv().await.is_some() {
            reload_sender.send_modify(|count| *count += 1);
        }
        std::future::pending().await
    };
    tokio::select! {
        () = &mut stop => {}
        () = reloading => {}
    }
    closing_sender.send_replace(true);
    let closed = async {
        // A port that failed has no connections either.
        let _ = serving.await;
        closed_sender.send_replace(true);
    };
    tokio::join!(closed, async { while realms.join_next().await.is_some() {} });
    Ok(())
}

async fn serve_ports(port: BoundPort, health: Option<BoundPort>, quota: ConnectionQuota, process: RealmProcess) {
    let (quota, aside) = match health {
        Some(_) => {
            let (rest, aside) = quota.split_off(listen::HEALTH_MOST);
            (rest, Some(aside))
        }
        None => (quota, None),
    };
    let checks = async {
        if let (Some(health), Some(aside)) = (health, aside) {
            health.serve_realm_health(&process.routes, aside, process.ends()).await;
        }
    };
    tokio::join!(port.serve_realms(&process.routes, quota, process.ends()), checks);
}

impl RealmProcess {
    async fn open(&self, name: &str, prepared: PreparedRealm) -> Result<GatewayRealm, ServeError> {
        let options = RealmOptions {
            platform: Platform::of_this_machine(self.program.clone()),
            address: self.address,
            levels: Arc::clone(&self.levels),
            collector: TraceDestination::from_environment(&*self.notice)?,
            name: Some(name.to_owned()),
            local_node_auth: Some(self.local_node_auth.clone()),
            node: None,
        };
        let realm = GatewayRealm::open(prepared, options).await?;
        self.routes.open_realm(name, &realm.doors(), self.address.scheme == "https");
        Ok(realm)
    }

    /// Serves a realm until the process ends, and opens it again when its record could not be worked with any more.
    async fn run_realm(self, config: RealmConfig, opened: GatewayRealm) {
        let name = &config.name;
        let notice = realm_notice(name, &self.notice);
        let mut realm = opened;
        loop {
            if self.serve_realm(&realm).await {
                let mut closed = self.port_closed.clone();
                return realm.close(async move { drop(closed.wait_for(|closed| *closed).await) }).await;
            }
            notice(NoticeLevel::Warning, "its record could not be worked with any more; it is opened again");
            self.routes.close_realm(name);
            realm.close(std::future::ready(())).await;
            let Some(again) = self.reopen(&config, &notice).await else { return };
            realm = again;
        }
    }

    /// Serves a realm. Returns true at the end of the process, and false after a failure of the realm.
    async fn serve_realm(&self, realm: &GatewayRealm) -> bool {
        let mut reloads = self.reloads.clone();
        // Those of before are in force.
        reloads.mark_unchanged();
        let reloading = async {
            while reloads.changed().await.is_ok() {
                realm.reload().await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = self.ends() => true,
            () = realm.closed() => false,
            () = reloading => true,
        }
    }

    /// Opens a realm as after a crash, as often as it takes. `None` at the end of the process.
    async fn reopen(&self, config: &RealmConfig, notice: &NoticeFn) -> Option<GatewayRealm> {
        let mut pause = PAUSE;
        loop {
            tokio::select! {
                () = self.ends() => return None,
                () = sleep(pause) => {}
            }
            let opened = match PreparedRealm::new(config.config.clone(), Arc::clone(notice)) {
                Ok(prepared) => self.open(&config.name, prepared).await,
                Err(problem) => Err(problem),
            };
            match opened {
                Ok(realm) => {
                    notice(NoticeLevel::Info, "it is open again");
                    return Some(realm);
                }
                Err(problem) => notice(NoticeLevel::Warning, &format!("it could not be opened again: {problem}")),
            }
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    /// Waits until the process ends.
    fn ends(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut closing = self.closing.clone();
        async move { drop(closing.wait_for(|closing| *closing).await) }
    }
}

fn of_realm(name: &str, problem: ServeError) -> ServeError {
    ServeError::Realm { name: name.to_owned(), problem: Box::new(problem) }
}

/// Returns the callback for notices of one realm.
fn realm_notice(name: &str, notice: &NoticeFn) -> NoticeFn {
    let (name, notice) = (name.to_owned(), Arc::clone(notice));
    Arc::new(move |level, text| notice(level, &format!("realm {name}: {text}")))
}
