//! The list of sessions: one row each, folded within the append, so that it needs no replay and is never late.
//!
//! Sessions of agents are not in it: there are few, they are always at hand, and their records are many.

use countersign_core::{
    engine::Event,
    id::SessionId,
    session::{self, ListingFlags, SessionSetting, Settings},
    time::Millis,
};
use countersign_runtime::store::{AnyLog, Log as _, LogReadError, LogView, Partition, StoredRecord, ViewRows};
use serde::{Deserialize, Serialize};

/// Rows read at once.
const PAGE: usize = 1000;
/// The view's name.
const NAME: &str = "sessions";

/// Row of one session in the list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionListRow {
    /// Its id.
    #[serde(skip)]
    pub id: String,
    /// Name of the adapter that it was opened through.
    pub door: Option<String>,
    /// Its name for people.
    pub name: Option<String>,
    /// The folder that it works in.
    pub cwd: String,
    /// The model, as provider and id.
    pub model: Option<(String, String)>,
    /// When it was opened, in milliseconds.
    pub opened_at: u64,
    /// Time of the last message of a person in it, in milliseconds.
    pub last_at: u64,
    /// Number of messages of people and of the model on its current branch.
    pub messages: u64,
    /// Number of tool calls in it.
    pub calls: u64,
    /// Tokens that providers counted.
    pub tokens: u64,
    /// True if a host of its own sends its prompts, so that no other client may.
    pub hosted: bool,
    /// Listing that a person set.
    #[serde(default)]
    pub listing: ListingFlags,
}

/// The view.
#[derive(Debug)]
pub struct SessionIndex;

impl LogView for SessionIndex {
    fn name(&self) -> &'static str {
        NAME
    }

    fn version(&self) -> u32 {
        4
    }

    fn reads_contents(&self) -> bool {
        false
    }

    fn fold_record(&self, record: &StoredRecord, _: Option<&str>, rows: &mut dyn ViewRows) {
        let Some(session) = record.session.as_ref().filter(|session| !is_agents(session)) else { return };
        let Some(update) = RowUpdate::from_record(record) else { return };
        let key = session.as_str();
        let known = rows.get(key).and_then(|bytes| serde_json::from_slice::<SessionListRow>(&bytes).ok());
        let is_deleted = known.as_ref().is_some_and(|row| row.listing.deleted);
        let mut row = known.unwrap_or_else(|| SessionListRow { opened_at: record.at.0, ..SessionListRow::default() });
        row.apply_update(update, record.at);
        // A late record, such as the end of its work, brings it back to no list.
        row.listing.deleted |= is_deleted;
        if let Ok(bytes) = serde_json::to_vec(&row) {
            rows.put_row(key, &bytes);
        }
    }
}

/// Meaning of a record for the list.
enum RowUpdate {
    Opened {
        door: Option<String>,
        name: Option<String>,
        cwd: String,
    },
    Named(String),
    Model(String, String),
    Moved(String),
    All(Box<Settings>),
    Listed(ListingFlags),
    Message {
        tokens: u64,
    },
    /// Another branch is the current one, with so many messages.
    Branch {
        messages: u64,
    },
    Called,
    Hosted,
}

impl RowUpdate {
    fn from_record(record: &StoredRecord) -> Option<Self> {
        // Most records are of other kinds, and need not be read.
        let event = record.facts.split('"').nth(1).unwrap_or_default();
        let tells = match &*record.kind {
            "session" => {
                matches!(event, "opened" | "hosted" | "named" | "set" | "relocated" | "entry" | "moved" | "renewed")
            }
            "call" => event == "wanted",
            _ => false,
        };
        if !tells {
            return None;
        }
        let event = Event::decode(&record.kind, record.version, &record.facts).ok()?;
        match event {
            Event::Session(session::Event::Opened { door, name, cwd, .. }) => Some(Self::Opened { door, name, cwd }),
            Event::Session(session::Event::Hosted { .. }) => Some(Self::Hosted),
            Event::Session(session::Event::Named { name }) => Some(Self::Named(name)),
            Event::Session(session::Event::Set(SessionSetting::Model(model))) => {
                Some(Self::Model(model.provider, model.id))
            }
            Event::Session(session::Event::Set(SessionSetting::All(all))) => Some(Self::All(all)),
            Event::Session(session::Event::Set(SessionSetting::Listing(listing))) => Some(Self::Listed(listing)),
            Event::Session(session::Event::Relocated { cwd }) => Some(Self::Moved(cwd)),
            Event::Session(session::Event::Moved { messages: Some(messages), .. }) => Some(Self::Branch { messages }),
            Event::Session(session::Event::Renewed) => Some(Self::Branch { messages: 0 }),
            Event::Session(session::Event::Entry { kind, .. }) => match kind {
                session::SessionEntryKind::User => Some(Self::Message { tokens: 0 }),
                session::SessionEntryKind::Assistant { total_tokens, .. } => {
                    Some(Self::Message { tokens: total_tokens })
                }
                _ => None,
            },
            Event::Call(_) => Some(Self::Called),
            _ => None,
        }
    }
}

impl SessionListRow {
    fn apply_update(&mut self, update: RowUpdate, at: Millis) {
        match update {
            RowUpdate::Opened { door, name, cwd } => {
                (self.door, self.name, self.cwd) = (door, name, cwd);
                self.last_at = at.0;
            }
            RowUpdate::Named(name) => self.name = Some(name),
            RowUpdate::Model(provider, id) => self.model = Some((provider, id)),
            RowUpdate::Moved(cwd) => self.cwd = cwd,
            RowUpdate::All(all) => {
                self.listing = all.listing;
                self.model = all.model.map(|model| (model.provider, model.id)).or_else(|| self.model.take());
            }
            RowUpdate::Listed(listing) => self.listing = listing,
            RowUpdate::Message { tokens } => {
                self.messages += 1;
                self.tokens += tokens;
                self.last_at = at.0;
            }
            RowUpdate::Branch { messages } => self.messages = messages,
            RowUpdate::Called => self.calls += 1,
            RowUpdate::Hosted => self.hosted = true,
        }
    }
}

/// Reports whether a session is an agent's.
pub fn is_agents(session: &SessionId) -> bool {
    session.as_str().starts_with("agent:")
}

/// Reports whether an agent or a host of its own sends a session's prompts, so that no other client may.
pub fn is_spoken_for(session: &session::Session) -> bool {
    is_agents(session.id()) || session.hosted_state().is_some()
}

/// Reads as little of the list as shows that it can be read.
///
/// # Errors
/// The error of the log.
pub async fn probe_list(log: &AnyLog) -> Result<(), LogReadError> {
    log.read_view(Partition::ZERO, NAME, "", None, 1).await.map(drop)
}

/// Lists every session of `log` but those of agents and those that were deleted, the newest first.
///
/// # Errors
/// The error of the log.
pub async fn list_sessions(log: &AnyLog) -> Result<Vec<SessionListRow>, LogReadError> {
    let (mut rows, mut after) = (Vec::new(), None::<String>);
    loop {
        let page = log.read_view(Partition::ZERO, NAME, "", after.as_deref(), PAGE).await?;
        let is_last = page.len() < PAGE;
        after = page.last().map(|(id, _)| id.clone());
        let read = |(id, bytes): (String, bytes::Bytes)| {
            serde_json::from_slice(&bytes).ok().map(|row: SessionListRow| SessionListRow { id, ..row })
        };
        rows.extend(page.into_iter().filter_map(read).filter(|row| !row.listing.deleted));
        if is_last {
            break;
        }
    }
    rows.sort_by(|one, other| (other.last_at, &other.id).cmp(&(one.last_at, &one.id)));
    Ok(rows)
}
