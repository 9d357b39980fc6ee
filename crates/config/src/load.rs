//! Reads the configuration file, section by section.
//!
//! Every section may be absent. Source: docs of agentpass' config.yaml, whose files load unchanged.

use std::{collections::HashSet, path::Path, time::Duration};

use countersign_core::session::RetryPolicy;
use secrecy::{ExposeSecret as _, SecretString};

use super::{
    agent_list::{AgentConflict, AgentList},
    cases::DEFAULT_AGENT,
    cluster,
    config_field::ConfigField,
    diagnostics::FileDiagnostics,
    exposure, location,
    mcp::{self, McpTransportConfig},
    model_check,
    own_address::is_own_address,
    problem::{ConfigErrors, ConfigFault},
    providers, realms, sandbox, secrets, services,
    settings::{
        AgentConfig, Config, ConfigFlags, GatewayConfig, LogConfig, OnShutdown, PersonConfig, RateLimits,
        RetentionConfig, StoragePaths, TelegramConfig, TlsFiles, WebConfig,
    },
    typed_values::{self, parse_span, read_address},
    value::{self, config_text},
};
use crate::{logging, misnamed_files::misnamed_files};

/// A configuration and the notices for its author.
///
/// # Example
///
/// ```
/// use countersign_config::{ConfigFlags, load_config};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("config.yaml");
/// std::fs::write(&path, "gateway:\n  port: 9000\nagent:\n  token: ${AGENT_TOKEN}\n")?;
/// let environment = |name: &str| (name == "AGENT_TOKEN").then(|| "secret".to_owned());
/// let loaded = load_config(Some(&path), &ConfigFlags::default(), &environment)?;
/// assert_eq!((loaded.config.gateway.host.as_str(), loaded.config.gateway.port), ("127.0.0.1", 9000));
/// assert_eq!(loaded.config.agents[0].id, "default");
///
/// // All problems are reported at once, each with its line.
/// std::fs::write(&path, "gateway:\n  hots: localhost\n  port: high\n")?;
/// let errors = load_config(Some(&path), &ConfigFlags::default(), &environment).unwrap_err();
/// assert_eq!(errors.0.iter().map(|problem| problem.line).collect::<Vec<_>>(), [2, 3]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LoadedConfig {
    /// The configuration.
    pub config: Config,
    /// One line each, without any value that may be secret.
    pub warnings: Vec<String>,
}

/// The keys at the top of a configuration.
pub(super) const TOP: &[&str] = &[
    "gateway",
    "agent",
    "agents",
    "messenger",
    "services",
    "mcp",
    "storage",
    "cluster",
    "realms",
    "approval_timeout",
    "clarify_timeout",
    "retry_max_wait",
    "retry_ask_after",
    "on_shutdown",
    "rate_limit",
    "clients",
    "web",
    "model",
    "providers",
    "agents_dir",
    "people",
    "log",
    "retention",
    "sandbox",
    "secrets",
];
const GATEWAY: &[&str] = &["host", "port", "tls", "health_port", "health_host", "public_url", "allowed_hosts"];
const TELEGRAM: &[&str] = &["token", "chat_id", "message_thread_id", "allowed_users", "api_url"];
const RATE_LIMIT: &[&str] =
    &["max_pending_approvals", "max_requests_per_minute", "max_failed_auth_per_minute", "max_connections"];

/// Reads the file at `path`, and those that it names. Without one everything has its default. `environment` gives the
/// value of a variable.
///
/// # Errors
/// Everything that is wrong, each with file, line and key.
pub fn load_config(
    path: Option<&Path>,
    flags: &ConfigFlags,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<LoadedConfig, ConfigErrors> {
    let notes = FileDiagnostics::for_file(path.unwrap_or_else(|| Path::new("")));
    let text = config_text(path, &notes);
    let read = read_config(&text, path, flags, environment, notes);
    // A rules file that is named has to be there: without any, other things happen than its author thinks.
    let Some(named) = flags.permissions.as_deref().filter(|named| !named.exists()) else { return read };
    let rules = FileDiagnostics::for_file(named);
    rules.add_fault(0, "", ConfigFault::Io("file not found".to_owned()));
    let mut problems = read.err().map_or_else(Vec::new, |errors| errors.0);
    problems.append(&mut rules.take_problems());
    Err(ConfigErrors(problems))
}

/// Reads `text` as the file at `path`.
pub(super) fn read_config(
    text: &str,
    path: Option<&Path>,
    flags: &ConfigFlags,
    environment: &dyn Fn(&str) -> Option<String>,
    notes: FileDiagnostics,
) -> Result<LoadedConfig, ConfigErrors> {
    let value = value::read_value(text, &notes, Some(environment));
    let root = ConfigField::root(&notes, value.as_ref());
    let mut config = build_config(&root, path, flags, environment);
    config.realms = realms::read_realms(&root, &config, flags, environment, build_config);
    if let Some(path) = path {
        exposure::warn_exposed(path, &config, &notes);
        for other in misnamed_files(path, &["yaml", "yml"]) {
            let (other, read) = (other.display(), path.display());
            notes.warnings.borrow_mut().push(format!("{other} is not read: the configuration is {read}"));
        }
    }
    let problems = notes.take_problems();
    if problems.is_empty() {
        Ok(LoadedConfig { config, warnings: notes.warnings.take() })
    } else {
        Err(ConfigErrors(problems))
    }
}

/// Reads the data directory and the log from the file at `path`. The rest of it does not matter, nor whether its
/// variables are set: people who only look need no credentials.
///
/// # Errors
/// The file cannot be read, is not well-formed, or its `storage` is wrong.
pub fn load_storage(
    path: Option<&Path>,
    flags: &ConfigFlags,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<StoragePaths, ConfigErrors> {
    let notes = FileDiagnostics::for_file(path.unwrap_or_else(|| Path::new("")));
    let value = value::read_value(&config_text(path, &notes), &notes, Some(environment));
    let root = ConfigField::root(&notes, value.as_ref());
    let storage = location::resolve_storage(&root.at("storage"), path, flags, environment);
    realms::refuse_as_gateway(&root, flags);
    let mut problems = notes.take_problems();
    problems.retain(|problem| matches!(problem.key.split('.').next(), Some("" | "storage" | "realms")));
    if problems.is_empty() { Ok(storage) } else { Err(ConfigErrors(problems)) }
}

fn build_config(
    root: &ConfigField<'_>,
    path: Option<&Path>,
    flags: &ConfigFlags,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Config {
    root.check_mapping(TOP);
    let storage = location::resolve_storage(&root.at("storage"), path, flags, environment);
    let seconds = |key: &str, usual| Duration::from_secs(root.at(key).positive_integer().unwrap_or(usual));
    let usual = RetryPolicy::default();
    let secret = |section: &str, key: &'static str, known| {
        let section = root.at(section);
        section.check_mapping(known).then(|| section.at(key).needed_secret()).flatten()
    };
    let (model, providers) =
        (providers::read_model(&root.at("model")), providers::read_providers(&root.at("providers")));
    if let Some(model) = &model {
        model_check::check_model(root, model, &providers);
    }
    let gateway = read_gateway(&root.at("gateway"), flags);
    let mcp_servers = mcp::read_mcp_servers(&root.at("mcp"));
    for server in &mcp_servers {
        if let McpTransportConfig::Http { url, .. } = &server.transport
            && is_own_address(url, &gateway)
        {
            let place = root.at("mcp").at("servers").at(&server.name).at("url");
            place.report_refusal("this is the gateway itself, which would call its own tools: expected another server");
        }
    }
    Config {
        file: path.map(Path::to_owned),
        permissions: flags
            .permissions
            .clone()
            .unwrap_or_else(|| path.and_then(Path::parent).unwrap_or_else(|| Path::new("")).join("permissions.yaml")),
        gateway,
        agents: read_agents(root),
        telegram: read_telegram(&root.at("messenger")),
        services: services::read_services(&root.at("services")),
        mcp_servers,
        agents_dir: root.at("agents_dir").path().unwrap_or_else(|| storage.folder.join("agents")),
        cluster: cluster::read_cluster(root, storage.database.is_some()),
        storage,
        approval_timeout: seconds("approval_timeout", 900),
        clarify_timeout: seconds("clarify_timeout", 3600),
        retry_max_wait: seconds("retry_max_wait", usual.longest.as_secs()),
        retry_ask_after: seconds("retry_ask_after", usual.ask_after.as_secs()),
        on_shutdown: on_shutdown(&root.at("on_shutdown")),
        limits: read_limits(&root.at("rate_limit")),
        clients: secret("clients", "token", &["token"]),
        web: read_web(&root.at("web")),
        model,
        providers,
        sandbox: sandbox::read_sandbox(&root.at("sandbox")),
        secrets: secrets::read_secrets(&root.at("secrets")),
        people: read_people(&root.at("people")),
        webui: flags.webui.clone(),
        log: read_logging(&root.at("log"), flags),
        retention: read_retention(&root.at("retention")),
        realms: Vec::new(),
        other_paths: Vec::new(),
        literals: root.notes.literals.take(),
        tool_files: root.notes.files.take(),
    }
}

fn read_port(place: &ConfigField<'_>, least: i64) -> Option<u16> {
    place.not_empty(if least == 0 { "a whole number from 0 to 65535" } else { "a whole number from 1 to 65535" });
    place.integer_in(least, i64::from(u16::MAX)).and_then(|port| u16::try_from(port).ok())
}

/// The keys of `web`.
const WEB: &[&str] = &["password", "users"];

fn read_web(place: &ConfigField<'_>) -> WebConfig {
    if !place.check_mapping(WEB) {
        return WebConfig::default();
    }
    // An unknown key is reported already: it may be this one, misspelt.
    let is_known = |(key, _): &(&str, ConfigField<'_>)| WEB.contains(key);
    let is_clear = place.members().is_none_or(|members| members.iter().all(is_known));
    let password = if place.at("users").is_absent() && is_clear {
        place.at("password").needed_secret()
    } else {
        place.at("password").secret()
    };
    let mut web = WebConfig { password, users: Vec::new() };
    for (login, place) in place.at("users").members().unwrap_or_default() {
        let Some(password) = place.needed_secret() else { continue };
        let is_taken = |other: &SecretString| other.expose_secret() == password.expose_secret();
        if web.password.iter().chain(web.users.iter().map(|(_, other)| other)).any(is_taken) {
            place.report_refusal(
                "another login has this password: passwords must differ, because they identify the user",
            );
        }
        web.users.push((login.to_owned(), password));
    }
    web
}

fn read_gateway(place: &ConfigField<'_>, flags: &ConfigFlags) -> GatewayConfig {
    place.check_mapping(GATEWAY);
    let host = place.at("host").filled_text();
    let own = read_port(&place.at("port"), 0);
    let health_port = place.at("health_port");
    let health = read_port(&health_port, 1);
    let health_host = place.at("health_host").filled_text();
    let gateway = GatewayConfig {
        host: flags.host.clone().or(host).unwrap_or_else(|| "127.0.0.1".to_owned()),
        port: flags.port.or(own).unwrap_or(8443),
        tls: read_tls(&place.at("tls")),
        health: (health.is_some() || health_host.is_some())
            .then(|| (health_host.unwrap_or_else(|| "127.0.0.1".to_owned()), health.unwrap_or(8080))),
        public_url: read_address(&place.at("public_url")),
        allowed_hosts: place.at("allowed_hosts").items().iter().filter_map(typed_values::host_name).collect(),
        insecure: flags.insecure,
    };
    if gateway.health.as_ref().is_some_and(|(_, health)| *health == gateway.port) {
        health_port.report_refusal("must differ from gateway.port");
    }
    gateway
}

pub(super) fn read_tls(place: &ConfigField<'_>) -> Option<TlsFiles> {
    if !place.check_mapping(&["cert", "key"]) || place.members().is_none_or(|members| members.is_empty()) {
        return None;
    }
    let file = |key| place.at(key).needed_text().map(|text| place.notes.folder().join(text));
    let (cert, key) = (file("cert"), file("key"));
    Some(TlsFiles { cert: cert?, key: key? })
}

fn read_agents(root: &ConfigField<'_>) -> Vec<AgentConfig> {
    let mut agents = AgentList::default();
    let mut add = |place: &ConfigField<'_>, id: Option<String>, token: Option<SecretString>| {
        let (Some(id), Some(token)) = (id, token) else { return };
        match agents.add_agent(id, token) {
            Ok(()) => {}
            Err(AgentConflict::Id) => place.at("id").report_refusal("another agent has this id"),
            Err(AgentConflict::Token) => place.at("token").report_refusal("another agent has this token"),
        }
    };
    let first = root.at("agent");
    if first.check_mapping(&["token"]) {
        let token = first.at("token").needed_secret();
        add(&first, Some(DEFAULT_AGENT.to_owned()), token);
    }
    for place in root.at("agents").items() {
        if place.check_item(&["id", "token"]) {
            let (id, token) = (place.at("id").needed_text(), place.at("token").needed_secret());
            add(&place, id, token);
        }
    }
    agents.into_agents()
}

fn read_telegram(place: &ConfigField<'_>) -> Option<TelegramConfig> {
    if !place.check_mapping(&["type", "telegram"]) || place.members().is_none_or(|members| members.is_empty()) {
        return None;
    }
    let kind = place.at("type");
    if let Some(other) = kind.needed_text().filter(|name| name != "telegram") {
        kind.report_refusal(format!("Unsupported messenger type: '{other}' (only 'telegram' is supported)"));
        return None;
    }
    let place = place.at("telegram");
    if !place.check_mapping(TELEGRAM) {
        if place.is_absent() {
            place.report_missing();
        }
        return None;
    }
    let chat = place.at("chat_id");
    if chat.is_absent() {
        chat.report_missing();
    }
    let users = place.at("allowed_users");
    let allowed_users = read_allowed_users(&users);
    if users.list_items().is_none_or(|list| list.is_empty()) && !users.is_unset() {
        users.report_refusal("messenger.telegram.allowed_users must be a non-empty list");
    }
    let (token, chat_id) = (place.at("token").needed_secret(), chat.integer());
    let api_url = read_address(&place.at("api_url")).unwrap_or_else(|| "https://api.telegram.org".to_owned());
    let thread = place.at("message_thread_id");
    thread.not_empty("a whole number from 1, the id of a forum topic");
    let message_thread_id = thread.integer_in(1, i64::from(i32::MAX));
    Some(TelegramConfig { token: token?, chat_id: chat_id?, message_thread_id, allowed_users, api_url })
}

/// Returns the users whose answers count. Each item that is none is reported, so that the list is never shorter unnoticed.
pub(super) fn read_allowed_users(place: &ConfigField<'_>) -> Vec<i64> {
    place.list_items().unwrap_or_default().iter().filter_map(ConfigField::integer).collect()
}

fn on_shutdown(place: &ConfigField<'_>) -> OnShutdown {
    match place.text().as_deref() {
        None | Some("keep") => OnShutdown::Keep,
        Some("deny") => OnShutdown::Deny,
        Some(_) => {
            place.report_refusal("expected keep or deny");
            OnShutdown::Keep
        }
    }
}

fn read_logging(place: &ConfigField<'_>, flags: &ConfigFlags) -> LogConfig {
    place.check_mapping(&["level", "format"]);
    let (level, format) = (place.at("level"), place.at("format"));
    let level_text = level.text();
    if level_text.as_ref().is_some_and(|text| !logging::is_level(text)) {
        level.report_refusal(
            "expected a level (off, error, warn, info, debug or trace), or part=level pairs separated by commas",
        );
    }
    let form = format.text().and_then(|word| {
        let form = logging::LogLineFormat::ALL.into_iter().find(|(name, _)| *name == word).map(|(_, form)| form);
        if form.is_none() {
            format.report_refusal("expected text or json");
        }
        form
    });
    LogConfig { level: level_text, form: flags.log_format.or(form).unwrap_or_default() }
}

/// Default interval between removals of old records: hourly.
const EVERY: Duration = Duration::from_secs(3600);

fn read_retention(place: &ConfigField<'_>) -> RetentionConfig {
    place.check_mapping(&["calls", "gates", "objects", "every"]);
    let span = |key: &str| {
        let place = place.at(key);
        let text = place.text()?;
        let span = parse_span(&text);
        if span.is_none() {
            place.report_refusal("expected a number above 0 followed by s, m, h or d, such as 90d");
        }
        span
    };
    RetentionConfig {
        calls: span("calls"),
        gates: span("gates"),
        objects: span("objects"),
        every: span("every").unwrap_or(EVERY),
    }
}

fn read_limits(place: &ConfigField<'_>) -> RateLimits {
    place.check_mapping(RATE_LIMIT);
    let limit = |key, usual| {
        let number = place.at(key).integer_in(0, i64::from(u32::MAX));
        number.and_then(|number| u32::try_from(number).ok()).unwrap_or(usual)
    };
    RateLimits {
        max_pending_approvals: limit("max_pending_approvals", 10),
        max_requests_per_minute: limit("max_requests_per_minute", 60),
        max_failed_auth_per_minute: limit("max_failed_auth_per_minute", 60),
        max_connections: limit("max_connections", 20_000),
    }
}

pub(super) fn read_people(place: &ConfigField<'_>) -> Vec<PersonConfig> {
    let mut people: Vec<PersonConfig> = Vec::new();
    let (mut users, mut logins, mut accounts) = (HashSet::new(), HashSet::new(), HashSet::new());
    for place in place.items() {
        if !place.check_item(&["id", "telegram", "console", "local"]) {
            continue;
        }
        let Some(id) = place.at("id").needed_text() else { continue };
        if people.iter().any(|known| known.id == id) {
            place.at("id").report_refusal("another person has this id");
        }
        let mut person = PersonConfig { id, telegram: Vec::new(), console: Vec::new(), local: Vec::new() };
        for item in place.at("telegram").items() {
            let Some(user) = item.integer() else { continue };
            if !users.insert(user) {
                item.report_refusal("this identity already belongs to a person");
            }
            person.telegram.push(user);
        }
        for item in place.at("console").items() {
            let Some(login) = item.needed_text() else { continue };
            if !logins.insert(login.clone()) {
                item.report_refusal("this identity already belongs to a person");
            }
            person.console.push(login);
        }
        for item in place.at("local").items() {
            let Some(user) = item.integer_in(0, i64::from(u32::MAX)).and_then(|user| u32::try_from(user).ok()) else {
                continue;
            };
            if !accounts.insert(user) {
                item.report_refusal("this identity already belongs to a person");
            }
            person.local.push(user);
        }
        people.push(person);
    }
    people
}
