//! `services`: where they are, how they are spoken to, and what their errors are called.
//!
//! It must not send anything.

use std::collections::HashMap;

use secrecy::{ExposeSecret as _, SecretString};

use super::{
    at::At,
    problem::Fault,
    tools::{self, Tool},
    typed_values::{address, method},
};

/// One HTTP service and its tools.
#[derive(Clone, Debug)]
pub struct Service {
    /// Its key in `services`.
    pub name: String,
    /// Without a slash at its end.
    pub url: String,
    /// How requests are authenticated.
    pub auth: Auth,
    /// What is asked to see whether it is there.
    pub health: Health,
    /// In the order of their file.
    pub tools: Vec<Tool>,
    /// What an agent is told about a status; `{status}` and `{body}` stand for the answer's, `{args.NAME}` for the call's argument.
    pub errors: Vec<(u16, String)>,
    /// What an agent is told about any other status that has no usual text.
    pub other_errors: Option<String>,
}

/// How a service's requests are authenticated.
#[derive(Clone, Debug)]
pub enum Auth {
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
pub struct Health {
    /// The method.
    pub method: String,
    /// The path, with its leading slash.
    pub path: String,
    /// The status that means yes.
    pub expect_status: u16,
}

const SERVICE: &[&str] = &["url", "auth", "token", "health", "tools", "errors", "handler", "handler_class"];
const AUTH: &[&str] = &["type", "token", "header_name", "query_param", "username", "password"];

/// What agents are told in agent-gate's first form.
const FIRST_ERRORS: &[(u16, &str)] =
    &[(401, "Service authentication failed (HA token expired?)"), (404, "Entity not found: {args.entity_id}")];
const FIRST_OTHER: &str = "Home Assistant API error {status}: {body}";

/// Reads `services`. The same tool in two of them is refused.
pub(super) fn read(place: &At<'_>) -> Vec<Service> {
    let mut services: Vec<Service> = Vec::new();
    let mut owners: HashMap<String, String> = HashMap::new();
    for (name, place) in place.members().unwrap_or_default() {
        if !place.is_mapping() {
            if !place.is_unset() {
                place.refused(format!("Service '{name}' must be a mapping"));
            }
            continue;
        }
        let Some(service) = service(name, &place) else { continue };
        for tool in &service.tools {
            if let Some(owner) = owners.insert(tool.name.clone(), name.to_owned()) {
                let message = format!("Duplicate tool name '{}' in services '{owner}' and '{name}'", tool.name);
                place.at("tools").refused(message);
            }
        }
        services.push(service);
    }
    services
}

fn service(name: &str, place: &At<'_>) -> Option<Service> {
    place.mapping(SERVICE);
    // The first form of agent-gate: an address and a token, and the tools are built in.
    let first_form = name == "homeassistant" && place.at("auth").is_absent() && !place.at("token").is_absent();
    let url = place.at("url");
    if url.is_absent() {
        url.missing();
    }
    let url = address(&url);
    let auth = if first_form {
        place.at("token").needed_secret().map(|token| Auth::Bearer { token })
    } else {
        if !place.at("token").is_absent() {
            place.at("token").refused("a service other than homeassistant has its token under auth");
        }
        auth(&place.at("auth"))
    };
    let handler = place.at("handler");
    if handler.text().as_deref() == Some("python") {
        handler.refused("a handler in Python cannot run here; define its tools as HTTP requests");
    }
    let health = health(&place.at("health"), if first_form { "/api/" } else { "/" });
    let own = place.at("tools");
    let tools = if first_form && own.is_absent() { tools::homeassistant() } else { tools::of_file(&own) };
    let mut errors = errors(&place.at("errors"));
    if first_form {
        // Behind those of the file, which count more.
        errors.extend(FIRST_ERRORS.iter().map(|(status, text)| (*status, (*text).to_owned())));
    }
    let other_errors = first_form.then(|| FIRST_OTHER.to_owned());
    Some(Service { name: name.to_owned(), url: url?, auth: auth?, health, tools, errors, other_errors })
}

fn auth(place: &At<'_>) -> Option<Auth> {
    if place.is_absent() {
        place.missing();
    }
    if !place.mapping(AUTH) {
        return None;
    }
    let kind = place.at("type");
    let auth = match kind.needed_text()?.as_str() {
        "bearer" => Auth::Bearer { token: token(place)? },
        "header" => {
            let name = place.at("header_name");
            let text = name.needed_text()?;
            if !text.chars().all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)) {
                name.refused("expected the name of a header");
            }
            Auth::Header { name: text, token: token(place)? }
        }
        "query" => Auth::Query { param: place.at("query_param").needed_text()?, token: token(place)? },
        "basic" => Auth::Basic {
            username: place.at("username").needed_text()?,
            password: place.at("password").secret().unwrap_or_default(),
        },
        "none" => Auth::None,
        other => {
            kind.warn(&format!("'{other}' is no kind of authentication; requests carry no credential"));
            Auth::None
        }
    };
    Some(auth)
}

fn token(place: &At<'_>) -> Option<SecretString> {
    let place = place.at("token");
    let token = place.needed_secret()?;
    if token.expose_secret().chars().any(char::is_control) {
        place.refused("a token holds no line breaks or other control characters");
    }
    Some(token)
}

fn health(place: &At<'_>, path: &str) -> Health {
    place.mapping(&["method", "path", "expect_status"]);
    Health {
        method: method(&place.at("method")),
        path: place.at("path").text().unwrap_or_else(|| path.to_owned()),
        expect_status: status(&place.at("expect_status")).unwrap_or(200),
    }
}

fn status(place: &At<'_>) -> Option<u16> {
    place.integer_in(100, 599).and_then(|status| u16::try_from(status).ok())
}

fn errors(place: &At<'_>) -> Vec<(u16, String)> {
    let mut errors = Vec::new();
    for place in place.items() {
        if !place.mapping(&["status", "message"]) {
            if place.is_absent() {
                place.missing();
            }
            continue;
        }
        for key in ["status", "message"] {
            if place.at(key).is_absent() {
                place.refuse(Fault::Refused(format!("Missing required key '{key}' in {}", place.key)));
            }
        }
        if let (Some(status), Some(message)) = (status(&place.at("status")), place.at("message").text()) {
            errors.push((status, message));
        }
    }
    errors
}
