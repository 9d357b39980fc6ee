//! A gateway as `serve` runs it: one record, one port, every door that is configured.

pub mod adapter;
pub mod checkup;
pub mod control;
mod ground;
mod hints;
mod house;
mod metrics;
mod retention;
mod serve_error;
mod websockets;

use std::{
    net::{SocketAddr, ToSocketAddrs as _},
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::Path,
    sync::Arc,
    time::Duration,
};

use countersign_adapter_agent_gate::{self as agent_gate, Door};
use countersign_adapter_gjc as gjc;
use countersign_adapter_gsv::{self as gsv, GsvContext};
use countersign_adapter_hermes::{self as hermes, HermesContext};
use countersign_adapter_omp::attach::{Furniture, Guests, Hall};
use countersign_api::{self as api, ApiContext};
use countersign_config::{Config, OnShutdown, logging::Levels};
use countersign_console::{self as console, ConsoleContext};
use countersign_conversations::{
    chats::{Chats, Models, Workrooms},
    sessions::SessionIndex,
};
use countersign_core::{
    engine::{Command, Resume},
    gate::{self, Gate},
    id::PrincipalId,
};
use countersign_files::objects::Store;
use countersign_http::{
    listen::{self, Doors, Hosts, Port, Rooms},
    readiness::Readiness,
    tokens::Watched,
    web::{self, Auth},
};
use countersign_policy_admin::{
    household::Household,
    rulebook::Rulebook,
    rules::{self},
};
use countersign_runtime::{
    Handle, Lane, Options, Refused,
    services::Services,
    store::View,
    tools::{Secrets, secrets::FOLDER},
};
use countersign_telegram::{self as telegram, Ear, Reporter, Telegram};
use futures_util::FutureExt as _;
use serde_json::json;

use crate::{
    control::{Control, Owned},
    metrics::MetricsContext,
};

use adapter::GsvTools;
pub use ground::{Ground, OpenRecord};
use hints::{in_use, no_folder};
use house::House;
pub use serve_error::ServeError;

/// How long a session in which nothing happens stays in memory.
const IDLE: Duration = Duration::from_secs(600);
/// How long connections have to hear that the gateway closes.
const FAREWELL: Duration = Duration::from_secs(2);

/// Runs a gateway until `stop`. `ready` gets its address once it takes connections; `reload` gives a value whenever the rules
/// are to be read again; `levels` is what the program logs, `notice` is for people.
///
/// # Errors
/// [`ServeError`]. Nothing is lost by any of them.
pub async fn serve(
    config: Config,
    ground: Ground,
    notice: impl Fn(&str) + Send + Sync + 'static,
    ready: impl FnOnce(&str),
    mut reload: tokio::sync::mpsc::Receiver<()>,
    levels: Levels,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let Ground { program, record, clock, dice } = ground;
    config.binding()?;
    #[cfg(feature = "otlp")]
    let collector = countersign_otlp::Collector::named()?;
    #[cfg(not(feature = "otlp"))]
    if let Some(name) = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]
        .iter()
        .find(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
    {
        notice(&format!("{name} is set, but this program was built without traces: nothing is sent there"));
    }
    let front_end = config.webui.as_deref().map(hermes::front_end).transpose();
    front_end.map_err(ServeError::FrontEnd)?;
    let config = Arc::new(config);
    let secrets = Secrets::at(config.storage.folder.join(FOLDER), config.secrets.clone());
    let settings = agent_gate::Settings { secrets: secrets.clone(), ..house::agents(&config) };
    let household = Household::of(&config, &settings.tools, Arc::new(GsvTools));
    let loaded = rules::load(&config.permissions, &household)?;
    loaded.warnings.iter().for_each(|warning| notice(warning));
    let tls = config.gateway.tls.as_ref().map(|tls| listen::load_tls(&tls.cert, &tls.key)).transpose()?;
    let services = Arc::new(Services::new(house::services(&config))?.releasing(secrets.clone()));
    let users: Vec<u32> = config.people.iter().flat_map(|person| person.local.iter().copied()).collect();
    // Others who answer on this machine find the socket in it by its name.
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(if users.is_empty() { 0o700 } else { 0o711 })
        .create(&config.storage.folder)
        .and_then(|()| if users.is_empty() { Ok(()) } else { let_through(&config.storage.folder) })
        .map_err(|problem| {
            io(&config.storage.folder.display().to_string(), no_folder(&config.storage.folder, problem))
        })?;
    // Before the port: that it is taken would only be what follows from it.
    let owned = Owned::take(&config.storage.folder)
        .map_err(|source| io(&config.storage.folder.display().to_string(), source))?;
    let port = Port::bind(address(&config.gateway.host, config.gateway.port)?, tls).map_err(|source| {
        let hint =
            "something listens there already; choose another port with --port or gateway.port, 0 for any that is free";
        io(&format!("{}:{}", config.gateway.host, config.gateway.port), in_use(source, hint))
    })?;
    let bound = port.address().map_err(|source| io("the port", source))?;
    let log = record(&config, views())?;
    make_workspaces(&config).map_err(|problem| io(&config.agents_dir.display().to_string(), problem))?;
    let models = Arc::new(Models::of(&config));
    let sandbox = checkup::sandbox(&config);
    let rooms = Arc::new(Workrooms::new(&program, sandbox, secrets, &config.agents_dir, clock.clone()));
    let guests = Arc::new(Guests::default());
    let wings = Arc::new(gsv::Wings::default());
    let house = House::new(
        Arc::clone(&services),
        &config,
        Arc::clone(&models),
        Arc::clone(&rooms),
        Arc::clone(&guests),
        Arc::clone(&wings),
    );
    let around = loaded.rules.surroundings.clone();
    let options = Options {
        rules: loaded.rules,
        resume: Resume::Go,
        clock: clock.clone(),
        dice,
        host: Arc::new(house),
        merge: Duration::from_millis(50),
        idle: Some(IDLE),
    };
    let handle = Handle::open(log, options).await?;
    #[cfg(feature = "otlp")]
    let traces = match collector {
        Some(collector) => collector.follow(&handle).await,
        None => None,
    };
    let door = Door::open(handle.clone(), clock.clone(), settings).await?;
    let furniture = Furniture {
        handle: handle.clone(),
        guests,
        clock: clock.clone(),
        program,
        around,
        folder: config.storage.folder.clone(),
        extend: gjc::extension,
    };
    let hall = Hall::open(furniture).await.ok_or(ServeError::Lost)?;
    let control = Control::open(owned, Arc::clone(&hall), users, levels)
        .map_err(|source| io(&config.storage.folder.display().to_string(), source))?;
    let ear = Arc::new(Ear::default());
    let telegram = match &config.telegram {
        Some(telegram) => {
            let settings = house::telegram(telegram, &config.people, &door, &ear);
            Some(Telegram::spawn(settings, handle.clone(), clock.clone())?)
        }
        None => None,
    };
    let names = config.gateway.public_url.iter().filter_map(|url| host_of(url)).map(str::to_owned);
    let auth = Auth::open(
        &config.storage.folder,
        config.web.clone(),
        clock.clone(),
        authorities(&config),
        port.scheme() == "https",
        Some(Box::new(Watched::new(&config.storage.folder, clock.clone()))),
    );
    let auth = auth.map_err(|problem| io(&config.storage.folder.display().to_string(), problem))?;
    let auth = Arc::new(auth.behind(config.gateway.public_url.as_deref()));
    let folder = std::fs::canonicalize(&config.agents_dir)
        .map_err(|problem| io(&config.agents_dir.display().to_string(), problem))?;
    let timeouts = (config.approval_timeout, config.clarify_timeout);
    let rulebook = Rulebook::new(handle.clone(), config.permissions.clone(), household.clone());
    let chats = Arc::new(Chats::new(handle.clone(), models, folder, timeouts, config.retry()));
    let started_at = clock.now();
    let reporter = telegram.as_ref().map(|telegram| -> Reporter { Arc::new(telegram.reporter()) });
    let verifying = Arc::new(tokio::sync::Semaphore::new(1));
    let url = format!("{}://{}", port.scheme(), shown(&config.gateway.host, bound));
    let gsv = Arc::new(GsvContext {
        handle: handle.clone(),
        clock: clock.clone(),
        config: Arc::clone(&config),
        chats: Arc::clone(&chats),
        telegram: reporter.clone(),
    });
    let peers = gsv::Door::open(&gsv, bound.port(), &wings, &rooms).await.map_err(|error| match error {
        gsv::OpenError::Secrets(error) => ServeError::Secrets(error.to_string()),
        gsv::OpenError::Closing => ServeError::Lost,
    })?;
    if let Some(telegram) = &telegram {
        peers.join(telegram, &ear).await;
    }
    let api = ApiContext {
        handle: handle.clone(),
        chats: Arc::clone(&chats),
        auth: Arc::clone(&auth),
        clock: clock.clone(),
        household: household.clone(),
        verifying: Arc::clone(&verifying),
    };
    let hermes = HermesContext {
        handle: handle.clone(),
        chats: Arc::clone(&chats),
        auth: Arc::clone(&auth),
        clock: clock.clone(),
        started_at,
        config: Arc::clone(&config),
    };
    let metrics = MetricsContext {
        handle: handle.clone(),
        auth: Arc::clone(&auth),
        started_at,
        storage: config.storage.clone(),
        telegram: reporter.clone(),
    };
    let console = ConsoleContext {
        handle: handle.clone(),
        chats,
        auth: Arc::clone(&auth),
        clock: clock.clone(),
        started_at,
        config: Arc::clone(&config),
        household,
        rulebook: Arc::clone(&rulebook),
        verifying,
        services: Arc::clone(&services),
        agents: door.clone(),
        peers: peers.clone(),
        telegram: reporter.clone(),
        address: url.clone(),
    };
    let pages = web::login_routes(&auth)
        .merge(api::routes(&Arc::new(api)))
        .merge(console::routes(&Arc::new(console)))
        .merge(metrics::routes(&Arc::new(metrics)))
        .merge(gsv::routes(&peers))
        .merge(hermes::open(&Arc::new(hermes)).await.ok_or(ServeError::Lost)?);
    let (agents, others) = (Arc::clone(&door), Arc::clone(&peers));
    let doors = Arc::new(Doors {
        websockets: Box::new(move |request| {
            websockets::serve(Arc::clone(&agents), Arc::clone(&others), request).boxed()
        }),
        pages: web::with_fallbacks(pages, &auth, hermes::nothing),
        hosts: Hosts::new(bound.ip(), names.chain(config.gateway.allowed_hosts.iter().cloned())),
        readiness: Readiness::new(handle.clone(), config.storage.folder.clone()),
        health: health(
            handle.clone(),
            services,
            config.services.iter().map(|service| service.name.clone()).collect(),
            reporter,
        ),
    });

    let (end, ended) = tokio::sync::watch::channel(false);
    let until = move || {
        let mut ended = ended.clone();
        async move { drop(ended.wait_for(|ended| *ended).await) }
    };
    let mut serving = tokio::task::JoinSet::new();
    if let Some(few) = listen::few() {
        notice(&few);
    }
    let most = usize::try_from(config.limits.max_connections).unwrap_or(usize::MAX);
    let mut places = Rooms::of_this_process(most);
    if let Some((host, port)) = &config.gateway.health {
        let hint = "something listens there already; choose another gateway.health_port";
        let health = Port::bind(address(host, *port)?, None);
        let health = health.map_err(|source| io(&format!("{host}:{port}"), in_use(source, hint)))?;
        let aside;
        (places, aside) = places.split(listen::HEALTH_MOST);
        serving.spawn(health.serve_health(Arc::clone(&doors), aside, until()));
    }
    if config.retention.is_any() {
        let (handle, objects) = (handle.clone(), Store::of(&config.storage.folder));
        let keep = retention::keep(handle, clock.clone(), objects, config.retention);
        let end = until();
        serving.spawn(async move {
            tokio::select! {
                () = keep => {}
                () = end => {}
            }
        });
    }
    serving.spawn(port.serve(doors, places, until()));
    ready(&url);

    tokio::pin!(stop);
    let reloading = async {
        while let Some(()) = reload.recv().await {
            reloaded(&rulebook, &notice).await;
        }
        std::future::pending().await
    };
    let outcome = tokio::select! {
        () = &mut stop => Ok(()),
        // Its record cannot be worked with any more. Whoever watches over this process starts another.
        () = door.closed() => Err(ServeError::Lost),
        () = reloading => Ok(()),
    };
    door.close();
    peers.close();
    end.send_replace(true);
    if config.on_shutdown == OnShutdown::Deny {
        // A record that cannot be written must not keep the process: what waits then waits for the next.
        if tokio::time::timeout(FAREWELL, deny_what_waits(&handle)).await.is_err() {
            notice("what waits could not be ended in time, and waits on");
        }
    }
    if let Some(telegram) = telegram {
        telegram.stop(FAREWELL).await;
    }
    drop(control);
    // At once: calls of services get most of the time that there is, and connections hear of those that end in it.
    let farewell = tokio::time::timeout(FAREWELL, async { while serving.join_next().await.is_some() {} });
    let (_, ()) = tokio::join!(farewell, handle.close());
    hall.close().await;
    rooms.close().await;
    handle.close_log().await;
    #[cfg(feature = "otlp")]
    if let Some(traces) = traces {
        traces.stop(FAREWELL).await;
    }
    outcome
}

/// What is kept beside the record for those who would otherwise read all of it.
fn views() -> Vec<Arc<dyn View>> {
    vec![
        Arc::new(SessionIndex),
        Arc::new(gsv::Registry),
        Arc::new(gsv::Memories),
        Arc::new(gsv::NodeRegister),
        Arc::new(gsv::Executions),
        Arc::new(gsv::NodeCalls),
        Arc::new(gsv::History),
    ]
}

/// Ends whatever waits, as the settings say.
async fn deny_what_waits(handle: &Handle) {
    let source = handle.source(Lane::Result);
    let waiting = source.read(|engine| engine.state().pending_gates().map(Gate::id).collect::<Vec<_>>()).await;
    for gate in waiting.map(|(gates, _)| gates).unwrap_or_default() {
        let by = PrincipalId::new(telegram::SHUTDOWN);
        // Not a person's denial: the agent may ask again once the gateway is back.
        let ended = source.ask(Command::Gate(gate::Command::Withdraw { gate, by })).await;
        if matches!(ended, Err(Refused::NotRecorded(_) | Refused::Closed)) {
            return;
        }
    }
}

/// Brings the rules of the file into force. A file that does not load leaves those of before.
async fn reloaded(rulebook: &Arc<Rulebook>, notice: &impl Fn(&str)) {
    match rulebook.reload(None).await {
        Ok(warnings) => {
            warnings.iter().for_each(|warning| notice(warning));
            notice("the rules were read again and are in force");
        }
        Err(problem) => notice(&format!("the rules were not taken, those of before stay in force: {problem}")),
    }
}

fn health(
    handle: Handle,
    services: Arc<Services>,
    names: Vec<String>,
    telegram: Option<Reporter>,
) -> Box<dyn Fn() -> futures_util::future::BoxFuture<'static, (bool, String)> + Send + Sync> {
    Box::new(move || {
        let (handle, services, names) = (handle.clone(), Arc::clone(&services), names.clone());
        // A messenger that has not had the time to say anything is not ill.
        let telegram = telegram.as_ref().map(|report| report()).map(|it| it.failed.is_none() || it.is_well());
        async move {
            let asked = handle.source(Lane::Request);
            let database = tokio::time::timeout(Duration::from_secs(2), asked.read(|_| ())).await;
            let database = matches!(database, Ok(Some(_)));
            let checks = names.iter().map(|name| async { (name.clone(), services.health(name).await.is_ok()) });
            let services: serde_json::Map<String, serde_json::Value> =
                futures_util::future::join_all(checks).await.into_iter().map(|(name, is)| (name, is.into())).collect();
            // A service that is down is its own trouble; without its record or its people a gateway is of no use.
            let is_well = database && telegram.unwrap_or(true);
            let status = if is_well { "healthy" } else { "unhealthy" };
            let mut checks = json!({ "database": database, "services": services });
            if let Some(telegram) = telegram {
                checks["telegram"] = telegram.into();
            }
            (is_well, json!({ "status": status, "checks": checks }).to_string())
        }
        .boxed()
    })
}

fn address(host: &str, port: u16) -> Result<SocketAddr, ServeError> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let mut found = (bare, port).to_socket_addrs().map_err(|source| io(host, source))?;
    found.next().ok_or_else(|| io(host, std::io::Error::other("it has no address")))
}

/// The address as it was configured, with the port that the system gave.
fn shown(host: &str, bound: SocketAddr) -> String {
    let is_bare = host.contains(':') && !host.starts_with('[');
    if is_bare { format!("[{host}]:{}", bound.port()) } else { format!("{host}:{}", bound.port()) }
}

/// What pages of ours may stand under beside the address that they were asked at.
fn authorities(config: &Config) -> Vec<String> {
    let public = config.gateway.public_url.iter().filter_map(|url| url.split_once("://")?.1.split('/').next());
    public.map(str::to_owned).chain(config.gateway.allowed_hosts.iter().cloned()).collect()
}

/// The host of a URL, without its port.
fn host_of(url: &str) -> Option<&str> {
    let authority = url.split_once("://")?.1.split('/').next()?;
    Some(authority.rsplit_once(':').map_or(authority, |(host, _)| host))
}

/// Lets others through a folder that is closed to them, to what they know the name of.
fn let_through(folder: &Path) -> std::io::Result<()> {
    let mode = std::fs::metadata(folder)?.permissions().mode();
    match mode & 0o011 {
        0o011 => Ok(()),
        _ => std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode | 0o011)),
    }
}

/// Makes the folder in which agents have theirs, closed to others. One that is there is left as somebody made it.
fn make_workspaces(config: &Config) -> std::io::Result<()> {
    let folder = &config.agents_dir;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    if let Some(finding) = config.open_workspaces() {
        tracing::warn!("{finding}: {}", finding.advice());
    }
    Ok(())
}

fn io(what: &str, problem: std::io::Error) -> ServeError {
    ServeError::Io { what: what.to_owned(), problem }
}
