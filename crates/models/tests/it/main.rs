//! What the crate promises, seen from outside.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod demo;
mod http;
mod offline;
mod requests;
mod scripted;
mod transcripts;

use std::{sync::Arc, time::Duration};

use countersign_models::{Api, Entry, Message, Modality, Part, Price, Request, Tool};

/// A model that can do everything, at `base_url`.
fn entry(api: Api, base_url: &str) -> Entry {
    Entry {
        id: "small-1".to_owned(),
        name: "Small One".to_owned(),
        api,
        provider: "local".to_owned(),
        base_url: base_url.to_owned(),
        reasoning: true,
        input: vec![Modality::Text, Modality::Image],
        cost: Price::default(),
        context_window: 128_000,
        max_tokens: 8_192,
        thinking: None,
        headers: Default::default(),
        tells_usage: true,
    }
}

/// A request with one prompt and one tool.
fn request(entry: Entry) -> Request {
    Request {
        entry: Arc::new(entry),
        key: Some("sk-very-secret".into()),
        system: Some("Be brief.".to_owned()),
        messages: vec![Message::User(vec![Part::text("hi")])],
        tools: vec![Tool {
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
