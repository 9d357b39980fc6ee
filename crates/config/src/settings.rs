//! Settings of `serve` from its configuration, as plain values.
//!
//! It must not know the format of a file.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, time::Duration};

use countersign_core::session::RetryPolicy;
use countersign_runtime::{
    models::entry::{ModelApi, ModelEntry},
    tools::sandbox,
};
use secrecy::SecretString;

use super::{
    cluster::ClusterConfig, database::DatabaseSettings, diagnostics::LiteralCredential, mcp::McpServerConfig,
    services::ServiceConfig,
};
use crate::logging::LogLineFormat;

/// The name of the file of programs' tokens in the data directory.
pub const TOKENS_FILE: &str = "tokens.json";

/// Flags of the command line; they go before the file. Paths are relative to the working folder.
#[derive(Clone, Debug, Default)]
pub struct ConfigFlags {
    /// `--permissions`.
    pub permissions: Option<PathBuf>,
    /// `--data`.
    pub data: Option<PathBuf>,
    /// `--host`.
    pub host: Option<String>,
    /// `--port`.
    pub port: Option<u16>,
    /// `--webui`.
    pub webui: Option<PathBuf>,
    /// `--log-format`.
    pub log_format: Option<LogLineFormat>,
    /// True with `--insecure`.
    pub insecure: bool,
}

/// The whole configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file that it was read from.
    pub file: Option<PathBuf>,
    /// The file of the rules: `--permissions`, else `permissions.yaml` next to the configuration.
    pub permissions: PathBuf,
    /// `gateway`.
    pub gateway: GatewayConfig,
    /// `agent`, under the name `default`, and `agents`. Names and tokens are distinct.
    pub agents: Vec<AgentConfig>,
    /// `messenger.telegram`.
    pub telegram: Option<TelegramConfig>,
    /// `services`, in the order of the file. No two have a tool of the same name.
    pub services: Vec<ServiceConfig>,
    /// `mcp.servers`, in the order of the file. No two have the same name, in any letter case.
    pub mcp_servers: Vec<McpServerConfig>,
    /// Paths of the log.
    pub storage: StoragePaths,
    /// `approval_timeout`: how long an approval waits for an answer.
    pub approval_timeout: Duration,
    /// `clarify_timeout`: how long a question does.
    pub clarify_timeout: Duration,
    /// `retry_max_wait`: the longest wait for a model provider that a run waits for by itself.
    pub retry_max_wait: Duration,
    /// `retry_ask_after`: the shortest wait for a model provider that opens a gate for people.
    pub retry_ask_after: Duration,
    /// `on_shutdown`.
    pub on_shutdown: OnShutdown,
    /// `rate_limit`.
    pub limits: RateLimits,
    /// `clients.token`.
    pub clients: Option<SecretString>,
    /// `web`.
    pub web: WebConfig,
    /// `model`.
    pub model: Option<ModelSelection>,
    /// `providers` by name.
    pub providers: BTreeMap<String, ProviderConfig>,
    /// `agents_dir`, else `agents` in the data directory.
    pub agents_dir: PathBuf,
    /// `sandbox`: what commands of runs may touch.
    pub sandbox: sandbox::SandboxSettings,
    /// `secrets`: those that agents may use by name, in addition to those in the data directory.
    pub secrets: BTreeMap<String, SecretString>,
    /// `people`. No identity belongs to two of them.
    pub people: Vec<PersonConfig>,
    /// `--webui`.
    pub webui: Option<PathBuf>,
    /// `log`.
    pub log: LogConfig,
    /// `retention`.
    pub retention: RetentionConfig,
    /// `cluster`: absent for a gateway that is alone.
    pub cluster: Option<ClusterConfig>,
    /// `realms`, by name: the process serves each of them, and this configuration has nothing but its port.
    pub realms: Vec<RealmConfig>,
    /// Files and folders of the process and of its other realms, which no command of a run may touch.
    pub other_paths: Vec<PathBuf>,
    pub(super) literals: Vec<LiteralCredential>,
    pub(super) tool_files: Vec<PathBuf>,
}

/// Realm of a process that serves several.
#[derive(Clone, Debug)]
pub struct RealmConfig {
    /// Name, distinct in the process: small letters, digits and `-`.
    pub name: String,
    /// Host names that belong to it, in small letters: `hosts`, and those of its `gateway.public_url` and `gateway.allowed_hosts`.
    pub hosts: Vec<String>,
    /// Its configuration, with the port of the process.
    pub config: Config,
}

/// Address on which the gateway listens, and addresses by which it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayConfig {
    /// A name or an address; 127.0.0.1 by default.
    pub host: String,
    /// 8443 by default; 0 lets the system choose.
    pub port: u16,
    /// `tls`.
    pub tls: Option<TlsFiles>,
    /// `health_host` and `health_port`: a second listener for nothing but whether the gateway is well.
    pub health: Option<(String, u16)>,
    /// `public_url`, without a slash at its end.
    pub public_url: Option<String>,
    /// `allowed_hosts`, beyond those that need no mention.
    pub allowed_hosts: Vec<String>,
    /// True with `--insecure`: plaintext on an address that is not loopback.
    pub insecure: bool,
}

/// The files of the gateway's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The chain, PEM.
    pub cert: PathBuf,
    /// The private key, PEM.
    pub key: PathBuf,
}

/// Logins at the console and the adapters over HTTP. Without any they are open on loopback only.
#[derive(Clone, Debug, Default)]
pub struct WebConfig {
    /// `web.password`: shared, so it belongs to no person.
    pub password: Option<SecretString>,
    /// `web.users`: the login that `people` may name, and its own password. No two have the same.
    pub users: Vec<(String, SecretString)>,
}

impl WebConfig {
    /// Reports whether a login is needed.
    pub fn is_guarded(&self) -> bool {
        self.password.is_some() || !self.users.is_empty()
    }
}

/// An agent and its credential.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Its name in the record.
    pub id: String,
    /// Never empty.
    pub token: SecretString,
}

/// Delivery of cards over Telegram.
#[derive(Clone, Debug)]
pub struct TelegramConfig {
    /// The bot's token.
    pub token: SecretString,
    /// Chat of the cards; negative is a group.
    pub chat_id: i64,
    /// The topic of that chat in which they stand; absent: its General.
    pub message_thread_id: Option<i64>,
    /// Users that may answer; never empty.
    pub allowed_users: Vec<i64>,
    /// Base URL of the Bot API, without a slash at its end.
    pub api_url: String,
}

/// The program's own log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogConfig {
    /// `log.level`: the log filter; absent: warnings and errors.
    pub level: Option<String>,
    /// `log.format`, or `--log-format`.
    pub form: LogLineFormat,
}

/// Retention of records. A kind without a time is kept for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionConfig {
    /// `retention.calls`: arguments and results of calls.
    pub calls: Option<Duration>,
    /// `retention.gates`: texts of gates and of their answers.
    pub gates: Option<Duration>,
    /// `retention.objects`: archives of messages, and files of messages of chat networks.
    pub objects: Option<Duration>,
    /// `retention.every`: how often it is looked at.
    pub every: Duration,
}

impl RetentionConfig {
    /// Reports whether anything is ever removed.
    pub const fn is_any(&self) -> bool {
        self.calls.is_some() || self.gates.is_some() || self.objects.is_some()
    }
}

/// Paths of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoragePaths {
    /// The data directory.
    pub folder: PathBuf,
    /// The file of the log, in that directory. There is none if the log is in a database.
    pub log: PathBuf,
    /// The database of the log, if it is in one.
    pub database: Option<DatabaseSettings>,
}

/// Handling of gates that are pending at a shutdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnShutdown {
    /// Gates stay pending.
    #[default]
    Keep,
    /// Gates are denied.
    Deny,
}

/// Limits of one agent, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimits {
    /// Approvals of one agent that wait at once.
    pub max_pending_approvals: u32,
    /// Tool requests of one agent in any 60 seconds.
    pub max_requests_per_minute: u32,
    /// Failed authentications from one address in any 60 seconds.
    pub max_failed_auth_per_minute: u32,
    /// Connections at once, of everybody together.
    pub max_connections: u32,
}

/// A model by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSelection {
    /// The provider; `demo` is the built-in scripted one.
    pub provider: String,
    /// The provider's name for the model.
    pub id: String,
}

/// A provider of models. Without models it gives a key or an address to the built-in ones of its name.
#[derive(Clone, Debug)]
pub struct ProviderConfig {
    /// The wire; there if it has models.
    pub api: Option<ModelApi>,
    /// Without a slash at its end; there if it has models.
    pub base_url: Option<String>,
    /// The key itself.
    pub api_key: Option<SecretString>,
    /// Headers of every request.
    pub headers: BTreeMap<String, SecretString>,
    /// Its models.
    pub models: Vec<ModelEntry>,
}

/// A person with every identity that is theirs. Votes count people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersonConfig {
    /// The name in the record.
    pub id: String,
    /// Telegram users.
    pub telegram: Vec<i64>,
    /// Console logins.
    pub console: Vec<String>,
    /// Users of this machine, by number: whose command line it is.
    pub local: Vec<u32>,
}

/// The accounts from which people can answer, in addition to the users of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApproverAccounts {
    /// Telegram users whose answers are taken.
    pub telegram: Vec<i64>,
    /// Logins of the console.
    pub console: Vec<String>,
}

impl ApproverAccounts {
    /// Reports whether `person` has one of them, or is a user of this machine.
    pub fn can_reach(&self, person: &PersonConfig) -> bool {
        !person.local.is_empty()
            || person.telegram.iter().any(|account| self.telegram.contains(account))
            || person.console.iter().any(|login| self.console.contains(login))
    }
}

/// Reason why the gateway may not listen on the configured address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// No login would be needed.
    #[error(
        "gateway.host is not a loopback address and needs a credential: set agent.token, clients.token or web.password"
    )]
    Open,
    /// Tokens would travel in the clear.
    #[error(
        "TLS not configured. Use --insecure to allow plaintext WS. (gateway.host is not a loopback address: set gateway.tls.cert and gateway.tls.key)"
    )]
    Plaintext,
    /// Requests between nodes would travel in the clear.
    #[error(
        "cluster.advertise is http and not a loopback address: set gateway.tls and an https URL, or use --insecure on a private network"
    )]
    PlaintextNodes,
    /// Other nodes would speak TLS to a port without it.
    #[error(
        "cluster.advertise is https, but the port of this node has no TLS: set gateway.tls, or use --insecure if the URL is that of a TLS proxy"
    )]
    NodeWithoutTls,
    /// Other nodes would send requests in the clear to a port with TLS.
    #[error("cluster.advertise is http, but gateway.tls is set: write an https URL")]
    NodeWithTls,
}

impl GatewayConfig {
    /// Returns true if it can only be reached from this machine.
    pub fn is_loopback(&self) -> bool {
        let host = self.host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&self.host);
        host.eq_ignore_ascii_case("localhost")
            || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
    }
}

impl Config {
    /// Returns the retry policy for failures of a model provider in sessions of the gateway.
    pub fn retry_policy(&self) -> RetryPolicy {
        RetryPolicy { longest: self.retry_max_wait, ask_after: self.retry_ask_after, ..RetryPolicy::default() }
    }

    /// Decides whether the gateway may listen on its address.
    ///
    /// # Errors
    /// [`BindError`] for an address that is not loopback, without a credential or without TLS and `--insecure`, for nodes that would
    /// send requests in the clear, and for a node that others cannot reach, because its URL has the wrong scheme.
    pub fn check_binding(&self) -> Result<(), BindError> {
        let (is_tls, is_insecure) = (self.gateway.tls.is_some(), self.gateway.insecure);
        match self.cluster.as_ref().map(ClusterConfig::is_tls) {
            Some(true) if !is_tls && !is_insecure => return Err(BindError::NodeWithoutTls),
            Some(false) if is_tls => return Err(BindError::NodeWithTls),
            Some(_) | None => {}
        }
        if !self.gateway.insecure && self.cluster.as_ref().is_some_and(ClusterConfig::is_plaintext) {
            return Err(BindError::PlaintextNodes);
        }
        if self.gateway.is_loopback() {
            return Ok(());
        }
        if self.agents.is_empty() && self.clients.is_none() && !self.web.is_guarded() {
            return Err(BindError::Open);
        }
        if self.gateway.tls.is_none() && !self.gateway.insecure {
            return Err(BindError::Plaintext);
        }
        Ok(())
    }
}
