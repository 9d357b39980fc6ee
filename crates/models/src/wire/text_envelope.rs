//! The part of an event around its text, which most servers send unchanged with every piece of an answer.
//!
//! It must not know a wire: the wire reads the first such event and says what its text is. An event that differs from it
//! only within that JSON string has the same members with the same values, so that it need not be read again.

use std::borrow::Cow;

/// The bytes before and after the text of an event that was read whole, and what its wire read beside the text.
#[derive(Debug, Default)]
pub(crate) struct TextEnvelope<T> {
    learned: Option<LearnedEvent<T>>,
}

#[derive(Debug)]
struct LearnedEvent<T> {
    /// Up to the quotation mark before the text.
    before: String,
    /// From the quotation mark after it on.
    after: String,
    beside: T,
}

impl<T: Copy> TextEnvelope<T> {
    /// Returns the text of an event that differs from the learned one in nothing but its text, and what was read beside the text.
    pub(crate) fn open_event<'a>(&self, data: &'a str) -> Option<(Cow<'a, str>, T)> {
        let LearnedEvent { before, after, beside } = self.learned.as_ref()?;
        let literal = data.strip_prefix(before.as_str())?.strip_suffix(after.as_str())?;
        let text = match serde_json::from_str::<&str>(literal) {
            Ok(text) => Cow::Borrowed(text),
            // It has escapes, or is not one string.
            Err(_) => Cow::Owned(serde_json::from_str::<String>(literal).ok()?),
        };
        Some((text, *beside))
    }

    /// Learns an event that was read whole from its `text`, if that stands in it once and without escapes.
    #[expect(clippy::ptr_arg, reason = "only a borrowed text stands in the event as it is")]
    pub(crate) fn learn_event(&mut self, data: &str, text: &Cow<'_, str>, beside: T) {
        // One with escapes is no part of the event, but a copy.
        let Cow::Borrowed(text) = text else { return };
        let literal = format!("\"{text}\"");
        // Two places may share a quotation mark: `"content":":"` has the text `:` once as a value, and once between key and value.
        let Some(at) = data.find(&literal).filter(|at| !data[at + 1..].contains(&literal)) else { return };
        let (before, after) = (&data[..at], &data[at + literal.len()..]);
        self.learned = Some(LearnedEvent { before: before.to_owned(), after: after.to_owned(), beside });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::TextEnvelope;

    fn taught(data: &str, text: &str) -> TextEnvelope<u8> {
        let mut envelope = TextEnvelope::default();
        envelope.learn_event(data, &text.into(), 7);
        envelope
    }

    #[test]
    fn an_event_that_differs_within_its_text_is_opened_and_no_other() {
        let envelope = taught(r#"{"index":0,"text":"one","end":null}"#, "one");
        let open = |data: &str| envelope.open_event(data).map(|(text, beside)| (text.into_owned(), beside));
        for text in ["one", "", "\"", "\\", "a \u{1}\n\u{2028} b", "\",\"end\":\"stop", "x".repeat(100_000).as_str()] {
            let data = format!("{{\"index\":0,\"text\":{},\"end\":null}}", Value::from(text));
            assert_eq!(open(&data), Some((text.to_owned(), 7)), "{data}");
        }
        for data in [
            "",
            r#"{"index":0,"text":"","end":null"#,
            r#"{"index":0,"text":","end":null}"#,
            r#"{"index":0,"text":null,"end":null}"#,
            r#"{"index":0,"text":"\","end":null}"#,
            r#"{"index":0,"text":"a\q","end":null}"#,
            "{\"index\":0,\"text\":\"a\nb\",\"end\":null}",
            r#"{"index":0,"text":"two","other":"more","end":null}"#,
            r#"{"index":0,"text":"two","text":"more","end":null}"#,
            r#"{"index":1,"text":"two","end":null}"#,
            r#"{"index":0,"text":"two","end":"stop"}"#,
        ] {
            assert_eq!(open(data), None, "{data}");
        }
    }

    #[test]
    fn an_event_that_does_not_say_where_its_text_stands_teaches_nothing() {
        for data in [json!({"text": "one", "role": "one"}), json!({"text": "two \" parts"}), json!({"one": "one"})] {
            for text in ["one", "two \" parts"] {
                assert!(taught(&data.to_string(), text).learned.is_none(), "{data}");
            }
        }
        // The text is also what stands between a key and its value.
        for (data, text) in [(r#"{"text":":"}"#, ":"), (r#"{"text" : " : "}"#, " : ")] {
            assert!(taught(data, text).learned.is_none(), "{data}");
        }
        assert!(TextEnvelope::<u8>::default().open_event("\"text\"").is_none());
    }

    #[test]
    fn a_later_event_replaces_an_earlier_one() {
        let mut envelope = taught(r#"{"at":1,"text":"one"}"#, "one");
        envelope.learn_event(r#"{"at":2,"text":"one"}"#, &"one".into(), 8);
        envelope.learn_event(r#"{"one":3,"text":"one"}"#, &"one".into(), 9);
        envelope.learn_event(r#"{"at":3,"text":"one"}"#, &"one".to_owned().into(), 10);
        assert_eq!(envelope.open_event(r#"{"at":1,"text":"two"}"#), None);
        assert_eq!(envelope.open_event(r#"{"at":2,"text":"two"}"#), Some(("two".into(), 8)));
    }
}
