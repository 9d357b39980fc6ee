//! Whether a gateway could start with a configuration, and reach what it needs.
//!
//! It starts nothing, opens no record and changes nothing.

use std::{net::TcpListener, path::PathBuf, sync::Arc, time::Duration};

use countersign_config::{Config, ProviderConfig};
use countersign_conversations::chats::GatewayModels;
use countersign_http::listen;
use countersign_policy_admin::{
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

use crate::{adapter::GsvTools, port::resolve_address, run_environment, serve_error::ServeError};

/// How long a bot is waited for.
const PATIENCE: Duration = Duration::from_secs(15);

/// Reads the rules of a configuration and tries their cases, and gives their warnings.
///
/// # Errors
/// [`RulesError`].
pub fn check_rules(config: &Config) -> Result<Vec<String>, RulesLoadError> {
    let inventory =
        ToolInventory::from_config(config, &run_environment::agent_gate_settings(config).tools, Arc::new(GsvTools));
    rules::load_rules(&config.permissions, &inventory).map(|loaded| loaded.warnings)
}

/// What keeps a gateway from starting with a configuration that is well-formed, one line each; its rules apart.
pub fn config_problems(config: &Config) -> Vec<String> {
    let binding = config.check_binding().err().map(|error| error.to_string());
    let tls = config.gateway.tls.as_ref().and_then(|tls| listen::load_tls(&tls.cert, &tls.key).err());
    let services =
        ServiceClient::new(run_environment::service_definitions(config)).err().map(|error| error.to_string());
    binding.into_iter().chain(tls.map(|error| error.to_string())).chain(services).collect()
}

/// Whether the environment here names a collector of traces.
///
/// # Errors
/// Which variable keeps a gateway from starting, and why.
pub fn check_traces() -> Result<bool, String> {
    #[cfg(feature = "otlp")]
    return countersign_otlp::TraceCollector::from_environment()
        .map(|named| named.is_some())
        .map_err(|error| error.to_string());
    #[cfg(not(feature = "otlp"))]
    Ok(false)
}

/// What holds the commands of runs: as the configuration says, and away from what is the gateway's own.
pub fn build_sandbox(config: &Config) -> Sandbox {
    let around = tool_inventory::path_context(&config.gateway_paths());
    let paths = |texts: Vec<String>| texts.into_iter().map(PathBuf::from).collect();
    Sandbox::new(config.sandbox.clone(), paths(around.protected), paths(around.unreadable))
}

/// Asks every service whether it is well.
///
/// # Errors
/// [`BadService`] if one cannot be asked at all.
pub async fn check_services(config: &Config) -> Result<Vec<(String, Result<(), HealthFailure>)>, BadService> {
    let services = ServiceClient::new(run_environment::service_definitions(config))?;
    let checks = config.services.iter().map(|one| async { (one.name.clone(), services.check_health(&one.name).await) });
    Ok(futures_util::future::join_all(checks).await)
}

/// Asks Telegram who the bot is and whether it knows its chat; `None` without Telegram.
pub async fn check_messenger(config: &Config) -> Option<Result<BotCheck, BotCheckError>> {
    let telegram = config.telegram.as_ref()?;
    let check = telegram::check_bot(&telegram.api_url, telegram.token.clone(), telegram.chat_id);
    let late = || Err(BotCheckError::Bot(format!("no answer within {} s", PATIENCE.as_secs())));
    Some(tokio::time::timeout(PATIENCE, check).await.unwrap_or_else(|_| late()))
}

/// What a provider of models made of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyCheck {
    /// It was taken.
    Taken,
    /// It was refused, with this status.
    Refused(u16),
    /// Neither can be told from this status.
    Unknown(u16),
}

/// Asks every provider that has a key for the list of its models, which costs nothing.
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
    // A key goes nowhere but where it was meant to.
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
    let status = request.send().await.map_err(|error| error.without_url().to_string())?.status();
    Ok(match status.as_u16() {
        refused @ (401 | 403) => KeyCheck::Refused(refused),
        _ if status.is_success() => KeyCheck::Taken,
        other => KeyCheck::Unknown(other),
    })
}

/// Whether the address of a gateway that does not run is free.
///
/// # Errors
/// What is in the way.
pub fn check_port(config: &Config) -> Result<(), String> {
    let (host, port) = (&config.gateway.host, config.gateway.port);
    let bound = resolve_address(host, port).and_then(|address| {
        TcpListener::bind(address).map_err(|source| ServeError::of_io(&format!("{host}:{port}"), source))
    });
    bound.map(drop).map_err(|error| error.to_string())
}
