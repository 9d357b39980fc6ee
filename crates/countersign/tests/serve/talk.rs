//! A gateway whose own runs ask a scripted model, and a client of hermes that speaks to it.

use serde_json::{Value, json};

use crate::{
    gateway::Gateway,
    http::{Event, Events, Http},
    place::Place,
    provider::Provider,
};

/// The rules of these tests: shell commands are asked about, the rest is not.
pub(crate) const RULES: &str =
    "defaults:\n  - { pattern: 'bash(*', action: ask }\n  - { pattern: '*', action: allow }\n";

pub(crate) struct Talk {
    pub(crate) place: Place,
    pub(crate) provider: Provider,
}

impl Talk {
    pub(crate) fn new() -> Self {
        Self::with("")
    }

    /// With more lines in the configuration.
    pub(crate) fn with(more: &str) -> Self {
        let provider = Provider::start();
        let place = Place::with(&format!("{}{more}", models(&provider)), RULES);
        Self { place, provider }
    }

    pub(crate) fn start(&self) -> (Gateway, Http) {
        let gateway = Gateway::start(&self.place);
        let http = Http::new(&gateway.address);
        (gateway, http)
    }
}

fn models(provider: &Provider) -> String {
    format!(
        "model: {{ provider: local, id: small }}\nproviders:\n  local:\n    api: openai-completions\n    base_url: {}/v1\n    api_key: key\n    models: [ {{ id: small, context_window: 100000, max_tokens: 4096 }} ]\n",
        provider.url
    )
}

impl Http {
    /// A new session.
    pub(crate) fn session(&self) -> String {
        let reply = self.post("/api/session/new", &json!({}));
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()["session"]["session_id"].as_str().unwrap().to_owned()
    }

    /// Says something, and gives the name of the stream.
    pub(crate) fn say(&self, session: &str, message: &str) -> String {
        let reply = self.post("/api/chat/start", &json!({ "session_id": session, "message": message }));
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()["stream_id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn turn(&self, stream: &str) -> Events {
        self.stream(&format!("/api/chat/stream?stream_id={stream}"))
    }
}

/// The text of an answer.
pub(crate) fn text(events: &[Event]) -> String {
    events.iter().filter(|event| event.name == "token").filter_map(|event| event.data["text"].as_str()).collect()
}

pub(crate) fn names(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.name.as_str()).collect()
}

/// The numbers of events, all of them of one stream.
pub(crate) fn numbers(events: &[Event], stream: &str) -> Vec<u64> {
    let number = |event: &Event| event.id.as_deref()?.strip_prefix(stream)?.strip_prefix(':')?.parse().ok();
    events.iter().map(|event| number(event).unwrap_or_else(|| panic!("{event:?}"))).collect()
}

/// The roles of a session's messages.
pub(crate) fn roles(session: &Value) -> Vec<&str> {
    session["messages"].as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect()
}
