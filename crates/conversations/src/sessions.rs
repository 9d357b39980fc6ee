//! The list of sessions: one row each, folded within the append, so that it needs no replay and is never late. Rows are kept in the
//! order of the list, so that a page of it costs the same however many sessions there are.
//!
//! | key | value |
//! |---|---|
//! | `order/TIME/ID` | the row; TIME is the time of its last message, counted down, in 20 digits |
//! | `place/ID` | the key of that row, or `deleted` |
//! | `count` | number of rows |
//!
//! Sessions of agents are not in it: there are few, they are always at hand, and their records are many.

use countersign_core::{
    engine::{Engine, Event},
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
/// Prefix of the keys of rows.
const ORDER: &str = "order/";
/// Digits of a time in these keys.
const DIGITS: usize = 20;
/// Key of the number of rows.
const COUNT: &str = "count";
/// Place of a session that was deleted.
const DELETED: &str = "deleted";

/// Adapters whose sessions can be deleted.
const DELETABLE: [&str; 4] = ["acp", "api", "console", "hermes"];

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
        5
    }

    fn reads_contents(&self) -> bool {
        false
    }

    fn fold_record(&self, record: &StoredRecord, _: Option<&str>, rows: &mut dyn ViewRows) {
        let Some(session) = record.session.as_ref().filter(|session| !is_agents(session)) else { return };
        let Some(update) = RowUpdate::from_record(record) else { return };
        let id = session.as_str();
        let place = rows.get(&place_key(id)).and_then(|bytes| String::from_utf8(bytes.to_vec()).ok());
        // A late record, such as the end of its work, brings it back to no list.
        if place.as_deref() == Some(DELETED) {
            return;
        }
        let known = place.as_deref().and_then(|key| rows.get(key)).and_then(|bytes| decode_row(id, &bytes));
        let mut row = known.unwrap_or_else(|| SessionListRow { opened_at: record.at.0, ..SessionListRow::default() });
        row.apply_update(update, record.at);
        let key = order_key(row.last_at, id);
        if let Some(before) = place.as_deref().filter(|before| row.listing.deleted || *before != key) {
            rows.delete_row(before);
        }
        if row.listing.deleted {
            rows.put_row(&place_key(id), DELETED.as_bytes());
            if place.is_some() {
                change_count(rows, |count| count.saturating_sub(1));
            }
            return;
        }
        let Ok(bytes) = serde_json::to_vec(&row) else { return };
        rows.put_row(&key, &bytes);
        if place.as_deref() != Some(&*key) {
            rows.put_row(&place_key(id), key.as_bytes());
        }
        if place.is_none() {
            change_count(rows, |count| count + 1);
        }
    }
}

fn change_count(rows: &mut dyn ViewRows, change: impl FnOnce(usize) -> usize) {
    let count = read_count(rows.get(COUNT).as_deref());
    rows.put_row(COUNT, change(count).to_string().as_bytes());
}

/// Returns the key of a row. Later times come first, and equal ones in the order of the ids.
fn order_key(last_at: u64, id: &str) -> String {
    format!("{ORDER}{:0DIGITS$}/{id}", u64::MAX - last_at)
}

fn place_key(id: &str) -> String {
    format!("place/{id}")
}

fn decode_row(id: &str, bytes: &[u8]) -> Option<SessionListRow> {
    #[cfg(test)]
    tests::DECODED.set(tests::DECODED.get() + 1);
    serde_json::from_slice(bytes).ok().map(|row: SessionListRow| SessionListRow { id: id.to_owned(), ..row })
}

fn read_count(bytes: Option<&[u8]>) -> usize {
    bytes.and_then(|bytes| std::str::from_utf8(bytes).ok()).and_then(|text| text.parse().ok()).unwrap_or_default()
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
    /// Returns its position in the list.
    pub fn list_position(&self) -> ListPosition {
        ListPosition { last_at: self.last_at, id: self.id.clone() }
    }

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

/// Reports whether a session is that of an agent without runs: of agent-gate, or of a client of MCP.
pub fn is_agents(session: &SessionId) -> bool {
    ["agent:", "mcp:"].iter().any(|prefix| session.as_str().starts_with(prefix))
}

/// Reports whether an agent or a host of its own sends a session's prompts, so that no other client may.
pub fn is_spoken_for(session: &session::Session) -> bool {
    is_agents(session.id()) || session.hosted_state().is_some()
}

/// Returns a session in memory, unless it was deleted: of those only the record has anything.
pub fn find_session<'a>(engine: &'a Engine, id: &SessionId) -> Option<&'a session::Session> {
    engine.state().session(id).filter(|session| !session.settings().listing.deleted)
}

/// Reports whether clients use the sessions of an adapter only through this crate, so that a deleted one is gone for all of them.
pub fn is_deletable(door: Option<&str>) -> bool {
    door.is_some_and(|door| DELETABLE.contains(&door))
}

/// Reads as little of the list as shows that it can be read.
///
/// # Errors
/// The error of the log.
pub async fn probe_list(log: &AnyLog) -> Result<(), LogReadError> {
    log.read_view(Partition::ZERO, NAME, "", None, 1).await.map(drop)
}

/// Position in the list, as time of the last message and id of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPosition {
    /// Time of the last message, in milliseconds.
    pub last_at: u64,
    /// Id of the session.
    pub id: String,
}

/// Lists up to `limit` sessions of `log` after `position`, but none of agents and none that was deleted. The session with the latest
/// message comes first; of several with equal times, the one with the lowest id.
///
/// # Errors
/// The error of the log.
pub async fn list_page(
    log: &AnyLog,
    position: Option<&ListPosition>,
    limit: usize,
) -> Result<Vec<SessionListRow>, LogReadError> {
    let after = position.map(|position| order_key(position.last_at, &position.id));
    let page = log.read_view(Partition::ZERO, NAME, ORDER, after.as_deref(), limit).await?;
    let read = |(key, bytes): (String, bytes::Bytes)| decode_row(key.get(ORDER.len() + DIGITS + 1..)?, &bytes);
    Ok(page.into_iter().filter_map(read).collect())
}

/// Returns the number of sessions in the list.
///
/// # Errors
/// The error of the log.
pub async fn count_sessions(log: &AnyLog) -> Result<usize, LogReadError> {
    let found = log.read_view(Partition::ZERO, NAME, COUNT, None, 1).await?;
    Ok(read_count(found.first().map(|(_, bytes)| &**bytes)))
}

/// Lists every session in the order of [`list_page`].
///
/// # Errors
/// The error of the log.
pub async fn list_sessions(log: &AnyLog) -> Result<Vec<SessionListRow>, LogReadError> {
    let (mut rows, mut position) = (Vec::new(), None);
    loop {
        let page = list_page(log, position.as_ref(), PAGE).await?;
        let is_last = page.len() < PAGE;
        position = page.last().map(SessionListRow::list_position);
        rows.extend(page);
        if is_last {
            return Ok(rows);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, collections::BTreeMap, sync::Arc};

    use bytes::Bytes;
    use countersign_core::{digest::Digest, id::Lsn};
    use countersign_runtime::store::{Batch, LogRecord, MemoryLog};

    use super::*;

    thread_local! {
        /// Number of decoded rows.
        pub(super) static DECODED: Cell<usize> = const { Cell::new(0) };
    }

    fn opened() -> Event {
        Event::Session(session::Event::Opened { cwd: "/".to_owned(), name: None, parent: None, door: None })
    }

    fn record(session: &str, at: u64, event: &Event) -> LogRecord {
        let (kind, version, facts) = event.encode();
        LogRecord {
            at: Millis(at),
            session: Some(SessionId::new(session)),
            key: None,
            kind: kind.into(),
            version,
            facts: facts.into(),
            content: None,
        }
    }

    async fn log_of(records: impl IntoIterator<Item = LogRecord>) -> AnyLog {
        let log: AnyLog = MemoryLog::with_views(vec![Arc::new(SessionIndex)]).into();
        let epoch = log.take_over(Partition::ZERO).await.unwrap();
        log.append(Partition::ZERO, epoch, Lsn(0), Batch(records.into_iter().collect())).await.unwrap();
        log
    }

    fn ids(rows: &[SessionListRow]) -> Vec<&str> {
        rows.iter().map(|row| row.id.as_str()).collect()
    }

    #[tokio::test]
    async fn pages_follow_each_other_from_the_latest_session_to_the_first() {
        let named = Event::Session(session::Event::Named { name: "renamed".to_owned() });
        let deleted = ListingFlags { deleted: true, ..ListingFlags::default() };
        let deleted = Event::Session(session::Event::Set(SessionSetting::Listing(deleted)));
        let log = log_of([
            record("b", 5, &opened()),
            record("a", 5, &opened()),
            record("late", 9, &opened()),
            record("early", 1, &opened()),
            record("gone", 7, &opened()),
            record("early", 10, &named),
            record("gone", 11, &deleted),
            record("gone", 12, &named),
            record("agent:x", 13, &opened()),
        ])
        .await;
        let all = list_sessions(&log).await.unwrap();
        assert_eq!(ids(&all), ["late", "a", "b", "early"]);
        assert_eq!(all[3].name.as_deref(), Some("renamed"));
        assert_eq!(count_sessions(&log).await.unwrap(), 4);
        let first = list_page(&log, None, 2).await.unwrap();
        let second = list_page(&log, first.last().map(SessionListRow::list_position).as_ref(), 9).await.unwrap();
        assert_eq!((ids(&first), ids(&second)), (vec!["late", "a"], vec!["b", "early"]));
    }

    #[tokio::test]
    async fn a_page_reads_as_many_rows_as_it_shows_however_many_there_are() {
        for count in [10_usize, 1_000, 100_000] {
            let log = log_of((0..count).map(|number| record(&format!("s{number}"), number as u64, &opened()))).await;
            DECODED.set(0);
            let page = list_page(&log, None, 5).await.unwrap();
            assert_eq!((page.len(), DECODED.get()), (5, 5), "of {count}");
            assert_eq!(page[0].id, format!("s{}", count - 1));
            assert_eq!(count_sessions(&log).await.unwrap(), count);
        }
    }

    /// Rows that count how often they are used.
    #[derive(Default)]
    struct CountingRows {
        rows: BTreeMap<String, Bytes>,
        used: usize,
    }

    impl ViewRows for CountingRows {
        fn get(&mut self, key: &str) -> Option<Bytes> {
            self.used += 1;
            self.rows.get(key).cloned()
        }

        fn put_row(&mut self, key: &str, value: &[u8]) {
            self.used += 1;
            self.rows.insert(key.to_owned(), Bytes::copy_from_slice(value));
        }

        fn delete_row(&mut self, key: &str) {
            self.used += 1;
            self.rows.remove(key);
        }

        fn scan_prefix(&mut self, _: &str) -> Vec<(String, Bytes)> {
            unreachable!("the list is never read whole")
        }
    }

    #[test]
    fn a_record_uses_as_many_rows_however_many_sessions_there_are() {
        let stored = |number: usize| {
            let record = record(&format!("s{number}"), number as u64, &opened());
            StoredRecord {
                lsn: Lsn(number as u64),
                at: record.at,
                session: record.session,
                key: None,
                kind: record.kind,
                version: record.version,
                facts: record.facts,
                content_digest: None,
                chain: Digest::hash_bytes(b""),
            }
        };
        for count in [10, 1_000, 100_000] {
            let mut rows = CountingRows::default();
            for number in 0..count {
                SessionIndex.fold_record(&stored(number), None, &mut rows);
            }
            rows.used = 0;
            SessionIndex.fold_record(&stored(count), None, &mut rows);
            assert_eq!(rows.used, 5, "after {count}");
        }
    }
}
