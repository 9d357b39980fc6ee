//! Google's Generative Language. Source: <https://ai.google.dev/api/generate-content>.

pub(super) mod decoder;
pub(super) mod request;

/// The member of a payload that names the calls of an answer whose ids the provider gave. Only those go back: Google's own
/// older models give none, and some endpoints refuse an id that they did not give.
const GIVEN: &str = "functionCallIds";
