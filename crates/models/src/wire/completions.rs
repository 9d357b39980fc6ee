//! OpenAI's Chat Completions, as OpenAI and everyone who copied it speak it. Source:
//! <https://platform.openai.com/docs/api-reference/chat>; for what others made of it, the `compat` of `models.yml`.

mod content;
pub(super) mod decoder;
mod frame;
mod provider_extensions;
pub(super) mod request;
