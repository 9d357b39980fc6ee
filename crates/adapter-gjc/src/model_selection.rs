//! Model and thinking level with which new sessions begin.

use countersign_adapter_omp::{OmpAdapter, WaitUntil, commands::settings};
use countersign_agent_dir::{AgentSettings, SettingChange, persist_change};
use countersign_protocol::{
    RawJson,
    gjc::{GjcCommand, state::DefaultModel},
    omp::{OmpRequestId, OmpResponse},
};
use countersign_runtime::models::ThinkingLevel;

/// Keeps the model that new sessions begin with, and has the session that is open continue with it. While a run works, all of that
/// waits for its end.
pub(super) async fn set_default(adapter: &mut OmpAdapter, id: Option<OmpRequestId>, selection: DefaultModel) {
    const NAME: &str = "set_default_model_selection";
    let DefaultModel { provider, model_id, thinking_level } = &selection;
    let entry = match settings::usable_model(adapter, provider, model_id) {
        Ok(entry) => entry,
        Err(problem) => return adapter.write_frame(&OmpResponse::failure(id, NAME, problem)),
    };
    if adapter.encoder.is_running() {
        let DefaultModel { provider, model_id, thinking_level } = selection;
        let again = GjcCommand::SetDefaultModelSelection { provider, model_id, thinking_level };
        return adapter.run_after(WaitUntil::RunEnded, Box::new(move |adapter| adapter.comes_next(id, again)));
    }
    let folder = &adapter.store.common.folder;
    let model = format!("{provider}/{model_id}");
    let level = thinking_level.as_deref().and_then(ThinkingLevel::parse);
    let kept = persist_change(folder, SettingChange::Model(&model))
        .and_then(|()| level.map_or(Ok(()), |level| persist_change(folder, SettingChange::ThinkingLevel(level))));
    if let Err(error) = kept {
        return adapter.write_frame(&OmpResponse::failure(id, NAME, format!("the choice cannot be kept: {error}")));
    }
    if let Some(level) = level {
        adapter.requested_level = Some(level.as_str().to_owned());
    }
    settings::adopt_model(adapter, id, NAME, &entry, RawJson::from_wire(&selection)).await;
}

/// Returns a level as omp has it: of this dialect's two more, one is the highest and the other what the settings say.
pub(super) fn omp_level(adapter: &OmpAdapter, level: String) -> String {
    match level.as_str() {
        "inherit" => {
            let settings = AgentSettings::load(&adapter.store.common.folder, &adapter.store.cwd).unwrap_or_default();
            settings.thinking_level.as_str().to_owned()
        }
        other => ThinkingLevel::parse(other).map_or_else(|| other.to_owned(), |level| level.as_str().to_owned()),
    }
}
