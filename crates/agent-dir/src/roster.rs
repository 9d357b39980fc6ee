//! The available models, those that can be used, and the one that a query means.
//!
//! It must not know how requests to a model are made. Source: docs/protocol/omp.md, Configuration.
//!
//! The built-in catalogue is read only when the user's own models do not decide.

use std::{cell::OnceCell, collections::BTreeSet};

use countersign_runtime::models::entry::{ModelEntry, ThinkingLevel};

use super::{AgentDir, ModelsFile, ProviderKeys, Restrictions, keys::ProviderCredential, models_file::ModelProvider};

mod pattern;

/// Default models of a provider: parts of ids, the first that is there wins.
const PREFERRED: [(&str, &[&str]); 9] = [
    ("anthropic", &["claude-sonnet-4-6", "claude-sonnet-4-5", "claude-sonnet-4", "claude"]),
    ("openai", &["gpt-5.2", "gpt-5.1", "gpt-5", "gpt-4.1"]),
    ("google", &["gemini-3-pro", "gemini-2.5-pro", "gemini"]),
    ("openrouter", &["anthropic/claude-sonnet", "openai/gpt-5"]),
    ("xai", &["grok-4", "grok"]),
    ("groq", &["gpt-oss-120b", "llama-3.3-70b"]),
    ("cerebras", &["glm", "gpt-oss-120b"]),
    ("mistral", &["devstral", "mistral-large"]),
    ("zai", &["glm-4.7", "glm-4.6", "glm"]),
];

/// Some of the variables that keys are looked for in, those of the providers that most people have.
const LOOKED_FOR: [&str; 3] = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"];

/// A chosen model, and its thinking level if the query has one.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelChoice {
    /// The model.
    pub entry: ModelEntry,
    /// Level after a colon that followed its name.
    pub level: Option<ThinkingLevel>,
}

/// Nothing fits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChooseError {
    /// No model has such a name.
    #[error("Model not found: {0}")]
    Unknown(String),
    /// No provider has such a name, or none of its models is known.
    #[error("Model not found: there is no provider {0:?} with models")]
    Provider(String),
    /// Settings take its models away.
    #[error("the provider {0:?} is switched off by disabledProviders or enabledProviders of config.yml")]
    Disabled(String),
    /// No model has a provider with a key.
    #[error(
        "no usable model: set a provider's key in the environment ({} and so on), add a provider to models.yml in the agent directory (~/.omp/agent or ~/.gjc/agent, if no variable names another), or try --provider demo",
        LOOKED_FOR.join(", ")
    )]
    None,
}

impl ChooseError {
    /// Returns the text of the error for an agent directory, with the path of its models.
    pub fn text_for(&self, folder: &AgentDir) -> String {
        let Self::None = self else { return self.to_string() };
        let [models, _] = folder.models_paths();
        format!(
            "no usable model: set a provider's key in the environment ({} and so on), add a provider to {}, or try --provider demo",
            LOOKED_FOR.join(", "),
            models.display()
        )
    }
}

/// Preferences for the first model of a session.
#[derive(Clone, Copy, Debug, Default)]
pub struct ModelPreference<'a> {
    /// `--provider`.
    pub provider: Option<&'a str>,
    /// `--model`.
    pub model: Option<&'a str>,
    /// The models that are cycled through.
    pub scoped: &'a [ModelChoice],
    /// The model that was chosen last.
    pub saved: Option<&'a str>,
}

/// All models and the keys of their providers.
pub struct ModelRoster {
    file: ModelsFile,
    keys: ProviderKeys,
    builtin: fn() -> &'static [ModelEntry],
    merged: OnceCell<Vec<ModelEntry>>,
    restrictions: Option<Restrictions>,
}

impl ModelRoster {
    /// Puts the models of `file` over those that `builtin` lists.
    pub const fn new(file: ModelsFile, keys: ProviderKeys, builtin: fn() -> &'static [ModelEntry]) -> Self {
        Self { file, keys, builtin, merged: OnceCell::new(), restrictions: None }
    }

    /// Leaves the models of providers that `restrictions` permit.
    pub fn with_restrictions(self, restrictions: Restrictions) -> Self {
        Self { restrictions: Some(restrictions), ..self }
    }

    fn permits_provider(&self, provider: &str) -> bool {
        self.restrictions.as_ref().is_none_or(|restrictions| restrictions.permits_provider(provider))
    }

    /// Returns the problems with `models.yml`, one line each.
    pub fn problems(&self) -> &[String] {
        &self.file.problems
    }

    /// Takes the value of `--api-key` for `provider`.
    pub fn give_key(&mut self, provider: &str, key: secrecy::SecretString) {
        self.keys.give_key(provider, key);
    }

    /// Returns the variables that the user's own providers take their keys from.
    pub fn key_variables(&self) -> Vec<String> {
        let keys = self.file.providers.values().filter_map(|provider| provider.api_key.clone());
        keys.filter(|key| key.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')).collect()
    }

    /// Returns the credential of `provider`; `None` if it needs a key and there is none.
    pub fn credential(&self, provider: &str) -> Option<ProviderCredential> {
        self.keys.credential(provider, self.file.providers.get(provider))
    }

    /// Returns every provider that may have a key: the user's own, and those that the environment may have one for.
    pub fn provider_names(&self) -> BTreeSet<String> {
        self.file.providers.keys().cloned().chain(super::keys::known_providers().map(str::to_owned)).collect()
    }

    /// Reports whether the key of `provider` also travels as `Authorization: Bearer`.
    pub fn sends_bearer(&self, provider: &str) -> bool {
        self.file.providers.get(provider).is_some_and(|provider| provider.auth_header)
    }

    /// Returns all models that can be used: those whose provider has a key or needs none. The user's own come first.
    pub fn available_models(&self) -> Vec<&ModelEntry> {
        let entries: Box<dyn Iterator<Item = &ModelEntry>> =
            if self.needs_builtin() { Box::new(self.all_models().iter()) } else { Box::new(self.own_models()) };
        entries.filter(|entry| self.credential(&entry.provider).is_some()).collect()
    }

    /// Returns the model with exactly this provider and id.
    pub fn exact_model(&self, provider: &str, id: &str) -> Option<&ModelEntry> {
        let is = |entry: &&ModelEntry| entry.provider == provider && entry.id == id;
        self.own_models().find(is).or_else(|| self.all_models().iter().find(is))
    }

    /// Returns the model that `--provider` and `--model` mean: `id`, `provider/id`, either with `:level` after it, or a part
    /// of an id or name.
    ///
    /// # Errors
    /// [`ChooseError::Unknown`] if no model fits.
    pub fn find_model(&self, provider: Option<&str>, query: &str) -> Result<ModelChoice, ChooseError> {
        let unknown = || {
            let provider = provider.map(|provider| format!("{provider}/")).unwrap_or_default();
            ChooseError::Unknown(format!("{provider}{query}"))
        };
        let exact = |entries: &[&ModelEntry]| pattern::exact_match(entries, provider, query);
        if let Some(choice) =
            exact(&self.own_models().collect::<Vec<_>>()).filter(|_| provider.is_some() || query.contains('/'))
        {
            return Ok(choice);
        }
        let all: Vec<&ModelEntry> = self.all_models().iter().collect();
        let available: Vec<&ModelEntry> =
            all.iter().copied().filter(|entry| self.credential(&entry.provider).is_some()).collect();
        exact(&available)
            .or_else(|| exact(&all))
            .or_else(|| pattern::fuzzy_match(&available, provider, query))
            .or_else(|| pattern::fuzzy_match(&all, provider, query))
            .ok_or_else(unknown)
    }

    /// Returns the models that `patterns` mean (`--models`, `enabledModels`), each once, in the order of the patterns; and the
    /// patterns that mean none. A pattern may have `*`, `?` and `[…]`.
    pub fn scoped_models<'p>(&self, patterns: &[&'p str]) -> (Vec<ModelChoice>, Vec<&'p str>) {
        let (mut choices, mut unmatched): (Vec<ModelChoice>, _) = (Vec::new(), Vec::new());
        if patterns.is_empty() {
            return (choices, unmatched);
        }
        let available = self.available_models();
        for query in patterns {
            let found = pattern::all_matches(&available, query);
            if found.is_empty() {
                unmatched.push(*query);
            }
            for choice in found {
                let known = |other: &ModelChoice| {
                    other.entry.provider == choice.entry.provider && other.entry.id == choice.entry.id
                };
                if !choices.iter().any(known) {
                    choices.push(choice);
                }
            }
        }
        (choices, unmatched)
    }

    /// Returns the first model of a session: the command line, the first that is cycled through, the one chosen last, the
    /// provider's default, any.
    ///
    /// # Errors
    /// [`ChooseError::Unknown`] and [`ChooseError::Provider`] if the command line names a missing one; [`ChooseError::None`]
    /// if there is none to use.
    pub fn initial_model(&self, wish: ModelPreference<'_>) -> Result<ModelChoice, ChooseError> {
        let before = wish.model.and_then(|model| model.split_once('/')).map(|(provider, _)| provider);
        if let Some(provider) = wish.provider.or(before).filter(|provider| !self.permits_provider(provider)) {
            return Err(ChooseError::Disabled(provider.to_owned()));
        }
        if let Some(model) = wish.model {
            return self.find_model(wish.provider, model);
        }
        let plain = |entry: &ModelEntry| ModelChoice { entry: entry.clone(), level: None };
        if let Some(provider) = wish.provider {
            let entries: Vec<&ModelEntry> =
                self.all_models().iter().filter(|entry| entry.provider == provider).collect();
            return preferred_model(&entries, provider)
                .or_else(|| entries.first().copied())
                .map(plain)
                .ok_or_else(|| ChooseError::Provider(provider.to_owned()));
        }
        if let Some(first) = wish.scoped.first() {
            return Ok(first.clone());
        }
        let usable = |choice: &ModelChoice| self.credential(&choice.entry.provider).is_some();
        if let Some(choice) = wish.saved.and_then(|saved| self.saved_model(saved)).filter(usable) {
            return Ok(choice);
        }
        let available = self.available_models();
        PREFERRED
            .iter()
            .find_map(|(provider, _)| preferred_model(&available, provider))
            .or_else(|| available.first().copied())
            .map(plain)
            .ok_or(ChooseError::None)
    }

    /// Returns a saved model. It is never guessed: it is there or it is not.
    fn saved_model(&self, saved: &str) -> Option<ModelChoice> {
        let own: Vec<&ModelEntry> = self.own_models().collect();
        pattern::exact_match(&own, None, saved)
            .filter(|_| saved.contains('/'))
            .or_else(|| pattern::exact_match(&self.all_models().iter().collect::<Vec<_>>(), None, saved))
    }

    fn own_models(&self) -> impl Iterator<Item = &ModelEntry> {
        let models = self.file.providers.values().flat_map(|provider| &provider.models);
        models.filter(|entry| self.permits_provider(&entry.provider))
    }

    /// Reports whether a built-in model could be usable.
    fn needs_builtin(&self) -> bool {
        self.merged.get().is_some()
            || self.keys.keyed_providers().next().is_some()
            || self.file.providers.iter().any(|(name, provider)| {
                let changes_builtin = provider.models.is_empty() || !provider.overrides.is_empty();
                changes_builtin && self.credential(name).is_some()
            })
    }

    fn all_models(&self) -> &[ModelEntry] {
        self.merged.get_or_init(|| {
            let mut all: Vec<ModelEntry> = self.own_models().cloned().collect();
            let own = all.len();
            for entry in (self.builtin)() {
                let replaced = all[..own].iter().any(|mine| mine.provider == entry.provider && mine.id == entry.id);
                if !replaced && self.permits_provider(&entry.provider) {
                    all.push(overridden_entry(entry, self.file.providers.get(&entry.provider)));
                }
            }
            all
        })
    }
}

fn overridden_entry(entry: &ModelEntry, provider: Option<&ModelProvider>) -> ModelEntry {
    let mut entry = entry.clone();
    if let Some(provider) = provider {
        if let Some(url) = &provider.base_url {
            entry.base_url.clone_from(url);
        }
        entry.headers.extend(provider.headers.clone());
        entry.tells_usage = provider.tells_usage.unwrap_or(entry.tells_usage);
        if let Some(changes) = provider.overrides.get(&entry.id) {
            changes.apply_to(&mut entry);
        }
    }
    entry
}

fn preferred_model<'a>(entries: &[&'a ModelEntry], provider: &str) -> Option<&'a ModelEntry> {
    let (_, parts) = PREFERRED.iter().find(|(name, _)| *name == provider)?;
    parts.iter().find_map(|part| pattern::best_match(entries, Some(provider), part))
}

#[cfg(test)]
mod tests;
