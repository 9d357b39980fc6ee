//! The most frequent form of a chunk: more text, and nothing else that matters.
//!
//! It must not vary: any other form, however harmless, is left to the whole reading.

use std::borrow::Cow;

use serde::Deserialize;

use crate::wire::object_only::ObjectOnly;

/// A chunk with one piece of text. Members with no such field, or with another value, make it another form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "fields that only have to fit")]
struct TextChunk<'a> {
    id: Option<&'a str>,
    object: Option<&'a str>,
    created: Option<f64>,
    model: Option<&'a str>,
    system_fingerprint: Option<&'a str>,
    service_tier: Option<&'a str>,
    provider: Option<&'a str>,
    obfuscation: Option<&'a str>,
    #[serde(borrow)]
    choices: [ObjectOnly<TextChoice<'a>>; 1],
    usage: Option<()>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "fields that only have to fit")]
struct TextChoice<'a> {
    index: u64,
    #[serde(borrow)]
    delta: ObjectOnly<TextDelta<'a>>,
    logprobs: Option<()>,
    finish_reason: Option<()>,
    native_finish_reason: Option<()>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "fields that only have to fit")]
struct TextDelta<'a> {
    role: Option<&'a str>,
    #[serde(borrow)]
    content: Cow<'a, str>,
}

/// Returns the text of a chunk that holds one piece of text and nothing else that matters. `None` for any other.
pub(super) fn read_text(data: &str) -> Option<Cow<'_, str>> {
    let ObjectOnly(chunk): ObjectOnly<TextChunk<'_>> = serde_json::from_str(data).ok()?;
    let TextChunk { object, choices: [ObjectOnly(TextChoice { index, delta: ObjectOnly(delta), .. })], .. } = chunk;
    (index == 0 && object.is_none_or(|object| object == "chat.completion.chunk")).then_some(delta.content)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::read_text;

    #[test]
    fn a_chunk_with_anything_but_text_is_of_another_form() {
        let chunk = json!({
            "id": "r", "object": "chat.completion.chunk", "created": 1, "model": "m", "usage": null,
            "choices": [{"index": 0, "delta": {"role": "assistant", "content": "two \"words\""}, "finish_reason": null}],
        });
        assert_eq!(read_text(&chunk.to_string()).as_deref(), Some("two \"words\""));
        for (place, value) in [
            ("/usage", json!({"prompt_tokens": 1})),
            ("/object", json!("error")),
            ("/error", json!({"message": "down"})),
            ("/text", json!("more")),
            ("/choices", json!([])),
            ("/choices/0/index", json!(1)),
            ("/choices/0/finish_reason", json!("stop")),
            ("/choices/0/text", json!("more")),
            ("/choices/0/delta/content", Value::Null),
            ("/choices/0/delta/content", json!([{"type": "text", "text": "more"}])),
            ("/choices/0/delta/reasoning", json!("thought")),
            ("/choices/0/delta/tool_calls", json!([])),
            ("/choices/0/delta", json!(["a role", "more"])),
            ("/choices/0", json!([0, {"content": "more"}, null, null, null])),
        ] {
            let mut other = chunk.clone();
            match other.pointer_mut(place) {
                Some(found) => *found = value,
                None => {
                    let (parent, name) = place.rsplit_once('/').unwrap();
                    other.pointer_mut(parent).unwrap()[name] = value;
                }
            }
            assert_eq!(read_text(&other.to_string()), None, "{other}");
        }
        let list =
            json!(["r", null, 1, "m", null, null, null, null, [{"index": 0, "delta": {"content": "more"}}], null]);
        assert_eq!(read_text(&list.to_string()), None);
    }
}
