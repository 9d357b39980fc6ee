//! Check that the gateway can use the model of `model`.
//!
//! It must not know how requests to models are made, only the names of models.

use std::collections::BTreeMap;

use countersign_runtime::models::{catalogue, demo};

use super::{
    config_field::ConfigField,
    settings::{ModelSelection, ProviderConfig},
};

/// Most names that are listed if another one is written.
const LISTED_LIMIT: usize = 5;

/// Refuses a provider that is not in the file, and a model that it does not have.
pub(super) fn check_model(
    root: &ConfigField<'_>,
    model: &ModelSelection,
    providers: &BTreeMap<String, ProviderConfig>,
) {
    // Problems with the providers are reported already, and one of them may be meant.
    let is_clear = root.notes.problems.borrow().iter().all(|problem| !problem.key.starts_with("providers"));
    if !is_clear {
        return;
    }
    let place = root.at("model");
    let scripted = demo::model_entry();
    let own = providers.get(&model.provider);
    if own.is_none() && model.provider != scripted.provider {
        let names = providers.keys().map(String::as_str).chain([scripted.provider.as_str()]).collect();
        let is_built_in = catalogue::builtin_models().iter().any(|entry| entry.provider == model.provider);
        let wants = if is_built_in {
            format!(". The models of {0} are built in and need its key: set providers.{0}.api_key", model.provider)
        } else {
            String::new()
        };
        place.at("provider").report_refusal(format!(
            "unknown provider \"{}\": expected one of {}{wants}",
            model.provider,
            some_names(names)
        ));
        return;
    }
    let built_in = catalogue::builtin_models().iter().filter(|entry| own.is_some() && entry.provider == model.provider);
    let listed = own.into_iter().flat_map(|provider| &provider.models).chain(built_in);
    let demo = [&scripted].into_iter().filter(|entry| entry.provider == model.provider);
    let ids: Vec<&str> = listed.chain(demo).map(|entry| entry.id.as_str()).collect();
    if !ids.contains(&model.id.as_str()) {
        let (provider, id) = (&model.provider, &model.id);
        place.at("id").report_refusal(format!(
            "\"{provider}\" has no model \"{id}\"; it has {}. Add others under providers.{provider}.models",
            some_names(ids)
        ));
    }
}

fn some_names(names: Vec<&str>) -> String {
    match names.len() {
        0 => "none".to_owned(),
        count if count <= LISTED_LIMIT => names.join(", "),
        count => format!("{} and {} more", names[..LISTED_LIMIT].join(", "), count - LISTED_LIMIT),
    }
}
