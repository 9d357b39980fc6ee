//! `model` and `providers`: which models the gateway's own runs use.
//!
//! It must not know the built-in catalogue.

use std::collections::BTreeMap;

use countersign_runtime::models::{
    demo,
    entry::{InputModality, ModelApi, ModelEntry, TokenPrice},
};

use super::{
    at::At,
    settings::{ModelName, Provider},
    typed_values::address,
};

const PROVIDER: &[&str] = &["api", "base_url", "api_key", "headers", "models"];
const MODEL: &[&str] = &["id", "name", "reasoning", "input", "cost", "context_window", "max_tokens"];
const COST: &[&str] = &["input", "output", "cache_read", "cache_write"];

pub(super) fn model(place: &At<'_>) -> Option<ModelName> {
    if !place.mapping(&["provider", "id"]) {
        return None;
    }
    let provider = place.at("provider").needed_text();
    // The scripted model has one voice only.
    let id = match (place.at("id").text(), provider.as_deref()) {
        (None, Some(demo::PROVIDER)) => Some(demo::MODEL.to_owned()),
        _ => place.at("id").needed_text(),
    };
    Some(ModelName { provider: provider?, id: id? })
}

pub(super) fn read(place: &At<'_>) -> BTreeMap<String, Provider> {
    let mut providers = BTreeMap::new();
    for (name, place) in place.members().unwrap_or_default() {
        if place.mapping(PROVIDER) {
            providers.insert(name.to_owned(), provider(name, &place));
        }
    }
    providers
}

fn provider(name: &str, place: &At<'_>) -> Provider {
    let models = place.at("models").items();
    let wire = place.at("api");
    let api = match wire.text().map(|api| api.parse::<ModelApi>()) {
        Some(Ok(api)) => Some(api),
        Some(Err(error)) => {
            wire.refused(error.to_string());
            None
        }
        None if !models.is_empty() => {
            wire.missing();
            None
        }
        None => None,
    };
    let url = place.at("base_url");
    let base_url = address(&url);
    if base_url.is_none() && url.is_absent() && !models.is_empty() {
        url.missing();
    }
    let header = |(name, place): (&str, At<'_>)| place.secret().map(|value| (name.to_owned(), value));
    let mut provider = Provider {
        api,
        base_url,
        api_key: place.at("api_key").secret(),
        headers: place.at("headers").members().unwrap_or_default().into_iter().filter_map(header).collect(),
        models: Vec::new(),
    };
    for place in models {
        let entry = entry(name, &provider, &place);
        if let Some(entry) = entry {
            if provider.models.iter().any(|known| known.id == entry.id) {
                place.at("id").refused("another model of this provider has this id");
            }
            provider.models.push(entry);
        }
    }
    provider
}

fn entry(name: &str, provider: &Provider, place: &At<'_>) -> Option<ModelEntry> {
    if !place.mapping(MODEL) {
        return None;
    }
    let id = place.at("id").needed_text();
    let tokens = |key, usual| place.at(key).positive_integer().unwrap_or(usual);
    let (context_window, max_tokens) = (tokens("context_window", 128_000), tokens("max_tokens", 16_384));
    let cost = place.at("cost");
    cost.mapping(COST);
    let price = |key| cost.at(key).amount().unwrap_or(0.0);
    let id = id?;
    Some(ModelEntry {
        name: place.at("name").text().unwrap_or_else(|| id.clone()),
        id,
        api: provider.api?,
        provider: name.to_owned(),
        base_url: provider.base_url.clone()?,
        reasoning: place.at("reasoning").flag().unwrap_or(false),
        input: modalities(&place.at("input")),
        cost: TokenPrice {
            input: price("input"),
            output: price("output"),
            cache_read: price("cache_read"),
            cache_write: price("cache_write"),
        },
        context_window,
        max_tokens,
        thinking: None,
        headers: BTreeMap::new(),
        tells_usage: true,
    })
}

fn modalities(place: &At<'_>) -> Vec<InputModality> {
    if place.has_no_value() {
        return vec![InputModality::Text];
    }
    let mut modalities = Vec::new();
    for item in place.items() {
        match item.text().as_deref() {
            Some("text") => modalities.push(InputModality::Text),
            Some("image") => modalities.push(InputModality::Image),
            Some(_) | None => item.refused("expected text or image"),
        }
    }
    modalities
}
