//! The configuration as it may be shown: every credential is three stars.
//!
//! It must not be handed to anything that reads configuration.

use std::collections::BTreeSet;

use countersign_core::policy::arguments::DeclaredArgument;
use serde_json::{Map, Value, json};

use super::{
    credential_names::is_credential_name,
    mcp::{McpServerConfig, McpTransportConfig},
    sandbox,
    services::{ServiceAuthConfig, ServiceConfig},
    settings::{Config, OnShutdown, ProviderConfig},
    tools::{ToolConfig, UndeclaredArguments},
};

const HIDDEN: &str = "***";

impl Config {
    /// Returns the JSON that `config show` prints: all settings in force, defaults included, in the file's own form and without a
    /// secret. Absent sections are absent.
    pub fn redacted_json(&self) -> Value {
        let mut shown = Map::new();
        let mut put = |key: &str, value: Value| drop(shown.insert(key.to_owned(), value));
        put("gateway", self.redacted_gateway());
        if !self.realms.is_empty() {
            let realms = self.realms.iter().map(|realm| {
                let mut inner = realm.config.redacted_json();
                inner["hosts"] = json!(realm.hosts);
                (realm.name.clone(), inner)
            });
            put("realms", Value::Object(realms.collect()));
            return Value::Object(shown);
        }
        let agent = |agent: &super::AgentConfig| json!({"id": agent.id, "token": HIDDEN});
        put("agents", self.agents.iter().map(agent).collect());
        if let Some(telegram) = &self.telegram {
            let mut inner = json!({
                "token": HIDDEN,
                "chat_id": telegram.chat_id,
                "allowed_users": telegram.allowed_users,
                "api_url": redacted_address(&telegram.api_url),
            });
            if let Some(thread) = telegram.message_thread_id {
                inner["message_thread_id"] = json!(thread);
            }
            put("messenger", json!({"type": "telegram", "telegram": inner}));
        }
        put(
            "services",
            Value::Object(self.services.iter().map(|one| (one.name.clone(), redacted_service(one))).collect()),
        );
        if !self.mcp_servers.is_empty() {
            let servers = self.mcp_servers.iter().map(|one| (one.name.clone(), redacted_mcp_server(one)));
            put("mcp", json!({"servers": Value::Object(servers.collect())}));
        }
        put(
            "storage",
            match &self.storage.database {
                None => json!({"type": "sqlite", "path": self.storage.log}),
                Some(_) => json!({"type": "postgres", "url": HIDDEN}),
            },
        );
        if let Some(cluster) = &self.cluster {
            let (name, advertise, lease) = (&cluster.name, &cluster.advertise, cluster.lease.as_secs_f64());
            put("cluster", json!({"name": name, "advertise": advertise, "secret": HIDDEN, "lease": lease}));
        }
        put("approval_timeout", json!(self.approval_timeout.as_secs()));
        put("clarify_timeout", json!(self.clarify_timeout.as_secs()));
        put("retry_max_wait", json!(self.retry_max_wait.as_secs()));
        put("retry_ask_after", json!(self.retry_ask_after.as_secs()));
        put(
            "on_shutdown",
            json!(match self.on_shutdown {
                OnShutdown::Keep => "keep",
                OnShutdown::Deny => "deny",
            }),
        );
        put(
            "rate_limit",
            json!({
                "max_pending_approvals": self.limits.max_pending_approvals,
                "max_requests_per_minute": self.limits.max_requests_per_minute,
                "max_failed_auth_per_minute": self.limits.max_failed_auth_per_minute,
                "max_connections": self.limits.max_connections,
            }),
        );
        put("sandbox", sandbox::shown_settings(&self.sandbox));
        if !self.secrets.is_empty() {
            let names = self.secrets.keys().map(|name| (name.clone(), json!(HIDDEN)));
            put("secrets", Value::Object(names.collect()));
        }
        if self.clients.is_some() {
            put("clients", json!({"token": HIDDEN}));
        }
        if self.web.is_guarded() {
            let mut web = Map::new();
            if self.web.password.is_some() {
                web.insert("password".to_owned(), json!(HIDDEN));
            }
            if !self.web.users.is_empty() {
                let users = self.web.users.iter().map(|(login, _)| (login.clone(), json!(HIDDEN))).collect();
                web.insert("users".to_owned(), Value::Object(users));
            }
            put("web", Value::Object(web));
        }
        if let Some(model) = &self.model {
            put("model", json!({"provider": model.provider, "id": model.id}));
        }
        let providers = self.providers.iter().map(|(name, one)| (name.clone(), redacted_provider(one)));
        put("providers", Value::Object(providers.collect()));
        put("agents_dir", json!(self.agents_dir));
        let person = |one: &super::PersonConfig| json!({"id": one.id, "telegram": one.telegram, "console": one.console, "local": one.local});
        put("people", self.people.iter().map(person).collect());
        let level = self.log.level.as_deref().unwrap_or("warn");
        put("log", json!({"level": level, "format": self.log.form.as_str()}));
        if self.retention.is_any() {
            let seconds = |span: std::time::Duration| json!(format!("{}s", span.as_secs()));
            let kinds =
                [("calls", self.retention.calls), ("gates", self.retention.gates), ("objects", self.retention.objects)];
            let kept = kinds.into_iter().filter_map(|(kind, span)| Some((kind.to_owned(), seconds(span?))));
            let every = ("every".to_owned(), seconds(self.retention.every));
            put("retention", Value::Object(kept.chain([every]).collect()));
        }
        put("permissions", json!(self.permissions));
        Value::Object(shown)
    }

    /// Returns the same as a file of this form.
    pub fn redacted_yaml(&self) -> String {
        let shown = self.redacted_json();
        serde_saphyr::to_string(&shown).unwrap_or_else(|_| shown.to_string())
    }

    fn redacted_gateway(&self) -> Value {
        let gateway = &self.gateway;
        let mut shown = json!({"host": gateway.host, "port": gateway.port, "allowed_hosts": gateway.allowed_hosts});
        if let Some(tls) = &gateway.tls {
            shown["tls"] = json!({"cert": tls.cert, "key": tls.key});
        }
        if let Some((host, port)) = &gateway.health {
            shown["health_host"] = json!(host);
            shown["health_port"] = json!(port);
        }
        if let Some(url) = &gateway.public_url {
            shown["public_url"] = json!(redacted_address(url));
        }
        shown
    }
}

fn redacted_mcp_server(server: &McpServerConfig) -> Value {
    let names = |names: &mut dyn Iterator<Item = &String>| {
        Value::Object(names.map(|name| (name.clone(), json!(HIDDEN))).collect())
    };
    let mut shown = match &server.transport {
        McpTransportConfig::Stdio { command, args, env, cwd } => {
            let mut shown = json!({
                "command": command,
                "args": redacted_arguments(args, &server.hidden_args),
                "env": names(&mut env.keys()),
            });
            if let Some(cwd) = cwd {
                shown["cwd"] = json!(cwd);
            }
            shown
        }
        McpTransportConfig::Http { url, headers, auth } => {
            let headers = names(&mut headers.iter().map(|(name, _)| name));
            let mut shown = json!({"url": redacted_address(url), "headers": headers});
            if let Some(auth) = auth {
                shown["auth"] = json!({
                    "type": "client_credentials",
                    "token_url": redacted_address(&auth.token_url),
                    "client_id": auth.client_id,
                    "client_secret": HIDDEN,
                });
                if let Some(scope) = &auth.scope {
                    shown["auth"]["scope"] = json!(scope);
                }
            }
            shown
        }
    };
    shown["timeout"] = json!(format!("{}s", server.timeout.as_secs()));
    shown["enabled"] = json!(server.enabled);
    shown
}

/// Returns arguments of a program as they may be shown: those at the positions `hidden` are three stars, and so are values after a
/// flag that is called like a credential, and credentials in addresses.
pub fn redacted_arguments(args: &[String], hidden: &BTreeSet<usize>) -> Vec<String> {
    let mut shown = Vec::new();
    let mut is_value = false;
    for (at, arg) in args.iter().enumerate() {
        let is_flag = arg.starts_with('-');
        shown.push(if hidden.contains(&at) || is_value && !is_flag {
            HIDDEN.to_owned()
        } else {
            redacted_argument(arg)
        });
        is_value = is_flag && !arg.contains('=') && is_credential_name(arg);
    }
    shown
}

/// Redacts the value of `NAME=VALUE` and `NAME: VALUE` if the name is one of a credential, also after a flag as in
/// `--header=NAME: VALUE`, and the credentials in an address.
fn redacted_argument(arg: &str) -> String {
    let Some(at) = arg.find(['=', ':']) else { return arg.to_owned() };
    let (name, value) = arg.split_at(at);
    let is_name = name.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_'));
    match value.split_at(1) {
        (sign, _) if is_name && is_credential_name(name) => format!("{name}{sign}{HIDDEN}"),
        ("=", value) if is_name => format!("{name}={}", redacted_argument(value)),
        _ => redacted_address(arg),
    }
}

fn redacted_service(service: &ServiceConfig) -> Value {
    let auth = match &service.auth {
        ServiceAuthConfig::Bearer { .. } => json!({"type": "bearer", "token": HIDDEN}),
        ServiceAuthConfig::Header { name, .. } => json!({"type": "header", "header_name": name, "token": HIDDEN}),
        ServiceAuthConfig::Query { param, .. } => json!({"type": "query", "query_param": param, "token": HIDDEN}),
        ServiceAuthConfig::Basic { username, .. } => json!({"type": "basic", "username": username, "password": HIDDEN}),
        ServiceAuthConfig::None => json!({"type": "none"}),
    };
    let health = &service.health;
    let error = |(status, message): &(u16, String)| json!({"status": status, "message": message});
    json!({
        "url": redacted_address(&service.url),
        "auth": auth,
        "health": {"method": health.method, "path": redacted_address(&health.path), "expect_status": health.expect_status},
        "tools": Value::Object(service.tools.iter().map(|one| (one.name.clone(), redacted_tool(one))).collect()),
        "errors": service.errors.iter().map(error).collect::<Value>(),
    })
}

fn redacted_tool(tool: &ToolConfig) -> Value {
    let argument = |argument: &DeclaredArgument| {
        let mut shown = json!({"required": argument.required});
        if let Some(validate) = &argument.validate {
            shown["validate"] = json!(validate.source());
        }
        if argument.free_text {
            shown["free_text"] = json!(true);
        }
        (argument.name.clone(), shown)
    };
    let request = &tool.request;
    json!({
        "signature": tool.signature,
        "args": Value::Object(tool.args.iter().map(argument).collect()),
        "request": {"method": request.method, "path": redacted_address(&request.path), "body_exclude": request.body_exclude, "query": request.query},
        "response": {"wrap": tool.wrap},
        "idempotent": tool.idempotent,
        "undeclared_args": match tool.undeclared_args {
            UndeclaredArguments::Ask => "ask",
            UndeclaredArguments::Allow => "allow",
            UndeclaredArguments::Refuse => "refuse",
        },
        "timeout": tool.timeout.as_secs_f64(),
        "max_response": tool.max_response,
    })
}

fn redacted_provider(provider: &ProviderConfig) -> Value {
    let model = |model: &countersign_runtime::models::entry::ModelEntry| json!({"id": model.id, "context_window": model.context_window, "max_tokens": model.max_tokens});
    json!({
        "api": provider.api.map(|api| api.as_str()),
        "base_url": provider.base_url.as_deref().map(redacted_address),
        "api_key": provider.api_key.as_ref().map(|_| HIDDEN),
        "headers": Value::Object(provider.headers.keys().map(|name| (name.clone(), json!(HIDDEN))).collect()),
        "models": provider.models.iter().map(model).collect::<Value>(),
    })
}

/// Returns the parts of a text that are three stars in its form that may be shown.
pub fn hidden_parts(text: &str, shown: &str) -> Vec<String> {
    let mut visible = shown.split(HIDDEN).peekable();
    let Some(mut rest) = visible.next().and_then(|first| text.strip_prefix(first)) else { return Vec::new() };
    let mut parts = Vec::new();
    while let Some(next) = visible.next() {
        let is_last = visible.peek().is_none();
        let end = if is_last { rest.len().checked_sub(next.len()) } else { rest.find(next) };
        let Some((part, after)) = end.and_then(|end| rest.split_at_checked(end)) else { break };
        parts.push(part.to_owned());
        rest = after.strip_prefix(next).unwrap_or_default();
    }
    parts
}

/// Returns an address without the name and password that may stand before its host, and without possible credentials in its query.
pub fn redacted_address(url: &str) -> String {
    let (url, query) = match url.split_once('?') {
        Some((url, query)) => {
            (url, format!("?{}", query.split('&').map(redacted_parameter).collect::<Vec<_>>().join("&")))
        }
        None => (url, String::new()),
    };
    let Some((scheme, rest)) = url.split_once("://") else { return format!("{url}{query}") };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    match host.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://{HIDDEN}@{host}{path}{query}"),
        None => format!("{scheme}://{host}{path}{query}"),
    }
}

/// Redacts a parameter of a query. Its value is shown if it is an argument's place, a plain word, a date, a version, a language
/// or a short number under a name that no credential has: any other value may be secret.
fn redacted_parameter(item: &str) -> String {
    let (name, value) = item.split_once('=').map_or((item, None), |(name, value)| (name, Some(value)));
    let is_known = |text: &str| {
        let is_place = text.starts_with('{') && text.ends_with('}') && !text[1..].contains('{');
        let is_word = text.chars().all(|letter| letter.is_ascii_lowercase() || matches!(letter, '_' | '.'));
        let is_number = text.len() <= 6 && text.chars().all(|digit| digit.is_ascii_digit());
        is_place || is_word || is_number || is_in_parts(text)
    };
    match value {
        None if is_known(name) => name.to_owned(),
        None => HIDDEN.to_owned(),
        Some(value) if is_known(value) && !is_credential_name(name) => item.to_owned(),
        Some("") => item.to_owned(),
        Some(_) => format!("{name}={HIDDEN}"),
    }
}

/// Reports whether a text is made of short parts: a number or a date as `1.5` and `2024-10-21`, a version as
/// `2024-10-21-preview`, a moment as `2026-01-01T10:30:00Z`, or two words as `de-DE`. A longer text, or one that mixes letters and
/// digits in one part, may be a credential.
fn is_in_parts(text: &str) -> bool {
    /// As long as a moment to the second.
    const LONGEST: usize = 20;
    /// As many digits as a date has.
    const DATE: usize = 8;
    let is_number = |part: &&str| (1..=4).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_lower = |part: &str| part.bytes().all(|byte| byte.is_ascii_lowercase());
    let is_upper = |part: &str| part.len() <= 3 && part.bytes().all(|byte| byte.is_ascii_uppercase());
    let is_word = |part: &str| (1..=8).contains(&part.len()) && (is_lower(part) || is_upper(part));
    if text.len() > LONGEST {
        return false;
    }
    let text = text.strip_prefix('-').unwrap_or(text);
    if let Some((date, time)) = text.split_once('T') {
        let (mut date, mut time) = (date.split('-'), time.trim_end_matches('Z').split([':', '.']));
        return date.all(|part| is_number(&part)) && time.all(|part| is_number(&part));
    }
    let parts: Vec<&str> = text.split(['-', '.', ':']).collect();
    let (numbers, words): (Vec<&str>, Vec<&str>) = parts.iter().partition(|part| is_number(part));
    let digits: usize = numbers.iter().map(|part| part.len()).sum();
    parts.len() > 1
        && match words.as_slice() {
            [] => digits <= DATE,
            [word] => digits <= DATE && is_lower(word) && is_word(word) && parts.last() == Some(word),
            [one, other] => digits == 0 && is_word(one) && is_word(other),
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{hidden_parts, redacted_address, redacted_arguments};

    #[test]
    fn hidden_parts_are_found_by_what_is_shown() {
        for (text, shown, want) in [
            ("--api-key=abc", "--api-key=***", &["abc"][..]),
            ("abc", "***", &["abc"]),
            ("http://u:p@h/x?key=1&a=b", "http://***@h/x?key=***&a=b", &["u:p", "1"]),
            ("plain", "plain", &[]),
        ] {
            assert_eq!(hidden_parts(text, shown), want, "{text}");
        }
    }

    #[test]
    fn only_what_may_be_a_credential_is_hidden_in_arguments() {
        for (args, want) in [
            ("-y @scope/server /srv/share", "-y @scope/server /srv/share"),
            ("--port 80 --token abc --verbose", "--port 80 --token *** --verbose"),
            ("--api-key=abc --port=80", "--api-key=*** --port=80"),
            ("--api-key= abc", "--api-key=*** abc"),
            ("-e TOKEN=abc -e MODE=abc", "-e TOKEN=*** -e MODE=abc"),
            ("--header Authorization:abc --header=X-Key:abc", "--header Authorization:*** --header=X-Key:***"),
            ("--url=http://u:p@h c:/x a=b=c", "--url=http://***@h c:/x a=b=c"),
            ("--token --verbose abc", "--token --verbose abc"),
            ("--keyboard us --passive on --passwd on", "--keyboard us --passive on --passwd ***"),
            ("http://u:p@h/x?key=1 hidden", "http://***@h/x?key=*** ***"),
        ] {
            let args: Vec<String> = args.split(' ').map(str::to_owned).collect();
            let hidden: BTreeSet<usize> = (0..args.len()).filter(|at| args[*at] == "hidden").collect();
            let shown = redacted_arguments(&args, &hidden);
            assert_eq!(shown.join(" "), want);
        }
    }

    #[test]
    fn only_what_may_be_a_credential_is_hidden_in_an_address() {
        for (url, want) in [
            ("/api/history/period?filter_entity_id={entity_id}", "/api/history/period?filter_entity_id={entity_id}"),
            ("/api/a?return_response&type=daily&n=20", "/api/a?return_response&type=daily&n=20"),
            ("/api?api_key=abc&x=1", "/api?api_key=***&x=1"),
            ("/api?access_token={token}", "/api?access_token=***"),
            ("/api?u=hunter2&v=AbCd&w=1234567", "/api?u=***&v=***&w=***"),
            ("/api?Zm9vYmFy1", "/api?***"),
            ("/api?api-version=2024-10-21&lang=de-DE", "/api?api-version=2024-10-21&lang=de-DE"),
            ("/api?start=2026-01-01&x=1.5&y=-1.5", "/api?start=2026-01-01&x=1.5&y=-1.5"),
            (
                "/api?start=2026-01-01T10:30:00Z&v=2024-10-21-preview",
                "/api?start=2026-01-01T10:30:00Z&v=2024-10-21-preview",
            ),
            ("/api?key=2024-10-21&token=de-DE", "/api?key=***&token=***"),
            ("/api?u=1234-5678-9012-3456", "/api?u=***"),
            ("/api?u=a1b2-c3d4&v=aB.cD&w=eyJh.eyJz.AbCd", "/api?u=***&v=***&w=***"),
            ("/api?u=12345.67890&v=correct-horse-battery&w=ABC-DEF-GHI&x=AB-1234", "/api?u=***&v=***&w=***&x=***"),
            ("/api?u=eyJhbGciT&v=T&w=1T2", "/api?u=***&v=***&w=1T2"),
            ("/api?country_code=de&design=2&author=me", "/api?country_code=de&design=2&author=me"),
            ("/api?sig=", "/api?sig="),
            ("http://u:p@h/x?q=a.b", "http://***@h/x?q=a.b"),
            ("http://u:p@h", "http://***@h"),
        ] {
            assert_eq!(redacted_address(url), want);
        }
    }
}
