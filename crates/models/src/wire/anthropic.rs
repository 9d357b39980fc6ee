//! Anthropic's Messages. Source: <https://docs.anthropic.com/en/api/messages> and `…/messages-streaming`.

pub(super) mod decoder;
pub(super) mod request;
