//! Permanent removal of contents from a record. The decisions stay, and so does the chain.

use std::{collections::BTreeSet, fmt, io::Write as _, process::ExitCode};

use anyhow::bail;
use countersign_core::{
    engine::Engine,
    id::{CallId, GateId, Lsn},
};
use countersign_store::{AnyLog, DatabaseError, Log as _, LogOpenError, LogWriteError, Partition};
use countersign_view::{decisions::check_id_length, record::has_id};
use serde_json::json;

use super::{OutputFormat, RecordFormatter, block_on, for_each_entry, open_located};
use crate::{
    inspect::inspect_log,
    record_location::RecordLocation,
    style::{ColourMode, TextStyle},
};

/// Form of a position, for error texts.
const POSITION: &str = "the position of an entry, a number that `audit tail` prints at the beginning of its line";

/// Extent of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RedactScope {
    /// Contents that agents received already.
    Received,
    /// Also contents that they did not receive.
    Unreceived,
}

/// Owner of a content: a call with all its gates, or a gate without one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ContentOwner {
    Call(CallId),
    Gate(GateId),
}

/// A record that has, or had, a content.
struct RedactableEntry {
    lsn: Lsn,
    owner: ContentOwner,
    /// True if it still exists.
    is_there: bool,
}

/// Target that a user names.
#[derive(Debug, PartialEq)]
enum RedactTarget<'a> {
    /// One entry, by its position.
    Entry(Lsn),
    /// A call or gate, by its id or the end of it.
    Named(&'a str),
}

impl<'a> RedactTarget<'a> {
    /// Parses a target. A position is `#57`, or a short number that cannot be the end of an id.
    fn parse_target(text: &'a str) -> anyhow::Result<Self> {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|letter| letter.is_ascii_digit());
        let position = match text.strip_prefix('#') {
            Some(position) => Some(position),
            None => {
                Some(text).filter(|text| digits(text) && text.len() < 8 && (*text == "0" || !text.starts_with('0')))
            }
        };
        match position {
            Some(position) => match position.parse() {
                Ok(lsn) if digits(position) => Ok(Self::Entry(Lsn(lsn))),
                _ => bail!("invalid position {text:?}: expected {POSITION}"),
            },
            None => match check_id_length(text) {
                Ok(()) => Ok(Self::Named(text)),
                Err(_) => bail!(
                    "{text:?} is not an id or a position: expected the id of a call or gate, or at least its last 8 \
                     characters, or {POSITION}"
                ),
            },
        }
    }
}

impl fmt::Display for RedactTarget<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry(lsn) => write!(f, "entry {lsn}"),
            Self::Named(id) => f.write_str(id),
        }
    }
}

/// Runs `audit redact`.
pub(crate) fn redact_contents(
    record: &RecordLocation,
    what: &str,
    reach: RedactScope,
    form: OutputFormat,
) -> anyhow::Result<ExitCode> {
    let what = RedactTarget::parse_target(what)?;
    // Says in words of its own why there is nothing to read, and makes nothing.
    drop(open_located(record)?);
    let (found, removed, report) = block_on(async {
        // The lock of the record is taken first: what is looked at below cannot change any more.
        let log = record.open_to_write().map_err(|error| match error {
            LogOpenError::Owned { pid, .. } => {
                let who = pid.map_or_else(String::new, |pid| format!(" (process {pid})"));
                anyhow::anyhow!(
                    "a gateway or session{who} is writing {record}: stop it first, because it reads these contents"
                )
            }
            LogOpenError::Database(DatabaseError::Owned { .. }) => {
                anyhow::anyhow!("{error}: stop it first, because it reads these contents")
            }
            error => anyhow::Error::from(error),
        })?;
        let found = find_contents(&log, &what).await?;
        let lsns: Vec<Lsn> = found.iter().map(|found| found.lsn).collect();
        let engine = inspect_log(&log).await?;
        let unfinished = engine.wants_admitted();
        if let Some(lsn) = lsns.iter().find(|lsn| unfinished.contains(lsn)) {
            bail!("entry {lsn} belongs to a call or gate that has not ended: deny or cancel it first");
        }
        let unreceived = unreceived_contents(&engine);
        if let Some(lsn) = lsns.iter().find(|lsn| unreceived.contains(lsn)).filter(|_| reach == RedactScope::Received) {
            bail!(
                "entry {lsn} belongs to a call whose result the agent has not received yet; --unreceived removes it \
                 anyway, and the agent never gets it"
            );
        }
        let removed = log.redact_contents(Partition::ZERO, &lsns).await.map_err(|error| match error {
            LogWriteError::Lingers(_) => anyhow::anyhow!(
                "the contents are removed, but traces of them remain in the file because another process reads it: \
                 redact again"
            ),
            error => error.into(),
        })?;
        let report = log.verify_chain(Partition::ZERO, None).await?;
        log.close().await;
        Ok((found, removed, report))
    })?;
    let (head, flaw) = (format!("{}:{}", report.head.lsn, report.head.chain), report.flaw.map(|flaw| flaw.to_string()));
    let mut out = std::io::stdout().lock();
    match form {
        OutputFormat::Json => {
            let lsns: Vec<u64> = found.iter().map(|found| found.lsn.0).collect();
            writeln!(out, "{}", json!({ "entries": lsns, "removed": removed, "head": head, "flaw": flaw }))?;
        }
        OutputFormat::Text => {
            let paint = ColourMode::for_stdout();
            let were_there = found.iter().filter(|found| found.is_there);
            let named: Vec<String> = were_there.map(|found| found.lsn.to_string()).collect();
            let entries = if removed == 1 { "entry" } else { "entries" };
            writeln!(out, "removed   contents of {removed} {entries}: {}", named.join(", "))?;
            let verdict = match &flaw {
                None => paint.apply_style(TextStyle::Good, "intact"),
                Some(flaw) => paint.apply_style(TextStyle::Bad, format!("FLAW: {flaw}")),
            };
            writeln!(out, "chain     {verdict}")?;
            writeln!(out, "head      {head}")?;
        }
    }
    Ok(if flaw.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns every record of the call or gate that `what` names, or the one at that position, if it ever had a content.
async fn find_contents(log: &AnyLog, what: &RedactTarget<'_>) -> anyhow::Result<Vec<RedactableEntry>> {
    let position = match what {
        RedactTarget::Entry(lsn) => Some(*lsn),
        RedactTarget::Named(_) => None,
    };
    let head = log.head(Partition::ZERO).await?.lsn;
    if position.is_some_and(|lsn| lsn.0 == 0 || lsn > head) {
        bail!("{what} does not exist: the record ends at {head}");
    }
    let mut narrator = RecordFormatter::default();
    let (mut found, mut named, mut other) = (Vec::new(), BTreeSet::new(), None);
    for_each_entry(log, Lsn(0), async |stored, content| {
        let about = narrator.describe_record(&stored, content.as_deref()).0;
        let is_named = match what {
            RedactTarget::Entry(lsn) => *lsn == stored.lsn,
            RedactTarget::Named(id) => has_id(&about, id),
        };
        let owner = about.call.map(ContentOwner::Call).or_else(|| about.gate.map(ContentOwner::Gate));
        match owner {
            Some(owner) => {
                if is_named {
                    named.insert(owner);
                }
                if stored.content_digest.is_some() && position.is_none_or(|_| is_named) {
                    found.push(RedactableEntry { lsn: stored.lsn, owner, is_there: content.is_some() });
                }
            }
            None if is_named => other = Some(stored.kind.to_string()),
            None => {}
        }
        Ok(())
    })
    .await?;
    if let Some(kind) = other {
        bail!("{what} is of kind {kind}: only contents of calls and gates can be removed");
    }
    if named.len() > 1 {
        bail!("more than one id ends with {what}: give more of it");
    }
    found.retain(|found| named.contains(&found.owner));
    if let (true, Some(_), Some(owner)) = (found.is_empty(), position, named.first()) {
        let (kind, id) = match owner {
            ContentOwner::Call(id) => ("call", id.to_string()),
            ContentOwner::Gate(id) => ("gate", id.to_string()),
        };
        bail!("{what} has no contents of its own; the {kind} is {id}: redact that id");
    }
    anyhow::ensure!(
        !found.is_empty(),
        "no call or gate with a content matches {what}: `audit tail` shows positions, and `audit tail --json` ids too"
    );
    anyhow::ensure!(found.iter().any(|found| found.is_there), "the contents of {what} were removed already");
    Ok(found)
}

/// Returns the positions of contents that agents have not received.
fn unreceived_contents(engine: &Engine) -> BTreeSet<Lsn> {
    let results = engine.state().sessions().filter_map(|session| session.agent_requests());
    let results = results.flat_map(|requester| requester.results().values());
    results.flat_map(|result| [result.proposed_lsn, result.lsn]).collect()
}

#[cfg(test)]
mod tests {
    use countersign_core::id::Lsn;

    use super::{POSITION, RedactTarget};

    #[test]
    fn a_number_is_a_position_only_where_it_cannot_be_the_end_of_an_id() {
        for (text, want) in [("57", 57), ("1234567", 1_234_567), ("#57", 57), ("#12345678", 12_345_678), ("0", 0)] {
            assert_eq!(RedactTarget::parse_target(text).unwrap(), RedactTarget::Entry(Lsn(want)), "{text}");
        }
        for text in ["12345678", "00000057", "1a2b3c4d", "gate_12345678", "call_0193f1b000007000"] {
            assert_eq!(RedactTarget::parse_target(text).unwrap(), RedactTarget::Named(text), "{text}");
        }
        for text in ["", "#", "#a", "#+5", "+5", "a", "057", "1a2b3c4", "gate_1", "call_1234567"] {
            let why = RedactTarget::parse_target(text).unwrap_err().to_string();
            assert!(why.contains(&format!("{text:?}")) && why.contains(POSITION), "{text}: {why}");
        }
    }
}
