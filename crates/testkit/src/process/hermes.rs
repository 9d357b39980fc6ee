//! A client of hermes, and the gateway that it speaks to.

use serde_json::{Value, json};

use crate::process::{
    FakeProvider,
    http::{EventStream, HttpClient, SseEvent},
};

/// Rules of most tests: shell commands need approval, the rest does not.
pub const RULES: &str = "defaults:\n  - { pattern: 'bash(*', action: ask }\n  - { pattern: '*', action: allow }\n";

/// Returns the lines of a configuration with one model at `provider`.
pub(crate) fn model_config(provider: &FakeProvider) -> String {
    format!(
        "model: {{ provider: local, id: small }}\nproviders:\n  local:\n    api: openai-completions\n    base_url: {}/v1\n    api_key: key\n    models: [ {{ id: small, context_window: 100000, max_tokens: 4096 }} ]\n",
        provider.url
    )
}

impl HttpClient {
    /// Creates a session. Returns its id.
    pub fn create_session(&self) -> String {
        let reply = self.post("/api/session/new", &json!({}));
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()["session"]["session_id"].as_str().unwrap().to_owned()
    }

    /// Sends a message. Returns the id of the stream that answers it.
    pub fn start_chat(&self, session: &str, message: &str) -> String {
        let reply = self.post("/api/chat/start", &json!({ "session_id": session, "message": message }));
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()["stream_id"].as_str().unwrap().to_owned()
    }

    /// Opens the stream of an answer.
    pub fn stream_chat(&self, stream: &str) -> EventStream {
        self.open_stream(&format!("/api/chat/stream?stream_id={stream}"))
    }
}

/// Returns the text of an answer.
pub fn token_text(events: &[SseEvent]) -> String {
    events.iter().filter(|event| event.name == "token").filter_map(|event| event.data["text"].as_str()).collect()
}

/// Returns the names of events.
pub fn event_names(events: &[SseEvent]) -> Vec<&str> {
    events.iter().map(|event| event.name.as_str()).collect()
}

/// Returns the numbers of events, all of them of one stream.
pub fn event_numbers(events: &[SseEvent], stream: &str) -> Vec<u64> {
    let number = |event: &SseEvent| event.id.as_deref()?.strip_prefix(stream)?.strip_prefix(':')?.parse().ok();
    events.iter().map(|event| number(event).unwrap_or_else(|| panic!("{event:?}"))).collect()
}

/// Returns the roles of a session's messages.
pub fn message_roles(session: &Value) -> Vec<&str> {
    session["messages"].as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect()
}
