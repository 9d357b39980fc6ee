//! Settings by a host: models, thinking levels, modes.

use countersign_agent_dir::persist::{SettingChange, persist_change};
use countersign_core::{
    engine::Command as EngineCommand,
    session::{Command, MessageContent, SessionEntryKind, SessionSetting},
};
use countersign_protocol::{
    RawJson,
    omp::{
        OmpRequestId, OmpResponse,
        state::{AvailableModels, CycledModel, CycledThinkingLevel, ThinkingLevels},
    },
};
use countersign_runtime::models::{ModelEntry, ThinkingLevel};
use tracing::warn;

use super::write_ack;
use crate::{adapter::OmpAdapter, entries, models, refusal_text::refusal_message, session_settings::queue_modes};

/// One of the modes of queues.
#[derive(Clone, Copy)]
pub(super) enum ModeSetting {
    Steering,
    FollowUp,
    Interrupt,
}

/// Keeps a setting for the sessions to come. What cannot be kept holds for this session.
fn save_setting(adapter: &OmpAdapter, change: SettingChange<'_>) {
    if let Err(failed) = persist_change(&adapter.store.common.folder, change) {
        warn!(error = %failed, "failed to save a setting; it applies to this session only");
    }
}

pub(super) fn available_models(adapter: &mut OmpAdapter, id: Option<OmpRequestId>) {
    let models = adapter.store.common.roster.lock().available_models().into_iter().map(models::to_wire).collect();
    adapter.write_frame(&OmpResponse::success(id, "get_available_models", &AvailableModels { models }));
}

async fn change_setting(
    adapter: &mut OmpAdapter,
    setting: SessionSetting,
    entry: Option<(SessionEntryKind, MessageContent)>,
    then: impl FnOnce(&mut OmpAdapter, Result<countersign_core::engine::EngineReply, countersign_runtime::OwnerError>)
    + Send
    + 'static,
) {
    let Some(seat) = adapter.current_session() else { return };
    let command = EngineCommand::Session(seat.id.clone(), Command::Set { setting, entry });
    adapter.send_command(command, then).await;
}

/// Chooses a model for this session and those to come; `answer` is written once that is recorded.
async fn choose_model(
    adapter: &mut OmpAdapter,
    id: Option<OmpRequestId>,
    name: &'static str,
    entry: &ModelEntry,
    answer: RawJson,
) {
    save_setting(adapter, SettingChange::Model(&format!("{}/{}", entry.provider, entry.id)));
    adopt_model(adapter, id, name, entry, answer).await;
}

/// Has the session continue with a model, and with the thinking level that it can have; `answer` is written once both are recorded.
pub async fn adopt_model(
    adapter: &mut OmpAdapter,
    id: Option<OmpRequestId>,
    name: &'static str,
    entry: &ModelEntry,
    answer: RawJson,
) {
    let reference = models::model_ref(entry);
    let note = (SessionEntryKind::ModelChange, entries::model_change(&entry.provider, &entry.id));
    let had_level = has_level(adapter).await;
    change_setting(adapter, SessionSetting::Model(reference), Some(note), |_, _| {}).await;
    let level = models::clamp_level(entry, adapter.requested_level.as_deref()).map(|level| level.as_str().to_owned());
    // A session whose model cannot think begins without a level, which is `off` to the next program that opens its file.
    let note = level.as_deref().filter(|_| !had_level).map(|level| entries::thinking_change(Some(level)));
    let note = note.map(|note| (SessionEntryKind::ThinkingChange, note));
    change_setting(adapter, SessionSetting::Thinking(level), note, move |adapter, replied| match replied {
        Ok(_) => adapter.write_frame(&OmpResponse::success(id, name, &answer)),
        Err(refused) => adapter.write_frame(&OmpResponse::failure(id, name, refusal_message(&refused))),
    })
    .await;
}

pub(super) async fn set_model(adapter: &mut OmpAdapter, id: Option<OmpRequestId>, provider: String, model_id: String) {
    let entry = match usable_model(adapter, &provider, &model_id) {
        Ok(entry) => entry,
        Err(problem) => return adapter.write_frame(&OmpResponse::failure(id, "set_model", problem)),
    };
    let answer = RawJson::from_wire(&models::to_wire(&entry));
    choose_model(adapter, id, "set_model", &entry, answer).await;
}

/// Finds a model that a session can have.
///
/// # Errors
/// Says that there is none, or that its provider has no key.
pub fn usable_model(adapter: &OmpAdapter, provider: &str, model_id: &str) -> Result<ModelEntry, String> {
    let entry = adapter.store.common.model_entry(provider, model_id);
    let entry = entry.ok_or_else(|| format!("Model not found: {provider}/{model_id}"))?;
    if adapter.store.common.roster.lock().credential(provider).is_none() && !is_demo(&entry) {
        return Err(format!("No API key for {provider}/{model_id}"));
    }
    Ok(entry)
}

fn is_demo(entry: &ModelEntry) -> bool {
    entry.api == countersign_runtime::models::ModelApi::Demo
}

/// Returns the model that is chosen now.
pub(super) async fn current_model(adapter: &mut OmpAdapter) -> Option<ModelEntry> {
    let seat = adapter.current_session()?;
    let session = seat.id.clone();
    let read = seat.requests.read_state(move |engine| engine.state().session(&session)?.settings().model.clone());
    let (model, _) = read.await?;
    let model = model?;
    adapter.store.common.model_entry(&model.provider, &model.id)
}

/// Returns whether a thinking level is set.
async fn has_level(adapter: &mut OmpAdapter) -> bool {
    let Some(seat) = adapter.current_session() else { return false };
    let session = seat.id.clone();
    let read = seat.requests.read_state(move |engine| {
        engine.state().session(&session).map(|session| session.settings().thinking.is_some())
    });
    read.await.and_then(|(is_set, _)| is_set).unwrap_or_default()
}

pub(super) async fn available_levels(adapter: &mut OmpAdapter, id: Option<OmpRequestId>) {
    let levels = match current_model(adapter).await.filter(|entry| entry.reasoning) {
        Some(entry) => models::supported_levels(&entry),
        None => vec![ThinkingLevel::Off],
    };
    let levels = levels.into_iter().map(|level| level.as_str().to_owned()).collect();
    adapter.write_frame(&OmpResponse::success(id, "get_available_thinking_levels", &ThinkingLevels { levels }));
}

pub(super) async fn cycle_model(adapter: &mut OmpAdapter, id: Option<OmpRequestId>) {
    let is_scoped = !adapter.scoped.is_empty();
    let (candidates, levels): (Vec<ModelEntry>, Vec<Option<ThinkingLevel>>) = if is_scoped {
        adapter.scoped.iter().map(|choice| (choice.entry.clone(), choice.level)).unzip()
    } else {
        adapter.store.common.roster.lock().available_models().into_iter().map(|entry| (entry.clone(), None)).unzip()
    };
    if candidates.len() <= 1 {
        return adapter.write_frame(&OmpResponse::success(id, "cycle_model", &()));
    }
    let now = current_model(adapter).await;
    let at =
        now.and_then(|now| candidates.iter().position(|entry| entry.provider == now.provider && entry.id == now.id));
    let next = at.map_or(0, |at| (at + 1) % candidates.len());
    if let Some(level) = levels[next] {
        adapter.requested_level = Some(level.as_str().to_owned());
    }
    let entry = &candidates[next];
    let level = models::clamp_level(entry, adapter.requested_level.as_deref());
    let answer = CycledModel {
        model: models::to_wire(entry),
        thinking_level: level.map(|level| level.as_str().to_owned()),
        is_scoped,
    };
    choose_model(adapter, id, "cycle_model", entry, RawJson::from_wire(&answer)).await;
}

pub(super) async fn set_thinking(adapter: &mut OmpAdapter, id: Option<OmpRequestId>, level: String) {
    let entry = current_model(adapter).await;
    let chosen = entry.as_ref().and_then(|entry| models::clamp_level(entry, Some(&level)));
    adapter.requested_level = Some(level);
    if let Some(level) = chosen {
        save_setting(adapter, SettingChange::ThinkingLevel(level));
    }
    let word = chosen.map(|level| level.as_str().to_owned());
    let note = (SessionEntryKind::ThinkingChange, entries::thinking_change(word.as_deref()));
    change_setting(adapter, SessionSetting::Thinking(word), Some(note), move |adapter, replied| {
        write_ack(adapter, id, "set_thinking_level", replied);
    })
    .await;
}

pub(super) async fn cycle_thinking(adapter: &mut OmpAdapter, id: Option<OmpRequestId>) {
    let Some(entry) = current_model(adapter).await.filter(|entry| entry.reasoning) else {
        return adapter.write_frame(&OmpResponse::success(id, "cycle_thinking_level", &()));
    };
    let levels = models::supported_levels(&entry);
    let now = models::clamp_level(&entry, adapter.requested_level.as_deref());
    let at = now.and_then(|now| levels.iter().position(|level| *level == now));
    let next = levels[at.map_or(0, |at| (at + 1) % levels.len())];
    save_setting(adapter, SettingChange::ThinkingLevel(next));
    let word = next.as_str().to_owned();
    adapter.requested_level = Some(word.clone());
    let note = (SessionEntryKind::ThinkingChange, entries::thinking_change(Some(&word)));
    change_setting(adapter, SessionSetting::Thinking(Some(word.clone())), Some(note), move |adapter, replied| {
        match replied {
            Ok(_) => {
                let answer = CycledThinkingLevel { level: word };
                adapter.write_frame(&OmpResponse::success(id, "cycle_thinking_level", &answer));
            }
            Err(refused) => {
                adapter.write_frame(&OmpResponse::failure(id, "cycle_thinking_level", refusal_message(&refused)))
            }
        }
    })
    .await;
}

pub(super) async fn set_mode(
    adapter: &mut OmpAdapter,
    id: Option<OmpRequestId>,
    name: &'static str,
    mode: ModeSetting,
    word: String,
) {
    match mode {
        ModeSetting::Steering => save_setting(adapter, SettingChange::SteeringMode(&word)),
        ModeSetting::FollowUp => save_setting(adapter, SettingChange::FollowUpMode(&word)),
        ModeSetting::Interrupt => save_setting(adapter, SettingChange::InterruptMode(&word)),
    }
    let at = match mode {
        ModeSetting::Steering => 0,
        ModeSetting::FollowUp => 1,
        ModeSetting::Interrupt => 2,
    };
    adapter.modes[at] = word;
    let modes = queue_modes(&adapter.modes);
    change_setting(adapter, SessionSetting::Modes(modes), None, move |adapter, replied| {
        write_ack(adapter, id, name, replied)
    })
    .await;
}

pub(super) async fn set_auto_compaction(adapter: &mut OmpAdapter, id: Option<OmpRequestId>, enabled: bool) {
    save_setting(adapter, SettingChange::AutoCompaction(enabled));
    change_setting(adapter, SessionSetting::AutoCompaction(enabled), None, move |adapter, replied| {
        write_ack(adapter, id, "set_auto_compaction", replied);
    })
    .await;
}

pub(super) async fn set_auto_retry(adapter: &mut OmpAdapter, id: Option<OmpRequestId>, enabled: bool) {
    save_setting(adapter, SettingChange::AutoRetry(enabled));
    change_setting(adapter, SessionSetting::AutoRetry(enabled), None, move |adapter, replied| {
        write_ack(adapter, id, "set_auto_retry", replied);
    })
    .await;
}
