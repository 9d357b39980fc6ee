//! The register of sessions that were spoken in through this door: one row each, folded within the append, so that it needs
//! no replay and is never behind.

use countersign_core::{
    engine::Event,
    id::SessionId,
    session::{self, MessageQueue, SessionEntryKind, SessionSetting},
    time::Millis,
};
use countersign_protocol::gsv::session::SessionTokens;
use countersign_runtime::store::{AnyLog, Log as _, LogReadError, LogView, Partition, StoredRecord, ViewRows};
use serde::{Deserialize, Serialize};

/// How many rows are read at once.
const PAGE: usize = 1000;
/// The view's name.
const NAME: &str = "gsv-sessions";
/// How the ids of this door's sessions begin.
const PREFIX: &str = "gsv:";

/// The session that is kept under a canonical key.
pub(super) fn session_of(key: &str) -> SessionId {
    SessionId::new(format!("{PREFIX}{key}"))
}

/// The canonical key of a session of this door.
pub(super) fn key_of(session: &SessionId) -> Option<&str> {
    session.as_str().strip_prefix(PREFIX)
}

/// What the register says of one session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SessionRow {
    /// Its canonical key.
    #[serde(skip)]
    pub(super) key: String,
    /// When it was first spoken in, in milliseconds. Absent if it was only looked at or set up.
    pub(super) created_at: Option<u64>,
    /// When it last was.
    pub(super) last_at: u64,
    /// When somebody last said something in it.
    #[serde(default)]
    pub(super) last_said_at: u64,
    /// What people call it.
    pub(super) label: Option<String>,
    /// What providers counted since it last began anew.
    pub(super) input: u64,
    /// The same of what they wrote.
    pub(super) output: u64,
}

impl SessionRow {
    /// What it took since it last began anew.
    pub(super) fn token_counts(&self) -> SessionTokens {
        SessionTokens { input: self.input, output: self.output, total: self.input + self.output }
    }
}

/// The view.
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

/// As much of an answer as is counted.
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
    /// Whether the event says anything to the register.
    fn apply_event(&mut self, event: &session::Event, content: Option<&str>, at: Millis) -> bool {
        match event {
            // Its content lies in an earlier record if it waited: this is its turn, and nothing that is said now.
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

/// The row of one session. An empty one if it was never spoken in.
///
/// # Errors
/// What the log says.
pub(super) async fn session_row(log: &AnyLog, key: &str) -> Result<SessionRow, LogReadError> {
    let page = log.read_view(Partition::ZERO, NAME, key, None, 1).await?;
    Ok(page.into_iter().find(|(found, _)| found == key).map(decode_row).unwrap_or_default())
}

/// Every session that was spoken in, the last active first.
///
/// # Errors
/// What the log says.
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
