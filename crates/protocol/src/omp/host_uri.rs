//! Reads the URI schemes that a host owns, and speaks with it about what is read and written there.
//!
//! It must not know which requests are open. Source: the RPC reference of gjc, Host URI Sub-Protocol;
//! docs/protocol/gjc.md, Host URIs.

use serde::{Deserialize, Serialize};

use super::host_tool;
use crate::json::{RawJson, wire_values};

/// The schemes that are the agent's own.
const RESERVED: [&str; 8] = ["gjc", "agent", "artifact", "memory", "local", "rule", "issue", "pr"];

/// Text for the model whose request lost its host.
pub const DISCONNECTED: &str = "RPC client disconnected before host URI request completed";

/// A scheme of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostScheme {
    /// In lower case.
    pub scheme: String,
    /// Description for the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// True if it can be written to.
    pub writable: bool,
    /// True if read content is immutable, unless the result states otherwise.
    pub immutable: bool,
}

/// Why a set of schemes is refused. Nothing changes then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemeError {
    /// One has no name.
    #[error("Host URI scheme must be a non-empty string")]
    Empty,
    /// One has a name that no URI can begin with.
    #[error("Host URI scheme contains invalid characters: {0}")]
    Characters(String),
    /// One is the agent's own.
    #[error("Host URI scheme is reserved: {0}")]
    Reserved(String),
    /// A flag of one is neither true nor false.
    #[error("Host URI scheme {scheme}: {flag} must be true or false")]
    Flag {
        /// The scheme.
        scheme: String,
        /// The member.
        flag: &'static str,
    },
}

/// Reads the schemes of `set_host_uri_schemes`. Of two alike the last counts, in the place of the first.
///
/// # Errors
/// [`SchemeError`], the first by the order of the list.
pub fn read_schemes(definitions: &[RawJson]) -> Result<Vec<HostScheme>, SchemeError> {
    let mut schemes: Vec<HostScheme> = Vec::new();
    for definition in definitions {
        let scheme = read_scheme(definition)?;
        match schemes.iter_mut().find(|known| known.scheme == scheme.scheme) {
            Some(known) => *known = scheme,
            None => schemes.push(scheme),
        }
    }
    Ok(schemes)
}

#[derive(Deserialize)]
struct HostSchemeDefinition {
    scheme: Option<RawJson>,
    description: Option<RawJson>,
    writable: Option<RawJson>,
    immutable: Option<RawJson>,
}

fn read_scheme(definition: &RawJson) -> Result<HostScheme, SchemeError> {
    let given: HostSchemeDefinition = definition.decode_as().map_err(|_| SchemeError::Empty)?;
    let name: String = given.scheme.and_then(|json| json.decode_as().ok()).unwrap_or_default();
    let scheme = name.trim().to_lowercase();
    if scheme.is_empty() {
        return Err(SchemeError::Empty);
    }
    if !is_scheme(&scheme) {
        return Err(SchemeError::Characters(name));
    }
    if RESERVED.contains(&scheme.as_str()) {
        return Err(SchemeError::Reserved(scheme));
    }
    let read = |flag: &'static str, json: Option<&RawJson>| {
        host_tool::read_flag(json).ok_or_else(|| SchemeError::Flag { scheme: scheme.clone(), flag })
    };
    let (writable, immutable) =
        (read("writable", given.writable.as_ref())?, read("immutable", given.immutable.as_ref())?);
    Ok(HostScheme {
        scheme,
        description: given.description.and_then(|json| json.decode_as().ok()),
        writable,
        immutable,
    })
}

fn is_scheme(scheme: &str) -> bool {
    scheme.starts_with(|c: char| c.is_ascii_lowercase())
        && scheme.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "+.-".contains(c))
}

/// Returns the scheme of `url` and the URL with its scheme in lower case, all else as it is. None without `://`.
pub fn normalize_url(url: &str) -> Option<(String, String)> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    is_scheme(&scheme).then(|| (scheme.clone(), format!("{scheme}://{rest}")))
}

/// Data of `set_host_uri_schemes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SchemeNames {
    /// In lower case.
    pub schemes: Vec<String>,
}

/// Operation at a URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum UriOperation {
    /// Read the content.
    Read,
    /// Its content is replaced.
    Write,
}

impl UriOperation {
    /// Returns the name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// A frame that asks the host for something at a URI, or to stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum HostUriFrame {
    /// Asks for something.
    HostUriRequest {
        /// Names the request.
        id: String,
        /// The operation.
        operation: UriOperation,
        /// The URL; see [`normalize_url`].
        url: String,
        /// The whole new content, of a write.
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<String>,
    },
    /// Cancels a request: its result is not needed any more.
    HostUriCancel {
        /// Names the frame.
        id: String,
        /// Names the request.
        target_id: String,
    },
}

/// Returns the text for the model about a request that was stopped.
pub fn aborted_text(operation: UriOperation, url: &str) -> String {
    format!("Host URI {} for {url} was aborted", operation.name())
}

/// Returns the text for the model about a write to a scheme that is not writable.
pub fn not_writable(scheme: &str) -> String {
    format!("Host URI scheme is not writable: {scheme}")
}

/// Media type of a text content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContentType {
    /// Any text.
    #[default]
    #[serde(rename = "text/plain")]
    Plain,
    /// Markdown.
    #[serde(rename = "text/markdown")]
    Markdown,
    /// JSON.
    #[serde(rename = "application/json")]
    Json,
}

/// Result of a request from a host.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostUriResult {
    /// Content that was read, or the reason that it was not.
    #[serde(default)]
    pub content: Option<String>,
    /// Absent means plain text.
    #[serde(default)]
    pub content_type: Option<ContentType>,
    /// Notes shown with the content.
    #[serde(default)]
    pub notes: Option<Vec<String>>,
    /// Absent means the value of the scheme.
    #[serde(default)]
    pub immutable: Option<bool>,
    /// True if it failed.
    #[serde(default)]
    pub is_error: Option<bool>,
    /// Reason of the failure.
    #[serde(default)]
    pub error: Option<String>,
}

impl HostUriResult {
    /// Returns why the request failed, if it did.
    pub fn failure_text(&self, operation: UriOperation, url: &str) -> Option<String> {
        self.is_error.filter(|failed| *failed)?;
        let reason = [&self.error, &self.content].into_iter().flatten().find(|text| !text.is_empty());
        Some(reason.cloned().unwrap_or_else(|| format!("Host URI {} failed for {url}", operation.name())))
    }
}

wire_values! { HostScheme, SchemeNames, HostUriFrame }

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(definitions: Value) -> Result<Vec<HostScheme>, String> {
        let definitions: Vec<RawJson> = definitions.as_array().unwrap().iter().cloned().map(RawJson::from).collect();
        read_schemes(&definitions).map_err(|error| error.to_string())
    }

    #[test]
    fn each_fault_of_a_scheme_is_named() {
        for (definition, want) in [
            (json!({}), "Host URI scheme must be a non-empty string"),
            (json!({"scheme": "  "}), "Host URI scheme must be a non-empty string"),
            (json!({"scheme": 5}), "Host URI scheme must be a non-empty string"),
            (json!("db"), "Host URI scheme must be a non-empty string"),
            (json!({"scheme": "a b"}), "Host URI scheme contains invalid characters: a b"),
            (json!({"scheme": "1a"}), "Host URI scheme contains invalid characters: 1a"),
            (json!({"scheme": "db://"}), "Host URI scheme contains invalid characters: db://"),
            (json!({"scheme": " PR "}), "Host URI scheme is reserved: pr"),
            (json!({"scheme": "memory"}), "Host URI scheme is reserved: memory"),
        ] {
            assert_eq!(read(json!([{"scheme": "ok"}, definition])), Err(want.to_owned()), "{definition}");
        }
    }

    #[test]
    fn schemes_are_in_lower_case_and_the_last_of_two_counts() {
        let scheme = |name: &str, writable| HostScheme {
            scheme: name.to_owned(),
            description: None,
            writable,
            immutable: false,
        };
        let given = json!([{"scheme": " DB "}, {"scheme": "git+x.y-1"}, {"scheme": "db", "writable": true}]);
        assert_eq!(read(given), Ok(vec![scheme("db", true), scheme("git+x.y-1", false)]));
    }

    #[test]
    fn only_the_scheme_of_a_url_is_lowered() {
        for (url, want) in [
            ("DB://Users/42?A=B", Some(("db", "db://Users/42?A=B"))),
            ("db://", Some(("db", "db://"))),
            ("db:users", None),
            ("/etc/passwd", None),
            ("1x://a", None),
        ] {
            let want = want.map(|(scheme, url)| (scheme.to_owned(), url.to_owned()));
            assert_eq!(normalize_url(url), want, "{url}");
        }
    }

    #[test]
    fn a_failure_says_why() {
        let result = |json: Value| RawJson::from(json).decode_as::<HostUriResult>().unwrap();
        for (given, want) in [
            (json!({"isError": true, "error": "gone", "content": "c"}), Some("gone")),
            (json!({"isError": true, "error": "", "content": "c"}), Some("c")),
            (json!({"isError": true}), Some("Host URI read failed for db://a")),
            (json!({"isError": false, "error": "gone"}), None),
            (json!({"content": "c"}), None),
        ] {
            let failure = result(given.clone()).failure_text(UriOperation::Read, "db://a");
            assert_eq!(failure.as_deref(), want, "{given}");
        }
    }
}
