//! Positions in the record. A cursor names a record and the chain before it, so that one of another record, or of
//! a lost future, is recognised.

use std::{borrow::Cow, fmt};

use countersign_core::id::Lsn;
use countersign_runtime::store::{AnyLog, Log as _, LogHead, LogReadError, Partition, StoredRecord};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

/// Number of hex digits of the chain in a cursor.
const DIGITS: usize = 16;

/// Position. *Shape:* the LSN, `-`, and the first 16 hex digits of the chain there; `0` is the position before everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RecordCursor {
    lsn: Lsn,
    /// Digits of the chain. Absent if a client named an LSN alone.
    chain: Option<String>,
}

impl RecordCursor {
    /// Position before everything.
    pub(super) const START: Self = Self { lsn: Lsn(0), chain: None };

    /// Parses a cursor.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (lsn, chain) = match text.split_once('-') {
            None => (text, None),
            Some((lsn, chain)) => (lsn, Some(chain)),
        };
        let is_plain = !lsn.is_empty() && lsn.bytes().all(|byte| byte.is_ascii_digit());
        let is_chain = |chain: &&str| chain.len() == DIGITS && chain.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_plain || chain.is_some_and(|chain| !is_chain(&chain)) {
            return None;
        }
        let lsn = Lsn(lsn.parse().ok()?);
        Some(Self { lsn, chain: chain.map(str::to_ascii_lowercase) })
    }

    /// Returns the position after a record.
    pub(super) fn after_record(stored: &StoredRecord) -> Self {
        Self::from_head(LogHead { lsn: stored.lsn, chain: stored.chain })
    }

    /// Returns the position after the last record.
    pub(super) fn from_head(head: LogHead) -> Self {
        if head.lsn == Lsn(0) {
            return Self::START;
        }
        let chain = head.chain.to_string();
        Self { lsn: head.lsn, chain: Some(chain.get(..DIGITS).unwrap_or(&chain).to_owned()) }
    }

    /// Returns the position after the record at `lsn`, or after the last one if that is not written yet.
    ///
    /// # Errors
    /// An error of the log.
    pub(super) async fn at_lsn(log: &AnyLog, lsn: Lsn) -> Result<Self, LogReadError> {
        if lsn == Lsn(0) {
            return Ok(Self::START);
        }
        match read_record(log, lsn).await? {
            Some(stored) => Ok(Self::after_record(&stored)),
            None => Ok(Self::from_head(log.head(Partition::ZERO).await?)),
        }
    }

    /// Returns the LSN of the record before it, if the position is in `log`.
    ///
    /// # Errors
    /// An error of the log.
    pub(super) async fn resolve_lsn(&self, log: &AnyLog) -> Result<Result<Lsn, Misplaced>, LogReadError> {
        if self.lsn == Lsn(0) {
            return Ok(Ok(self.lsn));
        }
        let Some(stored) = read_record(log, self.lsn).await? else { return Ok(Err(Misplaced::Ahead)) };
        let there = Self::after_record(&stored);
        Ok(if self.chain.is_none() || self.chain == there.chain { Ok(self.lsn) } else { Err(Misplaced::Elsewhere) })
    }
}

/// Reason why a cursor is not valid in this record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Misplaced {
    /// The record ends before it.
    Ahead,
    /// It is of another record, or of a history that was replaced.
    Elsewhere,
}

impl fmt::Display for RecordCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.chain {
            Some(chain) => write!(f, "{}-{chain}", self.lsn),
            None => write!(f, "{}", self.lsn),
        }
    }
}

impl Serialize for RecordCursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for RecordCursor {
    fn schema_name() -> Cow<'static, str> {
        "Cursor".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Position in the record, for the parameter after of GET /api/v1/events",
        })
    }
}

/// Reads the record at `lsn`.
pub(super) async fn read_record(log: &AnyLog, lsn: Lsn) -> Result<Option<StoredRecord>, LogReadError> {
    let Some(before) = lsn.0.checked_sub(1) else { return Ok(None) };
    let mut found = log.read_records(Partition::ZERO, Lsn(before), 1).await?;
    Ok(found.pop().filter(|stored| stored.lsn == lsn))
}

#[cfg(test)]
mod tests {
    use countersign_core::{id::Lsn, time::Millis};
    use countersign_runtime::store::{Batch, Log as _, LogRecord, MemoryLog, Partition};

    use super::{Misplaced, RecordCursor};

    async fn log(facts: &[&str]) -> MemoryLog {
        let log = MemoryLog::new();
        let record = |facts: &&str| LogRecord {
            at: Millis(1),
            session: None,
            key: None,
            kind: "booted".into(),
            version: 1,
            facts: (*facts).into(),
            content: None,
        };
        let batch = Batch(facts.iter().map(record).collect());
        let epoch = log.take_over(Partition::ZERO).await.unwrap();
        log.append(Partition::ZERO, epoch, Lsn(0), batch).await.unwrap();
        log
    }

    #[tokio::test]
    async fn a_cursor_is_a_place_in_its_own_record_only() {
        let (one, other) = (log(&["1", "2"]).await.into(), log(&["1", "3"]).await.into());
        let cursor = RecordCursor::at_lsn(&one, Lsn(2)).await.unwrap();
        assert_eq!(RecordCursor::parse(&cursor.to_string()), Some(cursor.clone()));
        assert_eq!(cursor.resolve_lsn(&one).await.unwrap(), Ok(Lsn(2)));
        assert_eq!(cursor.resolve_lsn(&other).await.unwrap(), Err(Misplaced::Elsewhere));
        // A shared beginning is a position in both.
        assert_eq!(RecordCursor::at_lsn(&one, Lsn(1)).await.unwrap().resolve_lsn(&other).await.unwrap(), Ok(Lsn(1)));
        let ahead = log(&["1", "2", "3"]).await.into();
        let ahead = RecordCursor::at_lsn(&ahead, Lsn(3)).await.unwrap();
        assert_eq!(ahead.resolve_lsn(&one).await.unwrap(), Err(Misplaced::Ahead));
        assert_eq!(RecordCursor::START.resolve_lsn(&one).await.unwrap(), Ok(Lsn(0)));
        assert_eq!(RecordCursor::at_lsn(&one, Lsn(0)).await.unwrap(), RecordCursor::START);
        assert_eq!(
            RecordCursor::at_lsn(&one, Lsn(9)).await.unwrap(),
            cursor,
            "what is not written yet is still to come"
        );
    }

    #[test]
    fn what_is_no_cursor_is_not_taken_for_one() {
        for text in
            ["", "-", "x", "1-", "1-12", "-1", "1-zzzzzzzzzzzzzzzz", "1-0123456789abcdef0", "99999999999999999999"]
        {
            assert_eq!(RecordCursor::parse(text), None, "{text:?}");
        }
        assert!(RecordCursor::parse("7").is_some() && RecordCursor::parse("7-0123456789ABCDEF").is_some());
    }
}
