//! The forms in which a text may come back that was sent as another.

use std::sync::Arc;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::Value;

use super::view::View;

/// Shorter forms are not looked for: they are found in anything, and hiding them would show them.
const SHORTEST: usize = 6;

/// One form of a secret.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Form {
    /// How a text is read when this is looked for in it.
    pub(super) view: View,
    /// What is looked for.
    pub(super) text: Arc<str>,
    /// What stands in its place.
    pub(super) shown: Arc<str>,
}

/// Every form of `secret` to look for: as it is, percent-encoded, quoted as JSON, in hex, and in base64 wherever it stands
/// in what was encoded. How encoded text is wrapped is the business of its [`View`].
///
/// Of a text of several lines each line is a secret: outputs are seldom cut elsewhere, and quoted in many ways between them.
///
/// *Size*: of plain letters and digits 7 bytes for each of them; never more than 36 for a byte, where all of them are quoted.
pub(super) fn forms(secret: &str, shown: &str) -> Vec<Form> {
    let shown: Arc<str> = shown.into();
    let lines = secret.lines().map(str::trim).filter(|line| line.len() >= SHORTEST);
    let mut forms: Vec<Form> = lines
        .flat_map(|line| {
            let plain = plain(line).into_iter().map(|text| (View::Plain, text));
            let base64 = in_base64(line).into_iter().map(|text| (View::Base64, text));
            plain.chain(base64).chain([(View::Hex, hex::encode(line))])
        })
        .filter(|(_, text)| text.len() >= SHORTEST)
        .map(|(view, text)| Form { view, text: text.into(), shown: Arc::clone(&shown) })
        .collect();
    forms.sort_unstable();
    forms.dedup();
    forms
}

fn plain(line: &str) -> Vec<String> {
    let quoted = Value::from(line).to_string();
    // Not trimmed: a secret may end with quotes of its own.
    let quoted = quoted[1..quoted.len() - 1].to_owned();
    let percent = percent(line, "", |byte| format!("%{byte:02X}"));
    let small = self::percent(line, "", |byte| format!("%{byte:02x}"));
    // What JavaScript and Python leave alone.
    let kept = ["!'()*", "/"].map(|kept| self::percent(line, kept, |byte| format!("%{byte:02X}")));
    let mut forms = vec![line.to_owned(), quoted.replace('/', "\\/"), quoted, line.replace(' ', "+")];
    forms.extend([small, percent.replace("%20", "+"), percent]);
    forms.extend(kept);
    // Here already, for most are the same and long ones cost.
    forms.sort_unstable();
    forms.dedup();
    forms
}

fn percent(text: &str, kept: &str, escape: impl Fn(u8) -> String) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            _ if kept.as_bytes().contains(&byte) => encoded.push(char::from(byte)),
            _ => encoded.push_str(&escape(byte)),
        }
    }
    encoded
}

/// What every text in base64 holds that `line` stands in, wherever it does: less what its neighbours change.
fn in_base64(line: &str) -> [String; 3] {
    [(0, 0), (1, 2), (2, 3)].map(|(before, changed)| {
        let bytes = [&[0; 2][..before], line.as_bytes()].concat();
        let whole = (bytes.len() * 8) / 6;
        BASE64_STANDARD.encode(&bytes)[changed..whole].to_owned()
    })
}
