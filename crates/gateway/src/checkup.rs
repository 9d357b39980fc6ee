//! Checks whether a gateway could start with a configuration, and reach its dependencies.
//!
//! It starts nothing, opens no record and changes nothing.

use std::{collections::BTreeSet, net::TcpListener, path::PathBuf, sync::Arc, time::Duration};

use countersign_config::{Config, GatewayPaths, ProviderConfig};
use countersign_conversations::chats::GatewayModels;
use countersign_files::paths;
use countersign_http::listen;
use countersign_policy_admin::{
    malformed::{MalformedRule, restrictions_without_effect},
    rules,
    rules_error::RulesLoadError,
    tool_inventory::{self, ToolInventory},
};
use countersign_runtime::{
    models::{ModelApi, ModelEntry},
    services::{BadService, HealthFailure, ServiceClient},
    tools::Sandbox,
};
use countersign_telegram::{self as telegram, BotCheck, BotCheckError};
use secrecy::ExposeSecret as _;

pub use crate::cluster::{NodeReach, check_node};
use crate::{adapter::GsvTools, mcp_tools, port::resolve_address, run_environment, serve_error::ServeError};

/// Longest wait for a bot.
const PATIENCE: Duration = Duration::from_secs(15);

/// Findings about rules that load.
#[derive(Debug)]
pub struct RuleFindings {
    /// Rules that deny or ask and that a mistake keeps from matching anything: errors for an operator, and warnings of a start.
    pub without_effect: Vec<MalformedRule>,
    /// All other warnings, one line each.
    pub warnings: Vec<String>,
}

/// Reads the rules of a configuration and tries their cases, and gives the findings about them.
///
/// # Errors
/// [`RulesLoadError`].
pub fn check_rules(config: &Config) -> Result<RuleFindings, RulesLoadError> {
    let tools = run_environment::agent_gate_settings(config).tools;
    let inventory = ToolInventory::from_config(config, tools.services(), Arc::new(GsvTools));
    let loaded = rules::load_rules(&config.permissions, &inventory)?;
    let without_effect = restrictions_without_effect(&loaded.rules.compiled);
    let warnings = loaded.other_warnings(&without_effect);
    Ok(RuleFindings { without_effect, warnings })
}

/// Returns the problems that keep a gateway from starting with a well-formed configuration, one line each; its rules apart.
pub fn config_problems(config: &Config) -> Vec<String> {
    let binding = config.check_binding().err().map(|error| error.to_string());
    let tls = config.gateway.tls.as_ref().and_then(|tls| listen::load_tls(&tls.cert, &tls.key).err());
    let services =
        ServiceClient::new(run_environment::service_definitions(config)).err().map(|error| error.to_string());
    binding.into_iter().chain(tls.map(|error| error.to_string())).chain(services).collect()
}

/// Reports whether the environment here names a collector of traces.
///
/// # Errors
/// The variable that keeps a gateway from starting, and the reason.
pub fn check_traces() -> Result<bool, String> {
    #[cfg(feature = "otlp")]
    return countersign_otlp::TraceCollector::from_environment()
        .map(|named| named.is_some())
        .map_err(|error| error.to_string());
    #[cfg(not(feature = "otlp"))]
    Ok(false)
}

/// Builds the sandbox of the commands of runs: as configured, without access to the gateway's own files.
pub fn build_sandbox(config: &Config) -> Sandbox {
    let around = tool_inventory::path_context(&config.gateway_paths());
    let paths = |texts: Vec<String>| texts.into_iter().map(PathBuf::from).collect();
    Sandbox::new(config.sandbox.clone(), paths(around.protected), paths(around.unreadable))
}

/// Builds the sandbox of MCP servers: that of commands, but for the servers' own folders, which no run may touch.
pub fn build_server_sandbox(config: &Config) -> Sandbox {
    let homes = mcp_tools::server_homes(config);
    // The rest of the data directory is closed file by file, as if the agents' folders were where the servers' are.
    let places = GatewayPaths { agents_dir: homes.clone(), ..config.gateway_paths() };
    let (by_file, of_runs) =
        (tool_inventory::path_context(&places), tool_inventory::path_context(&config.gateway_paths()));
    let own: Vec<PathBuf> = paths::path_variants(std::path::absolute(&homes).unwrap_or(homes)).collect();
    // Neither the folder of the servers nor one above it.
    let is_other = |path: &PathBuf| own.iter().all(|own| !path.starts_with(own) && !own.starts_with(path));
    let others = |texts: [Vec<String>; 2]| {
        let paths = texts.into_iter().flatten().map(PathBuf::from);
        paths.filter(is_other).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    let (protected, unreadable) =
        (others([by_file.protected, of_runs.protected]), others([by_file.unreadable, of_runs.unreadable]));
    Sandbox::new(config.sandbox.clone(), protected, unreadable)
}

/// Checks the health of every service.
///
/// # Errors
/// [`BadService`] if one cannot be checked at all.
pub async fn check_services(config: &Config) -> Result<Vec<(String, Result<(), HealthFailure>)>, BadService> {
    let services = ServiceClient::new(run_environment::service_definitions(config))?;
    let checks = config.services.iter().map(|one| async { (one.name.clone(), services.check_health(&one.name).await) });
    Ok(futures_util::future::join_all(checks).await)
}

/// Requests the bot's identity from Telegram, and checks its chat; `None` without Telegram.
pub async fn check_messenger(config: &Config) -> Option<Result<BotCheck, BotCheckError>> {
    let telegram = config.telegram.as_ref()?;
    let check = telegram::check_bot(&telegram.api_url, telegram.token.clone(), telegram.chat_id);
    let late = || Err(BotCheckError::Bot(format!("no answer within {} s", PATIENCE.as_secs())));
    Some(tokio::time::timeout(PATIENCE, check).await.unwrap_or_else(|_| late()))
}

/// Result of checking a key with its provider of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyCheck {
    /// The key was accepted.
    Taken,
    /// The key was refused, with this status.
    Refused(u16),
    /// This status shows neither.
    Unknown(u16),
}

/// Requests the list of models from every provider that has a key, which costs nothing.
pub async fn check_keys(config: &Config) -> Vec<(String, Result<KeyCheck, String>)> {
    let models = GatewayModels::from_config(config);
    let checks = config.providers.iter().filter_map(|(name, provider)| {
        let entry = models.entries().find(|entry| entry.provider == *name && entry.api != ModelApi::Demo)?;
        Some(async { (name.clone(), check_key(entry, provider).await) }).filter(|_| provider.api_key.is_some())
    });
    futures_util::future::join_all(checks).await
}

async fn check_key(entry: &ModelEntry, provider: &ProviderConfig) -> Result<KeyCheck, String> {
    let base = entry.base_url.trim_end_matches('/');
    let secret = provider.api_key.as_ref().map(|key| key.expose_secret().to_owned()).unwrap_or_default();
    // A key is sent only to its own provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().timeout(PATIENCE).redirect(reqwest::redirect::Policy::none()).build();
    let client = client.map_err(|error| error.to_string())?;
    let request = match entry.api {
        ModelApi::AnthropicMessages => client
            .get(format!("{base}/v1/models"))
            .header("x-api-key", secret)
            .header("anthropic-version", "2023-06-01"),
        ModelApi::GoogleGenerativeAi => client.get(format!("{base}/models")).header("x-goog-api-key", secret),
        ModelApi::OpenaiCompletions | ModelApi::OpenaiResponses | ModelApi::Demo => {
            client.get(format!("{base}/models")).bearer_auth(secret)
        }
    };
    let headers = provider.headers.iter();
    let request = headers.fold(request, |request, (name, value)| request.header(name, value.expose_secret()));
    let status = request.send().await.map_err(failure_text)?.status();
    Ok(match status.as_u16() {
        refused @ (401 | 403) => KeyCheck::Refused(refused),
        _ if status.is_success() => KeyCheck::Taken,
        other => KeyCheck::Unknown(other),
    })
}

/// Returns the cause of a failed request, such as "Connection refused": the error itself names only the request.
fn failure_text(error: reqwest::Error) -> String {
    if error.is_timeout() {
        return format!("no answer within {} s", PATIENCE.as_secs());
    }
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string().split(" (os error ").next().unwrap_or_default().to_owned()
}

/// Checks that the address of a gateway that does not run is free.
///
/// # Errors
/// The reason why it is not.
pub fn check_port(config: &Config) -> Result<(), String> {
    let (host, port) = (&config.gateway.host, config.gateway.port);
    let bound = resolve_address(host, port).and_then(|address| {
        TcpListener::bind(address).map_err(|source| ServeError::of_io(&format!("{host}:{port}"), source))
    });
    bound.map(drop).map_err(|error| error.to_string())
}
