//! Entities that the rules of a gateway name: its agents, tools, people and folders.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use countersign_config::{self as config, ApproverAccounts, Config, GatewayPaths, KnownEntities, PersonConfig};
use countersign_core::{gate::IdentityMap, policy::PathContext};
use countersign_files::paths;
use countersign_runtime::tools;
use countersign_view::{mcp_server_status::ALWAYS_ASKED, principals};

use super::{
    adapter::{RunTools, TrialAdapter},
    service_tools::{self, ServiceTools},
};

/// Entities that rules name: the agents and the tools of a gateway.
#[derive(Clone)]
pub struct ToolInventory {
    pub(super) tools: Arc<ServiceTools>,
    /// The tools of runs that no service has.
    pub(super) runs: Arc<dyn RunTools>,
    /// Empty where they are not known.
    pub(super) agents: Vec<String>,
    /// None where they are not known.
    pub(super) people: Option<Vec<PersonConfig>>,
    /// From where people can answer; none where this is not known.
    pub(super) accounts: Option<ApproverAccounts>,
    pub(super) surroundings: PathContext,
    /// Folder in which runs of the gateway's own begin; empty if it is not known.
    pub(super) workspace: String,
    /// The adapter that rules are tried for, where one was named.
    pub(super) adapter: Option<TrialAdapter>,
}

impl ToolInventory {
    /// Returns what rules are about as far as a configuration says it, which is nothing where there is none.
    pub fn from_known(known: KnownEntities, runs: Arc<dyn RunTools>) -> Self {
        let KnownEntities { agents, services, people, accounts, places } = known;
        let tools = Arc::new(service_tools::from_services(&services));
        let surroundings = places.as_ref().map_or_else(process_folders, path_context);
        // Without a gateway it is the caller's folder.
        let here = || std::env::current_dir().unwrap_or_default().display().to_string();
        let workspace = places.as_ref().map_or_else(here, main_workspace);
        Self { tools, runs, agents, people, accounts, surroundings, workspace, adapter: None }
    }

    /// Returns the same, for calls through one adapter. The rules of a stdio adapter are those of its agent directory.
    #[must_use]
    pub fn with_adapter(self, adapter: TrialAdapter) -> Self {
        Self { adapter: Some(adapter), ..self }
    }

    /// Returns the adapter that rules are tried for, if one was named.
    pub fn adapter(&self) -> Option<&TrialAdapter> {
        self.adapter.as_ref()
    }

    /// Reports whether this agent is one that is not there. If agents are not known, none is.
    pub fn is_stranger(&self, agent: &str) -> bool {
        !self.agents.is_empty() && !self.agents.iter().any(|known| known == agent)
    }

    /// Returns the tools of services, by name.
    pub fn tools(&self) -> &ServiceTools {
        &self.tools
    }

    /// Returns the entities of a gateway with this configuration.
    pub fn from_config(config: &Config, tools: &Arc<ServiceTools>, runs: Arc<dyn RunTools>) -> Self {
        let agents = config.agents.iter().map(|agent| agent.id.clone()).collect();
        let accounts = ApproverAccounts {
            telegram: config.telegram.iter().flat_map(|telegram| &telegram.allowed_users).copied().collect(),
            console: config.web.users.iter().map(|(login, _)| login.clone()).collect(),
        };
        Self {
            tools: Arc::clone(tools),
            runs,
            agents,
            people: Some(config.people.clone()),
            accounts: Some(accounts),
            surroundings: path_context(&config.gateway_paths()),
            workspace: main_workspace(&config.gateway_paths()),
            adapter: None,
        }
    }
}

/// Folder of the data directory in which each MCP server has a folder of its own.
pub const MCP_HOMES: &str = "mcp";

/// Returns the folder in which the main agent's runs begin.
fn main_workspace(places: &GatewayPaths) -> String {
    places.agents_dir.join(config::MAIN).display().to_string()
}

/// Returns the folders with a meaning of the current user.
fn process_folders() -> PathContext {
    PathContext {
        home: std::env::var("HOME").ok(),
        temporary: vec![std::env::temp_dir().display().to_string(), "/tmp".to_owned(), "/var/tmp".to_owned()],
        ..PathContext::default()
    }
}

/// Returns the paths of the gateway's own files, those that no run may write and those that none may read, and the tools that always
/// need a person.
pub fn path_context(places: &GatewayPaths) -> PathContext {
    let folder = &places.storage.folder;
    let whole = [folder.clone()];
    let own = own_files(&places.storage.log);
    // The workspaces may lie in the data directory.
    let data: &[PathBuf] = if places.agents_dir.starts_with(folder) { &own } else { &whole };
    let rules = [places.permissions.clone()].into_iter().chain(places.file.clone());
    // No run may write the skills of all agents.
    let skills = config::shared_skills(&places.agents_dir);
    let keys = places.key.iter().chain(&places.others).cloned();
    let texts = |paths: &mut dyn Iterator<Item = PathBuf>| {
        let whole = paths.map(|path| std::path::absolute(&path).unwrap_or(path));
        whole.flat_map(paths::path_variants).map(|path| path.to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    PathContext {
        protected: texts(&mut data.iter().cloned().chain(rules.clone()).chain(keys.clone()).chain([skills])),
        unreadable: texts(&mut data.iter().cloned().chain(places.file.clone()).chain(keys)),
        always_asked: ALWAYS_ASKED.map(|(tool, reason)| (tool.to_owned(), reason.to_owned())).into(),
        ..process_folders()
    }
}

/// Returns the files that the gateway keeps in its data directory.
fn own_files(log: &Path) -> Vec<PathBuf> {
    let folder = log.parent().unwrap_or_else(|| Path::new(""));
    let name = log.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let beside = ["", "-wal", "-shm", "-journal", ".lock"].map(|end| folder.join(format!("{name}{end}")));
    let own = [
        "countersign.sock",
        "countersign.sock.lock",
        "web.key",
        "web.key.new",
        "web.revoked",
        "web.revoked.new",
        "tokens.json",
        "secrets.yaml",
        "mcp-approvals.json",
        "mcp-approvals.json.lock",
        MCP_HOMES,
        tools::secrets::FOLDER,
        "objects",
    ];
    beside.into_iter().chain([log.with_extension("ballast")]).chain(own.map(|name| folder.join(name))).collect()
}

/// Returns the identities of each person.
pub fn people_identities(people: &[PersonConfig]) -> IdentityMap {
    IdentityMap::new(people.iter().map(|person| {
        let telegram = person.telegram.iter().map(|user| principals::of_telegram(*user));
        let local = person.local.iter().map(|user| principals::of_machine(*user));
        let console = person.console.iter().map(|login| principals::of_console(login));
        (person.id.clone(), telegram.chain(local).chain(console).collect::<Vec<_>>())
    }))
}
