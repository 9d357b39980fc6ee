//! The forms in which a text may come back that was sent as another.

use std::sync::Arc;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::Value;

use super::view::TextEncoding;

/// Shorter forms are not looked for: they are found in anything, and hiding them would show them.
const SHORTEST: usize = 6;

/// One form of a secret.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SecretForm {
    /// Encoding in which a text is read to find this form.
    pub(super) view: TextEncoding,
    /// Text of the form.
    pub(super) text: Arc<str>,
    /// Replacement.
    pub(super) shown: Arc<str>,
}

/// Returns every form of `secret` to look for: as it is, percent-encoded, quoted as JSON or for HTML, in hex, and in base64 at
/// any position of the encoded data. Its [`TextEncoding`] handles the wrapping of encoded text.
///
/// Of a text of several lines each line is a secret: outputs are seldom cut elsewhere, and quoted in many ways between them.
///
/// *Size*: of plain letters and digits 7 bytes for each of them; never more than 36 for a byte, where all of them are quoted.
pub(super) fn secret_forms(secret: &str, shown: &str) -> Vec<SecretForm> {
    let shown: Arc<str> = shown.into();
    let lines = secret.lines().map(str::trim).filter(|line| line.len() >= SHORTEST);
    let mut forms: Vec<SecretForm> = lines
        .flat_map(|line| {
            let plain = plain_forms(line).into_iter().map(|text| (TextEncoding::Plain, text));
            let base64 = in_base64(line).into_iter().map(|text| (TextEncoding::Base64, text));
            plain.chain(base64).chain([(TextEncoding::Hex, hex::encode(line))])
        })
        .filter(|(_, text)| text.len() >= SHORTEST)
        .map(|(view, text)| SecretForm { view, text: text.into(), shown: Arc::clone(&shown) })
        .collect();
    forms.sort_unstable();
    forms.dedup();
    forms
}

/// Returns true if there is any form to look for.
pub(super) fn can_be_hidden(secret: &str) -> bool {
    secret.lines().any(|line| line.trim().len() >= SHORTEST)
}

fn plain_forms(line: &str) -> Vec<String> {
    let quoted = Value::from(line).to_string();
    // Not trimmed: a secret may end with quotes of its own.
    let quoted = quoted[1..quoted.len() - 1].to_owned();
    let percent = percent_encode(line, "", |byte| format!("%{byte:02X}"));
    let small = self::percent_encode(line, "", |byte| format!("%{byte:02x}"));
    // Characters that JavaScript and Python leave unencoded.
    let kept = ["!'()*", "/"].map(|kept| self::percent_encode(line, kept, |byte| format!("%{byte:02X}")));
    let mut forms = vec![line.to_owned(), quoted.replace('/', "\\/"), quoted, line.replace(' ', "+")];
    forms.extend([small, percent.replace("%20", "+"), percent]);
    forms.extend(kept);
    for (characters, is_ascii, digits) in UNICODE {
        let quoted = in_json(line, characters, is_ascii, digits);
        forms.extend([quoted.replace('/', "\\/"), quoted]);
    }
    forms.extend(QUOTES.map(|(double, single)| in_html(line, double, single)));
    // Here already, for most are the same and long ones cost.
    forms.sort_unstable();
    forms.dedup();
    forms
}

/// Notation of character numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HexDigits {
    Small,
    Capital,
}

/// Characters that writers of JSON encode by number without need: the characters, true if all beyond ASCII, and the notation.
/// Those of Go and Rails; of Gson; of Python and PHP; of Jackson; of both; of .NET.
const UNICODE: [(&str, bool, HexDigits); 6] = [
    ("<>&", false, HexDigits::Small),
    ("<>&='", false, HexDigits::Small),
    ("", true, HexDigits::Small),
    ("", true, HexDigits::Capital),
    ("<>&", true, HexDigits::Small),
    ("<>&'\"+`", true, HexDigits::Capital),
];

/// Encodings of both kinds of quotes by writers of HTML.
const QUOTES: [(&str, &str); 5] =
    [("\"", "'"), ("&quot;", "'"), ("&quot;", "&#39;"), ("&quot;", "&#x27;"), ("&#34;", "&#39;")];

fn in_json(text: &str, characters: &str, is_ascii: bool, digits: HexDigits) -> String {
    let mut quoted = String::new();
    for character in text.chars() {
        if characters.contains(character) || (is_ascii && !character.is_ascii()) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                quoted.push_str(&match digits {
                    HexDigits::Small => format!("\\u{unit:04x}"),
                    HexDigits::Capital => format!("\\u{unit:04X}"),
                });
            }
        } else {
            let whole = Value::from(character.to_string()).to_string();
            quoted.push_str(&whole[1..whole.len() - 1]);
        }
    }
    quoted
}

fn in_html(text: &str, double: &str, single: &str) -> String {
    let mut quoted = String::new();
    for character in text.chars() {
        match character {
            '&' => quoted.push_str("&amp;"),
            '<' => quoted.push_str("&lt;"),
            '>' => quoted.push_str("&gt;"),
            '"' => quoted.push_str(double),
            '\'' => quoted.push_str(single),
            other => quoted.push(other),
        }
    }
    quoted
}

fn percent_encode(text: &str, kept: &str, escape: impl Fn(u8) -> String) -> String {
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

/// Returns the common parts of every text in base64 that contains `line`, at any position: without the characters that its
/// neighbours change.
fn in_base64(line: &str) -> [String; 3] {
    [(0, 0), (1, 2), (2, 3)].map(|(before, changed)| {
        let bytes = [&[0; 2][..before], line.as_bytes()].concat();
        let whole = (bytes.len() * 8) / 6;
        BASE64_STANDARD.encode(&bytes)[changed..whole].to_owned()
    })
}
