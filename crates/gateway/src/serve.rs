//! Gateway as a process: its ports, one realm, and the signals that end or change it.

use std::sync::Arc;

use countersign_config::{Config, GatewayConfig, logging::LogLevels};
use countersign_http::listen::{self, BoundPort, ConnectionQuota};
use tokio::{sync::mpsc, task::JoinSet};

use crate::{
    error_hints::in_use,
    notice::{NoticeFn, NoticeLevel},
    platform::Platform,
    port::{PortAddress, resolve_address},
    realm::{GatewayRealm, PreparedRealm, RealmOptions},
    serve_error::ServeError,
    traces::TraceDestination,
};

/// Runs a gateway until `stop`. `ready` gets it once it takes connections; `reload` gives a value whenever the rules
/// are to be read again; `levels` are the log levels, `notice` is for users.
///
/// # Errors
/// [`ServeError`]. No record is lost by any of them.
pub async fn serve(
    config: Config,
    platform: Platform,
    notice: impl Fn(NoticeLevel, &str) + Send + Sync + 'static,
    ready: impl FnOnce(&GatewayRealm),
    mut reload: mpsc::Receiver<()>,
    levels: LogLevels,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let notice: NoticeFn = Arc::new(notice);
    config.check_binding()?;
    let collector = TraceDestination::from_environment(&*notice)?;
    let prepared = PreparedRealm::new(config, Arc::clone(&notice))?;
    let port = bind_port(&prepared)?;
    let address = PortAddress::of_port(&port)?;
    let options = RealmOptions {
        platform,
        address,
        levels: Arc::new(levels),
        collector,
        name: None,
        local_node_auth: None,
        node: None,
    };
    let realm = GatewayRealm::open(prepared, options).await?;

    let mut serving = JoinSet::new();
    if let Some(few) = listen::few_descriptors_warning() {
        notice(NoticeLevel::Warning, &few);
    }
    let most = usize::try_from(realm.config().limits.max_connections).unwrap_or(usize::MAX);
    let mut places = ConnectionQuota::of_this_process(most);
    if let Some(health) = bind_health(realm.config())? {
        let aside;
        (places, aside) = places.split_off(listen::HEALTH_MOST);
        serving.spawn(health.serve_health(realm.doors(), aside, realm.closing()));
    }
    serving.spawn(port.serve(realm.doors(), places, realm.closing()));
    ready(&realm);

    tokio::pin!(stop);
    let reloading = async {
        while let Some(()) = reload.recv().await {
            realm.reload().await;
        }
        std::future::pending().await
    };
    let outcome = tokio::select! {
        () = &mut stop => Ok(()),
        // Its record cannot be worked with any more. A supervisor starts another process.
        () = realm.closed() => Err(ServeError::Lost),
        () = reloading => Ok(()),
    };
    realm.close(async { while serving.join_next().await.is_some() {} }).await;
    outcome
}

pub(crate) fn bind_port(prepared: &PreparedRealm) -> Result<BoundPort, ServeError> {
    bind_address(&prepared.config().gateway, prepared.tls())
}

/// Binds the port that a configuration names, with a certificate if there is one.
pub(crate) fn bind_address(
    gateway: &GatewayConfig,
    tls: Option<Arc<rustls::ServerConfig>>,
) -> Result<BoundPort, ServeError> {
    BoundPort::bind(resolve_address(&gateway.host, gateway.port)?, tls).map_err(|source| {
        let hint = "the port is in use; choose another with --port or gateway.port, or 0 for any free port";
        ServeError::of_io(&format!("{}:{}", gateway.host, gateway.port), in_use(source, hint))
    })
}

/// Binds the port for health checks alone, if one is configured.
pub(crate) fn bind_health(config: &Config) -> Result<Option<BoundPort>, ServeError> {
    let Some((host, port)) = &config.gateway.health else { return Ok(None) };
    let hint = "the port is in use; choose another gateway.health_port";
    let health = BoundPort::bind(resolve_address(host, *port)?, None);
    health.map(Some).map_err(|source| ServeError::of_io(&format!("{host}:{port}"), in_use(source, hint)))
}
