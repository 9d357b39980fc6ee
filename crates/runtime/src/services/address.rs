//! Target of a request: the base address, and the path and query after it.
//!
//! It must not know credentials.

use std::collections::BTreeSet;

use countersign_core::policy::signature::text_of;
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Map, Value};
use url::{Host, Url};

/// In a value everything is data: only what RFC 3986 calls unreserved stays.
const VALUE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Characters to encode in a template: only those that no address may hold.
const TEMPLATE: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Percent-encoded dots within percent-encoded dots: so many layers are looked through.
const LAYERS: usize = 8;

/// A value would make the path name another place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DotSegment {
    /// The argument makes a segment that reads as dots.
    #[error("Argument '{0}' would change the path of the request")]
    Argument(String),
    /// The template itself has such a segment.
    #[error("The path of the request holds a dot segment")]
    Template,
}

/// Scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct UrlOrigin {
    pub(super) encrypted: bool,
    pub(super) host: Host,
    pub(super) port: u16,
}

impl UrlOrigin {
    pub(super) fn from_url(url: &Url) -> Option<Self> {
        let encrypted = match url.scheme() {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        Some(Self { encrypted, host: url.host()?.to_owned(), port: url.port_or_known_default()? })
    }

    /// Returns the authority as the `Host` header has it.
    pub(super) fn authority(&self) -> String {
        match (self.encrypted, self.port) {
            (false, 80) | (true, 443) => self.host.to_string(),
            _ => format!("{}:{}", self.host, self.port),
        }
    }

    pub(super) fn url_for(&self, target: &str) -> Option<Url> {
        let scheme = if self.encrypted { "https" } else { "http" };
        Url::parse(&format!("{scheme}://{}{target}", self.authority())).ok()
    }
}

/// A base address.
#[derive(Clone, Debug)]
pub(super) struct BaseUrl {
    pub(super) origin: UrlOrigin,
    /// Without a slash at its end.
    pub(super) path: String,
}

impl BaseUrl {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let url = Url::parse(text.trim()).ok()?;
        let plain =
            url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none();
        let origin = UrlOrigin::from_url(&url).filter(|_| plain)?;
        Some(Self { origin, path: url.path().trim_end_matches('/').to_owned() })
    }
}

/// Returns path and query of a request: `base`, followed by `template` with its arguments.
///
/// An argument that is absent leaves nothing. The text of an argument is never taken for a part of the template.
///
/// # Errors
/// [`DotSegment`] if a segment of the path reads as `.` or `..`, however it is encoded.
pub(super) fn request_target(base: &str, template: &str, arguments: &Map<String, Value>) -> Result<String, DotSegment> {
    let (path, query) = match template.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (template, None),
    };
    let mut target = base.to_owned();
    if !path.is_empty() && !path.starts_with('/') {
        target.push('/');
    }
    target.push_str(&fill_template(path, arguments));
    if target.is_empty() {
        target.push('/');
    }
    if target.split('/').any(is_dot_segment) {
        return Err(offending_argument(path, arguments).map_or(DotSegment::Template, DotSegment::Argument));
    }
    if let Some(query) = query {
        target.push('?');
        target.push_str(&fill_template(query, arguments));
    }
    Ok(target)
}

/// Encodes `text` as one value.
pub(super) fn encode_value(text: &str) -> String {
    utf8_percent_encode(text, VALUE).to_string()
}

fn fill_template(template: &str, arguments: &Map<String, Value>) -> String {
    let mut text = String::new();
    for part in template_parts(template) {
        match part {
            TemplatePart::Literal(literal) => text.extend(utf8_percent_encode(literal, TEMPLATE)),
            TemplatePart::Argument(name) => {
                if let Some(value) = arguments.get(name) {
                    text.push_str(&encode_value(&text_of(value)));
                }
            }
        }
    }
    text
}

/// Returns `target` with a parameter for each of `names` among the arguments. One that is absent, null or false is left out; a list
/// gives one for each of its items.
pub(super) fn with_query(mut target: String, names: &[String], arguments: &Map<String, Value>) -> String {
    let text = |value: &Value| if *value == Value::Bool(true) { "true".to_owned() } else { text_of(value) };
    for (name, value) in names.iter().filter_map(|name| Some((name, arguments.get(name)?))) {
        let values = match value {
            Value::Null | Value::Bool(false) => continue,
            Value::Array(items) => items.iter().map(text).collect(),
            Value::Bool(true) | Value::Number(_) | Value::String(_) | Value::Object(_) => vec![text(value)],
        };
        for value in values {
            let joint = if target.contains('?') { '&' } else { '?' };
            target.push_str(&format!("{joint}{}={}", encode_value(name), encode_value(&value)));
        }
    }
    target
}

enum TemplatePart<'a> {
    Literal(&'a str),
    Argument(&'a str),
}

fn template_parts(template: &str) -> Vec<TemplatePart<'_>> {
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, behind)) = after.split_once('}') else { break };
        parts.push(TemplatePart::Literal(before));
        parts.push(TemplatePart::Argument(name));
        rest = behind;
    }
    parts.push(TemplatePart::Literal(rest));
    parts
}

/// Reports whether a proxy could read `segment` as one or more that move: `..`, `%2e%2E`, `%252e.`, `..;a`, `..%2fx`, `..%5Cx`.
fn is_dot_segment(segment: &str) -> bool {
    let mut text = segment.to_owned();
    for _ in 0..LAYERS {
        let found = text.split(['/', '\\']).any(|part| matches!(part.split(';').next(), Some("." | "..")));
        if found {
            return true;
        }
        let decoded = percent_decode_str(&text).decode_utf8_lossy().into_owned();
        if decoded == text {
            return false;
        }
        text = decoded;
    }
    // No honest caller encodes eight times.
    true
}

fn offending_argument(path: &str, arguments: &Map<String, Value>) -> Option<String> {
    let suspicious = |name: &&str| arguments.get(*name).is_some_and(|value| text_of(value).contains(['.', '%']));
    let named = template_parts(path).into_iter().filter_map(|part| match part {
        TemplatePart::Argument(name) => Some(name),
        TemplatePart::Literal(_) => None,
    });
    let named: BTreeSet<&str> = named.collect();
    named.iter().find(|name| suspicious(name)).map(|name| (*name).to_owned())
}
