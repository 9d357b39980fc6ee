//! Promises of the crate, seen from outside.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod demo;
mod http;
mod offline;
mod requests;
mod scripted;
mod transcripts;

use std::{sync::Arc, time::Duration};

use countersign_models::{
    InputModality, MessagePart, ModelApi, ModelEntry, ModelRequest, ModelTool, RequestMessage, TokenPrice,
};

/// Returns a model that can do everything, at `base_url`.
fn entry(api: ModelApi, base_url: &str) -> ModelEntry {
    ModelEntry {
        id: "small-1".to_owned(),
        name: "Small One".to_owned(),
        api,
        provider: "local".to_owned(),
        base_url: base_url.to_owned(),
        reasoning: true,
        input: vec![InputModality::Text, InputModality::Image],
        cost: TokenPrice::default(),
        context_window: 128_000,
        max_tokens: 8_192,
        thinking: None,
        headers: Default::default(),
        tells_usage: true,
    }
}

/// Returns a request with one prompt and one tool.
fn request(entry: ModelEntry) -> ModelRequest {
    ModelRequest {
        entry: Arc::new(entry),
        key: Some("sk-very-secret".into()),
        system: Some("Be brief.".to_owned()),
        messages: vec![RequestMessage::User(vec![MessagePart::text("hi")])],
        tools: vec![ModelTool {
            name: "read".to_owned(),
            description: "Reads a file.".to_owned(),
            schema: serde_json::json!({"type": "object", "properties": {"path": {"type": "string"}}}),
        }],
        max_tokens: None,
        level: None,
        session: None,
        silence: Duration::from_secs(60),
    }
}
