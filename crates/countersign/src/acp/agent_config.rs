//! The configuration of a gateway for editors: models, keys and rules of an agent directory.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::bail;
use countersign_agent_dir::{
    AgentDir, AgentProduct, AgentSettings, ModelRoster, ModelsFile, ProcessEnvironment, ProviderKeys,
    keys::ProviderCredential, roster::ModelPreference,
};
use countersign_config::{Config, ConfigFlags, LoadedConfig, ModelSelection, ProviderConfig};
use countersign_gateway::control::AcpOptions;
use countersign_models::{catalogue, demo};
use secrecy::{ExposeSecret as _, SecretString};

use crate::serve::ServeOptions;

/// Folder of the gateway's data in the agent directory.
const DATA: &str = "countersign-acp";

/// An agent directory, and the choices of the command line over it.
pub(super) struct AgentConfig {
    folder: AgentDir,
    settings: AgentSettings,
    pub(super) options: AcpOptions,
}

impl AgentConfig {
    /// Reads the settings of the directory that is named, or of the usual one.
    pub(super) fn read(named: Option<&Path>, mut options: AcpOptions) -> anyhow::Result<Self> {
        let folder = match named {
            Some(named) => {
                if !named.is_dir() {
                    bail!("--agent-dir {}: there is no such folder", named.display());
                }
                AgentDir::at_root(std::path::absolute(named)?)
            }
            None => {
                let environment = ProcessEnvironment::of_process();
                AgentDir::resolve(AgentProduct::Omp, &environment, &std::env::current_dir()?, Path::exists)?
            }
        };
        // Sessions have folders of their own, so no project's settings count.
        let settings = AgentSettings::load(&folder, folder.root())?;
        let unenforced = unenforced_settings(&settings);
        if !unenforced.is_empty() {
            bail!(
                "{}: {} cannot be enforced by `countersign acp`: write them as rules in {}",
                folder.config_path().display(),
                unenforced.join(", "),
                folder.permissions_path().display()
            );
        }
        options.approval = options.approval.max(settings.restrictions.approval);
        Ok(Self { folder, settings, options })
    }

    /// Returns the data directory of the gateway.
    pub(super) fn data_dir(&self) -> PathBuf {
        self.folder.root().join(DATA)
    }

    /// Returns the configuration, and the choices for the editor's connection.
    pub(super) fn load(mut self) -> anyhow::Result<(LoadedConfig, AcpOptions)> {
        let permissions = Some(self.folder.permissions_path()).filter(|path| path.exists());
        // Of several such gateways none has a claim to a certain port.
        let flags = ConfigFlags { data: Some(self.data_dir()), port: Some(0), permissions, ..ConfigFlags::default() };
        let mut loaded = ServeOptions { config: None, flags }.load()?;
        let [models, older] = self.folder.models_paths();
        // It may have keys: no tool of a session reads it.
        loaded.config.file = Some(if older.exists() && !models.exists() { older } else { models });
        loaded.config.sandbox = self.settings.ours.sandbox.clone();
        loaded.warnings.append(&mut self.settings.restrictions.notices);
        let problems = self.fill_models(&mut loaded.config)?;
        loaded.warnings.extend(problems);
        Ok((loaded, self.options))
    }

    /// Sets the models and their keys, and returns the problems with the file of models.
    fn fill_models(&mut self, config: &mut Config) -> anyhow::Result<Vec<String>> {
        let mut environment = ProcessEnvironment::of_process();
        environment.add_file(&self.folder.home().join(".env"));
        let keys = ProviderKeys::new(environment);
        let roster = ModelRoster::new(ModelsFile::load(&self.folder), keys, catalogue::builtin_models)
            .with_restrictions(self.settings.restrictions.clone());
        config.providers = usable_providers(&roster);
        // The connection names a model of this gateway by its exact id.
        let (provider, model) = (self.options.provider.take(), self.options.model.take());
        let chosen = if provider.as_deref() == Some(demo::PROVIDER) {
            ModelSelection { provider: demo::PROVIDER.to_owned(), id: demo::MODEL.to_owned() }
        } else {
            let wish = ModelPreference {
                provider: provider.as_deref(),
                model: model.as_deref(),
                scoped: &[],
                saved: self.settings.default_model(),
            };
            let choice = roster.initial_model(wish).map_err(|error| anyhow::anyhow!(error.text_for(&self.folder)))?;
            let (provider, id) = (choice.entry.provider, choice.entry.id);
            if !config.providers.contains_key(&provider) {
                bail!("no key for the provider {provider}: set it in the environment or in models.yml");
            }
            ModelSelection { provider, id }
        };
        self.options.provider = Some(chosen.provider.clone());
        self.options.model = Some(chosen.id.clone());
        config.model = Some(chosen);
        Ok(roster.problems().to_vec())
    }
}

/// Returns the models that have a key or need none, by provider.
fn usable_providers(roster: &ModelRoster) -> BTreeMap<String, ProviderConfig> {
    let mut providers: BTreeMap<String, ProviderConfig> = BTreeMap::new();
    for entry in roster.available_models() {
        let provider = providers.entry(entry.provider.clone()).or_insert_with(|| {
            let api_key = match roster.credential(&entry.provider) {
                Some(ProviderCredential::Key(key)) => Some(key),
                Some(ProviderCredential::Keyless) | None => None,
            };
            let bearer = api_key.as_ref().filter(|_| roster.sends_bearer(&entry.provider));
            let bearer = bearer
                .map(|key| ("Authorization".to_owned(), SecretString::from(format!("Bearer {}", key.expose_secret()))));
            ProviderConfig { api: None, base_url: None, api_key, headers: bearer.into_iter().collect(), models: vec![] }
        });
        let mut entry = entry.clone();
        // They may be secret, and models are listed to people.
        let headers = std::mem::take(&mut entry.headers);
        provider.headers.extend(headers.into_iter().map(|(name, value)| (name, SecretString::from(value))));
        provider.models.push(entry);
    }
    providers
}

/// Returns the settings that take rights away and that only the adapter of omp enforces.
fn unenforced_settings(settings: &AgentSettings) -> Vec<&'static str> {
    let restrictions = &settings.restrictions;
    let set = [
        ("disabled tools (<tool>.enabled)", !restrictions.withheld.is_empty()),
        ("tools.approval or bash.patterns", !restrictions.rule_sources().is_empty()),
        ("images.blockImages", restrictions.blocks_images),
        ("tools.maxTimeout", restrictions.longest.is_some()),
        ("bashInterceptor", restrictions.intercepts),
    ];
    set.into_iter().filter_map(|(name, is_set)| is_set.then_some(name)).collect()
}
