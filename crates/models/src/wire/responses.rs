//! OpenAI's Responses. Source: <https://platform.openai.com/docs/api-reference/responses> and `…/responses-streaming`.

pub(super) mod decoder;
mod items;
pub(super) mod request;
