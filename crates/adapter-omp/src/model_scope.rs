//! Models that an adapter may cycle through, and the first of them. Source: docs/protocol/omp.md, Fields that restrict.

use countersign_agent_dir::{
    AgentSettings, ModelChoice, ModelRoster,
    roster::{ChooseError, ModelPreference},
};
use countersign_runtime::models::{ModelApi, demo};

use super::flags::AdapterFlags;

/// Returns the models that are cycled through: those that the flag and the settings of every file mean.
pub(super) fn scope_models(
    flags: &AdapterFlags,
    settings: &AgentSettings,
    roster: &mut ModelRoster,
    notice: &impl Fn(&str),
) -> Result<Vec<ModelChoice>, String> {
    let provider = match (&flags.model, &flags.provider) {
        (Some(model), provider) => {
            roster.find_model(provider.as_deref(), model).ok().map(|choice| choice.entry.provider)
        }
        (None, provider) => provider.clone(),
    };
    if let (Some(key), Some(provider)) = (&flags.api_key, provider) {
        // Its models are usable ones.
        roster.give_key(&provider, secrecy::SecretString::from(key.clone()));
    }
    let sets = [("--models", &flags.models), ("enabledModels", &settings.enabled_models)].into_iter();
    let sets = sets.chain(settings.restrictions.scopes.iter().map(|set| ("enabledModels", set)));
    let mut scoped: Option<Vec<ModelChoice>> = None;
    for (name, set) in sets.filter(|(_, set)| !set.is_empty()) {
        let patterns: Vec<&str> = set.iter().map(String::as_str).collect();
        let (found, unmatched) = roster.scoped_models(&patterns);
        for pattern in unmatched {
            notice(&format!("no usable model matches {pattern}"));
        }
        let is_same = |one: &ModelChoice, other: &ModelChoice| {
            (&one.entry.provider, &one.entry.id) == (&other.entry.provider, &other.entry.id)
        };
        let left = match scoped {
            None => found,
            Some(before) => before.into_iter().filter(|one| found.iter().any(|other| is_same(one, other))).collect(),
        };
        // Without a usable model nothing is cycled through, and the start says so.
        if left.is_empty() && !roster.available_models().is_empty() {
            return Err(format!("{name} {}: no usable model is left to cycle through", set.join(",")));
        }
        scoped = Some(left);
    }
    Ok(scoped.unwrap_or_default())
}

/// Returns the model to begin with. A key from the command line is for its provider.
pub(super) fn initial_model(
    flags: &AdapterFlags,
    settings: &AgentSettings,
    roster: &mut ModelRoster,
    scoped: &[ModelChoice],
) -> Result<ModelChoice, ChooseError> {
    let is_demo = flags.provider.as_deref() == Some(demo::PROVIDER)
        || flags.model.as_deref().is_some_and(|model| model.split('/').next() == Some(demo::PROVIDER));
    if is_demo && settings.restrictions.permits_provider(demo::PROVIDER) {
        return Ok(ModelChoice { entry: demo::model_entry(), level: None });
    }
    let wish = ModelPreference {
        provider: flags.provider.as_deref(),
        model: flags.model.as_deref(),
        scoped,
        saved: settings.default_model(),
    };
    let choice = roster.initial_model(wish)?;
    if let Some(key) = &flags.api_key {
        roster.give_key(&choice.entry.provider, secrecy::SecretString::from(key.clone()));
    }
    if roster.credential(&choice.entry.provider).is_none() && choice.entry.api != ModelApi::Demo {
        return Err(ChooseError::None);
    }
    Ok(choice)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::scope_models;
    use crate::flags;
    use countersign_agent_dir::{
        AgentDir, AgentProduct, AgentSettings, ModelRoster, ModelsFile, ProcessEnvironment, ProviderKeys,
    };

    fn roster(root: &Path) -> ModelRoster {
        let environment: ProcessEnvironment = [("PI_CODING_AGENT_DIR", root.to_str().unwrap())].into_iter().collect();
        let folder = AgentDir::resolve(AgentProduct::Omp, &environment, root, |_| false).unwrap();
        let models = "providers: { fake: { baseUrl: http://localhost, api: openai-completions, auth: none,\n  \
                      models: [ { id: fake-1 }, { id: fake-2 } ] },\n  \
                      keyed: { baseUrl: http://localhost, api: openai-completions, apiKey: '', models: [ { id: keyed-1 } ] } }\n";
        fs::write(root.join("models.yml"), models).unwrap();
        ModelRoster::new(ModelsFile::load(&folder), ProviderKeys::default(), || &[])
    }

    #[test]
    fn only_models_that_flag_and_settings_mean_are_cycled_through() {
        let root = tempfile::tempdir().unwrap();
        let mut roster = roster(root.path());
        for (flag, sets, want) in [
            ("", &[][..], Ok(&[][..])),
            ("fake-*", &[], Ok(&["fake-1", "fake-2"])),
            ("fake-*", &["fake-2"], Ok(&["fake-2"])),
            ("", &["fake-*", "fake-1"], Ok(&["fake-1"])),
            ("fake-1", &["fake-2"], Err("enabledModels fake-2: no usable model is left to cycle through")),
            ("bogus", &[], Err("--models bogus: no usable model is left to cycle through")),
            ("", &["bogus"], Err("enabledModels bogus: no usable model is left to cycle through")),
        ] {
            let flags = flags::parse((!flag.is_empty()).then(|| format!("--models={flag}"))).unwrap();
            let mut settings = AgentSettings::default();
            let mut sets = sets.iter().map(|set| vec![(*set).to_owned()]);
            settings.enabled_models = sets.next().unwrap_or_default();
            settings.restrictions.scopes = sets.collect();
            let scoped = scope_models(&flags, &settings, &mut roster, &|_: &str| {});
            let ids = scoped.map(|scoped| scoped.into_iter().map(|choice| choice.entry.id).collect::<Vec<_>>());
            let want = want.map(|ids| ids.iter().map(|id| (*id).to_owned()).collect()).map_err(str::to_owned);
            assert_eq!(ids, want, "{flags:?}");
        }
    }

    #[test]
    fn a_key_of_the_command_line_makes_the_models_of_its_provider_usable() {
        let root = tempfile::tempdir().unwrap();
        let mut roster = roster(root.path());
        let flags = |line: &str| flags::parse(line.split(' ').map(str::to_owned)).unwrap();
        let models = "--models keyed/*";
        let scope = |roster: &mut ModelRoster, line: &str| {
            scope_models(&flags(line), &AgentSettings::default(), roster, &|_: &str| {})
        };
        assert!(scope(&mut roster, models).is_err());
        for wish in ["--provider keyed", "--model keyed-1"] {
            let scoped = scope(&mut roster, &format!("{models} --api-key k {wish}")).unwrap();
            assert_eq!(scoped.len(), 1, "{wish}");
        }
    }
}
