//! Repairs strings that were cut in the middle of a character.
//!
//! JavaScript may cut a string between the halves of a surrogate pair and writes the lonely half as an escape. That is
//! valid JSON but no text, and would otherwise make a whole command or session line unreadable.

use std::borrow::Cow;

const REPLACEMENT: &str = "\\ufffd";
/// Length of an escape like `\ud83d`.
const ESCAPE: usize = 6;

/// Replaces every lonely half of a surrogate pair in `json` by U+FFFD. Leaves everything else as it is.
pub fn replace_lone_surrogates(json: &str) -> Cow<'_, str> {
    if !json.contains("\\ud") && !json.contains("\\uD") {
        return Cow::Borrowed(json);
    }
    let mut mended = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        mended.push_str(before);
        let kept = match surrogate_half(escape) {
            None => one_escape(escape),
            Some(SurrogateHalf::High) if matches!(surrogate_half(&escape[ESCAPE..]), Some(SurrogateHalf::Low)) => {
                2 * ESCAPE
            }
            Some(SurrogateHalf::High | SurrogateHalf::Low) => {
                mended.push_str(REPLACEMENT);
                rest = &escape[ESCAPE..];
                continue;
            }
        };
        mended.push_str(&escape[..kept]);
        rest = &escape[kept..];
    }
    mended.push_str(rest);
    Cow::Owned(mended)
}

enum SurrogateHalf {
    High,
    Low,
}

fn surrogate_half(text: &str) -> Option<SurrogateHalf> {
    let digits = text.get(..ESCAPE)?.strip_prefix("\\u")?;
    match u16::from_str_radix(digits, 16).ok()? {
        0xd800..=0xdbff => Some(SurrogateHalf::High),
        0xdc00..=0xdfff => Some(SurrogateHalf::Low),
        _ => None,
    }
}

/// Returns the length of a backslash and the character after it, so that `\\ud83d` is not taken for an escape.
fn one_escape(text: &str) -> usize {
    1 + text[1..].chars().next().map_or(0, char::len_utf8)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_lonely_halves_are_replaced() {
        for (case, json, want) in [
            ("none", r#""a\n""#, r#""a\n""#),
            ("pair", r#""\ud83d\ude00""#, r#""\ud83d\ude00""#),
            ("high alone", r#""a\ud83d""#, r#""a\ufffd""#),
            ("low alone", r#""\uDE00b""#, r#""\ufffdb""#),
            ("two highs", r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            ("escaped backslash", r#""\\ud83d""#, r#""\\ud83d""#),
            ("high before another escape", r#""\ud83d\n""#, r#""\ufffd\n""#),
        ] {
            assert_eq!(replace_lone_surrogates(json), want, "{case}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_mended_can_be_read_as_text(units in proptest::collection::vec(any::<u16>(), 0..20)) {
            let json = format!("\"{}\"", units.iter().map(|unit| format!("\\u{unit:04x}")).collect::<String>());
            let read: String = serde_json::from_str(&replace_lone_surrogates(&json)).unwrap();
            prop_assert_eq!(read, String::from_utf16_lossy(&units));
        }

        #[test]
        fn any_text_is_survived(text in "[\\\\u\"dD89a-fé😀]{0,30}") {
            replace_lone_surrogates(&text);
        }
    }
}
