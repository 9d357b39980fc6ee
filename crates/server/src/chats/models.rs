//! Which models the gateway's own runs can ask, and with what credentials.

use std::sync::Arc;

use countersign_core::session::ModelRef;
use countersign_runtime::{
    Chosen,
    models::{Api, Entry, Model, Providers, catalogue, demo},
    reference,
};
use secrecy::{ExposeSecret as _, SecretString};

use crate::config::{Config, Provider};

struct Listed {
    /// Without the headers of its provider, which may be secret.
    entry: Arc<Entry>,
    /// What is sent with each request.
    asked: Arc<Entry>,
    key: Option<SecretString>,
}

/// The models of the configuration, those that are built in of a provider with a key, and the scripted one.
pub(crate) struct Models {
    listed: Vec<Listed>,
    usual: Option<ModelRef>,
    providers: Arc<dyn Model>,
}

impl Models {
    /// Those of `config`.
    pub(crate) fn of(config: &Config) -> Self {
        let mut listed = Vec::new();
        for (name, provider) in &config.providers {
            let builtin = catalogue::builtin().iter().filter(|entry| entry.provider == *name);
            let builtin = builtin.filter(|entry| provider.models.iter().all(|own| own.id != entry.id));
            for entry in provider.models.iter().chain(builtin) {
                listed.push(Listed::new(entry, provider));
            }
        }
        let scripted = Arc::new(demo::entry());
        listed.push(Listed { entry: Arc::clone(&scripted), asked: scripted, key: None });
        let mut models = Self { listed, usual: None, providers: Arc::new(Providers::default()) };
        models.usual = config.model.as_ref().and_then(|model| models.find(Some(&model.provider), &model.id));
        models
    }

    /// The model of sessions that name none.
    pub(crate) fn usual(&self) -> Option<ModelRef> {
        self.usual.clone()
    }

    /// A model by the id at its provider; without a provider the first that has it.
    pub(crate) fn find(&self, provider: Option<&str>, id: &str) -> Option<ModelRef> {
        // Some clients write the provider before the id.
        let (provider, id) = match (provider, id.split_once('/')) {
            (None, Some((before, rest))) if self.has_provider(before) => (Some(before), rest),
            _ => (provider, id),
        };
        let fits = |entry: &Entry| entry.id == id && provider.is_none_or(|provider| entry.provider == provider);
        self.entries().find(|entry| fits(entry)).map(reference)
    }

    fn has_provider(&self, name: &str) -> bool {
        self.entries().any(|entry| entry.provider == name)
    }

    /// All of them, by provider.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.listed.iter().map(|listed| &*listed.entry)
    }

    /// How a model is asked.
    ///
    /// # Errors
    /// Why it cannot be, for people.
    pub(crate) fn choose(&self, model: &ModelRef) -> Result<Chosen, String> {
        let named = |listed: &&Listed| listed.entry.provider == model.provider && listed.entry.id == model.id;
        let found = self.listed.iter().find(named);
        let found = found.ok_or_else(|| format!("this gateway has no model {}/{}", model.provider, model.id))?;
        let asked: Arc<dyn Model> = match found.entry.api {
            Api::Demo => Arc::new(demo::Demo),
            _ => Arc::clone(&self.providers),
        };
        Ok(Chosen { entry: Arc::clone(&found.asked), key: found.key.clone(), model: asked })
    }
}

impl Listed {
    fn new(entry: &Entry, provider: &Provider) -> Self {
        let mut entry = entry.clone();
        if let Some(url) = &provider.base_url {
            entry.base_url.clone_from(url);
        }
        let mut asked = entry.clone();
        let headers = provider.headers.iter().map(|(name, value)| (name.clone(), value.expose_secret().to_owned()));
        asked.headers.extend(headers);
        Self { entry: Arc::new(entry), asked: Arc::new(asked), key: provider.api_key.clone() }
    }
}
