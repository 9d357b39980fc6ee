//! What an answer means to the caller.

use hyper::StatusCode;
use serde_json::{Map, Value};

use super::{Hiding, Outcome, Service};

/// The most characters of a service's own words that are handed on as an error.
pub(super) const EXCERPT: usize = 1_000;

/// An answer with as much of its body as was asked for.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) form: Option<String>,
    pub(super) body: Vec<u8>,
    pub(super) size: Size,
}

/// Whether the body is all there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Whole,
    /// It is larger than the limit in bytes, and announced itself as so large, if it did.
    TooLarge {
        limit: usize,
        announced: Option<u64>,
    },
}

/// Reads `answer` as its service's configuration has it.
pub(super) fn outcome(service: &Service, hiding: Hiding<'_>, wrap: Option<&str>, answer: Answer) -> Outcome {
    let status = answer.status.as_u16();
    if !answer.status.is_success() {
        let body = shown(&hiding.hide(&String::from_utf8_lossy(&answer.body)), EXCERPT);
        return Outcome::Failed { text: hiding.hide(&mapped(service, answer.status, &body)) };
    }
    if let Size::TooLarge { limit, announced } = answer.size {
        let size = announced.map_or_else(|| format!("more than {limit} bytes"), |bytes| format!("{bytes} bytes"));
        let text =
            format!("Response too large ({size}): {} answered {status}, the limit is {limit} bytes", service.name);
        return Outcome::Failed { text };
    }
    match value(&answer) {
        Ok(mut value) => {
            hiding.hide_in(&mut value);
            Outcome::Done(match wrap {
                Some(name) => Value::Object(Map::from_iter([(name.to_owned(), value)])),
                None => value,
            })
        }
        Err(Unreadable::Broken) => Outcome::InDoubt {
            text: format!("Outcome unknown: {} answered {status}, but its JSON is cut or malformed", service.name),
        },
        Err(Unreadable::Foreign) => {
            let form = hiding.hide(&shown(answer.form.as_deref().unwrap_or("no content type"), 100));
            let text = format!("{} answered {status} with neither JSON nor text ({form})", service.name);
            Outcome::Failed { text }
        }
    }
}

enum Unreadable {
    Broken,
    Foreign,
}

fn value(answer: &Answer) -> Result<Value, Unreadable> {
    let body = answer.body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&answer.body);
    if body.trim_ascii().is_empty() && !is_text(answer.form.as_deref()) || body.is_empty() {
        return Ok(Value::Null);
    }
    if is_text(answer.form.as_deref()) {
        return Ok(Value::String(String::from_utf8_lossy(body).into_owned()));
    }
    match (serde_json::from_slice(body), std::str::from_utf8(body)) {
        (Ok(value), _) => Ok(value),
        (Err(_), _) if is_json(answer.form.as_deref()) => Err(Unreadable::Broken),
        (Err(_), Ok(text)) => Ok(Value::String(text.to_owned())),
        (Err(_), Err(_)) => Err(Unreadable::Foreign),
    }
}

fn essence(form: Option<&str>) -> String {
    form.and_then(|form| form.split(';').next()).unwrap_or_default().trim().to_ascii_lowercase()
}

fn is_text(form: Option<&str>) -> bool {
    let essence = essence(form);
    essence.starts_with("text/") && essence != "text/json"
}

fn is_json(form: Option<&str>) -> bool {
    let essence = essence(form);
    essence == "application/json" || essence == "text/json" || essence.ends_with("+json")
}

fn mapped(service: &Service, status: StatusCode, body: &str) -> String {
    let code = status.as_u16();
    if let Some((_, template)) = service.errors.iter().find(|(of, _)| *of == code) {
        return fill(template, code, body);
    }
    match code {
        401 => "Service authentication failed".to_owned(),
        404 => "Resource not found".to_owned(),
        301 | 302 | 303 | 307 | 308 => format!("API error {code}: the redirect was not followed"),
        _ => format!("API error {code}: {body}"),
    }
}

/// Fills both in at one pass: a body that says `{status}` is no template.
fn fill(template: &str, status: u16, body: &str) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some(at) = rest.find('{') {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("{status}") {
            text.push_str(&status.to_string());
            rest = after;
        } else if let Some(after) = rest.strip_prefix("{body}") {
            text.push_str(body);
            rest = after;
        } else {
            text.push('{');
            rest = &rest[1..];
        }
    }
    text.push_str(rest);
    text
}

/// `text` on one line, of at most `most` characters and a mark, with nothing in it that a terminal or a card would obey.
pub(super) fn shown(text: &str, most: usize) -> String {
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

/// Formatting that changes how other characters are seen, or is not seen itself.
fn is_unseen(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}
