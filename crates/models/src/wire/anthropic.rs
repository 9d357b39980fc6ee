//! Anthropic's Messages. Source: <https://docs.anthropic.com/en/api/messages> and `…/messages-streaming`.

pub(super) mod decoder;
pub(super) mod request;

/// Reports whether a member of a block with this name goes back with it: it is not written from its part, and says more than
/// where a text comes from.
fn is_given(name: &str) -> bool {
    const WRITTEN: [&str; 10] =
        ["type", "text", "thinking", "signature", "data", "id", "name", "input", "citations", "cache_control"];
    !WRITTEN.contains(&name)
}
