//! A realm before it opens: its settings are checked, and its data directory is locked.

use std::{
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::Path,
    sync::Arc,
};

use countersign_adapter_agent_gate as agent_gate;
use countersign_adapter_hermes as hermes;
use countersign_config::Config;
use countersign_http::listen;
use countersign_policy_admin::{loaded_rules::LoadedRules, rules, tool_inventory::ToolInventory};
use countersign_runtime::{
    services::ServiceClient,
    tools::{GatewaySecrets, secrets::FOLDER},
};

use crate::{
    adapter::GsvTools,
    control::DataDirLock,
    error_hints::no_folder,
    notice::{NoticeFn, NoticeLevel},
    run_environment,
    serve_error::ServeError,
};

/// A realm that can be opened: its settings are checked, and its data directory is locked.
///
/// A port is bound after this and before the realm is opened: a locked directory is reported first, and a port that is taken
/// leaves the record untouched.
pub struct PreparedRealm {
    pub(super) config: Arc<Config>,
    pub(super) notice: NoticeFn,
    pub(super) secrets: GatewaySecrets,
    pub(super) agents: agent_gate::Settings,
    pub(super) tool_inventory: ToolInventory,
    pub(super) loaded: LoadedRules,
    pub(super) tls: Option<Arc<rustls::ServerConfig>>,
    pub(super) services: Arc<ServiceClient>,
    /// Users of this machine who may open the control socket.
    pub(super) users: Vec<u32>,
    /// Absent at a node of a cluster, which has the lock itself.
    pub(super) owned: Option<DataDirLock>,
}

impl PreparedRealm {
    /// Checks the settings, loads the rules and locks the data directory. `notice` is for users.
    ///
    /// # Errors
    /// [`ServeError`]: the setting that cannot be used, or that another gateway has the data directory.
    pub fn new(config: Config, notice: NoticeFn) -> Result<Self, ServeError> {
        let mut prepared = Self::for_node(config, notice)?;
        let folder = &prepared.config.storage.folder;
        // Before the port: a port in use would only be a consequence.
        let owned = DataDirLock::acquire_lock(folder).map_err(|problem| folder_error(folder, problem))?;
        prepared.owned = Some(owned);
        Ok(prepared)
    }

    /// Does the same for a process that has locked the data directory already.
    ///
    /// # Errors
    /// [`ServeError`]: the setting that cannot be used.
    pub(crate) fn for_node(config: Config, notice: NoticeFn) -> Result<Self, ServeError> {
        let front_end = config.webui.as_deref().map(hermes::front_end).transpose();
        front_end.map_err(ServeError::FrontEnd)?;
        let config = Arc::new(config);
        let secrets = GatewaySecrets::from_folder(config.storage.folder.join(FOLDER), config.secrets.clone());
        let agents = agent_gate::Settings { secrets: secrets.clone(), ..run_environment::agent_gate_settings(&config) };
        let tool_inventory = ToolInventory::from_config(&config, agents.tools.services(), Arc::new(GsvTools));
        let loaded = rules::load_rules(&config.permissions, &tool_inventory)?;
        loaded.start_warnings().iter().for_each(|warning| notice(NoticeLevel::Warning, warning));
        let tls = config.gateway.tls.as_ref().map(|tls| listen::load_tls(&tls.cert, &tls.key)).transpose()?;
        let services =
            Arc::new(ServiceClient::new(run_environment::service_definitions(&config))?.with_secrets(secrets.clone()));
        let users: Vec<u32> = config.people.iter().flat_map(|person| person.local.iter().copied()).collect();
        let folder = &config.storage.folder;
        // Other users of this machine find the socket in it by its name.
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(if users.is_empty() { 0o700 } else { 0o711 })
            .create(folder)
            .and_then(|()| if users.is_empty() { Ok(()) } else { let_through(folder) })
            .map_err(|problem| folder_error(folder, no_folder(folder, problem)))?;
        Ok(Self { config, notice, secrets, agents, tool_inventory, loaded, tls, services, users, owned: None })
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// Returns the users of this machine who may open the control socket.
    pub(crate) fn users(&self) -> &[u32] {
        &self.users
    }

    /// Returns the certificate that a port serves this realm with, if one is configured.
    pub fn tls(&self) -> Option<Arc<rustls::ServerConfig>> {
        self.tls.clone()
    }
}

impl std::fmt::Debug for PreparedRealm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PreparedRealm").field("folder", &self.config.storage.folder).finish_non_exhaustive()
    }
}

/// Names a data directory that cannot be used.
pub(crate) fn folder_error(folder: &Path, problem: std::io::Error) -> ServeError {
    ServeError::of_io(&format!("cannot use the data directory {}", folder.display()), problem)
}

/// Lets other users through a folder that is closed to them, to paths whose names they know.
fn let_through(folder: &Path) -> std::io::Result<()> {
    let mode = std::fs::metadata(folder)?.permissions().mode();
    match mode & 0o011 {
        0o011 => Ok(()),
        _ => std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode | 0o011)),
    }
}
