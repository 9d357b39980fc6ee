//! Paths that stand in addresses of files, as `curl` reads them.

use crate::word::UNKNOWN;

/// Returns the path that `text` names by an address with the scheme `file`, in any spelling. After braces and brackets, of which each
/// choice is an address of its own, nothing is known.
pub(super) fn file_path(text: &str) -> Option<String> {
    const SCHEME: &str = "file:";
    let is_scheme =
        |at: &usize| text.get(*at..at + SCHEME.len()).is_some_and(|found| found.eq_ignore_ascii_case(SCHEME));
    let at = (0..text.len()).find(is_scheme)?;
    let rest = &text[at + SCHEME.len()..];
    let rest = rest.strip_prefix("//").map_or(rest, |rest| &rest[rest.find('/').unwrap_or(rest.len())..]);
    let known = rest.split(['{', '[']).next().unwrap_or(rest);
    match &rest[known.len()..] {
        "" => Some(decode_percent(known)),
        // A step up from there may lead anywhere.
        choices if decode_percent(choices).contains("..") => Some(format!("/{UNKNOWN}")),
        _ => Some(format!("{}{UNKNOWN}", decode_percent(known))),
    }
}

/// Reports whether `curl` may make an address of `text` that leads elsewhere: from braces and brackets it chooses parts, of the scheme too.
pub(super) fn may_lead_anywhere(text: &str) -> bool {
    let is_json = || serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    if !text.contains(['{', '[']) || text.contains(char::is_whitespace) || is_json() {
        return false;
    }
    let groups = text.split(['{', '[']).skip(1).map(|group| group.split(['}', ']']).next().unwrap_or(group));
    let in_scheme =
        text.split(":/").next().is_some_and(|scheme| scheme.len() < text.len() && scheme.contains(['{', '[']));
    let is_path = !text.contains("://") && text.contains("..");
    in_scheme
        || is_path
        || groups.into_iter().any(|group| decode_percent(group).contains('/') || decode_percent(group).contains(".."))
}

/// Returns `text` with what stands there as `%` and two digits.
fn decode_percent(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut left = text.as_bytes();
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    while let Some((first, rest)) = left.split_first() {
        let coded = match rest {
            [high, low, ..] if *first == b'%' => digit(high).zip(digit(low)).map(|(high, low)| high * 16 + low),
            _ => None,
        };
        bytes.push(coded.unwrap_or(*first));
        left = if coded.is_some() { &rest[2..] } else { rest };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::{UNKNOWN, file_path};

    #[test]
    fn an_address_of_a_file_is_its_path() {
        let (open, any) = (format!("/g/{UNKNOWN}"), format!("/{UNKNOWN}"));
        for (text, want) in [
            ("file:///g/x", Some("/g/x")),
            ("FILE://localhost/g/x", Some("/g/x")),
            ("file:/g/x", Some("/g/x")),
            ("url=file:///g/c%6Fig", Some("/g/coig")),
            ("file:///g/100%", Some("/g/100%")),
            ("file:///g/{a,b}", Some(open.as_str())),
            ("file:///g/[a-c]x", Some(open.as_str())),
            ("file:///g/{../x}", Some(any.as_str())),
            ("file://host", Some("")),
            ("https://h/x", None),
            ("ü", None),
        ] {
            assert_eq!(file_path(text).as_deref(), want, "{text}");
        }
    }
}
