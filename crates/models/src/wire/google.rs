//! Google's Generative Language. Source: <https://ai.google.dev/api/generate-content>.

pub(super) mod decoder;
pub(super) mod request;
