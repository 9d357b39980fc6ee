//! Meaning of an answer for the caller.

use countersign_core::policy::signature::text_of;
use hyper::StatusCode;
use serde_json::{Map, Value};

use super::{Redactions, ServiceCallOutcome, ServiceDefinition};

/// The most characters of a service's own words that are handed on as an error.
pub(super) const EXCERPT: usize = 1_000;

/// An answer with as much of its body as the limit allows.
#[derive(Debug)]
pub(super) struct ServiceResponse {
    pub(super) status: StatusCode,
    pub(super) form: Option<String>,
    pub(super) body: Vec<u8>,
    pub(super) size: BodySize,
}

/// Completeness of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodySize {
    Whole,
    /// The answer is larger than the limit in bytes, and announced itself as so large, if it did.
    TooLarge {
        limit: usize,
        announced: Option<u64>,
    },
}

/// Reads `answer` as its service's configuration has it, for a call with these arguments whose answer is put under `wrap`.
pub(super) fn response_outcome(
    service: &ServiceDefinition,
    hiding: Redactions<'_>,
    (wrap, arguments): (Option<&str>, &Map<String, Value>),
    answer: ServiceResponse,
) -> ServiceCallOutcome {
    let status = answer.status.as_u16();
    if !answer.status.is_success() {
        let body = printable_excerpt(&hiding.redact_text(&String::from_utf8_lossy(&answer.body)), EXCERPT);
        return ServiceCallOutcome::Failed {
            text: hiding.redact_text(&error_text(service, answer.status, &body, arguments)),
        };
    }
    if let BodySize::TooLarge { limit, announced } = answer.size {
        let size = announced.map_or_else(|| format!("more than {limit} bytes"), |bytes| format!("{bytes} bytes"));
        let text =
            format!("Response too large ({size}): {} answered {status}, the limit is {limit} bytes", service.name);
        return ServiceCallOutcome::Failed { text };
    }
    match decode_body(&answer) {
        Ok(mut value) => {
            hiding.redact_value(&mut value);
            ServiceCallOutcome::Done(match wrap {
                Some(name) => Value::Object(Map::from_iter([(name.to_owned(), value)])),
                None => value,
            })
        }
        Err(UnreadableBody::Broken) => ServiceCallOutcome::InDoubt {
            text: format!("Outcome unknown: {} answered {status}, but its JSON is cut or malformed", service.name),
        },
        Err(UnreadableBody::Foreign) => {
            let form = hiding.redact_text(&printable_excerpt(answer.form.as_deref().unwrap_or("no content type"), 100));
            let text = format!("{} answered {status} with neither JSON nor text ({form})", service.name);
            ServiceCallOutcome::Failed { text }
        }
    }
}

enum UnreadableBody {
    Broken,
    Foreign,
}

fn decode_body(answer: &ServiceResponse) -> Result<Value, UnreadableBody> {
    let body = answer.body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&answer.body);
    if body.trim_ascii().is_empty() && !is_text(answer.form.as_deref()) || body.is_empty() {
        return Ok(Value::Null);
    }
    if is_text(answer.form.as_deref()) {
        return Ok(Value::String(String::from_utf8_lossy(body).into_owned()));
    }
    match (serde_json::from_slice(body), std::str::from_utf8(body)) {
        (Ok(value), _) => Ok(value),
        (Err(_), _) if is_json(answer.form.as_deref()) => Err(UnreadableBody::Broken),
        (Err(_), Ok(text)) => Ok(Value::String(text.to_owned())),
        (Err(_), Err(_)) => Err(UnreadableBody::Foreign),
    }
}

fn media_type(form: Option<&str>) -> String {
    form.and_then(|form| form.split(';').next()).unwrap_or_default().trim().to_ascii_lowercase()
}

fn is_text(form: Option<&str>) -> bool {
    let essence = media_type(form);
    essence.starts_with("text/") && essence != "text/json"
}

fn is_json(form: Option<&str>) -> bool {
    let essence = media_type(form);
    essence == "application/json" || essence == "text/json" || essence.ends_with("+json")
}

fn error_text(service: &ServiceDefinition, status: StatusCode, body: &str, arguments: &Map<String, Value>) -> String {
    let code = status.as_u16();
    let fill = |template: &String| fill_error_template(template, code, body, arguments);
    if let Some(text) = service.errors.iter().filter(|(of, _)| *of == code).find_map(|(_, template)| fill(template)) {
        return text;
    }
    match code {
        401 => "Service authentication failed".to_owned(),
        404 => "Resource not found".to_owned(),
        301 | 302 | 303 | 307 | 308 => format!("API error {code}: the redirect was not followed"),
        _ => service.other_errors.as_ref().and_then(fill).unwrap_or_else(|| format!("API error {code}: {body}")),
    }
}

/// Fills everything in at one pass: a body that says `{status}` is no template. None if an argument that is named is not there.
fn fill_error_template(template: &str, status: u16, body: &str, arguments: &Map<String, Value>) -> Option<String> {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, behind)) = rest.split_once('{') {
        text.push_str(before);
        let Some((name, after)) = behind.split_once('}') else {
            text.push('{');
            rest = behind;
            continue;
        };
        match (name, name.strip_prefix("args.")) {
            ("status", _) => text.push_str(&status.to_string()),
            ("body", _) => text.push_str(body),
            (_, Some(argument)) => text.push_str(&printable_excerpt(&text_of(arguments.get(argument)?), EXCERPT)),
            _ => {
                text.push('{');
                rest = behind;
                continue;
            }
        }
        rest = after;
    }
    text.push_str(rest);
    Some(text)
}

/// Returns `text` on one line, of at most `most` characters and a mark, without characters that a terminal or a card would obey.
pub(super) fn printable_excerpt(text: &str, most: usize) -> String {
    let mut shown = String::new();
    for (count, c) in text.trim().chars().enumerate() {
        if count >= most {
            shown.push('…');
            break;
        }
        match c {
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            _ if c.is_control() || is_unseen(c) => shown.extend(c.escape_unicode()),
            _ => shown.push(c),
        }
    }
    shown
}

/// Reports whether a character is formatting that changes how others are seen, or is not seen itself.
fn is_unseen(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}
