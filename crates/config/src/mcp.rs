//! `mcp.servers`: servers that offer tools over MCP, as programs or at an address.
//!
//! It must not start or call any of them. The names, addresses and headers that it accepts are those of `mcp_checks`.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, hash_map::Entry},
    path::PathBuf,
    time::Duration,
};

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use super::{
    config_field::ConfigField,
    mcp_checks::{self, McpValueError},
    typed_values::parse_span,
};

/// One server and its transport.
#[derive(Clone, Debug)]
pub struct McpServerConfig {
    /// Its key in `mcp.servers`. A tool of the server is called `mcp__NAME__TOOL`.
    pub name: String,
    /// Transport of its messages.
    pub transport: McpTransportConfig,
    /// Time limit of a call, above zero and at most [`McpServerConfig::LONGEST_TIMEOUT`].
    pub timeout: Duration,
    /// False if the file switches the server off.
    pub enabled: bool,
    /// Kind of the file that defines it.
    pub origin: McpServerOrigin,
    /// Positions of arguments that come from the environment, from 0. They are not shown.
    pub hidden_args: BTreeSet<usize>,
}

impl McpServerConfig {
    /// The time limit of a call without `timeout`.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);
    /// The longest time limit of a call: a day.
    pub const LONGEST_TIMEOUT: Duration = Duration::from_secs(86_400);
}

/// Kind of the file that defines a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum McpServerOrigin {
    /// The gateway's configuration.
    Gateway,
    /// A file in the user's agent directory.
    User,
    /// A file in the working folder. It is not trusted: the author of a repository chose the command or the address.
    Project,
}

impl McpServerOrigin {
    /// Returns true if the file belongs to the user or the operator.
    pub const fn is_trusted(self) -> bool {
        match self {
            Self::Gateway | Self::User => true,
            Self::Project => false,
        }
    }
}

/// Transport of the messages of a server.
#[derive(Clone, Debug)]
pub enum McpTransportConfig {
    /// A program that reads messages from stdin and writes them to stdout.
    Stdio {
        /// The program: a name that is searched for in `PATH`, or a path. Without control characters.
        command: String,
        /// Its arguments, without control characters.
        args: Vec<String>,
        /// Variables of its environment. Values may be empty and contain line breaks, but no NUL.
        env: BTreeMap<String, SecretString>,
        /// Its working folder; the choice of the caller if absent.
        cwd: Option<PathBuf>,
    },
    /// A server that is reached over HTTP.
    Http {
        /// Starts with `http://` or `https://`, as it is written, without a user and a fragment.
        url: String,
        /// Headers of every request, in the order of the file. No two have the same name, in any letter case.
        headers: Vec<(String, SecretString)>,
        /// Source of its tokens. If present, no header is called `Authorization`.
        auth: Option<McpAuthConfig>,
    },
}

/// Client credentials of OAuth, with which the gateway gets tokens for a server.
#[derive(Clone, Debug)]
pub struct McpAuthConfig {
    /// Address that issues the tokens.
    pub token_url: String,
    /// Id of the gateway there.
    pub client_id: String,
    /// Secret of that id.
    pub client_secret: SecretString,
    /// Scopes of the tokens, separated by spaces.
    pub scope: Option<String>,
}

const SERVER: &[&str] = &["command", "args", "env", "cwd", "url", "headers", "auth", "timeout", "enabled"];
const AUTH: &[&str] = &["type", "token_url", "client_id", "client_secret", "scope"];

/// Keys that only a server with `command` has.
const STDIO_KEYS: [&str; 3] = ["args", "env", "cwd"];
/// Keys that only a server with `url` has.
const HTTP_KEYS: [&str; 2] = ["headers", "auth"];

const BOTH_WAYS: &str = "command for a program, or url for an address";

/// Reads `mcp`. Two names that differ only in letter case are refused.
pub(super) fn read_mcp_servers(place: &ConfigField<'_>) -> Vec<McpServerConfig> {
    place.check_mapping(&["servers"]);
    let mut servers = Vec::new();
    let mut names: HashMap<String, String> = HashMap::new();
    for (name, place) in place.at("servers").members().unwrap_or_default() {
        report_value(&place, mcp_checks::check_server_name(name));
        match names.entry(name.to_ascii_lowercase()) {
            Entry::Occupied(other) => {
                place.report_refusal(format!("differs from the server '{}' only in letter case", other.get()));
            }
            Entry::Vacant(free) => drop(free.insert(name.to_owned())),
        }
        servers.extend(read_server(name, &place));
    }
    servers
}

fn read_server(name: &str, place: &ConfigField<'_>) -> Option<McpServerConfig> {
    if !place.check_mapping(SERVER) && !place.is_absent() {
        return None;
    }
    let has_auth = place.at("auth").check_mapping(AUTH);
    let transport = match (place.has_key("command"), place.has_key("url")) {
        (true, false) => {
            refuse_keys(place, &HTTP_KEYS, "url", "command");
            read_stdio(place)
        }
        (false, true) => {
            refuse_keys(place, &STDIO_KEYS, "command", "url");
            read_http(place, has_auth)
        }
        (true, true) => {
            place.report_refusal(format!("command and url exclude each other: expected {BOTH_WAYS}"));
            None
        }
        (false, false) => {
            place.report_refusal(format!("expected {BOTH_WAYS}"));
            None
        }
    };
    let timeout = read_timeout(&place.at("timeout")).unwrap_or(McpServerConfig::DEFAULT_TIMEOUT);
    let enabled = place.at("enabled").flag().unwrap_or(true);
    let origin = McpServerOrigin::Gateway;
    let args = place.at("args").list_items().unwrap_or_default();
    let hidden_args = (0..args.len()).filter(|at| args[*at].is_from_environment()).collect();
    Some(McpServerConfig { name: name.to_owned(), transport: transport?, timeout, enabled, origin, hidden_args })
}

/// Refuses `keys` of a server with `found`: only one with `needed` has them.
fn refuse_keys(place: &ConfigField<'_>, keys: &[&str], needed: &str, found: &str) {
    for key in keys.iter().filter(|key| place.has_key(key)) {
        let message = format!("only a server with {needed} has this key, and this server has {found}");
        place.at(key).report_refusal(message);
    }
}

fn read_stdio(place: &ConfigField<'_>) -> Option<McpTransportConfig> {
    let command = place.at("command");
    let command = command
        .needed_choice("a program, such as npx")
        .filter(|text| report_value(&command, mcp_checks::check_text(text)));
    let args = place.at("args").items().iter().filter_map(read_argument).collect();
    let cwd = place.at("cwd");
    let folder = (!cwd.has_no_value()).then(|| cwd.needed_choice("a folder")).flatten();
    let folder = folder.filter(|text| report_value(&cwd, mcp_checks::check_text(text)));
    let env = place.at("env").members().unwrap_or_default().into_iter().filter_map(read_variable).collect();
    Some(McpTransportConfig::Stdio {
        command: command?,
        args,
        env,
        cwd: folder.map(|text| place.notes.folder().join(text)),
    })
}

/// Reads an argument, which may be an empty text. A variable without a value would change the meaning of the next one.
fn read_argument(place: &ConfigField<'_>) -> Option<String> {
    let text = place.text();
    if text.is_none() && place.is_absent() {
        place.report_missing();
    }
    text.filter(|text| report_value(place, mcp_checks::check_text(text)))
}

fn read_variable((name, place): (&str, ConfigField<'_>)) -> Option<(String, SecretString)> {
    report_value(&place, mcp_checks::check_variable_name(name));
    let value = place.secret_reference().or_else(|| place.written_secret())?;
    report_value(&place, mcp_checks::check_variable_value(value.expose_secret()));
    Some((name.to_owned(), value))
}

fn read_http(place: &ConfigField<'_>, has_auth: bool) -> Option<McpTransportConfig> {
    let url = read_address(&place.at("url"));
    let mut headers: Vec<(String, SecretString)> = Vec::new();
    for (name, place) in place.at("headers").members().unwrap_or_default() {
        report_value(&place, mcp_checks::check_header_name(name));
        if headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)) {
            place.report_refusal(
                "another header of this server has this name; letter case does not distinguish headers",
            );
        }
        if has_auth && name.eq_ignore_ascii_case("authorization") {
            place.report_refusal("auth sets this header: expected either the header or auth");
        }
        if let Some(value) = place.secret_reference().or_else(|| place.needed_secret()) {
            report_value(&place, mcp_checks::check_header_value(value.expose_secret()));
            headers.push((name.to_owned(), value));
        }
    }
    let auth = has_auth.then(|| read_auth(&place.at("auth")));
    Some(McpTransportConfig::Http { url: url?, headers, auth: auth.flatten() })
}

fn read_auth(place: &ConfigField<'_>) -> Option<McpAuthConfig> {
    let kind = place.at("type");
    if kind.needed_text().is_some_and(|text| text != "client_credentials") {
        kind.report_refusal(format!("expected client_credentials, found {}", kind.shown_value()));
    }
    let token_url = read_address(&place.at("token_url"));
    let id = place.at("client_id");
    let client_id = id.needed_text().filter(|text| report_value(&id, mcp_checks::check_text(text)));
    let secret = place.at("client_secret");
    let client_secret = secret.secret_reference().or_else(|| secret.needed_secret());
    let scope = place.at("scope");
    let scopes = scope.filled_text().filter(|text| report_value(&scope, mcp_checks::check_text(text)));
    Some(McpAuthConfig { token_url: token_url?, client_id: client_id?, client_secret: client_secret?, scope: scopes })
}

fn read_address(place: &ConfigField<'_>) -> Option<String> {
    place.needed_text().filter(|text| report_value(place, mcp_checks::check_address(text)))
}

/// Reads a duration. A number without a unit is refused: it could be seconds, or the milliseconds of other programs.
fn read_timeout(place: &ConfigField<'_>) -> Option<Duration> {
    const EXPECTED: &str = "a number above 0 followed by s, m, h or d, such as 60s, and at most 1d";
    place.not_empty(EXPECTED);
    let text = match place.to_json()? {
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => place.text()?,
    };
    let timeout = parse_span(&text).filter(|timeout| *timeout <= McpServerConfig::LONGEST_TIMEOUT);
    if timeout.is_none() {
        place.report_refusal(format!("expected {EXPECTED}, found {}", place.shown_value()));
    }
    timeout
}

/// Reports the reason against a value, and returns true if there is none.
fn report_value(place: &ConfigField<'_>, checked: Result<(), McpValueError>) -> bool {
    checked.map_err(|error| place.report_refusal(error.to_string())).is_ok()
}
