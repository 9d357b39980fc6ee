//! Methods about sessions: parameters and answers.

mod patch;

use serde::Serialize;

use super::GsvError;
use super::directive::{ModelSelector, ThinkLevel};
use super::fields::ParamFields;
use super::message::GsvMessage;
use crate::json::wire_values;

pub(super) use patch::MOST_IDLE_MINUTES;
pub use patch::{FieldPatch, SessionPatchParams};

/// Parameters of the methods that only name a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionParams {
    /// Key as the client writes it; answers repeat it.
    pub session_key: String,
}

impl SessionParams {
    pub(super) fn from_fields(mut fields: ParamFields) -> Result<Self, GsvError> {
        Ok(Self { session_key: session_key(&mut fields)? })
    }
}

fn session_key(fields: &mut ParamFields) -> Result<String, GsvError> {
    fields.require_text("sessionKey", "sessionKey required")
}

/// Page of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageParams {
    /// Number of skipped rows.
    pub offset: usize,
    /// Most rows to return.
    pub limit: usize,
}

impl PageParams {
    pub(super) fn from_fields(fields: &mut ParamFields, default: usize, most: usize) -> Result<Self, GsvError> {
        let small = |count: Option<u64>| count.map(|count| usize::try_from(count).unwrap_or(usize::MAX));
        let offset = small(fields.take_count("offset")?).unwrap_or(0);
        let limit = small(fields.take_count("limit")?).unwrap_or(default).min(most);
        Ok(Self { offset, limit })
    }

    /// Returns the rows of this page.
    pub fn select_rows<T>(self, rows: Vec<T>) -> Vec<T> {
        rows.into_iter().skip(self.offset).take(self.limit).collect()
    }
}

/// Parameters of `sessions.list`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionsListParams {
    /// Page to return, 100 rows by default.
    pub page: PageParams,
}

impl SessionsListParams {
    pub(super) fn from_fields(mut fields: ParamFields) -> Result<Self, GsvError> {
        Ok(Self { page: PageParams::from_fields(&mut fields, 100, 1000)? })
    }
}

/// A session in the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionListEntry {
    /// Its key.
    pub session_key: String,
    /// Time of the first message.
    pub created_at: u64,
    /// Time of the last message.
    pub last_active_at: u64,
    /// Display name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// The answer to `sessions.list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SessionsListResult {
    /// The last active first.
    pub sessions: Vec<SessionListEntry>,
    /// Total number, over all pages.
    pub count: usize,
}

/// Tokens since the last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SessionTokens {
    /// Read.
    pub input: u64,
    /// Written.
    pub output: u64,
    /// Both.
    pub total: u64,
}

/// Settings of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GsvSessionSettings {
    /// The model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelSelector>,
    /// Thinking level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking_level: Option<ThinkLevel>,
    /// System prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// Most tokens of an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
}

/// Rule by which a session resets itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResetPolicy {
    /// Mode of the rule.
    pub mode: ResetMode,
    /// The hour of a daily one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_hour: Option<u8>,
    /// The rest of an idle one. 0 is at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_minutes: Option<u32>,
}

/// Mode of the reset rule of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ResetMode {
    /// None.
    #[default]
    Manual,
    /// An hour of the day.
    Daily,
    /// After a time without activity.
    Idle,
}

/// The answer to `session.get`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionGetResult {
    /// Its id, another one after each reset.
    pub session_id: String,
    /// Its key as the client wrote it.
    pub session_key: String,
    /// Time of creation.
    pub created_at: u64,
    /// Time of the last activity.
    pub updated_at: u64,
    /// Number of messages.
    pub message_count: usize,
    /// Tokens used.
    pub tokens: SessionTokens,
    /// Settings of the session.
    pub settings: GsvSessionSettings,
    /// Rule by which it resets itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset_policy: Option<ResetPolicy>,
    /// Time of the last reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_reset_at: Option<u64>,
    /// Its ids before.
    pub previous_session_ids: Vec<String>,
    /// Display name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// The answer to `session.stats`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionStatsResult {
    /// Its key as the client wrote it.
    pub session_key: String,
    /// Its id.
    pub session_id: String,
    /// Number of messages.
    pub message_count: usize,
    /// Tokens used.
    pub tokens: SessionTokens,
    /// Time of creation.
    pub created_at: u64,
    /// Time of the last activity.
    pub updated_at: u64,
    /// Age, in milliseconds.
    pub uptime: u64,
    /// True if a run works or waits.
    pub is_processing: bool,
    /// Number of queued messages.
    pub queue_size: usize,
}

/// The answer to `session.reset`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionResetResult {
    /// Always true.
    pub ok: bool,
    /// Its key as the client wrote it.
    pub session_key: String,
    /// Its id before.
    pub old_session_id: String,
    /// Its id now.
    pub new_session_id: String,
    /// Number of archived messages.
    pub archived_messages: usize,
    /// Path of the archive. Absent if there were no messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archived_to: Option<String>,
    /// Tokens used before the reset.
    pub tokens_cleared: SessionTokens,
    /// Number of deleted attachments.
    pub media_deleted: usize,
}

/// An answer without any data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OkResult {
    ok: bool,
}

impl OkResult {
    /// The answer.
    pub const OK: Self = Self { ok: true };
}

/// Parameters of `session.compact`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionCompactParams {
    /// The session.
    pub session_key: String,
    /// Number of messages that stay.
    pub keep: usize,
}

impl SessionCompactParams {
    /// Default number of messages that stay.
    pub const KEEP: usize = 20;

    pub(super) fn from_fields(mut fields: ParamFields) -> Result<Self, GsvError> {
        let session_key = session_key(&mut fields)?;
        let keep = fields.take_count("keepMessages")?.map(|keep| usize::try_from(keep).unwrap_or(usize::MAX));
        if keep == Some(0) {
            return Err(GsvError::bad_request("keepMessages must be a positive number"));
        }
        Ok(Self { session_key, keep: keep.unwrap_or(Self::KEEP) })
    }
}

/// The answer to `session.compact`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionCompactResult {
    /// Always true.
    pub ok: bool,
    /// Number of archived messages.
    pub trimmed_messages: usize,
    /// Number of messages that stay.
    pub kept_messages: usize,
    /// Path of the archive. Absent if there were no messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archived_to: Option<String>,
}

/// The answer to `session.history`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionHistoryResult {
    /// Its key as the client wrote it.
    pub session_key: String,
    /// Its id now.
    pub current_session_id: String,
    /// Its ids before, the oldest first.
    pub previous_session_ids: Vec<String>,
}

/// Parameters of `session.preview`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionPreviewParams {
    /// The session.
    pub session_key: String,
    /// Number of last messages to return. Absent is all of them, and so is 0.
    pub limit: Option<usize>,
}

impl SessionPreviewParams {
    pub(super) fn from_fields(mut fields: ParamFields) -> Result<Self, GsvError> {
        let session_key = session_key(&mut fields)?;
        let limit = fields.take_count("limit")?.filter(|limit| *limit > 0);
        Ok(Self { session_key, limit: limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)) })
    }
}

/// The answer to `session.preview`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionPreviewResult {
    /// Its key as the client wrote it.
    pub session_key: String,
    /// Its id.
    pub session_id: String,
    /// Number of messages.
    pub message_count: usize,
    /// The last of them.
    pub messages: Vec<GsvMessage>,
}

/// Returns the path of the messages of a session after a reset.
pub fn archive_path(agent: &str, session: &str) -> String {
    format!("{}/{session}.jsonl.gz", archive_folder(agent))
}

/// Returns the path of the archives of an agent's sessions.
pub fn archive_folder(agent: &str) -> String {
    format!("agents/{agent}/sessions")
}

/// Returns the session of an archive, or of a file next to one, by its name.
pub fn archived_session(name: &str) -> Option<&str> {
    let (whole, _) = name.split_once(".jsonl.")?;
    Some(whole.rsplit_once("-part").map_or(whole, |(session, _)| session))
}

/// Returns the path of messages that a compaction removed at `now`, in milliseconds.
pub fn archive_part(agent: &str, session: &str, now: u64) -> String {
    format!("{}/{session}-part{now}.jsonl.gz", archive_folder(agent))
}

/// Note stored next to an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ArchiveNote {
    /// The session's canonical key.
    pub session_key: String,
    /// Its id.
    pub session_id: String,
    /// The agent.
    pub agent_id: String,
    /// Number of archived messages.
    pub message_count: usize,
    /// Time of the archiving.
    pub archived_at: u64,
    /// Tokens used.
    pub tokens: SessionTokens,
}

wire_values! {
    SessionsListResult, SessionGetResult, SessionStatsResult, SessionResetResult, OkResult, SessionCompactResult,
    SessionHistoryResult, SessionPreviewResult, ArchiveNote,
}
