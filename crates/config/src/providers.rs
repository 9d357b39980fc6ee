//! `model` and `providers`: which models the gateway's own runs use.
//!
//! It must not know the built-in catalogue.

use std::collections::BTreeMap;

use countersign_runtime::models::{
    demo,
    entry::{InputModality, ModelApi, ModelEntry, TokenPrice},
};

use super::{
    config_field::ConfigField,
    settings::{ModelSelection, ProviderConfig},
    typed_values::read_address,
};

const PROVIDER: &[&str] = &["api", "base_url", "api_key", "headers", "models"];
const MODEL: &[&str] = &["id", "name", "reasoning", "input", "cost", "context_window", "max_tokens"];
const COST: &[&str] = &["input", "output", "cache_read", "cache_write"];

pub(super) fn read_model(place: &ConfigField<'_>) -> Option<ModelSelection> {
    if !place.check_mapping(&["provider", "id"]) {
        return None;
    }
    let provider = place.at("provider").needed_text();
    // The scripted model has one voice only.
    let id = match (place.at("id").text(), provider.as_deref()) {
        (None, Some(demo::PROVIDER)) => Some(demo::MODEL.to_owned()),
        _ => place.at("id").needed_text(),
    };
    Some(ModelSelection { provider: provider?, id: id? })
}

pub(super) fn read_providers(place: &ConfigField<'_>) -> BTreeMap<String, ProviderConfig> {
    let mut providers = BTreeMap::new();
    for (name, place) in place.members().unwrap_or_default() {
        if place.check_mapping(PROVIDER) {
            providers.insert(name.to_owned(), read_provider(name, &place));
        }
    }
    providers
}

fn read_provider(name: &str, place: &ConfigField<'_>) -> ProviderConfig {
    let models = place.at("models").items();
    let wire = place.at("api");
    let api = match wire.text().map(|api| api.parse::<ModelApi>()) {
        Some(Ok(api)) => Some(api),
        Some(Err(error)) => {
            wire.report_refusal(error.to_string());
            None
        }
        None if !models.is_empty() => {
            wire.report_missing();
            None
        }
        None => None,
    };
    let url = place.at("base_url");
    let base_url = read_address(&url);
    if base_url.is_none() && url.is_absent() && !models.is_empty() {
        url.report_missing();
    }
    let header = |(name, place): (&str, ConfigField<'_>)| place.secret().map(|value| (name.to_owned(), value));
    let mut provider = ProviderConfig {
        api,
        base_url,
        api_key: place.at("api_key").secret(),
        headers: place.at("headers").members().unwrap_or_default().into_iter().filter_map(header).collect(),
        models: Vec::new(),
    };
    for place in models {
        let entry = read_entry(name, &provider, &place);
        if let Some(entry) = entry {
            if provider.models.iter().any(|known| known.id == entry.id) {
                place.at("id").report_refusal("another model of this provider already has this id");
            }
            provider.models.push(entry);
        }
    }
    provider
}

fn read_entry(name: &str, provider: &ProviderConfig, place: &ConfigField<'_>) -> Option<ModelEntry> {
    if !place.check_item(MODEL) {
        return None;
    }
    let id = place.at("id").needed_text();
    let tokens = |key, usual| place.at(key).positive_integer().unwrap_or(usual);
    let (context_window, max_tokens) = (tokens("context_window", 128_000), tokens("max_tokens", 16_384));
    let cost = place.at("cost");
    cost.check_mapping(COST);
    let price = |key| cost.at(key).non_negative().unwrap_or(0.0);
    let id = id?;
    Some(ModelEntry {
        name: place.at("name").text().unwrap_or_else(|| id.clone()),
        id,
        api: provider.api?,
        provider: name.to_owned(),
        base_url: provider.base_url.clone()?,
        reasoning: place.at("reasoning").flag().unwrap_or(false),
        input: read_modalities(&place.at("input")),
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

fn read_modalities(place: &ConfigField<'_>) -> Vec<InputModality> {
    if place.has_no_value() {
        return vec![InputModality::Text];
    }
    let mut modalities = Vec::new();
    for item in place.items() {
        match item.text().as_deref() {
            Some("text") => modalities.push(InputModality::Text),
            Some("image") => modalities.push(InputModality::Image),
            Some(_) => item.report_refusal("expected text or image"),
            // Reported already.
            None => {}
        }
    }
    modalities
}
