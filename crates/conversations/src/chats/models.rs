//! The models that the gateway's own runs can use, and their credentials.

use std::sync::Arc;

use countersign_config::{Config, ProviderConfig};
use countersign_core::session::ModelRef;
use countersign_runtime::{
    ResolvedModel, model_ref,
    models::{LanguageModel, ModelApi, ModelEntry, ProviderClient, catalogue, demo},
};
use secrecy::{ExposeSecret as _, SecretString};

struct ListedModel {
    /// Without the headers of its provider, which may be secret.
    entry: Arc<ModelEntry>,
    /// Entry that is sent with each request.
    request_entry: Arc<ModelEntry>,
    key: Option<SecretString>,
}

/// The models of the configuration, those that are built in of a provider with a key, and the scripted one.
pub struct GatewayModels {
    listed: Vec<ListedModel>,
    usual: Option<ModelRef>,
    providers: Arc<dyn LanguageModel>,
}

impl GatewayModels {
    /// Makes the models of `config`.
    pub fn from_config(config: &Config) -> Self {
        let mut listed = Vec::new();
        for (name, provider) in &config.providers {
            let builtin = catalogue::builtin_models().iter().filter(|entry| entry.provider == *name);
            let builtin = builtin.filter(|entry| provider.models.iter().all(|own| own.id != entry.id));
            for entry in provider.models.iter().chain(builtin) {
                listed.push(ListedModel::new(entry, provider));
            }
        }
        let scripted = Arc::new(demo::model_entry());
        listed.push(ListedModel { entry: Arc::clone(&scripted), request_entry: scripted, key: None });
        let mut models = Self { listed, usual: None, providers: Arc::new(ProviderClient::default()) };
        models.usual = config.model.as_ref().and_then(|model| models.find_model(Some(&model.provider), &model.id));
        models
    }

    /// Returns the model of sessions that name none.
    pub fn default_model(&self) -> Option<ModelRef> {
        self.usual.clone()
    }

    /// Returns a model by the id at its provider; without a provider the first that has it.
    pub fn find_model(&self, provider: Option<&str>, id: &str) -> Option<ModelRef> {
        // Some clients write the provider before the id.
        let at_provider = id.strip_prefix('@').and_then(|id| id.split_once(':'));
        let at_provider = at_provider.filter(|(before, _)| self.has_provider(before));
        let (provider, id) = at_provider.map_or((provider, id), |(before, rest)| (Some(before), rest));
        let (provider, id) = match (provider, id.split_once('/')) {
            (None, Some((before, rest))) if self.has_provider(before) => (Some(before), rest),
            _ => (provider, id),
        };
        let fits = |entry: &ModelEntry| entry.id == id && provider.is_none_or(|provider| entry.provider == provider);
        self.entries().find(|entry| fits(entry)).map(model_ref)
    }

    /// Returns a model by provider and id, also one that is built in and whose provider the configuration does not have.
    pub fn find_known(&self, provider: &str, id: &str) -> Option<ModelRef> {
        self.find_model(Some(provider), id).or_else(|| builtin_entry(provider, id).map(model_ref))
    }

    /// Returns the models that sessions can use from now on: those that are listed, but for the scripted one, and those that are built in
    /// of other providers for which `has_key` says that there is a key.
    pub fn usable_models(&self, has_key: impl Fn(&str) -> bool) -> Vec<ModelRef> {
        let listed = self.entries().filter(|entry| entry.provider != demo::PROVIDER);
        let more = catalogue::builtin_models().iter();
        let more = more.filter(|entry| !self.has_provider(&entry.provider) && has_key(&entry.provider));
        listed.chain(more).map(model_ref).collect()
    }

    /// Returns a model with a key that goes before that of the configuration, if there is one.
    ///
    /// # Errors
    /// The reason why the model is unavailable.
    pub fn choose_with(&self, model: &ModelRef, key: Option<SecretString>) -> Result<ResolvedModel, ModelUnavailable> {
        let (provider, id) = (&model.provider, &model.id);
        let found = self.choose_model(model).ok();
        let found = found.or_else(|| {
            let entry = Arc::new(builtin_entry(provider, id)?.clone());
            Some(ResolvedModel { entry, key: None, model: Arc::clone(&self.providers) })
        });
        let mut chosen =
            found.ok_or_else(|| ModelUnavailable::NoModel { provider: provider.clone(), id: id.clone() })?;
        chosen.key = key.or(chosen.key);
        // A provider that the configuration lists without a key needs none: it is the user's own.
        let needs_key = chosen.key.is_none() && self.find_model(Some(provider), id).is_none();
        if needs_key { Err(ModelUnavailable::NoKey { provider: provider.clone() }) } else { Ok(chosen) }
    }

    fn has_provider(&self, name: &str) -> bool {
        self.entries().any(|entry| entry.provider == name)
    }

    /// Returns all of them, by provider.
    pub fn entries(&self) -> impl Iterator<Item = &ModelEntry> {
        self.listed.iter().map(|listed| &*listed.entry)
    }

    /// Returns a model that is ready for requests.
    ///
    /// # Errors
    /// The reason why it is not available, for people.
    pub fn choose_model(&self, model: &ModelRef) -> Result<ResolvedModel, String> {
        let named = |listed: &&ListedModel| listed.entry.provider == model.provider && listed.entry.id == model.id;
        let found = self.listed.iter().find(named);
        let found = found.ok_or_else(|| format!("this gateway has no model {}/{}", model.provider, model.id))?;
        let client: Arc<dyn LanguageModel> = match found.entry.api {
            ModelApi::Demo => Arc::new(demo::DemoModel),
            _ => Arc::clone(&self.providers),
        };
        Ok(ResolvedModel { entry: Arc::clone(&found.request_entry), key: found.key.clone(), model: client })
    }
}

fn builtin_entry(provider: &str, id: &str) -> Option<&'static ModelEntry> {
    catalogue::builtin_models().iter().find(|entry| entry.provider == provider && entry.id == id)
}

/// Reason why a model is not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelUnavailable {
    /// No model has this name.
    #[error("Model not found: {provider}/{id}")]
    NoModel {
        /// Its provider.
        provider: String,
        /// Its id there.
        id: String,
    },
    /// The provider needs a key.
    #[error("API key not configured for provider: {provider}")]
    NoKey {
        /// Name of the provider.
        provider: String,
    },
}

impl ListedModel {
    fn new(entry: &ModelEntry, provider: &ProviderConfig) -> Self {
        let mut entry = entry.clone();
        if let Some(url) = &provider.base_url {
            entry.base_url.clone_from(url);
        }
        let mut request_entry = entry.clone();
        let headers = provider.headers.iter().map(|(name, value)| (name.clone(), value.expose_secret().to_owned()));
        request_entry.headers.extend(headers);
        Self { entry: Arc::new(entry), request_entry: Arc::new(request_entry), key: provider.api_key.clone() }
    }
}
