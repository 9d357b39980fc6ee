//! Methods about sessions: parameters and answers.

use serde::Serialize;

use super::Fault;
use super::directive::{Level, Model};
use super::fields::Fields;
use super::message::Message;
use crate::json::Wire;

/// Parameters of the methods that only name a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Of {
    /// As the client writes it; answers repeat it.
    pub session_key: String,
}

impl Of {
    pub(super) fn read(mut fields: Fields) -> Result<Self, Fault> {
        Ok(Self { session_key: session_key(&mut fields)? })
    }
}

fn session_key(fields: &mut Fields) -> Result<String, Fault> {
    fields.required("sessionKey", "sessionKey required")
}

/// Which of many rows are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// How many are skipped.
    pub offset: usize,
    /// How many are given at most.
    pub limit: usize,
}

impl Page {
    pub(super) fn read(fields: &mut Fields, default: usize, most: usize) -> Result<Self, Fault> {
        let small = |count: Option<u64>| count.map(|count| usize::try_from(count).unwrap_or(usize::MAX));
        let offset = small(fields.count("offset")?).unwrap_or(0);
        let limit = small(fields.count("limit")?).unwrap_or(default).min(most);
        Ok(Self { offset, limit })
    }

    /// Those rows that are wanted.
    pub fn of<T>(self, rows: Vec<T>) -> Vec<T> {
        rows.into_iter().skip(self.offset).take(self.limit).collect()
    }
}

/// Parameters of `sessions.list`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List {
    /// Which of them, 100 if nothing is said.
    pub page: Page,
}

impl List {
    pub(super) fn read(mut fields: Fields) -> Result<Self, Fault> {
        Ok(Self { page: Page::read(&mut fields, 100, 1000)? })
    }
}

/// A session in the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Its key.
    pub session_key: String,
    /// When it was first spoken in.
    pub created_at: u64,
    /// When it was last.
    pub last_active_at: u64,
    /// What people call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// The answer to `sessions.list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// The last active first.
    pub sessions: Vec<Entry>,
    /// How many there are in all.
    pub count: usize,
}

impl Wire for Listed {}

/// Tokens since the last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tokens {
    /// Read.
    pub input: u64,
    /// Written.
    pub output: u64,
    /// Both.
    pub total: u64,
}

/// What is set for a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    /// Which model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Model>,
    /// How hard it thinks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking_level: Option<Level>,
    /// What it is told it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// How much it may write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
}

/// When a session begins anew by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResetPolicy {
    /// Which rule counts.
    pub mode: ResetMode,
    /// The hour of a daily one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_hour: Option<u8>,
    /// The rest of an idle one. 0 is at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_minutes: Option<u32>,
}

/// Which rule says when a session begins anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ResetMode {
    /// None.
    #[default]
    Manual,
    /// An hour of the day.
    Daily,
    /// Nothing happened for a while.
    Idle,
}

/// The answer to `session.get`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    /// Its id, another one after each reset.
    pub session_id: String,
    /// Its key as the client wrote it.
    pub session_key: String,
    /// When it was made.
    pub created_at: u64,
    /// When something last happened.
    pub updated_at: u64,
    /// How many messages it has.
    pub message_count: usize,
    /// What it took.
    pub tokens: Tokens,
    /// What is set for it.
    pub settings: Settings,
    /// When it begins anew by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset_policy: Option<ResetPolicy>,
    /// When it last did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_reset_at: Option<u64>,
    /// Its ids before.
    pub previous_session_ids: Vec<String>,
    /// What people call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

impl Wire for Session {}

/// The answer to `session.stats`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    /// Its key as the client wrote it.
    pub session_key: String,
    /// Its id.
    pub session_id: String,
    /// How many messages it has.
    pub message_count: usize,
    /// What it took.
    pub tokens: Tokens,
    /// When it was made.
    pub created_at: u64,
    /// When something last happened.
    pub updated_at: u64,
    /// How old it is, in milliseconds.
    pub uptime: u64,
    /// Whether a run works or waits.
    pub is_processing: bool,
    /// How many messages wait.
    pub queue_size: usize,
}

impl Wire for Stats {}

/// The answer to `session.reset`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reset {
    /// Always true.
    pub ok: bool,
    /// Its key as the client wrote it.
    pub session_key: String,
    /// Its id before.
    pub old_session_id: String,
    /// Its id now.
    pub new_session_id: String,
    /// How many messages were put away.
    pub archived_messages: usize,
    /// Where. Absent if there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archived_to: Option<String>,
    /// What it had taken.
    pub tokens_cleared: Tokens,
    /// How many attachments were deleted.
    pub media_deleted: usize,
}

impl Wire for Reset {}

/// What a patch says about something that may be unset: absent leaves it, null unsets it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Change<T> {
    /// It stays.
    #[default]
    Keep,
    /// It goes.
    Unset,
    /// It becomes this.
    Set(T),
}

/// Parameters of `session.patch`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// The session.
    pub session_key: String,
    /// The model's provider.
    pub provider: Option<String>,
    /// The model's id. Either half may be given alone; see `unset_model`.
    pub model: Option<String>,
    /// True if the session's own model goes.
    pub unset_model: bool,
    /// How hard the model thinks.
    pub thinking_level: Change<Level>,
    /// What it is told it is.
    pub system_prompt: Change<String>,
    /// How much it may write.
    pub max_tokens: Change<u64>,
    /// What people call it.
    pub label: Change<String>,
    /// Which rule says when it begins anew.
    pub reset_mode: Option<ResetMode>,
    /// The hour of a daily one.
    pub at_hour: Option<u8>,
    /// The rest of an idle one.
    pub idle_minutes: Option<u32>,
}

/// How long a name in a session's settings may be, in bytes of JSON.
const LONGEST_NAME: usize = 1024;
/// The longest time, in minutes, after which an idle session begins anew: a year, as in the settings of the gateway.
pub(super) const MOST_IDLE_MINUTES: u64 = 525_600;
/// The same of a system prompt of its own.
const LONGEST_PROMPT: usize = 48 << 10;

const LEVELS: [(&str, Level); 6] = [
    ("none", Level::None),
    ("minimal", Level::Minimal),
    ("low", Level::Low),
    ("medium", Level::Medium),
    ("high", Level::High),
    ("xhigh", Level::XHigh),
];

impl Patch {
    pub(super) fn read(mut fields: Fields) -> Result<Self, Fault> {
        let mut patch = Self { session_key: session_key(&mut fields)?, ..Self::default() };
        let label_named = fields.has("label");
        patch.label = change(label_named, fields.text_within("label", LONGEST_NAME)?);
        if let Some(mut settings) = fields.inner("settings")? {
            let model_named = settings.has("model");
            match settings.inner("model")? {
                Some(mut model) => {
                    patch.provider = some(
                        model.text_within("provider", LONGEST_NAME)?,
                        "settings.model.provider must not be empty",
                    )?;
                    patch.model = some(model.text_within("id", LONGEST_NAME)?, "settings.model.id must not be empty")?;
                    model.end_with_null(&["provider", "id"])?;
                    if patch.provider.is_none() && patch.model.is_none() {
                        let why = "settings.model must name provider, id or both; null unsets it";
                        return Err(Fault::invalid(why));
                    }
                }
                None => patch.unset_model = model_named,
            }
            let named = settings.has("thinkingLevel");
            patch.thinking_level = change(named, settings.word("thinkingLevel", &LEVELS)?);
            let named = settings.has("systemPrompt");
            let prompt = settings.text_within("systemPrompt", LONGEST_PROMPT)?;
            patch.system_prompt =
                change(named, some(prompt, "settings.systemPrompt must not be empty; null unsets it")?);
            let named = settings.has("maxTokens");
            let tokens = settings.count("maxTokens")?;
            if tokens == Some(0) {
                return Err(Fault::invalid("settings.maxTokens must be at least 1"));
            }
            patch.max_tokens = change(named, tokens);
            settings.end_with_null(&["model", "thinkingLevel", "systemPrompt", "maxTokens"])?;
        }
        if let Some(mut policy) = fields.inner("resetPolicy")? {
            let modes = [("manual", ResetMode::Manual), ("daily", ResetMode::Daily), ("idle", ResetMode::Idle)];
            patch.reset_mode = policy.word("mode", &modes)?;
            let hour = policy.count("atHour")?.map(|hour| u8::try_from(hour).ok().filter(|hour| *hour < 24));
            patch.at_hour = hour
                .map(|hour| hour.ok_or_else(|| Fault::invalid("resetPolicy.atHour must be from 0 to 23")))
                .transpose()?;
            patch.idle_minutes = policy
                .count("idleMinutes")?
                .map(|minutes| {
                    let within = u32::try_from(minutes).ok().filter(|_| minutes <= MOST_IDLE_MINUTES);
                    let why =
                        || format!("resetPolicy.idleMinutes must be from 0 to {MOST_IDLE_MINUTES}, not {minutes}");
                    within.ok_or_else(|| Fault::invalid(why()))
                })
                .transpose()?;
            policy.end_with_null(&["mode", "atHour", "idleMinutes"])?;
            if patch.reset_mode.is_none() && patch.at_hour.is_none() && patch.idle_minutes.is_none() {
                return Err(Fault::invalid("resetPolicy must name mode, atHour or idleMinutes"));
            }
        }
        fields.end_with_null(&["sessionKey", "settings", "label", "resetPolicy"])?;
        Ok(patch)
    }

    /// The policy after the patch: fields that it does not name stay, a policy that there was not is a manual one.
    pub fn reset_policy(&self, before: Option<ResetPolicy>) -> Option<ResetPolicy> {
        if self.reset_mode.is_none() && self.at_hour.is_none() && self.idle_minutes.is_none() {
            return before;
        }
        let before = before.unwrap_or(ResetPolicy { mode: ResetMode::Manual, at_hour: None, idle_minutes: None });
        Some(ResetPolicy {
            mode: self.reset_mode.unwrap_or(before.mode),
            at_hour: self.at_hour.or(before.at_hour),
            idle_minutes: self.idle_minutes.or(before.idle_minutes),
        })
    }
}

fn change<T>(is_named: bool, value: Option<T>) -> Change<T> {
    match value {
        Some(value) => Change::Set(value),
        None if is_named => Change::Unset,
        None => Change::Keep,
    }
}

fn some(text: Option<String>, empty: &str) -> Result<Option<String>, Fault> {
    match text {
        Some(text) if text.trim().is_empty() => Err(Fault::invalid(empty)),
        text => Ok(text),
    }
}

/// An answer that says no more than that it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Done {
    ok: bool,
}

impl Done {
    /// It was done.
    pub const OK: Self = Self { ok: true };
}

impl Wire for Done {}

/// Parameters of `session.compact`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compact {
    /// The session.
    pub session_key: String,
    /// How many messages stay.
    pub keep: usize,
}

impl Compact {
    /// How many stay if nothing is said.
    pub const KEEP: usize = 20;

    pub(super) fn read(mut fields: Fields) -> Result<Self, Fault> {
        let session_key = session_key(&mut fields)?;
        let keep = fields.count("keepMessages")?.map(|keep| usize::try_from(keep).unwrap_or(usize::MAX));
        if keep == Some(0) {
            return Err(Fault::invalid("keepMessages must be a positive number"));
        }
        Ok(Self { session_key, keep: keep.unwrap_or(Self::KEEP) })
    }
}

/// The answer to `session.compact`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Compacted {
    /// Always true.
    pub ok: bool,
    /// How many were put away.
    pub trimmed_messages: usize,
    /// How many stay.
    pub kept_messages: usize,
    /// Where. Absent if there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archived_to: Option<String>,
}

impl Wire for Compacted {}

/// The answer to `session.history`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct History {
    /// Its key as the client wrote it.
    pub session_key: String,
    /// Its id now.
    pub current_session_id: String,
    /// Its ids before, the oldest first.
    pub previous_session_ids: Vec<String>,
}

impl Wire for History {}

/// Parameters of `session.preview`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// The session.
    pub session_key: String,
    /// How many of the last messages. Absent is all of them, and so is 0.
    pub limit: Option<usize>,
}

impl Preview {
    pub(super) fn read(mut fields: Fields) -> Result<Self, Fault> {
        let session_key = session_key(&mut fields)?;
        let limit = fields.count("limit")?.filter(|limit| *limit > 0);
        Ok(Self { session_key, limit: limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)) })
    }
}

/// The answer to `session.preview`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Previewed {
    /// Its key as the client wrote it.
    pub session_key: String,
    /// Its id.
    pub session_id: String,
    /// How many messages it has.
    pub message_count: usize,
    /// The last of them.
    pub messages: Vec<Message>,
}

impl Wire for Previewed {}

/// Where the messages of a session lie after a reset.
pub fn archive(agent: &str, session: &str) -> String {
    format!("{}/{session}.jsonl.gz", archives(agent))
}

/// Where the archives of an agent's sessions lie.
pub fn archives(agent: &str) -> String {
    format!("agents/{agent}/sessions")
}

/// The session that an archive is of, or what lies beside one, by its name there.
pub fn archived_session(name: &str) -> Option<&str> {
    let (whole, _) = name.split_once(".jsonl.")?;
    Some(whole.rsplit_once("-part").map_or(whole, |(session, _)| session))
}

/// Where messages lie that a compaction took out at `now`, in milliseconds.
pub fn archive_part(agent: &str, session: &str, now: u64) -> String {
    format!("{}/{session}-part{now}.jsonl.gz", archives(agent))
}

/// What lies beside an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ArchiveNote {
    /// The session's canonical key.
    pub session_key: String,
    /// Its id.
    pub session_id: String,
    /// The agent.
    pub agent_id: String,
    /// How many messages lie there.
    pub message_count: usize,
    /// Since when.
    pub archived_at: u64,
    /// What it took.
    pub tokens: Tokens,
}

impl Wire for ArchiveNote {}
