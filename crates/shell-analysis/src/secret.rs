//! Placeholders that the value of a secret takes the place of before a line runs.
//!
//! It must not know secrets: what stands in a placeholder is not known here, and cannot be judged.

/// Beginning of a placeholder; after the name it ends with two braces: `{{secret:NAME}}`.
pub const OPENING: &str = "{{secret:";

/// Reports whether `text` has a placeholder that would be filled in, or refused.
pub fn is_asked_for(text: &str) -> bool {
    text.contains(OPENING)
}
