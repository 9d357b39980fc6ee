//! OpenAI's Chat Completions, as OpenAI and everyone who copied it speak it. Source: <https://platform.openai.com/docs/api-reference/chat> and `specs/omp.md` §5.

pub(super) mod decoder;
pub(super) mod request;
