//! Form of the URI of a resource: one spelling for each resource, so that a rule that names an address means what a server reads.
//!
//! It must not know rules, nor which schemes a server has.

use url::Url;

use crate::text::{is_format, printable_excerpt};

/// Beginning and end of the placeholder of a secret.
const PLACEHOLDER: (&str, &str) = ("{{secret:", "}}");
/// Text that stands for the value of a secret while the form of a URI is checked.
const SECRET: &str = "secret";
/// Characters at which some servers split an address.
const SEPARATORS: [u8; 9] = [b'/', b'\\', b'?', b'#', b';', b'&', b'=', b':', b','];

/// Checks that a URI is in its normal form and has no dot segments, however they are written.
///
/// The normal form is that of the WHATWG URL standard, with unreserved characters unencoded and upper-case hexadecimal digits
/// (RFC 3986 §6.2.2).
///
/// # Errors
/// The problem, with the normal form where there is one.
pub(crate) fn check_uri(uri: &str) -> Result<(), String> {
    let filled = without_placeholders(uri);
    if filled.chars().any(|letter| letter.is_control() || is_format(letter)) {
        return Err(format!("uri has control characters{}", shown_form(&filled)));
    }
    let Some(normal) = normal_form(&filled) else {
        return Err("uri is not an absolute URI: expected for example file:///srv/list.txt".to_owned());
    };
    let decoded = decode_all(filled.as_bytes());
    if decoded.iter().any(u8::is_ascii_control) {
        return Err("uri has percent-encoded control characters".to_owned());
    }
    if has_dot_segments(&decoded) {
        return Err(format!("uri has dot segments{}", shown_form(&filled)));
    }
    if normal != filled {
        return Err(format!("uri is not in its normal form, which is {}", printable_excerpt(&normal)));
    }
    Ok(())
}

fn has_dot_segments(decoded: &[u8]) -> bool {
    decoded.split(|byte| SEPARATORS.contains(byte)).any(|segment| segment == b"." || segment == b"..")
}

/// Returns the normal form of a URI without its dot segments, as the end of an error; empty if it has none.
fn shown_form(uri: &str) -> String {
    // Encoded slashes and percent signs are not resolved by the standard.
    let decoded = String::from_utf8_lossy(&decode_all(uri.as_bytes())).replace('\\', "/");
    let normal = normal_form(&decoded).filter(|normal| !has_dot_segments(normal.as_bytes()));
    normal.map_or_else(String::new, |normal| format!("; its normal form is {}", printable_excerpt(&normal)))
}

fn normal_form(uri: &str) -> Option<String> {
    Some(normal_escapes(Url::parse(uri).ok()?.as_str()))
}

/// Returns a URI with unreserved characters unencoded and the hexadecimal digits of the other escapes in upper case.
fn normal_escapes(uri: &str) -> String {
    let mut normal = String::with_capacity(uri.len());
    let mut rest = uri;
    while let Some(at) = rest.find('%') {
        normal.push_str(&rest[..at]);
        match escaped_byte(&rest.as_bytes()[at..]) {
            Some(byte) if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => normal.push(char::from(byte)),
            Some(byte) => normal.push_str(&format!("%{byte:02X}")),
            None => {
                normal.push('%');
                rest = &rest[at + 1..];
                continue;
            }
        }
        rest = &rest[at + 3..];
    }
    normal.push_str(rest);
    normal
}

/// Returns the bytes behind all escapes, also those that are escaped several times.
fn decode_all(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    for byte in text.iter().copied() {
        decoded.push(byte);
        // A decoded byte may be the end of another escape: `%252e` becomes `%2e` and then a dot.
        while let Some(at) = decoded.len().checked_sub(3)
            && let Some(byte) = escaped_byte(&decoded[at..])
        {
            decoded.truncate(at);
            decoded.push(byte);
        }
    }
    decoded
}

/// Returns the byte that an escape at the beginning of `text` stands for.
fn escaped_byte(text: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = text else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from((digit(*high)? << 4) | digit(*low)?).ok()
}

/// Returns a URI with a plain word in place of each placeholder of a secret.
fn without_placeholders(uri: &str) -> String {
    let mut filled = String::with_capacity(uri.len());
    let mut rest = uri;
    while let Some((before, after)) = rest.split_once(PLACEHOLDER.0)
        && let Some((_, after)) = after.split_once(PLACEHOLDER.1)
    {
        filled.push_str(before);
        filled.push_str(SECRET);
        rest = after;
    }
    filled.push_str(rest);
    filled
}

#[cfg(test)]
mod tests {
    use super::check_uri;

    #[test]
    fn a_uri_in_its_normal_form_is_accepted() {
        for uri in [
            "file:///srv/list.txt",
            "file:///srv/a%20b/%C3%9Cbersicht.md",
            "file:///srv/.hidden/..data/a..b",
            "file:///srv/a%2Fb",
            "https://x.example/a?range=1..2",
            "note://All/1",
            "memo:insights",
            "postgres://user@host:5432/db/schema",
            "file:///srv/{{secret:NAME}}/x",
            "screen://localhost/",
        ] {
            assert_eq!(check_uri(uri), Ok(()), "{uri}");
        }
    }

    #[test]
    fn a_uri_with_dot_segments_in_any_spelling_is_refused() {
        for uri in [
            "file:///srv/../etc/passwd",
            "file:///srv/./../etc/passwd",
            "file:///srv/..",
            "file:///srv/%2e%2e/etc/passwd",
            "file:///srv/%2E./etc/passwd",
            "file:///srv/..%2fetc/passwd",
            "file:///srv/%252e%252e/etc/passwd",
            "file:///srv/%25%32%65%25%32%65/etc/passwd",
            "file:///srv/..\\etc",
            "file:///srv/x%5c..%5cetc",
            "file:///srv/x?/../../etc/passwd",
            "file:///srv/x?path=../etc",
            "file:///srv/x;..;/etc",
            "note://a/../b",
            "memo:a/../b",
            "memo:..",
        ] {
            let problem = check_uri(uri).unwrap_err();
            assert!(problem.starts_with("uri has dot segments"), "{uri}: {problem}");
        }
        let problem = check_uri("file:///srv/%2e%2e/etc/passwd").unwrap_err();
        assert_eq!(problem, "uri has dot segments; its normal form is file:///etc/passwd");
    }

    #[test]
    fn another_spelling_of_a_uri_is_refused_with_its_normal_form() {
        for (uri, want) in [
            ("FILE:///srv/x", "uri is not in its normal form, which is file:///srv/x"),
            (" file:///srv/x", "uri is not in its normal form, which is file:///srv/x"),
            ("file:///srv/s%65cret", "uri is not in its normal form, which is file:///srv/secret"),
            ("file:///srv/a%2fb", "uri is not in its normal form, which is file:///srv/a%2Fb"),
            ("file:/srv/x", "uri is not in its normal form, which is file:///srv/x"),
            ("file://localhost/srv/x", "uri is not in its normal form, which is file:///srv/x"),
            ("file:///srv/a b", "uri is not in its normal form, which is file:///srv/a%20b"),
            ("https://X.example:443", "uri is not in its normal form, which is https://x.example/"),
            ("file:///srv\\x", "uri is not in its normal form, which is file:///srv/x"),
            ("file:///srv/\n../x", "uri has control characters; its normal form is file:///x"),
            ("file:///srv/\u{202e}x", "uri has control characters; its normal form is file:///srv/%E2%80%AEx"),
            ("file:///srv/x\u{0}", "uri has control characters; its normal form is file:///srv/x"),
            ("file:///srv/x%00", "uri has percent-encoded control characters"),
            ("file:///srv/x%0a", "uri has percent-encoded control characters"),
            ("srv/x", "uri is not an absolute URI: expected for example file:///srv/list.txt"),
            ("", "uri is not an absolute URI: expected for example file:///srv/list.txt"),
            ("{{secret:NAME}}", "uri is not an absolute URI: expected for example file:///srv/list.txt"),
        ] {
            assert_eq!(check_uri(uri), Err(want.to_owned()), "{uri:?}");
        }
    }
}
