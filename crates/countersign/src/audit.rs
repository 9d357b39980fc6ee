//! Reading a record from outside: its newest entries, whether it is whole, all of it, and taking contents out of it.
//!
//! It must not add to a record, nor know who does.

mod csv;
mod outcome;
mod redact;
mod tail;

use std::{
    fmt,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, anyhow};
use countersign_core::id::Lsn;
use countersign_store::{
    AnyLog, Log as _, LogHead, LogOpenError, Partition, PostgresLog, SqliteLog, StoredContent, StoredRecord,
};
use countersign_view::time::format_iso;
use serde::Serialize;
use serde_json::{json, value::RawValue};

pub(crate) use countersign_view::record::{RecordFilter, RecordFormatter, RecordOutcome, end_text, entry_json};
pub(crate) use csv::export_csv;
pub(crate) use outcome::{OutcomeArg, outcome_style};
pub(crate) use redact::{RedactScope, redact_contents};

use crate::{
    control_client::ControlClient,
    exit::print_notice,
    record_location::{EVENT_FORMAT, RecordLocation, database_options},
    style::{ColourMode, TextStyle, cut_to_width},
};

/// Number of records that are read at a time.
pub(crate) const PAGE: usize = 512;
/// Width of a line of the demo, in columns.
pub(crate) const COLUMNS: usize = 80;
/// Maximum length of an entry on a terminal: a few lines of it, never a whole file.
const SHOWN: usize = 240;

/// For people or for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    Text,
    Json,
}

/// Opens a record for reading only.
pub(crate) fn open_located(record: &RecordLocation) -> anyhow::Result<AnyLog> {
    match record {
        RecordLocation::File(path) => open_record(path),
        RecordLocation::Database(settings) => Ok(PostgresLog::open_read_only(database_options(settings))?.into()),
    }
}

/// Opens a record in a file for reading only.
pub(crate) fn open_record(path: &Path) -> anyhow::Result<AnyLog> {
    SqliteLog::open_read_only(path, EVENT_FORMAT).map(Into::into).map_err(|error| explain_open_error(path, error))
}

/// Reason why a record has no file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MissingRecord {
    /// The gateway that writes it runs, and has recorded nothing yet.
    Unwritten,
    /// There is no file at this path.
    NoFile(PathBuf),
}

impl fmt::Display for MissingRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unwritten => f.write_str("the record is empty: the gateway has recorded nothing yet"),
            Self::NoFile(path) => write!(
                f,
                "{} does not exist: start `countersign serve`, or select another record with --config, --data or --log",
                crate::data_dir::absolute_text(path)
            ),
        }
    }
}

impl std::error::Error for MissingRecord {}

impl MissingRecord {
    /// Returns the reason for a path without a file.
    fn find_reason(path: &Path) -> Self {
        let folder = path.parent().unwrap_or_else(|| Path::new(""));
        if ControlClient::connect(folder).is_some() { Self::Unwritten } else { Self::NoFile(path.to_owned()) }
    }

    /// Returns `error` without the advice that a command with --log does not need.
    pub(crate) fn of_named(error: anyhow::Error) -> anyhow::Error {
        match error.downcast_ref::<Self>() {
            Some(Self::NoFile(path)) => anyhow!("{} does not exist", path.display()),
            Some(Self::Unwritten) | None => error,
        }
    }

    /// Reports whether `error` is about a record in which a running gateway has recorded nothing yet.
    pub(crate) fn is_unwritten(error: &anyhow::Error) -> bool {
        error.downcast_ref::<Self>() == Some(&Self::Unwritten)
    }
}

/// Says in one sentence why there is nothing to read, without the words of the database.
fn explain_open_error(path: &Path, error: LogOpenError) -> anyhow::Error {
    let shown = path.display();
    let Ok(file) = std::fs::metadata(path) else {
        return match error {
            LogOpenError::Missing { .. } => MissingRecord::find_reason(path).into(),
            error => error.into(),
        };
    };
    if file.is_dir() {
        return anyhow!("{shown} is a folder, not a record");
    }
    match error {
        LogOpenError::Missing { .. } if file.len() == 0 => anyhow!("{shown} is empty: there is no record in it"),
        LogOpenError::Corrupt { .. } => anyhow!("{shown} is damaged or not a record"),
        LogOpenError::Io { .. } if file.is_file() => match std::fs::File::open(path) {
            Err(reason) => anyhow!("{shown} could not be opened: {reason}"),
            Ok(_) => error.into(),
        },
        LogOpenError::Missing { .. }
        | LogOpenError::Io { .. }
        | LogOpenError::Owned { .. }
        | LogOpenError::NewerSchema { .. }
        | LogOpenError::NewerEvents { .. }
        | LogOpenError::Parted { .. }
        | LogOpenError::Unindexed { .. }
        | LogOpenError::Foreign { .. }
        | LogOpenError::Database(_) => error.into(),
    }
}

/// Runs `audit tail`.
pub(crate) fn print_tail(
    record: &RecordLocation,
    count: usize,
    filter: &RecordFilter,
    form: OutputFormat,
) -> anyhow::Result<ExitCode> {
    let paint = ColourMode::for_stdout();
    let newest = block_on(async {
        let log = open_located(record)?;
        tail::read_newest(&log, count, filter).await
    })?;
    let empty_notice = match (newest.is_empty() && count > 0, filter.is_empty()) {
        (false, _) => None,
        (true, true) => Some("the record has no entries yet"),
        (true, false) => Some("no entry of the record matches the filters"),
    };
    let mut output = BufWriter::new(std::io::stdout().lock());
    for (stored, about, text) in newest {
        match form {
            OutputFormat::Text => {
                writeln!(output, "{}", format_entry(&stored, &text, TimestampStyle::Date, about.outcome, paint))?
            }
            OutputFormat::Json => writeln!(output, "{}", entry_json(&stored, &about, &text))?,
        }
    }
    output.flush()?;
    drop(output);
    if let Some(notice) = empty_notice {
        print_notice(notice);
    }
    Ok(ExitCode::SUCCESS)
}

/// Form of a shown time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimestampStyle {
    /// The time of day alone, for a demonstration that takes a minute.
    Time,
    /// Date, time and zone, as in every other listing.
    Date,
}

/// Returns one entry as a line: position, time in UTC, kind, and event. A very long one is cut on a terminal.
pub(crate) fn format_entry(
    stored: &StoredRecord,
    text: &str,
    when: TimestampStyle,
    outcome: Option<RecordOutcome>,
    paint: ColourMode,
) -> String {
    let time = format_iso(stored.at);
    let time = match when {
        TimestampStyle::Time => time.get(11..23).unwrap_or(&time),
        TimestampStyle::Date => &time,
    };
    let head = format!("{:>6}  {time}  {:<7}  ", stored.lsn.0, stored.kind);
    match paint {
        ColourMode::Plain => format!("{head}{text}"),
        ColourMode::Coloured => {
            let text = cut_to_width(text, SHOWN);
            let text =
                outcome.and_then(outcome_style).map_or_else(|| text.clone(), |tone| paint.apply_style(tone, &text));
            format!("{}{text}", paint.apply_style(TextStyle::Faint, head))
        }
    }
}

/// Runs `audit verify`.
pub(crate) fn verify_record(
    record: &RecordLocation,
    expected: Option<LogHead>,
    form: OutputFormat,
) -> anyhow::Result<ExitCode> {
    let report = block_on(async { Ok(open_located(record)?.verify_chain(Partition::ZERO, expected).await?) })?;
    let head = format!("{}:{}", report.head.lsn, report.head.chain);
    let flaw = report.flaw.as_ref().map(ToString::to_string);
    let mut output = std::io::stdout().lock();
    match form {
        OutputFormat::Json => {
            let report = json!({ "records": report.records, "redacted": report.redacted, "head": head, "flaw": flaw });
            writeln!(output, "{report}")?;
        }
        OutputFormat::Text => {
            let paint = ColourMode::for_stdout();
            let verdict = match &flaw {
                None => paint.apply_style(TextStyle::Good, "intact"),
                Some(flaw) => paint.apply_style(TextStyle::Bad, format!("FLAW: {flaw}")),
            };
            writeln!(output, "chain     {verdict}")?;
            writeln!(output, "entries   {} verified, {} of them redacted", report.records, report.redacted)?;
            writeln!(output, "head      {head}")?;
        }
    }
    Ok(if flaw.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reads a time as `--since` has it.
///
/// # Errors
/// The text is not understood; the error names the accepted forms.
pub(crate) fn parse_time(text: &str) -> Result<countersign_core::time::Millis, String> {
    countersign_view::record::time_of(text, countersign_runtime::Clock::system().now())
}

/// Reads a head as [`verify_record`] prints it.
///
/// # Errors
/// The text is not a valid head.
pub(crate) fn parse_head(text: &str) -> Result<LogHead, String> {
    let (lsn, chain) = text.split_once(':').ok_or("expected a position, a colon and 64 hex digits")?;
    let lsn = lsn.parse().map(Lsn).map_err(|error| format!("invalid position: {error}"))?;
    let chain = chain.parse().map_err(|_| "invalid chain: expected 64 hex digits after the colon")?;
    Ok(LogHead { lsn, chain })
}

/// One record of an export. *Shape:* one line each, in the order of `lsn`; `facts` is the text that the chain covers.
#[derive(Serialize)]
struct ExportedRecord<'a> {
    lsn: u64,
    at: String,
    session: Option<&'a str>,
    kind: &'a str,
    version: u16,
    facts: &'a RawValue,
    /// Null where there was none or it was redacted: then there is a digest all the same.
    content: Option<&'a str>,
    content_digest: Option<String>,
    chain: String,
}

/// Runs `audit export`, as JSON lines.
pub(crate) fn export_jsonl(record: &RecordLocation, filter: &RecordFilter) -> anyhow::Result<ExitCode> {
    let mut output = BufWriter::new(std::io::stdout().lock());
    block_on(async {
        let log = open_located(record)?;
        let mut narrator = RecordFormatter::default();
        for_each_entry(&log, Lsn(0), async |stored, content| {
            if !filter.is_empty()
                && !filter.matches_record(&stored, &narrator.describe_record(&stored, content.as_deref()).0)
            {
                return Ok(());
            }
            let facts: &RawValue =
                serde_json::from_str(&stored.facts).with_context(|| format!("entry {} is not JSON", stored.lsn))?;
            let exported = ExportedRecord {
                lsn: stored.lsn.0,
                at: format_iso(stored.at),
                session: stored.session.as_ref().map(|session| session.as_str()),
                kind: &stored.kind,
                version: stored.version,
                facts,
                content: content.as_deref(),
                content_digest: stored.content_digest.map(|digest| digest.to_string()),
                chain: stored.chain.to_string(),
            };
            serde_json::to_writer(&mut output, &exported).map_err(std::io::Error::from)?;
            writeln!(output)?;
            Ok(())
        })
        .await
    })?;
    output.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Passes every record after `after` to `take`, with its content if it has one.
pub(crate) async fn for_each_entry(
    log: &AnyLog,
    after: Lsn,
    take: impl AsyncFnMut(StoredRecord, Option<std::sync::Arc<str>>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for_each_entry_between(log, after, Lsn(u64::MAX), take).await
}

/// Calls `take` with each entry after `after` and up to `last`, with its content if it has one that was not redacted.
pub(crate) async fn for_each_entry_between(
    log: &AnyLog,
    mut after: Lsn,
    last: Lsn,
    mut take: impl AsyncFnMut(StoredRecord, Option<std::sync::Arc<str>>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    while after < last {
        let limit = usize::try_from(last.0 - after.0).unwrap_or(usize::MAX).min(PAGE);
        let page = log.read_records(Partition::ZERO, after, limit).await?;
        let lsns: Vec<Lsn> = page.iter().map(|stored| stored.lsn).collect();
        let is_last = page.len() < limit;
        let contents = log.read_contents(Partition::ZERO, &lsns).await?;
        for (stored, content) in page.into_iter().zip(contents) {
            after = stored.lsn;
            if after > last {
                return Ok(());
            }
            let content = match content {
                Some(StoredContent::Text(text)) => Some(text),
                Some(StoredContent::Redacted) | None => None,
            };
            take(stored, content).await?;
        }
        if is_last {
            break;
        }
    }
    Ok(())
}

/// Waits for `work` where nothing else is to be done.
pub(crate) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

#[cfg(test)]
mod tests {
    use countersign_core::{digest::Digest, id::Lsn, time::Millis};
    use countersign_store::{LogHead, StoredRecord};

    use super::{ColourMode, TimestampStyle, format_entry, parse_head};

    #[test]
    fn an_entry_has_its_date_and_the_zone() {
        let stored = StoredRecord {
            lsn: Lsn(7),
            at: Millis(1_770_091_506_789),
            session: None,
            key: None,
            kind: "policy".into(),
            version: 1,
            facts: "{}".into(),
            content_digest: None,
            chain: Digest::hash_bytes(b"x"),
        };
        let line = format_entry(&stored, "text", TimestampStyle::Date, None, ColourMode::Plain);
        assert_eq!(line, "     7  2026-02-03T04:05:06.789Z  policy   text");
    }

    #[test]
    fn a_head_reads_back_as_it_is_printed() {
        let head = LogHead { lsn: Lsn(7), chain: Digest::hash_bytes(b"x") };
        assert_eq!(parse_head(&format!("{}:{}", head.lsn, head.chain)), Ok(head));
        for wrong in ["", "7", "x:00", "7:00"] {
            assert!(parse_head(wrong).is_err(), "{wrong}");
        }
    }
}
