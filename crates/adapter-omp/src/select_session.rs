//! Session that an adapter opens: the one that its flags name, the newest, a fork, or a new one.

use std::{
    collections::HashMap,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use countersign_agent_dir::ModelChoice;
use countersign_core::{
    id::EntryId,
    session::{ImportedEntry, SessionEntryKind, Settings},
};
use countersign_runtime::models::{ModelApi, ModelEntry, ThinkingLevel};
use serde_json::Value;

use super::{
    flags::AdapterFlags,
    models,
    open_session::{OpenSession, SessionStart, first_entries, read_file},
    open_session_error::OpenSessionError,
    recover_unwritten,
    session_store::SessionStore,
    start_error::StartError,
};
use crate::session_file::{OpenedFile, SessionFileOpenError, TornEnd, convert::INHERIT, find};

/// The role of a model that stood in for another one after a failure. A session does not continue with it.
const FALLBACK_ROLE: &str = "fallback";

/// Opens the session that the flags name, or begins one.
pub(super) async fn open_session(
    flags: &AdapterFlags,
    session_store: &SessionStore,
    settings: Settings,
    choice: &ModelChoice,
) -> Result<OpenSession, StartError> {
    let Some(folder) = &session_store.folder else { return begin_session(session_store, settings).await };
    let sessions = session_store.common.folder.sessions_dir();
    let named =
        |target: &str| find::find_session(target, &session_store.cwd, folder, Some(&sessions)).map(|found| found.path);
    if let Some(target) = &flags.fork {
        let path = named(target).ok_or_else(|| no_session(target))?;
        let restore = |notes: &[_]| start_settings(session_store, flags, choice, settings, notes);
        return fork_session(session_store, &path, restore).await;
    }
    let mut skipped = None;
    let path = match &flags.resume {
        Some(target) => match named(target) {
            Some(path) => Some(path),
            None if find::is_path(target) => Some(session_store.cwd.join(target)),
            None => match recover_unwritten::find_by_id(session_store, target).await {
                Some(path) => Some(path),
                None => return Err(no_session(target)),
            },
        },
        None if flags.continues => {
            let (path, notice) = newest_session(session_store, folder).await;
            skipped = notice;
            path
        }
        None => None,
    };
    let opened = reopen_or_begin(flags, session_store, settings, choice, path).await?;
    Ok(with_notice(opened, skipped))
}

/// Puts a notice before the report about the file of a session.
fn with_notice(seat: OpenSession, notice: Option<String>) -> OpenSession {
    let damage = match (notice, seat.damage) {
        (Some(notice), Some(damage)) => Some(format!("{notice}; {damage}")),
        (notice, damage) => notice.or(damage),
    };
    OpenSession { damage, ..seat }
}

/// Opens the session of the file at `path`, or begins one, there or at a place of its own.
async fn reopen_or_begin(
    flags: &AdapterFlags,
    session_store: &SessionStore,
    settings: Settings,
    choice: &ModelChoice,
    path: Option<PathBuf>,
) -> Result<OpenSession, StartError> {
    let Some(path) = path else { return begin_session(session_store, settings).await };
    let restore =
        |settings: Settings, notes: &[(EntryId, String)]| start_settings(session_store, flags, choice, settings, notes);
    let fallback = settings.clone();
    let opened = OpenSession::reopen_file(session_store, &path, |notes| restore(settings, notes)).await;
    let opened = match opened {
        Err(OpenSessionError::Copy(copy)) => {
            return fork_opened(session_store, copy, |notes| restore(fallback, notes)).await;
        }
        opened => opened?,
    };
    match opened {
        Some(seat) => Ok(seat),
        None => {
            let entries = first_entries(&fallback);
            let beginning = SessionStart { path: Some(path), parent: None, name: None, settings: fallback, entries };
            OpenSession::begin_new(session_store, beginning).await.map_err(StartError::from)
        }
    }
}

/// Returns the newest session of the working folder, whether or not its file was written yet, and a notice about newer files that cannot
/// be opened.
async fn newest_session(session_store: &SessionStore, folder: &Path) -> (Option<PathBuf>, Option<String>) {
    let newest = find::newest_session(folder);
    let notice = newest.skipped_notice();
    let file = newest.session.map(|found| found.path);
    let written = file.as_ref().and_then(|path| std::fs::metadata(path).ok()?.modified().ok());
    (recover_unwritten::newest_unwritten(session_store, folder, written).await.or(file), notice)
}

fn no_session(target: impl fmt::Display) -> StartError {
    StartError::new(format!("{target}: there is no such session"))
}

fn with_model(mut settings: Settings, entry: &ModelEntry, thinking: Option<&str>) -> Settings {
    settings.model = Some(models::model_ref(entry));
    settings.thinking = models::clamp_level(entry, thinking).map(|level| level.as_str().to_owned());
    settings
}

async fn begin_session(session_store: &SessionStore, settings: Settings) -> Result<OpenSession, StartError> {
    let entries = first_entries(&settings);
    let beginning = SessionStart { path: None, parent: None, name: None, settings, entries };
    OpenSession::begin_new(session_store, beginning).await.map_err(StartError::from)
}

/// Returns a new session with the conversation of another, without its decisions.
async fn fork_session(
    session_store: &SessionStore,
    path: &Path,
    settings: impl FnOnce(&[(EntryId, String)]) -> Settings,
) -> Result<OpenSession, StartError> {
    let opened = read_file(path).await?;
    let opened = opened.ok_or_else(|| no_session(path.display()))?;
    fork_opened(session_store, opened, settings).await
}

/// Returns a new session with the conversation of a file that was read.
pub(crate) async fn fork_opened(
    session_store: &SessionStore,
    opened: Arc<OpenedFile>,
    settings: impl FnOnce(&[(EntryId, String)]) -> Settings,
) -> Result<OpenSession, StartError> {
    let parent = Some(opened.path.display().to_string());
    let (blobs, name) = (session_store.blob_store(), opened.session_name());
    let entries = tokio::task::spawn_blocking(move || {
        let (mut entries, mut lost_images) = (Vec::with_capacity(opened.notes().len()), 0);
        for at in 0..opened.notes().len() {
            let entry = opened.read_entry(at)?;
            let import = super::entries::from_file(&entry, &blobs);
            lost_images += import.lost_images;
            entries.push(import.entry);
        }
        Ok::<_, SessionFileOpenError>((entries, opened.damage_report(TornEnd::LeftOut, lost_images)))
    });
    let (entries, damage) = entries.await.map_err(StartError::new)?.map_err(StartError::new)?;
    let is_note =
        |entry: &&ImportedEntry| matches!(entry.kind, SessionEntryKind::ModelChange | SessionEntryKind::ThinkingChange);
    let on_path = path_to_last(&entries);
    let answer = on_path.iter().rev().find(|entry| matches!(entry.kind, SessionEntryKind::Assistant { .. }));
    let model = answer.and_then(|entry| Some((entry.id.clone(), models::note_of_answer(&entry.message.content)?)));
    let notes =
        on_path.iter().copied().filter(is_note).map(|entry| (entry.id.clone(), entry.message.content.to_string()));
    let settings = settings(&model.into_iter().chain(notes).collect::<Vec<_>>());
    let beginning = SessionStart { path: None, parent, name, settings, entries };
    let seat = OpenSession::begin_new(session_store, beginning).await.map_err(StartError::from)?;
    Ok(OpenSession { damage, ..seat })
}

/// Returns the entries from the first to the last of a file, without those of abandoned branches.
fn path_to_last(entries: &[ImportedEntry]) -> Vec<&ImportedEntry> {
    let by_id: HashMap<&EntryId, &ImportedEntry> = entries.iter().map(|entry| (&entry.id, entry)).collect();
    let next = |entry: &&ImportedEntry| by_id.get(entry.parent.as_ref()?).copied();
    let mut path: Vec<_> = std::iter::successors(entries.last(), next).take(entries.len()).collect();
    path.reverse();
    path
}

/// Returns the thinking level that a session had last, as far as it is known here. `None` as well if that was the one of its start.
fn last_level(notes: &[(EntryId, String)]) -> Option<String> {
    let values = notes.iter().rev().filter_map(|(_, text)| serde_json::from_str::<Value>(text).ok());
    let mut levels = values.filter_map(|value| match value.get("thinkingLevel")? {
        // No level is set, as omp writes it for `off`.
        Value::Null => Some(ThinkingLevel::Off.as_str().to_owned()),
        level => level.as_str().map(str::to_owned),
    });
    let last = levels.find(|level| level == INHERIT || ThinkingLevel::parse(level).is_some())?;
    ThinkingLevel::parse(&last).map(|level| level.as_str().to_owned())
}

/// Returns the settings of a session that is opened again: the model and the level that it had last, where they can still be had.
pub(crate) fn restored_settings(
    session_store: &SessionStore,
    mut settings: Settings,
    notes: &[(EntryId, String)],
) -> Settings {
    let is_usable = |entry: &ModelEntry| {
        entry.api == ModelApi::Demo || session_store.common.roster.lock().credential(&entry.provider).is_some()
    };
    let entry = last_models(notes).iter().find_map(|model| {
        let (provider, id) = model.split_once('/')?;
        session_store.common.model_entry(provider, id).filter(is_usable)
    });
    let entry = entry.or_else(|| {
        let model = settings.model.as_ref()?;
        session_store.common.model_entry(&model.provider, &model.id)
    });
    let level = last_level(notes).or_else(|| settings.thinking.clone());
    if let Some(entry) = entry {
        settings = with_model(settings, &entry, level.as_deref());
    }
    settings
}

/// Returns the settings of a session that the program starts with: those that it had last, unless the command line names others.
fn start_settings(
    session_store: &SessionStore,
    flags: &AdapterFlags,
    choice: &ModelChoice,
    settings: Settings,
    notes: &[(EntryId, String)],
) -> Settings {
    let named = flags.thinking.clone().or_else(|| choice.level.map(|level| level.as_str().to_owned()));
    let level = named.or_else(|| last_level(notes)).or_else(|| settings.thinking.clone());
    let restored = restored_settings(session_store, settings, notes);
    let is_named = flags.model.is_some() || flags.provider.is_some();
    let model = restored.model.clone();
    let entry = model.and_then(|model| session_store.common.model_entry(&model.provider, &model.id));
    let entry = if is_named { Some(choice.entry.clone()) } else { entry };
    match entry {
        Some(entry) => with_model(restored, &entry, level.as_deref()),
        None => restored,
    }
}

/// Returns the models of a session that is opened again, as `provider/id`, the best first.
///
/// A change of model names the role that the model got: the session's own (`default`, or none), one that stood in for another after a
/// failure (`fallback`), or one for a while. The last one counts if the session works with it; else the session's own does.
fn last_models(notes: &[(EntryId, String)]) -> Vec<String> {
    let mut by_role: HashMap<String, String> = HashMap::new();
    let mut last = None;
    for value in notes.iter().filter_map(|(_, text)| serde_json::from_str::<Value>(text).ok()) {
        let text = |key: &str| value.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let Some(model) = text("model") else { continue };
        let role = text("role").unwrap_or(models::DEFAULT_ROLE);
        by_role.insert(role.to_owned(), model.to_owned());
        last = Some(role.to_owned());
    }
    let last = last.filter(|role| role != models::DEFAULT_ROLE && role != FALLBACK_ROLE);
    [last.as_deref(), Some(models::DEFAULT_ROLE)]
        .into_iter()
        .flatten()
        .filter_map(|role| by_role.remove(role))
        .collect()
}

#[cfg(test)]
mod tests {
    use countersign_core::id::EntryId;
    use serde_json::{Value, json};

    use super::{last_level, last_models};

    #[test]
    fn the_last_level_that_is_known_counts_and_inherit_is_that_of_the_start() {
        let level = |name: Value| json!({ "thinkingLevel": name });
        let model = || json!({ "model": "p/m", "role": "default" });
        for (notes, want) in [
            (vec![], None),
            (vec![model()], None),
            (vec![level("low".into()), model()], Some("low")),
            (vec![level("low".into()), level("off".into())], Some("off")),
            (vec![level("max".into())], Some("xhigh")),
            (vec![level("low".into()), level("none of these".into())], Some("low")),
            (vec![level(Value::Null)], Some("off")),
            (vec![level("low".into()), level(Value::Null), model()], Some("off")),
            (vec![level(Value::Null), level("low".into())], Some("low")),
            (vec![level("inherit".into()), level(Value::Null)], Some("off")),
            (vec![level("inherit".into())], None),
            (vec![level("low".into()), level("inherit".into())], None),
            (vec![level("inherit".into()), level("low".into())], Some("low")),
        ] {
            let notes: Vec<_> = notes.iter().map(|note| (EntryId::new("e"), note.to_string())).collect();
            assert_eq!(last_level(&notes).as_deref(), want, "{notes:?}");
        }
    }

    #[test]
    fn a_model_of_another_role_is_followed_by_the_session_s_own() {
        let change = |model: &str, role: Value| json!({ "model": model, "role": role });
        let own = |model: &str| change(model, "default".into());
        for (notes, want) in [
            (vec![], &[] as &[&str]),
            (vec![change("p/a", Value::Null)], &["p/a"]),
            (vec![own("p/a"), change("p/b", Value::Null)], &["p/b"]),
            (vec![own("p/a"), change("p/b", "fallback".into())], &["p/a"]),
            (vec![change("p/b", "fallback".into())], &[]),
            (vec![own("p/a"), change("p/b", "smol".into())], &["p/b", "p/a"]),
            (vec![own("p/a"), change("p/b", "temporary".into()), own("p/c")], &["p/c"]),
            (vec![own("p/a"), change("p/b", "temporary".into()), change("p/c", "fallback".into())], &["p/a"]),
            (vec![own("p/a"), change("", "smol".into()), json!({ "thinkingLevel": "low" })], &["p/a"]),
        ] {
            let notes: Vec<_> = notes.iter().map(|note| (EntryId::new("e"), note.to_string())).collect();
            assert_eq!(last_models(&notes), want, "{notes:?}");
        }
    }
}
