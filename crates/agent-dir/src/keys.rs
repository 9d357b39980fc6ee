//! The key of a provider.
//!
//! It must not know where a key is sent. Source: docs/protocol/omp.md, Configuration: `--api-key`, then the
//! environment, then `models.yml`. The original's database of stored keys (`agent.db`) is not read.

use secrecy::SecretString;

use super::{
    ProcessEnvironment,
    models_file::{ModelProvider, ProviderAuth},
};

/// The variables that hold a provider's key, the first that is set wins.
const VARIABLES: [(&str, &[&str]); 24] = [
    ("anthropic", &["ANTHROPIC_OAUTH_TOKEN", "ANTHROPIC_API_KEY"]),
    ("openai", &["OPENAI_API_KEY"]),
    ("google", &["GEMINI_API_KEY"]),
    ("groq", &["GROQ_API_KEY"]),
    ("cerebras", &["CEREBRAS_API_KEY"]),
    ("xai", &["XAI_API_KEY"]),
    ("openrouter", &["OPENROUTER_API_KEY"]),
    ("mistral", &["MISTRAL_API_KEY"]),
    ("zai", &["ZAI_API_KEY"]),
    ("together", &["TOGETHER_API_KEY"]),
    ("moonshot", &["MOONSHOT_API_KEY"]),
    ("nvidia", &["NVIDIA_API_KEY"]),
    ("huggingface", &["HF_TOKEN"]),
    ("deepseek", &["DEEPSEEK_API_KEY"]),
    ("fireworks", &["FIREWORKS_API_KEY"]),
    ("minimax", &["MINIMAX_API_KEY"]),
    ("github-copilot", &["COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN"]),
    ("azure-openai-responses", &["AZURE_OPENAI_API_KEY"]),
    ("azure-openai", &["AZURE_OPENAI_API_KEY"]),
    ("vllm", &["VLLM_API_KEY"]),
    ("litellm", &["LITELLM_API_KEY"]),
    ("ollama", &["OLLAMA_API_KEY"]),
    ("lm-studio", &["LM_STUDIO_API_KEY"]),
    ("llama.cpp", &["LLAMA_CPP_API_KEY"]),
];

/// Returns every variable that may hold a key: tools must not inherit them.
pub fn key_variables() -> impl Iterator<Item = &'static str> {
    VARIABLES.iter().flat_map(|(_, names)| names.iter().copied())
}

/// Returns the providers that are known to take a key from a variable.
pub(super) fn known_providers() -> impl Iterator<Item = &'static str> {
    VARIABLES.iter().map(|(provider, _)| *provider)
}

/// Credential of requests to a provider.
#[derive(Clone, Debug)]
pub enum ProviderCredential {
    /// A key.
    Key(SecretString),
    /// No key is needed.
    Keyless,
}

/// The keys of this process by provider. None of them is printed.
#[derive(Clone, Debug, Default)]
pub struct ProviderKeys {
    environment: ProcessEnvironment,
    given: Option<(String, SecretString)>,
}

impl ProviderKeys {
    /// Reads keys from `environment`, to which the `.env` files were added.
    pub const fn new(environment: ProcessEnvironment) -> Self {
        Self { environment, given: None }
    }

    /// Takes the value of `--api-key` for `provider`, before all others.
    pub fn give_key(&mut self, provider: &str, key: SecretString) {
        self.given = Some((provider.to_owned(), key));
    }

    /// Returns the credential for `provider`, whose settings are `settings`.
    pub fn credential(&self, provider: &str, settings: Option<&ModelProvider>) -> Option<ProviderCredential> {
        if let Some((_, key)) = self.given.as_ref().filter(|(name, _)| name == provider) {
            return Some(ProviderCredential::Key(key.clone()));
        }
        if settings.is_some_and(|settings| settings.auth == ProviderAuth::None) {
            return Some(ProviderCredential::Keyless);
        }
        self.of_environment(provider)
            .or_else(|| settings?.api_key.as_deref().and_then(|key| self.named_key(key)))
            .map(ProviderCredential::Key)
    }

    /// Returns the names of providers whose key is in the environment or was given.
    pub(super) fn keyed_providers(&self) -> impl Iterator<Item = &str> {
        let set = VARIABLES.iter().map(|(provider, _)| *provider);
        set.filter(|provider| self.of_environment(provider).is_some())
            .chain(self.given.iter().map(|(provider, _)| provider.as_str()))
    }

    fn of_environment(&self, provider: &str) -> Option<SecretString> {
        let (_, names) = VARIABLES.iter().find(|(name, _)| *name == provider)?;
        names.iter().find_map(|name| self.environment.get(name)).map(SecretString::from)
    }

    /// Returns a key as `models.yml` gives it: the name of a variable that is set, else the key itself.
    fn named_key(&self, key: &str) -> Option<SecretString> {
        let key = self.environment.get(key).unwrap_or(key);
        (!key.is_empty()).then(|| SecretString::from(key))
    }
}

#[cfg(test)]
mod tests {
    use secrecy::{ExposeSecret as _, SecretString};

    use super::{ProviderCredential, ProviderKeys};
    use crate::models_file::{ModelProvider, ProviderAuth};

    #[test]
    fn a_key_comes_from_the_strongest_source() {
        let environment =
            [("OPENAI_API_KEY", "env"), ("ANTHROPIC_API_KEY", "a"), ("ANTHROPIC_OAUTH_TOKEN", "o"), ("LOCAL_KEY", "l")];
        let mut keys = ProviderKeys::new(environment.into_iter().collect());
        keys.give_key("groq", SecretString::from("sk-of-groq"));
        let with = |key: &str, auth| ModelProvider { api_key: Some(key.to_owned()), auth, ..ModelProvider::default() };
        for (case, provider, settings, want) in [
            ("given", "groq", Some(with("literal", ProviderAuth::ApiKey)), Some("sk-of-groq")),
            ("environment before the file", "openai", Some(with("literal", ProviderAuth::ApiKey)), Some("env")),
            ("token before key", "anthropic", None, Some("o")),
            ("named variable", "local", Some(with("LOCAL_KEY", ProviderAuth::ApiKey)), Some("l")),
            ("literal", "local", Some(with("sk-1", ProviderAuth::ApiKey)), Some("sk-1")),
            ("variable that is not set", "local", Some(with("OTHER_KEY", ProviderAuth::ApiKey)), Some("OTHER_KEY")),
            ("empty", "local", Some(with("", ProviderAuth::ApiKey)), None),
            ("keyless", "local", Some(with("sk-1", ProviderAuth::None)), Some("")),
            ("unknown", "local", None, None),
        ] {
            let got = keys.credential(provider, settings.as_ref()).map(|credential| match credential {
                ProviderCredential::Key(key) => key.expose_secret().to_owned(),
                ProviderCredential::Keyless => String::new(),
            });
            assert_eq!(got.as_deref(), want, "{case}");
        }
        assert!(!format!("{keys:?}").contains("sk-of-groq"));
    }
}
