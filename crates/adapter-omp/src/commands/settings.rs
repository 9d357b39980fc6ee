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
fn save_setting(door: &OmpAdapter, change: SettingChange<'_>) {
    if let Err(failed) = persist_change(&door.store.common.folder, change) {
        warn!(error = %failed, "failed to save a setting; it applies to this session only");
    }
}

pub(super) fn available_models(door: &mut OmpAdapter, id: Option<OmpRequestId>) {
    let models = door.store.common.roster.lock().available_models().into_iter().map(models::to_wire).collect();
    door.write_frame(&OmpResponse::success(id, "get_available_models", &AvailableModels { models }));
}

async fn change_setting(
    door: &mut OmpAdapter,
    setting: SessionSetting,
    entry: Option<(SessionEntryKind, MessageContent)>,
    then: impl FnOnce(&mut OmpAdapter, Result<countersign_core::engine::EngineReply, countersign_runtime::OwnerError>)
    + Send
    + 'static,
) {
    let Some(seat) = door.current_session() else { return };
    let command = EngineCommand::Session(seat.id.clone(), Command::Set { setting, entry });
    door.send_command(command, then).await;
}

/// Chooses a model for this session and those to come; `answer` is written once that is recorded.
async fn choose_model(
    door: &mut OmpAdapter,
    id: Option<OmpRequestId>,
    name: &'static str,
    entry: &ModelEntry,
    answer: RawJson,
) {
    save_setting(door, SettingChange::Model(&format!("{}/{}", entry.provider, entry.id)));
    adopt_model(door, id, name, entry, answer).await;
}

/// Has the session continue with a model, and with the thinking level that it can have; `answer` is written once both are recorded.
pub async fn adopt_model(
    door: &mut OmpAdapter,
    id: Option<OmpRequestId>,
    name: &'static str,
    entry: &ModelEntry,
    answer: RawJson,
) {
    let reference = models::model_ref(entry);
    let note = (SessionEntryKind::ModelChange, entries::model_change(&entry.provider, &entry.id));
    let had_level = has_level(door).await;
    change_setting(door, SessionSetting::Model(reference), Some(note), |_, _| {}).await;
    let level = models::clamp_level(entry, door.requested_level.as_deref()).map(|level| level.as_str().to_owned());
    // A session whose model cannot think begins without a level, which is `off` to the next program that opens its file.
    let note = level.as_deref().filter(|_| !had_level).map(|level| entries::thinking_change(Some(level)));
    let note = note.map(|note| (SessionEntryKind::ThinkingChange, note));
    change_setting(door, SessionSetting::Thinking(level), note, move |door, replied| match replied {
        Ok(_) => door.write_frame(&OmpResponse::success(id, name, &answer)),
        Err(refused) => door.write_frame(&OmpResponse::failure(id, name, refusal_message(&refused))),
    })
    .await;
}

pub(super) async fn set_model(door: &mut OmpAdapter, id: Option<OmpRequestId>, provider: String, model_id: String) {
    let entry = match usable_model(door, &provider, &model_id) {
        Ok(entry) => entry,
        Err(problem) => return door.write_frame(&OmpResponse::failure(id, "set_model", problem)),
    };
    let answer = RawJson::from_wire(&models::to_wire(&entry));
    choose_model(door, id, "set_model", &entry, answer).await;
}

/// Finds a model that a session can have.
///
/// # Errors
/// Says that there is none, or that its provider has no key.
pub fn usable_model(door: &OmpAdapter, provider: &str, model_id: &str) -> Result<ModelEntry, String> {
    let entry = door.store.common.model_entry(provider, model_id);
    let entry = entry.ok_or_else(|| format!("Model not found: {provider}/{model_id}"))?;
    if door.store.common.roster.lock().credential(provider).is_none() && !is_demo(&entry) {
        return Err(format!("No API key for {provider}/{model_id}"));
    }
    Ok(entry)
}

fn is_demo(entry: &ModelEntry) -> bool {
    entry.api == countersign_runtime::models::ModelApi::Demo
}

/// Returns the model that is chosen now.
pub(super) async fn current_model(door: &mut OmpAdapter) -> Option<ModelEntry> {
    let seat = door.current_session()?;
    let session = seat.id.clone();
    let read = seat.requests.read_state(move |engine| engine.state().session(&session)?.settings().model.clone());
    let (model, _) = read.await?;
    let model = model?;
    door.store.common.model_entry(&model.provider, &model.id)
}

/// Returns whether a thinking level is set.
async fn has_level(door: &mut OmpAdapter) -> bool {
    let Some(seat) = door.current_session() else { return false };
    let session = seat.id.clone();
    let read = seat.requests.read_state(move |engine| {
        engine.state().session(&session).map(|session| session.settings().thinking.is_some())
    });
    read.await.and_then(|(is_set, _)| is_set).unwrap_or_default()
}

pub(super) async fn available_levels(door: &mut OmpAdapter, id: Option<OmpRequestId>) {
    let levels = match current_model(door).await.filter(|entry| entry.reasoning) {
        Some(entry) => models::supported_levels(&entry),
        None => vec![ThinkingLevel::Off],
    };
    let levels = levels.into_iter().map(|level| level.as_str().to_owned()).collect();
    door.write_frame(&OmpResponse::success(id, "get_available_thinking_levels", &ThinkingLevels { levels }));
}

pub(super) async fn cycle_model(door: &mut OmpAdapter, id: Option<OmpRequestId>) {
    let is_scoped = !door.scoped.is_empty();
    let (candidates, levels): (Vec<ModelEntry>, Vec<Option<ThinkingLevel>>) = if is_scoped {
        door.scoped.iter().map(|choice| (choice.entry.clone(), choice.level)).unzip()
    } else {
        door.store.common.roster.lock().available_models().into_iter().map(|entry| (entry.clone(), None)).unzip()
    };
    if candidates.len() <= 1 {
        return door.write_frame(&OmpResponse::success(id, "cycle_model", &()));
    }
    let now = current_model(door).await;
    let at =
        now.and_then(|now| candidates.iter().position(|entry| entry.provider == now.provider && entry.id == now.id));
    let next = at.map_or(0, |at| (at + 1) % candidates.len());
    if let Some(level) = levels[next] {
        door.requested_level = Some(level.as_str().to_owned());
    }
    let entry = &candidates[next];
    let level = models::clamp_level(entry, door.requested_level.as_deref());
    let answer = CycledModel {
        model: models::to_wire(entry),
        thinking_level: level.map(|level| level.as_str().to_owned()),
        is_scoped,
    };
    choose_model(door, id, "cycle_model", entry, RawJson::from_wire(&answer)).await;
}

pub(super) async fn set_thinking(door: &mut OmpAdapter, id: Option<OmpRequestId>, level: String) {
    let entry = current_model(door).await;
    let chosen = entry.as_ref().and_then(|entry| models::clamp_level(entry, Some(&level)));
    door.requested_level = Some(level);
    if let Some(level) = chosen {
        save_setting(door, SettingChange::ThinkingLevel(level));
    }
    let word = chosen.map(|level| level.as_str().to_owned());
    let note = (SessionEntryKind::ThinkingChange, entries::thinking_change(word.as_deref()));
    change_setting(door, SessionSetting::Thinking(word), Some(note), move |door, replied| {
        write_ack(door, id, "set_thinking_level", replied);
    })
    .await;
}

pub(super) async fn cycle_thinking(door: &mut OmpAdapter, id: Option<OmpRequestId>) {
    let Some(entry) = current_model(door).await.filter(|entry| entry.reasoning) else {
        return door.write_frame(&OmpResponse::success(id, "cycle_thinking_level", &()));
    };
    let levels = models::supported_levels(&entry);
    let now = models::clamp_level(&entry, door.requested_level.as_deref());
    let at = now.and_then(|now| levels.iter().position(|level| *level == now));
    let next = levels[at.map_or(0, |at| (at + 1) % levels.len())];
    save_setting(door, SettingChange::ThinkingLevel(next));
    let word = next.as_str().to_owned();
    door.requested_level = Some(word.clone());
    let note = (SessionEntryKind::ThinkingChange, entries::thinking_change(Some(&word)));
    change_setting(
        door,
        SessionSetting::Thinking(Some(word.clone())),
        Some(note),
        move |door, replied| match replied {
            Ok(_) => {
                let answer = CycledThinkingLevel { level: word };
                door.write_frame(&OmpResponse::success(id, "cycle_thinking_level", &answer));
            }
            Err(refused) => {
                door.write_frame(&OmpResponse::failure(id, "cycle_thinking_level", refusal_message(&refused)))
            }
        },
    )
    .await;
}

pub(super) async fn set_mode(
    door: &mut OmpAdapter,
    id: Option<OmpRequestId>,
    name: &'static str,
    mode: ModeSetting,
    word: String,
) {
    match mode {
        ModeSetting::Steering => save_setting(door, SettingChange::SteeringMode(&word)),
        ModeSetting::FollowUp => save_setting(door, SettingChange::FollowUpMode(&word)),
        ModeSetting::Interrupt => save_setting(door, SettingChange::InterruptMode(&word)),
    }
    let at = match mode {
        ModeSetting::Steering => 0,
        ModeSetting::FollowUp => 1,
        ModeSetting::Interrupt => 2,
    };
    door.modes[at] = word;
    let modes = queue_modes(&door.modes);
    change_setting(door, SessionSetting::Modes(modes), None, move |door, replied| write_ack(door, id, name, replied))
        .await;
}

pub(super) async fn set_auto_compaction(door: &mut OmpAdapter, id: Option<OmpRequestId>, enabled: bool) {
    save_setting(door, SettingChange::AutoCompaction(enabled));
    change_setting(door, SessionSetting::AutoCompaction(enabled), None, move |door, replied| {
        write_ack(door, id, "set_auto_compaction", replied);
    })
    .await;
}

pub(super) async fn set_auto_retry(door: &mut OmpAdapter, id: Option<OmpRequestId>, enabled: bool) {
    save_setting(door, SettingChange::AutoRetry(enabled));
    change_setting(door, SessionSetting::AutoRetry(enabled), None, move |door, replied| {
        write_ack(door, id, "set_auto_retry", replied);
    })
    .await;
}
