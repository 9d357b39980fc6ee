//! Registry of sessions in which users spoke through this adapter: one row each, folded within the append, so that it needs
//! no replay and is always current.

use countersign_core::{
    engine::Event,
    id::SessionId,
    session::{self, MessageQueue, SessionEntryKind, SessionSetting},
    time::Millis,
};
use countersign_protocol::gsv::session::SessionTokens;
use countersign_runtime::store::{AnyLog, Log as _, LogReadError, LogView, Partition, StoredRecord, ViewRows};
use serde::{Deserialize, Serialize};

/// Most rows that are read at once.
const PAGE: usize = 1000;
/// Name of the view.
const NAME: &str = "gsv-sessions";
/// Prefix of the ids of this adapter's sessions.
const PREFIX: &str = "gsv:";

/// Returns the session with a canonical key.
pub(super) fn session_of(key: &str) -> SessionId {
    SessionId::new(format!("{PREFIX}{key}"))
}

/// Returns the canonical key of a session of this adapter.
pub(super) fn key_of(session: &SessionId) -> Option<&str> {
    session.as_str().strip_prefix(PREFIX)
}

/// Row of one session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SessionRow {
    /// Canonical key.
    #[serde(skip)]
    pub(super) key: String,
    /// Time of its first message, in milliseconds. Absent if it was only read or configured.
    pub(super) created_at: Option<u64>,
    /// Time of its last activity, in milliseconds.
    pub(super) last_at: u64,
    /// Time of the last message of a user, in milliseconds.
    #[serde(default)]
    pub(super) last_said_at: u64,
    /// Label that users gave it.
    pub(super) label: Option<String>,
    /// Input tokens that providers counted since its last renewal.
    pub(super) input: u64,
    /// Output tokens since then.
    pub(super) output: u64,
}

impl SessionRow {
    /// Returns its token counts since its last renewal.
    pub(super) fn token_counts(&self) -> SessionTokens {
        SessionTokens { input: self.input, output: self.output, total: self.input + self.output }
    }
}

/// View of the sessions of this adapter.
#[derive(Debug)]
pub struct SessionRegistryView;

impl LogView for SessionRegistryView {
    fn name(&self) -> &'static str {
        NAME
    }

    fn version(&self) -> u32 {
        2
    }

    fn fold_record(&self, record: &StoredRecord, content: Option<&str>, rows: &mut dyn ViewRows) {
        let Some(key) = record.session.as_ref().and_then(key_of) else { return };
        if record.kind != "session" {
            return;
        }
        let Ok(Event::Session(event)) = Event::decode(&record.kind, record.version, &record.facts) else { return };
        let known = rows.get(key).and_then(|bytes| serde_json::from_slice::<SessionRow>(&bytes).ok());
        let mut row = known.unwrap_or_default();
        if row.apply_event(&event, content, record.at)
            && let Ok(bytes) = serde_json::to_vec(&row)
        {
            rows.put_row(key, &bytes);
        }
    }
}

/// Part of an answer that is counted.
#[derive(Deserialize)]
struct CountedAnswer {
    #[serde(default)]
    usage: CountedUsage,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct CountedUsage {
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
}

impl SessionRow {
    /// Reports whether the event changed the row.
    fn apply_event(&mut self, event: &session::Event, content: Option<&str>, at: Millis) -> bool {
        match event {
            // Its content lies in an earlier record if it waited: this is its turn, and no new message.
            session::Event::Entry { kind: SessionEntryKind::User, content_at: Some(_), .. } => self.last_at = at.0,
            session::Event::Entry { kind: SessionEntryKind::User, content_at: None, .. }
            | session::Event::Queued { queue: MessageQueue::Next, .. } => {
                self.created_at.get_or_insert(at.0);
                self.last_said_at = at.0;
                self.last_at = at.0;
            }
            session::Event::Entry { kind: SessionEntryKind::Assistant { .. }, .. } => {
                let counted = content.and_then(|content| serde_json::from_str::<CountedAnswer>(content).ok());
                let used = counted.map(|counted| counted.usage).unwrap_or_default();
                self.input += used.input + used.cache_read + used.cache_write;
                self.output += used.output;
                self.last_at = at.0;
            }
            session::Event::Renewed => (self.input, self.output) = (0, 0),
            session::Event::Set(SessionSetting::Profile(profile)) => self.label.clone_from(&profile.label),
            session::Event::Set(SessionSetting::All(all)) => self.label.clone_from(&all.profile.label),
            _ => return false,
        }
        true
    }
}

/// Reads the row of one session. An empty one if it has no messages.
///
/// # Errors
/// An error of the log.
pub(super) async fn session_row(log: &AnyLog, key: &str) -> Result<SessionRow, LogReadError> {
    let page = log.read_view(Partition::ZERO, NAME, key, None, 1).await?;
    Ok(page.into_iter().find(|(found, _)| found == key).map(decode_row).unwrap_or_default())
}

/// Returns every session in which users spoke, the last active first.
///
/// # Errors
/// An error of the log.
pub(super) async fn list_sessions(log: &AnyLog) -> Result<Vec<SessionRow>, LogReadError> {
    let (mut rows, mut after) = (Vec::new(), None::<String>);
    loop {
        let page = log.read_view(Partition::ZERO, NAME, "", after.as_deref(), PAGE).await?;
        let is_last = page.len() < PAGE;
        after = page.last().map(|(key, _)| key.clone());
        rows.extend(page.into_iter().map(decode_row).filter(|row| row.created_at.is_some()));
        if is_last {
            break;
        }
    }
    rows.sort_by(|one, other| (other.last_at, &other.key).cmp(&(one.last_at, &one.key)));
    Ok(rows)
}

fn decode_row((key, bytes): (String, bytes::Bytes)) -> SessionRow {
    SessionRow { key, ..serde_json::from_slice(&bytes).unwrap_or_default() }
}
