//! Placeholders that the value of a secret takes the place of before a line runs.
//!
//! It must not know secrets: what stands in a placeholder is not known here, and cannot be judged.

/// What a placeholder begins with; behind the name it ends with two braces: `{{secret:NAME}}`.
pub const OPENING: &str = "{{secret:";

/// Whether something stands in `text` that would be filled in, or refused.
pub fn is_asked_for(text: &str) -> bool {
    text.contains(OPENING)
}
