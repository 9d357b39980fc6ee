//! Methods about sessions: parameters and answers.

mod patch;

use serde::Serialize;

use super::GsvError;
use super::directive::{ModelSelector, ThinkLevel};
use super::fields::ParamFields;
use super::message::GsvMessage;
use crate::json::WireValue;

pub(super) use patch::MOST_IDLE_MINUTES;
pub use patch::{FieldPatch, SessionPatchParams};

/// Parameters of the methods that only name a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionParams {
    /// As the client writes it; answers repeat it.
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

/// Which of many rows are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageParams {
    /// How many are skipped.
    pub offset: usize,
    /// How many are given at most.
    pub limit: usize,
}

impl PageParams {
    pub(super) fn from_fields(fields: &mut ParamFields, default: usize, most: usize) -> Result<Self, GsvError> {
        let small = |count: Option<u64>| count.map(|count| usize::try_from(count).unwrap_or(usize::MAX));
        let offset = small(fields.take_count("offset")?).unwrap_or(0);
        let limit = small(fields.take_count("limit")?).unwrap_or(default).min(most);
        Ok(Self { offset, limit })
    }

    /// Those rows that are wanted.
    pub fn select_rows<T>(self, rows: Vec<T>) -> Vec<T> {
        rows.into_iter().skip(self.offset).take(self.limit).collect()
    }
}

/// Parameters of `sessions.list`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionsListParams {
    /// Which of them, 100 if nothing is said.
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
pub struct SessionsListResult {
    /// The last active first.
    pub sessions: Vec<SessionListEntry>,
    /// How many there are in all.
    pub count: usize,
}

impl WireValue for SessionsListResult {}

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

/// What is set for a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GsvSessionSettings {
    /// Which model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelSelector>,
    /// How hard it thinks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking_level: Option<ThinkLevel>,
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
pub struct SessionGetResult {
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
    pub tokens: SessionTokens,
    /// What is set for it.
    pub settings: GsvSessionSettings,
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

impl WireValue for SessionGetResult {}

/// The answer to `session.stats`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionStatsResult {
    /// Its key as the client wrote it.
    pub session_key: String,
    /// Its id.
    pub session_id: String,
    /// How many messages it has.
    pub message_count: usize,
    /// What it took.
    pub tokens: SessionTokens,
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

impl WireValue for SessionStatsResult {}

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
    /// How many messages were put away.
    pub archived_messages: usize,
    /// Where. Absent if there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archived_to: Option<String>,
    /// What it had taken.
    pub tokens_cleared: SessionTokens,
    /// How many attachments were deleted.
    pub media_deleted: usize,
}

impl WireValue for SessionResetResult {}

/// An answer that says no more than that it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OkResult {
    ok: bool,
}

impl OkResult {
    /// It was done.
    pub const OK: Self = Self { ok: true };
}

impl WireValue for OkResult {}

/// Parameters of `session.compact`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionCompactParams {
    /// The session.
    pub session_key: String,
    /// How many messages stay.
    pub keep: usize,
}

impl SessionCompactParams {
    /// How many stay if nothing is said.
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
    /// How many were put away.
    pub trimmed_messages: usize,
    /// How many stay.
    pub kept_messages: usize,
    /// Where. Absent if there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archived_to: Option<String>,
}

impl WireValue for SessionCompactResult {}

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

impl WireValue for SessionHistoryResult {}

/// Parameters of `session.preview`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionPreviewParams {
    /// The session.
    pub session_key: String,
    /// How many of the last messages. Absent is all of them, and so is 0.
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
    /// How many messages it has.
    pub message_count: usize,
    /// The last of them.
    pub messages: Vec<GsvMessage>,
}

impl WireValue for SessionPreviewResult {}

/// Where the messages of a session lie after a reset.
pub fn archive_path(agent: &str, session: &str) -> String {
    format!("{}/{session}.jsonl.gz", archive_folder(agent))
}

/// Where the archives of an agent's sessions lie.
pub fn archive_folder(agent: &str) -> String {
    format!("agents/{agent}/sessions")
}

/// The session that an archive is of, or what lies beside one, by its name there.
pub fn archived_session(name: &str) -> Option<&str> {
    let (whole, _) = name.split_once(".jsonl.")?;
    Some(whole.rsplit_once("-part").map_or(whole, |(session, _)| session))
}

/// Where messages lie that a compaction took out at `now`, in milliseconds.
pub fn archive_part(agent: &str, session: &str, now: u64) -> String {
    format!("{}/{session}-part{now}.jsonl.gz", archive_folder(agent))
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
    pub tokens: SessionTokens,
}

impl WireValue for ArchiveNote {}
