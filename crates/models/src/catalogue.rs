//! The models that are known without any configuration.
//!
//! It must not know keys or settings: it lists, in the order of its file. The file says where its prices are from and
//! how old they are.

use std::sync::OnceLock;

use serde::Deserialize;

use crate::ModelEntry;

#[derive(Deserialize)]
struct ModelCatalogue {
    date: String,
    source: String,
    models: Vec<ModelEntry>,
}

/// Returns the models that come with the program, parsed at the first call.
pub fn builtin_models() -> &'static [ModelEntry] {
    &parsed_catalogue().models
}

/// Returns the day on which the catalogue was right as far as its author knew, such as `2026-02-28`, and the source of its figures.
pub fn provenance() -> (&'static str, &'static str) {
    (&parsed_catalogue().date, &parsed_catalogue().source)
}

fn parsed_catalogue() -> &'static ModelCatalogue {
    static CATALOGUE: OnceLock<ModelCatalogue> = OnceLock::new();
    CATALOGUE.get_or_init(|| serde_json::from_str(include_str!("catalogue.json")).expect("a test reads the same file"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_model_is_listed_once_and_could_be_used() {
        let mut keys = BTreeSet::new();
        for entry in builtin_models() {
            let key = (entry.provider.as_str(), entry.id.as_str());
            assert!(keys.insert(key), "{key:?} is listed twice");
            assert!(entry.max_tokens > 0 && entry.max_tokens <= entry.context_window, "{key:?}");
            assert!(entry.cost.output >= entry.cost.input && entry.cost.input > 0.0, "{key:?}");
            assert!(entry.reasoning || entry.thinking.is_none(), "{key:?}");
            assert!(entry.base_url.starts_with("https://"), "{key:?}");
        }
    }

    #[test]
    fn every_provider_that_is_promised_has_a_model() {
        let providers: BTreeSet<_> = builtin_models().iter().map(|entry| entry.provider.as_str()).collect();
        let want = ["anthropic", "cerebras", "google", "groq", "mistral", "openai", "openrouter", "xai"];
        assert_eq!(providers.into_iter().collect::<Vec<_>>(), want);
    }
}
