//! An MCP server as it was configured, and the digest under which it is approved.
//!
//! It must not know how a server is reached.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use countersign_config::{McpServerConfig, McpTransportConfig, hidden_parts, redacted_address, redacted_arguments};
use countersign_core::digest::{Digest, canonical_json};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use url::Url;

/// Default time limit of a tool call.
const CALL_TIMEOUT: Duration = Duration::from_secs(300);
/// Default time limit of a start, which for some servers includes a download of their package.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Default time limit of every other request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest name of a server, so that names of tools have space next to it.
const LONGEST_NAME: usize = 32;

/// An MCP server as it was configured.
#[derive(Clone, Debug)]
pub struct ServerDefinition {
    /// Its name in the configuration; unique.
    pub name: String,
    /// Access to the server.
    pub transport: ServerTransport,
    /// Time limit of a tool call, from the moment at which it is sent.
    pub call_timeout: Duration,
    /// Time limit of a start until the server has agreed on a version.
    pub start_timeout: Duration,
    /// Time limit of every other request, such as one page of a list.
    pub request_timeout: Duration,
    /// Part of values of variables and headers in the approval.
    pub values: ValueBinding,
    /// Positions of arguments that are not shown, from 0.
    pub hidden_args: BTreeSet<usize>,
}

/// Part that values of variables and headers have in the approval of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ValueBinding {
    /// None: the operator may change them, for example a token.
    #[default]
    Free,
    /// A definition with other values needs another approval, for example of a server that a repository brings.
    Bound,
}

/// Access to a server.
#[derive(Clone)]
pub enum ServerTransport {
    /// A program that the gateway starts.
    Stdio {
        /// Path of the program, or its name on the search path.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables in addition to the bounded environment of commands. `{{secret:NAME}}` is filled in at each start.
        env: BTreeMap<String, SecretString>,
        /// The folder that it starts in; absent means its own below that of the options.
        cwd: Option<PathBuf>,
    },
    /// Streamable HTTP.
    Http {
        /// The endpoint: `http` or `https`, without user and fragment.
        url: String,
        /// Headers of every request. `{{secret:NAME}}` is filled in at each connection.
        headers: BTreeMap<String, SecretString>,
        /// Credentials with which the gateway gets a token; absent means none beyond the headers.
        auth: Option<ClientCredentials>,
    },
    /// A server in the tests' own process.
    #[cfg(test)]
    Scripted(crate::scripted_server::ScriptedServer),
}

/// Values are left out: an argument, a variable or a header can hold a credential.
impl fmt::Debug for ServerTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio { command, env, .. } => f
                .debug_struct("Stdio")
                .field("command", command)
                .field("env", &env.keys().collect::<Vec<_>>())
                .finish_non_exhaustive(),
            Self::Http { headers, .. } => {
                f.debug_struct("Http").field("headers", &headers.keys().collect::<Vec<_>>()).finish_non_exhaustive()
            }
            #[cfg(test)]
            Self::Scripted(_) => f.write_str("Scripted"),
        }
    }
}

/// OAuth client credentials: the gateway gets its own token, no user takes part.
#[derive(Clone, Debug)]
pub struct ClientCredentials {
    /// The token endpoint.
    pub token_url: String,
    /// The client.
    pub client_id: String,
    /// Its secret. `{{secret:NAME}}` is filled in.
    pub client_secret: SecretString,
    /// Requested scope.
    pub scope: Option<String>,
}

/// A server that cannot be used as it was configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadDefinition {
    /// Two servers have one name.
    #[error("MCP server {0} is defined twice")]
    Twice(String),
    /// The name cannot be part of the name of a tool.
    #[error(
        "invalid MCP server name {0:?}: expected 1 to {LONGEST_NAME} of a-z, A-Z, 0-9, - and _, without __ and without _ at its ends"
    )]
    Name(String),
    /// There is no program.
    #[error("MCP server {0}: command is empty")]
    Command(String),
    /// An argument or a variable holds a character that no program can receive.
    #[error("MCP server {0}: command, args and env must not contain NUL characters")]
    Nul(String),
    /// The address is no plain `http` or `https` address.
    #[error("MCP server {0}: {1} must be an http or https URL without user and fragment")]
    Address(String, &'static str),
    /// A header cannot be sent.
    #[error("MCP server {server}: invalid header name {header:?}")]
    Header {
        /// Name of the server.
        server: String,
        /// Name of the header.
        header: String,
    },
}

impl ServerDefinition {
    /// Creates a definition with the default time limits.
    pub fn new(name: impl Into<String>, transport: ServerTransport) -> Self {
        Self {
            name: name.into(),
            transport,
            call_timeout: CALL_TIMEOUT,
            start_timeout: START_TIMEOUT,
            request_timeout: REQUEST_TIMEOUT,
            values: ValueBinding::Free,
            hidden_args: BTreeSet::new(),
        }
    }

    /// Returns the digest of all that decides which server this is: command, arguments, folder, addresses, client and scope, and
    /// the names of variables and headers. Time limits are no part of it, and values only as [`ValueBinding`] says.
    pub fn digest(&self) -> Digest {
        let mut whole = self.transport_description(&ShownForm::WHOLE);
        if let Some(digest) = self.values_digest() {
            whole["values_digest"] = digest.to_string().into();
        }
        Digest::hash_bytes(canonical_json(&whole).as_bytes())
    }

    /// Returns what [`ServerDefinition::digest`] is made of, as an object for people: possible credentials are three stars. Two
    /// definitions that look the same have different digests if they differ.
    pub fn description(&self) -> Value {
        let mut description = self.transport_description(&ShownForm::REDACTED);
        if let Some(digest) = self.values_digest() {
            description["values_digest"] = digest.to_string().into();
        }
        description
    }

    /// Returns the parts of arguments and addresses that [`ServerDefinition::description`] hides.
    pub(crate) fn hidden_texts(&self) -> Vec<SecretString> {
        let parts: Vec<String> = match &self.transport {
            ServerTransport::Stdio { args, .. } => {
                let shown = redacted_arguments(args, &self.hidden_args);
                args.iter().zip(&shown).flat_map(|(arg, shown)| hidden_parts(arg, shown)).collect()
            }
            ServerTransport::Http { url, auth, .. } => {
                let addresses = [Some(url), auth.as_ref().map(|auth| &auth.token_url)];
                addresses.into_iter().flatten().flat_map(|url| hidden_parts(url, &redacted_address(url))).collect()
            }
            #[cfg(test)]
            ServerTransport::Scripted(_) => Vec::new(),
        };
        parts.into_iter().map(SecretString::from).collect()
    }

    /// Returns the digest of the values that the approval is bound to, if there are any.
    fn values_digest(&self) -> Option<Digest> {
        let values = match &self.transport {
            ServerTransport::Stdio { env: values, .. } | ServerTransport::Http { headers: values, .. } => values,
            #[cfg(test)]
            ServerTransport::Scripted(_) => return None,
        };
        if self.values == ValueBinding::Free || values.is_empty() {
            return None;
        }
        let values: BTreeMap<&str, &str> =
            values.iter().map(|(name, value)| (name.as_str(), value.expose_secret())).collect();
        Some(Digest::hash_bytes(canonical_json(&json!(values)).as_bytes()))
    }

    fn transport_description(&self, form: &ShownForm) -> Value {
        match &self.transport {
            ServerTransport::Stdio { command, args, env, cwd } => json!({
                "transport": "stdio",
                "command": command,
                "args": (form.args)(args, &self.hidden_args),
                "cwd": cwd.as_ref().map(|cwd| path_text(cwd)),
                "env": env.keys().collect::<Vec<_>>(),
            }),
            ServerTransport::Http { url, headers, auth } => json!({
                "transport": "http",
                "url": (form.address)(url),
                "headers": headers.keys().map(|name| name.to_ascii_lowercase()).collect::<Vec<_>>(),
                "auth": auth.as_ref().map(|auth| json!({
                    "token_url": (form.address)(&auth.token_url),
                    "client_id": auth.client_id,
                    "scope": auth.scope,
                })),
            }),
            #[cfg(test)]
            ServerTransport::Scripted(_) => json!({ "transport": "scripted" }),
        }
    }

    /// Checks that the server can be used at all.
    ///
    /// # Errors
    /// [`BadDefinition`], except [`BadDefinition::Twice`].
    pub fn check(&self) -> Result<(), BadDefinition> {
        let name = || self.name.clone();
        if !is_server_name(&self.name) {
            return Err(BadDefinition::Name(name()));
        }
        match &self.transport {
            ServerTransport::Stdio { command, args, env, .. } => {
                if command.is_empty() {
                    return Err(BadDefinition::Command(name()));
                }
                let has_nul = |text: &String| text.contains('\0');
                let bad_name = |variable: &String| variable.is_empty() || variable.contains(['=', '\0']);
                if has_nul(command) || args.iter().any(has_nul) || env.keys().any(bad_name) {
                    return Err(BadDefinition::Nul(name()));
                }
                Ok(())
            }
            ServerTransport::Http { url, headers, auth } => {
                if !is_endpoint(url) {
                    return Err(BadDefinition::Address(name(), "url"));
                }
                if auth.as_ref().is_some_and(|auth| !is_endpoint(&auth.token_url)) {
                    return Err(BadDefinition::Address(name(), "auth.token_url"));
                }
                let bad = headers.keys().find(|header| reqwest::header::HeaderName::try_from(header.as_str()).is_err());
                match bad {
                    Some(header) => Err(BadDefinition::Header { server: name(), header: header.clone() }),
                    None => Ok(()),
                }
            }
            #[cfg(test)]
            ServerTransport::Scripted(_) => Ok(()),
        }
    }
}

impl From<&McpServerConfig> for ServerDefinition {
    /// Returns the definition of a server in a configuration, with its time limit of calls.
    fn from(server: &McpServerConfig) -> Self {
        let transport = match &server.transport {
            McpTransportConfig::Stdio { command, args, env, cwd } => ServerTransport::Stdio {
                command: command.clone(),
                args: args.clone(),
                env: env.clone(),
                cwd: cwd.clone(),
            },
            McpTransportConfig::Http { url, headers, auth } => ServerTransport::Http {
                url: url.clone(),
                headers: headers.iter().cloned().collect::<BTreeMap<_, _>>(),
                auth: auth.as_ref().map(|auth| ClientCredentials {
                    token_url: auth.token_url.clone(),
                    client_id: auth.client_id.clone(),
                    client_secret: auth.client_secret.clone(),
                    scope: auth.scope.clone(),
                }),
            },
        };
        let hidden_args = server.hidden_args.clone();
        Self { call_timeout: server.timeout, hidden_args, ..Self::new(server.name.clone(), transport) }
    }
}

/// Form of arguments and addresses in a description.
struct ShownForm {
    args: fn(&[String], &BTreeSet<usize>) -> Vec<String>,
    address: fn(&str) -> String,
}

impl ShownForm {
    /// All of them, for a digest.
    const WHOLE: Self = Self { args: |args, _| args.to_vec(), address: str::to_owned };
    /// Without credentials, for people.
    const REDACTED: Self = Self { args: redacted_arguments, address: redacted_address };
}

/// Returns a path as text in which two different paths differ.
fn path_text(path: &Path) -> String {
    let bytes = path.as_os_str().as_encoded_bytes();
    std::str::from_utf8(bytes).map_or_else(|_| format!("0x{}", HexBytes(bytes)), str::to_owned)
}

struct HexBytes<'a>(&'a [u8]);

impl fmt::Display for HexBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn is_server_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=LONGEST_NAME).contains(&name.len())
        && name.bytes().all(is_plain)
        && !name.contains("__")
        && !name.starts_with('_')
        && !name.ends_with('_')
}

fn is_endpoint(url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
            && url.fragment().is_none()
    })
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, ffi::OsStr, os::unix::ffi::OsStrExt as _, path::PathBuf};

    use secrecy::ExposeSecret as _;

    use super::{BadDefinition, ServerDefinition, ServerTransport, ValueBinding};

    fn stdio(name: &str, args: &[&str], env: &[(&str, &str)]) -> ServerDefinition {
        let transport = ServerTransport::Stdio {
            command: "server".to_owned(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            env: env.iter().map(|&(name, value)| (name.to_owned(), value.into())).collect(),
            cwd: None,
        };
        ServerDefinition::new(name, transport)
    }

    fn http(url: &str, header: &str) -> ServerDefinition {
        let headers = BTreeMap::from([(header.to_owned(), "secret".into())]);
        ServerDefinition::new("web", ServerTransport::Http { url: url.to_owned(), headers, auth: None })
    }

    #[test]
    fn a_digest_depends_on_what_is_run_and_not_on_secret_values() {
        let of = |args: &[&str], env: &[(&str, &str)]| stdio("files", args, env).digest();
        let plain = of(&["/srv"], &[("TOKEN", "one")]);
        assert_eq!(plain, of(&["/srv"], &[("TOKEN", "two")]));
        assert_ne!(plain, of(&["/"], &[("TOKEN", "one")]));
        assert_ne!(plain, of(&["/srv"], &[("OTHER", "one")]));
        assert_eq!(http("https://a.example/mcp", "X-Key").digest(), http("https://a.example/mcp", "x-key").digest());
        assert_ne!(http("https://a.example/mcp", "X-Key").digest(), http("https://b.example/mcp", "X-Key").digest());
    }

    #[test]
    fn a_credential_in_an_argument_or_an_address_is_part_of_the_digest_and_not_shown() {
        let definitions = |value: &str| {
            let (after, within) = (["--api-key", value], format!("--token={value}"));
            let from_environment = ServerDefinition { hidden_args: [0].into(), ..stdio("a", &[value], &[]) };
            let url = http(&format!("https://a.example/mcp?key={value}"), "h");
            [stdio("a", &after, &[]), stdio("a", &[&within], &[]), from_environment, url]
        };
        for (one, other) in definitions("hush-1").iter().zip(&definitions("hush-2")) {
            assert_eq!(one.description(), other.description());
            assert!(one.description().to_string().contains("***"), "{}", one.description());
            assert_ne!(one.digest(), other.digest());
            let hidden: Vec<String> = one.hidden_texts().iter().map(|text| text.expose_secret().to_owned()).collect();
            assert_eq!(hidden, ["hush-1"]);
        }
    }

    #[test]
    fn folders_whose_names_are_no_text_differ() {
        let of = |name: &[u8]| {
            let cwd = Some(PathBuf::from(OsStr::from_bytes(name)));
            let transport =
                ServerTransport::Stdio { command: "server".to_owned(), args: Vec::new(), env: BTreeMap::new(), cwd };
            ServerDefinition::new("a", transport).digest()
        };
        assert_ne!(of(b"/\xff"), of(b"/\xfe"));
    }

    #[test]
    fn a_bound_value_is_part_of_the_digest_and_not_shown() {
        let bound = |value| ServerDefinition { values: ValueBinding::Bound, ..stdio("a", &[], &[("K", value)]) };
        assert_eq!(bound("hush").digest(), bound("hush").digest());
        assert_ne!(bound("hush").digest(), bound("other").digest());
        assert!(!bound("hush").description().to_string().contains("hush"));
        let without = ServerDefinition { values: ValueBinding::Bound, ..stdio("a", &[], &[]) };
        assert_eq!(without.digest(), stdio("a", &[], &[]).digest());
    }

    #[test]
    fn only_a_usable_definition_passes() {
        let address = || Err(BadDefinition::Address("web".to_owned(), "url"));
        for (case, definition, want) in [
            ("plain", stdio("git-hub_2", &[], &[]), Ok(())),
            ("two underscores", stdio("a__b", &[], &[]), Err(BadDefinition::Name("a__b".to_owned()))),
            ("space", stdio("a b", &[], &[]), Err(BadDefinition::Name("a b".to_owned()))),
            ("empty", stdio("", &[], &[]), Err(BadDefinition::Name(String::new()))),
            ("end", stdio("a_", &[], &[]), Err(BadDefinition::Name("a_".to_owned()))),
            ("nul", stdio("a", &["\0"], &[]), Err(BadDefinition::Nul("a".to_owned()))),
            ("web", http("https://a.example/mcp?x=1", "X-Key"), Ok(())),
            ("user", http("https://u:p@a.example/", "X-Key"), address()),
            ("scheme", http("file:///etc", "X-Key"), address()),
        ] {
            assert_eq!(definition.check(), want, "{case}");
        }
        assert!(matches!(http("https://a.example/", "a b").check(), Err(BadDefinition::Header { .. })));
    }

    #[test]
    fn printing_a_definition_shows_no_value() {
        let shown = format!("{:?}{:?}", stdio("a", &["--key=hush"], &[("K", "hush")]), http("https://x/?k=hush", "h"));
        assert!(!shown.contains("hush"), "{shown}");
    }
}
