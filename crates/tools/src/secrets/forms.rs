//! The forms in which a text may come back that was sent as another.

use base64::{
    Engine as _,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE},
};
use serde_json::Value;

/// Shorter forms are not looked for: they are found in anything, and hiding them would show them.
const SHORTEST: usize = 6;

/// How long lines are where encoded text is wrapped: by `base64`, by `openssl` and in keys, by `xxd -p`.
const COLUMNS: [usize; 3] = [76, 64, 60];

/// Every form of `secrets` to look for, the longest first: as they are, percent-encoded, quoted as JSON, in hex, and in
/// base64 wherever they stand in what was encoded, also where lines of that are wrapped.
///
/// Of a text of several lines each line is a secret: outputs are seldom cut elsewhere, and quoted in many ways between them.
pub fn forms(secrets: &[String]) -> Vec<String> {
    let mut forms = Vec::new();
    let lines = secrets.iter().flat_map(|secret| secret.lines()).map(str::trim);
    for secret in lines.filter(|secret| secret.len() >= SHORTEST) {
        let quoted = Value::from(secret).to_string();
        // Not trimmed: a secret may end with quotes of its own.
        let quoted = quoted[1..quoted.len() - 1].to_owned();
        let percent = percent(secret, "", |byte| format!("%{byte:02X}"));
        let small = self::percent(secret, "", |byte| format!("%{byte:02x}"));
        // What JavaScript and Python leave alone.
        forms.extend(["!'()*", "/"].map(|kept| self::percent(secret, kept, |byte| format!("%{byte:02X}"))));
        forms.extend([secret.to_owned(), quoted.replace('/', "\\/"), quoted, secret.replace(' ', "+")]);
        forms.extend([small, percent.replace("%20", "+"), percent]);
        let hex = hex::encode(secret);
        let encoded: Vec<String> = in_base64(secret).chain([hex.to_uppercase(), hex]).collect();
        forms.extend(encoded.iter().flat_map(|form| wrapped(form)));
        forms.extend(encoded);
    }
    forms.retain(|form| form.len() >= SHORTEST);
    forms.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    forms.dedup();
    forms
}

/// `form` in lines as programs make them, wherever it begins in one of them.
fn wrapped(form: &str) -> impl Iterator<Item = String> {
    COLUMNS.into_iter().flat_map(move |columns| {
        (1..=columns.min(form.len().saturating_sub(1))).map(move |first| {
            let (head, mut rest) = form.split_at(first);
            let mut text = head.to_owned();
            while !rest.is_empty() {
                let (line, behind) = rest.split_at(rest.len().min(columns));
                text.push('\n');
                text.push_str(line);
                rest = behind;
            }
            text
        })
    })
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

/// What every text in base64 holds that `secret` stands in, wherever it does: less what its neighbours change.
fn in_base64(secret: &str) -> impl Iterator<Item = String> {
    [0, 2, 3].into_iter().enumerate().flat_map(move |(before, changed)| {
        let bytes = [&[0; 2][..before], secret.as_bytes()].concat();
        let whole = (bytes.len() * 8) / 6;
        [BASE64_STANDARD.encode(&bytes), BASE64_URL_SAFE.encode(&bytes)].map(|text| text[changed..whole].to_owned())
    })
}
