//! Settings and drafts of users in the front end: stored in a file of the data directory, not in the record,
//! because they decide nothing. Source: docs/protocol/hermes.md, Settings.

mod setting_table;

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::{
    Router,
    extract::{Query, State},
    http::StatusCode,
    response::Response,
};
use countersign_core::{id::SessionId, session::SessionSetting};
use countersign_http::{
    reply,
    web::{BodyFields, GuardedRoutes},
};
use countersign_runtime::models::ThinkingLevel;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    HermesAdapter,
    conversation::MOST_PINNED,
    fields::{self, RequestRejection},
    sessions::ADAPTER,
};

/// Name of the file in the data directory.
const FILE: &str = "hermes.json";
/// Longest draft, in characters.
const LONGEST_DRAFT: usize = 50_000;
/// Most sessions with a draft. The oldest is dropped first.
const MOST_DRAFTS: usize = 200;
/// Reasoning efforts that users can select; `none` is [`ThinkingLevel::Off`].
const LEVELS: [ThinkingLevel; 5] =
    [ThinkingLevel::Minimal, ThinkingLevel::Low, ThinkingLevel::Medium, ThinkingLevel::High, ThinkingLevel::Xhigh];

type PreferenceParams = Query<BTreeMap<String, String>>;
type PreferenceResult = Result<Response, RequestRejection>;

/// Text that was not sent yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct MessageDraft {
    text: String,
    /// Number of its last change, which grows.
    turn: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct PreferenceFile {
    #[serde(default)]
    settings: Map<String, Value>,
    #[serde(default)]
    drafts: BTreeMap<String, MessageDraft>,
    /// Reasoning effort of later turns; none leaves it to the model.
    #[serde(default)]
    effort: Option<ThinkingLevel>,
}

/// Preferences of the user of the front end.
pub(super) struct UserPreferences {
    file: PathBuf,
    held: Mutex<PreferenceFile>,
    /// Lock while one change is written: each starts from the one before.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl UserPreferences {
    /// Opens those of the data directory `folder`. A file that cannot be read is set aside.
    pub(super) fn open(folder: &Path) -> Arc<Self> {
        let file = folder.join(FILE);
        let held = match fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                let aside = file.with_extension("json.unreadable");
                tracing::error!(%error, file = %file.display(), aside = %aside.display(), "the front end's settings cannot be read; renaming the file and using the defaults");
                if let Err(error) = fs::rename(&file, &aside) {
                    tracing::error!(%error, "failed to rename the front end's settings");
                }
                PreferenceFile::default()
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => PreferenceFile::default(),
            Err(error) => {
                tracing::error!(%error, file = %file.display(), "the front end's settings cannot be read; using the defaults");
                PreferenceFile::default()
            }
        };
        Arc::new(Self { file, held: Mutex::new(held), turn: Arc::default() })
    }

    /// Returns the reasoning effort of new turns, in the terms of the engine.
    pub(super) fn reasoning_effort(&self) -> Option<&'static str> {
        self.held.lock().effort.map(ThinkingLevel::as_str)
    }

    /// Returns the largest number of pinned sessions.
    pub(super) fn most_pinned(&self) -> usize {
        let set = self.held.lock().settings.get("pinned_sessions_limit").and_then(Value::as_u64);
        set.and_then(|most| usize::try_from(most).ok()).unwrap_or(MOST_PINNED)
    }

    /// Removes the draft of a session.
    pub(super) async fn forget_draft(self: &Arc<Self>, session: &SessionId) {
        let session = session.clone();
        if let Err(error) = self.apply_change(move |held| drop(held.drafts.remove(session.as_str()))).await {
            tracing::warn!(%error, "failed to delete a draft");
        }
    }

    /// Returns the draft of a session.
    pub(super) fn draft_json(&self, session: &SessionId) -> Value {
        match self.held.lock().drafts.get(session.as_str()) {
            Some(draft) => json!({ "text": draft.text, "files": [] }),
            None => json!({}),
        }
    }

    /// Changes the state in memory, once the file has the change. A change that could not be written has no effect.
    ///
    /// A thread for blocking work writes it. If this is dropped meanwhile, the change is still made as a whole.
    async fn apply_change(
        self: &Arc<Self>,
        change: impl FnOnce(&mut PreferenceFile) + Send + 'static,
    ) -> io::Result<()> {
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let preferences = Arc::clone(self);
        let write = move || {
            let _turn = turn;
            preferences.write_change(change)
        };
        tokio::task::spawn_blocking(write).await.map_err(io::Error::other)?
    }

    fn write_change(&self, change: impl FnOnce(&mut PreferenceFile)) -> io::Result<()> {
        let before = self.held.lock().clone();
        let mut next = before.clone();
        change(&mut next);
        if next == before {
            return Ok(());
        }
        let fresh = self.file.with_extension("json.new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(&serde_json::to_vec(&next)?)?;
        file.sync_all()?;
        fs::rename(&fresh, &self.file)?;
        // The file has it from here on, also if the next step fails.
        *self.held.lock() = next;
        self.file.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    }
}

pub(super) fn routes(door: &Arc<HermesAdapter>) -> Router {
    GuardedRoutes::new(&door.context.auth)
        .add_route("GET", "/api/settings", get_settings)
        .add_route("POST", "/api/settings", set_settings)
        .add_route("GET", "/api/reasoning", get_reasoning)
        .add_route("POST", "/api/reasoning", set_reasoning)
        .add_route("GET", "/api/session/draft", get_draft)
        .add_route("POST", "/api/session/draft", write_draft)
        .with_state(Arc::clone(door))
}

fn write_failed(error: &io::Error) -> RequestRejection {
    RequestRejection::new(StatusCode::SERVICE_UNAVAILABLE, format!("the settings could not be written: {error}"))
}

async fn get_settings(State(door): State<Arc<HermesAdapter>>) -> Response {
    reply::ok(&settings_json(&door))
}

fn settings_json(door: &HermesAdapter) -> Value {
    let mut settings = setting_table::all_settings(&door.preferences.held.lock().settings);
    let usual = door.context.chats.models().default_model();
    let usual = usual.as_ref();
    settings.insert("default_model".to_owned(), json!(usual.map(|model| &model.id)));
    settings.insert("default_model_provider".to_owned(), json!(usual.map(|model| &model.provider)));
    settings.insert("auth_enabled".to_owned(), door.context.auth.is_guarded().into());
    settings.insert("password_auth_enabled".to_owned(), door.context.auth.is_guarded().into());
    settings.insert("webui_version".to_owned(), super::webui::webui_version(door).into());
    // The front end shows the first version; the other one distinguishes its caches.
    settings.insert("update_channel_version".to_owned(), env!("CARGO_PKG_VERSION").into());
    Value::Object(settings)
}

async fn set_settings(State(door): State<Arc<HermesAdapter>>, body: BodyFields) -> PreferenceResult {
    let (mut accepted, mut fixed) = (Vec::new(), Vec::new());
    for (name, value) in &body.0 {
        match setting_table::read_setting(name, value) {
            Ok(Some(value)) => accepted.push((name.clone(), value)),
            // The front end sends its whole form, so this is no error.
            Ok(None) => fixed.push((name, value)),
            Err(why) => return Err(RequestRejection::bad(why)),
        }
    }
    let change = move |held: &mut PreferenceFile| held.settings.extend(accepted);
    door.preferences.apply_change(change).await.map_err(|error| write_failed(&error))?;
    let mut settings = settings_json(&door);
    let not_changed = fixed.into_iter().filter(|(name, value)| !is_same(&settings[name.as_str()], value));
    let not_changed: Vec<&String> = not_changed.map(|(name, _)| name).collect();
    if !not_changed.is_empty() {
        settings["not_changed"] = json!(not_changed);
    }
    Ok(reply::ok(&settings))
}

/// Reports whether two values are the same to a client that writes `1.0` as `1`.
fn is_same(one: &Value, other: &Value) -> bool {
    one == other || one.as_f64().is_some_and(|_| one.as_f64() == other.as_f64())
}

async fn get_reasoning(State(door): State<Arc<HermesAdapter>>, params: PreferenceParams) -> Response {
    let named = |name: &str| params.get(name).map(|text| text.trim()).filter(|text| !text.is_empty());
    reply::ok(&reasoning_of(&door, named("provider"), named("model")))
}

/// Returns the effort that is set, and those of the named model; without a name those of the default model.
fn reasoning_of(door: &HermesAdapter, provider: Option<&str>, model: Option<&str>) -> Value {
    let models = door.context.chats.models();
    let found = match model {
        Some(model) => models.find_model(provider, model).or_else(|| models.find_model(None, model)),
        None => models.default_model(),
    };
    let thinks = found.is_some_and(|model| super::supports_thinking(&door.context, &model));
    let efforts: Vec<&str> = if thinks { LEVELS.map(ThinkingLevel::as_str).to_vec() } else { Vec::new() };
    let held = door.preferences.held.lock();
    let shows = held.settings.get("show_thinking").and_then(Value::as_bool).unwrap_or(true);
    let effort = match held.effort.filter(|_| thinks) {
        None => "",
        Some(ThinkingLevel::Off) => "none",
        Some(level) => level.as_str(),
    };
    json!({
        "show_reasoning": shows, "reasoning_effort": effort, "supported_efforts": efforts,
        "supports_reasoning_effort": thinks, "supports_thinking_toggle": thinks,
    })
}

async fn set_reasoning(State(door): State<Arc<HermesAdapter>>, body: BodyFields) -> PreferenceResult {
    let (display, named) = (fields::text_field(&body, "display")?, fields::text_field(&body, "effort")?);
    // An empty one is the model's own.
    let effort = named.or_else(|| body.0.get("effort").filter(|effort| effort.is_string()).map(|_| "default"));
    if let Some(display) = display {
        let shows = match display {
            "show" | "on" => true,
            "hide" | "off" => false,
            other => return Err(RequestRejection::bad(format!("display must be show, hide, on or off, not {other}"))),
        };
        let change =
            move |held: &mut PreferenceFile| drop(held.settings.insert("show_thinking".to_owned(), shows.into()));
        door.preferences.apply_change(change).await.map_err(|error| write_failed(&error))?;
    } else if let Some(effort) = effort {
        let level = match effort {
            "none" | "off" => Some(ThinkingLevel::Off),
            "default" => None,
            other => match LEVELS.into_iter().find(|level| level.as_str() == other) {
                Some(level) => Some(level),
                None => {
                    let why = format!("effort must be none, minimal, low, medium, high, xhigh or default, not {other}");
                    return Err(RequestRejection::bad(why));
                }
            },
        };
        door.preferences.apply_change(move |held| held.effort = level).await.map_err(|error| write_failed(&error))?;
    } else {
        return Err(RequestRejection::bad("reasoning: display or effort is required"));
    }
    let (provider, model) = (fields::text_field(&body, "provider")?, fields::text_field(&body, "model")?);
    Ok(reply::ok(&reasoning_of(&door, provider, model)))
}

/// Gives a session the reasoning effort that is set, if its model supports it.
///
/// # Errors
/// The reply if that was not recorded.
pub(super) async fn apply_effort(door: &HermesAdapter, session: &SessionId) -> Result<(), RequestRejection> {
    let chats = &door.context.chats;
    let effort = door.preferences.reasoning_effort();
    let (model, now) = chats.thinking_level(session).await?;
    // If none is set here, the effort that another adapter set for its session stays.
    let stays = effort.is_none() && chats.door_of(session).await?.as_deref() != Some(ADAPTER);
    if now.as_deref() == effort || stays || !model.is_some_and(|model| super::supports_thinking(&door.context, &model))
    {
        return Ok(());
    }
    let setting = SessionSetting::Thinking(effort.map(str::to_owned));
    Ok(chats.change_setting(session, setting).await?)
}

async fn get_draft(State(door): State<Arc<HermesAdapter>>, params: PreferenceParams) -> PreferenceResult {
    let id = fields::session_in(&params)?;
    door.context.chats.thinking_level(&id).await?;
    Ok(reply::ok(&json!({ "draft": door.preferences.draft_json(&id) })))
}

async fn write_draft(State(door): State<Arc<HermesAdapter>>, body: BodyFields) -> PreferenceResult {
    let id = fields::session_field(&body)?;
    // Not trimmed: the user is still typing.
    let text = fields::exact_text(&body, "text")?.map(|text| text.chars().take(LONGEST_DRAFT).collect::<String>());
    fields::list_field(&body, "files")?;
    door.context.chats.thinking_level(&id).await?;
    if let Some(text) = text {
        let of = id.clone();
        let change = move |held: &mut PreferenceFile| keep_draft(&mut held.drafts, of.as_str(), text);
        door.preferences.apply_change(change).await.map_err(|error| write_failed(&error))?;
    }
    Ok(reply::ok(&json!({ "ok": true, "draft": door.preferences.draft_json(&id) })))
}

fn keep_draft(drafts: &mut BTreeMap<String, MessageDraft>, session: &str, text: String) {
    if text.is_empty() {
        drafts.remove(session);
        return;
    }
    if drafts.get(session).is_some_and(|known| known.text == text) {
        return;
    }
    let turn = drafts.values().map(|draft| draft.turn).max().unwrap_or_default() + 1;
    drafts.insert(session.to_owned(), MessageDraft { text, turn });
    if drafts.len() > MOST_DRAFTS
        && let Some(oldest) = drafts.iter().min_by_key(|(_, draft)| draft.turn).map(|(id, _)| id.clone())
    {
        drafts.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs, process::Command, sync::Arc};

    use countersign_core::id::SessionId;
    use serde_json::json;

    use super::{FILE, MOST_DRAFTS, PreferenceFile, UserPreferences, keep_draft};

    #[tokio::test]
    async fn what_is_set_and_what_was_being_written_are_there_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let (one, session) = (UserPreferences::open(folder.path()), SessionId::new("s"));
        let change = |held: &mut PreferenceFile| {
            held.settings.insert("pinned_sessions_limit".to_owned(), json!(7));
            keep_draft(&mut held.drafts, "s", "half a".to_owned());
        };
        one.apply_change(change).await.unwrap();
        let again = UserPreferences::open(folder.path());
        assert_eq!((again.most_pinned(), again.draft_json(&session)), (7, json!({ "text": "half a", "files": [] })));
        again.forget_draft(&session).await;
        assert_eq!(UserPreferences::open(folder.path()).draft_json(&session), json!({}));
        fs::write(folder.path().join(FILE), "{").unwrap();
        assert_eq!(UserPreferences::open(folder.path()).most_pinned(), super::MOST_PINNED);
        assert!(folder.path().join("hermes.json.unreadable").exists(), "nothing is thrown away");
    }

    async fn set(preferences: &Arc<UserPreferences>, most: u64) -> std::io::Result<()> {
        let change = move |held: &mut PreferenceFile| {
            held.settings.insert("pinned_sessions_limit".to_owned(), json!(most));
        };
        preferences.apply_change(change).await
    }

    #[tokio::test]
    async fn a_process_that_ends_at_any_step_leaves_the_old_file_or_the_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let (file, fresh) = (folder.path().join(FILE), folder.path().join("hermes.json.new"));
        set(&UserPreferences::open(folder.path()), 5).await.unwrap();
        let old = fs::read(&file).unwrap();
        set(&UserPreferences::open(folder.path()), 6).await.unwrap();
        let new = fs::read(&file).unwrap();
        for (step, file_then, fresh_then, want) in [
            ("begun", &old, Some(&new[..0]), 5),
            ("half of it written", &old, Some(&new[..new.len() / 2]), 5),
            ("written", &old, Some(&new[..]), 5),
            ("renamed", &new, None, 6),
        ] {
            fs::write(&file, file_then).unwrap();
            fresh_then.into_iter().for_each(|bytes| fs::write(&fresh, bytes).unwrap());
            let after = UserPreferences::open(folder.path());
            assert_eq!(after.most_pinned(), want, "{step}");
            set(&after, 7).await.unwrap();
            assert_eq!(UserPreferences::open(folder.path()).most_pinned(), 7, "{step}");
        }
    }

    #[tokio::test]
    async fn what_cannot_be_written_is_an_error_and_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let one = UserPreferences::open(folder.path());
        set(&one, 5).await.unwrap();
        fs::create_dir(folder.path().join("hermes.json.new")).unwrap();
        set(&one, 6).await.unwrap_err();
        assert_eq!((one.most_pinned(), UserPreferences::open(folder.path()).most_pinned()), (5, 5));
        fs::remove_dir(folder.path().join("hermes.json.new")).unwrap();
        set(&one, 6).await.unwrap();
        assert_eq!(UserPreferences::open(folder.path()).most_pinned(), 6);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_disk_that_is_slow_holds_up_nothing_but_the_change() {
        let folder = tempfile::tempdir().unwrap();
        let fresh = folder.path().join("hermes.json.new");
        // A writer waits until a reader opens the pipe.
        assert!(Command::new("mkfifo").arg(&fresh).status().unwrap().success());
        let one = UserPreferences::open(folder.path());
        let change = tokio::spawn({
            let one = Arc::clone(&one);
            async move { set(&one, 6).await }
        });
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(one.most_pinned(), super::MOST_PINNED, "it is read, and has not changed");
        // Its client has gone: the change is made or fails as a whole, and the next waits for it.
        change.abort();
        let read = tokio::task::spawn_blocking(move || {
            let bytes = fs::read(&fresh);
            fs::remove_file(&fresh).map(|()| bytes)
        });
        read.await.unwrap().unwrap().unwrap();
        set(&one, 8).await.unwrap();
        assert_eq!((one.most_pinned(), UserPreferences::open(folder.path()).most_pinned()), (8, 8));
    }

    #[test]
    fn drafts_are_bounded_and_the_oldest_goes_first() {
        let mut drafts = BTreeMap::new();
        for number in 0..=MOST_DRAFTS {
            keep_draft(&mut drafts, &format!("s{number}"), "text".to_owned());
        }
        assert!(drafts.len() == MOST_DRAFTS && !drafts.contains_key("s0") && drafts.contains_key("s1"));
        keep_draft(&mut drafts, "s1", String::new());
        assert!(!drafts.contains_key("s1"), "nothing is written there any more");
    }
}
