//! `services`: where they are, how they are spoken to, and what their errors are called.
//!
//! It must not send anything.

use std::collections::HashMap;

use secrecy::{ExposeSecret as _, SecretString};

use super::{
    config_field::ConfigField,
    problem::ConfigFault,
    tools::{self, ToolConfig},
    typed_values::{read_address, read_method},
};

/// One HTTP service and its tools.
#[derive(Clone, Debug)]
pub struct ServiceConfig {
    /// Its key in `services`.
    pub name: String,
    /// Without a slash at its end.
    pub url: String,
    /// Authentication of requests.
    pub auth: ServiceAuthConfig,
    /// Health check of the service.
    pub health: HealthCheckConfig,
    /// In the order of their file.
    pub tools: Vec<ToolConfig>,
    /// Texts for an agent about a status; `{status}` and `{body}` stand for the answer's, `{args.NAME}` for the call's argument.
    pub errors: Vec<(u16, String)>,
    /// Text for an agent about any other status that has no usual text.
    pub other_errors: Option<String>,
}

/// Authentication of a service's requests.
#[derive(Clone, Debug)]
pub enum ServiceAuthConfig {
    /// `Authorization: Bearer`.
    Bearer {
        /// The token.
        token: SecretString,
    },
    /// A header of its own.
    Header {
        /// The header.
        name: String,
        /// Its value.
        token: SecretString,
    },
    /// A parameter of the query.
    Query {
        /// The parameter.
        param: String,
        /// Its value.
        token: SecretString,
    },
    /// Basic authentication.
    Basic {
        /// The user.
        username: String,
        /// May be empty.
        password: SecretString,
    },
    /// None.
    None,
}

/// A request that shows whether a service is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheckConfig {
    /// The method.
    pub method: String,
    /// The path, with its leading slash.
    pub path: String,
    /// The status that means yes.
    pub expect_status: u16,
}

const SERVICE: &[&str] = &["url", "auth", "token", "health", "tools", "errors", "handler", "handler_class"];
const AUTH: &[&str] = &["type", "token", "header_name", "query_param", "username", "password"];

/// Texts for agents in agent-gate's first form.
const FIRST_ERRORS: &[(u16, &str)] =
    &[(401, "Service authentication failed (HA token expired?)"), (404, "Entity not found: {args.entity_id}")];
const FIRST_OTHER: &str = "Home Assistant API error {status}: {body}";

/// Reads `services`. The same tool in two of them is refused.
pub(super) fn read_services(place: &ConfigField<'_>) -> Vec<ServiceConfig> {
    let mut services: Vec<ServiceConfig> = Vec::new();
    let mut owners: HashMap<String, String> = HashMap::new();
    for (name, place) in place.members().unwrap_or_default() {
        if !place.is_mapping() {
            if !place.is_unset() {
                place.report_refusal(format!("Service '{name}' must be a mapping"));
            }
            continue;
        }
        let Some(service) = read_service(name, &place) else { continue };
        for tool in &service.tools {
            if let Some(owner) = owners.insert(tool.name.clone(), name.to_owned()) {
                let message = format!("Duplicate tool name '{}' in services '{owner}' and '{name}'", tool.name);
                place.at("tools").report_refusal(message);
            }
        }
        services.push(service);
    }
    services
}

fn read_service(name: &str, place: &ConfigField<'_>) -> Option<ServiceConfig> {
    place.check_mapping(SERVICE);
    // The first form of agent-gate: an address and a token, and the tools are built in.
    let first_form = name == "homeassistant" && place.at("auth").is_absent() && place.has_key("token");
    let url = place.at("url");
    if url.is_absent() {
        url.report_missing();
    }
    let url = read_address(&url);
    let auth = if first_form {
        place.at("token").needed_secret().map(|token| ServiceAuthConfig::Bearer { token })
    } else {
        if place.has_key("token") {
            place.at("token").report_refusal("only homeassistant has its token here; use auth.token");
        }
        read_auth(&place.at("auth"))
    };
    let handler = place.at("handler");
    if handler.text().as_deref() == Some("python") {
        handler.report_refusal("Python handlers are not supported; define the tools as HTTP requests");
    }
    let health = read_health(&place.at("health"), if first_form { "/api/" } else { "/" });
    let own = place.at("tools");
    let tools = if first_form && own.is_absent() { tools::homeassistant_tools() } else { tools::of_file(&own) };
    let mut errors = read_errors(&place.at("errors"));
    if first_form {
        // After those of the file, which count more.
        errors.extend(FIRST_ERRORS.iter().map(|(status, text)| (*status, (*text).to_owned())));
    }
    let other_errors = first_form.then(|| FIRST_OTHER.to_owned());
    Some(ServiceConfig { name: name.to_owned(), url: url?, auth: auth?, health, tools, errors, other_errors })
}

fn read_auth(place: &ConfigField<'_>) -> Option<ServiceAuthConfig> {
    if place.is_absent() {
        place.report_missing();
    }
    if !place.check_mapping(AUTH) {
        return None;
    }
    let kind = place.at("type");
    let auth = match kind.needed_text()?.as_str() {
        "bearer" => ServiceAuthConfig::Bearer { token: read_token(place)? },
        "header" => {
            let name = place.at("header_name");
            let text = name.needed_text()?;
            if !text.chars().all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)) {
                name.report_refusal("expected a header name");
            }
            ServiceAuthConfig::Header { name: text, token: read_token(place)? }
        }
        "query" => {
            ServiceAuthConfig::Query { param: place.at("query_param").needed_text()?, token: read_token(place)? }
        }
        "basic" => ServiceAuthConfig::Basic {
            username: place.at("username").needed_text()?,
            password: read_password(&place.at("password")).unwrap_or_default(),
        },
        "none" => ServiceAuthConfig::None,
        other => {
            kind.report_warning(&format!(
                "unknown authentication type '{other}'; requests are sent without a credential"
            ));
            ServiceAuthConfig::None
        }
    };
    Some(auth)
}

/// Reads the password of basic authentication. Some services take a key as the user and no password.
fn read_password(place: &ConfigField<'_>) -> Option<SecretString> {
    if place.has_no_value() { None } else { place.written_secret() }
}

fn read_token(place: &ConfigField<'_>) -> Option<SecretString> {
    let place = place.at("token");
    let token = place.needed_secret()?;
    if token.expose_secret().chars().any(char::is_control) {
        place.report_refusal("a token must not contain line breaks or other control characters");
    }
    Some(token)
}

fn read_health(place: &ConfigField<'_>, path: &str) -> HealthCheckConfig {
    place.check_mapping(&["method", "path", "expect_status"]);
    HealthCheckConfig {
        method: read_method(&place.at("method")),
        path: place.at("path").text().unwrap_or_else(|| path.to_owned()),
        expect_status: read_status(&place.at("expect_status")).unwrap_or(200),
    }
}

fn read_status(place: &ConfigField<'_>) -> Option<u16> {
    place.integer_in(100, 599).and_then(|status| u16::try_from(status).ok())
}

fn read_errors(place: &ConfigField<'_>) -> Vec<(u16, String)> {
    let mut errors = Vec::new();
    for place in place.items() {
        if !place.check_item(&["status", "message"]) {
            continue;
        }
        for key in ["status", "message"] {
            if place.at(key).is_absent() {
                place.report_fault(ConfigFault::Refused(format!("Missing required key '{key}' in {}", place.key)));
            }
        }
        if let (Some(status), Some(message)) = (read_status(&place.at("status")), place.at("message").text()) {
            errors.push((status, message));
        }
    }
    errors
}
