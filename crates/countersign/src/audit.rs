//! Reading a record from outside: its newest entries, whether it is whole, all of it.
//!
//! It must not write to a record, nor know who does.

mod words;

use std::{
    io::{BufWriter, Write},
    path::Path,
    process::ExitCode,
};

use anyhow::{Context as _, anyhow};
use countersign_core::id::Lsn;
use countersign_server::session_file::time::iso;
use countersign_store::{AnyLog, Content, Head, Log as _, OpenError, Partition, SqliteLog, Stored};
use serde::Serialize;
use serde_json::{json, value::RawValue};

pub(crate) use words::{Narrator, ended};

use crate::paint::{Paint, Tone, cut};

/// The newest form of events that this program reads.
const EVENT_FORMAT: u32 = 1;
/// How many records are read at a time.
const PAGE: usize = 512;
/// How many records before the first that is shown are looked at, for the names of calls and gates.
const LOOK_BACK: u64 = 1000;
/// How wide a line is on a terminal.
pub(crate) const COLUMNS: usize = 80;

/// For people or for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Text,
    Json,
}

/// Opens a record for reading only.
pub(crate) fn open(path: &Path) -> anyhow::Result<AnyLog> {
    SqliteLog::open_read_only(path, EVENT_FORMAT).map(Into::into).map_err(|error| unopened(path, error))
}

/// Says in one sentence why there is nothing to read, without the words of the database.
fn unopened(path: &Path, error: OpenError) -> anyhow::Error {
    let shown = path.display();
    let Ok(file) = std::fs::metadata(path) else { return error.into() };
    if file.is_dir() {
        return anyhow!("{shown} is a folder, not a record");
    }
    match error {
        OpenError::Missing { .. } if file.len() == 0 => anyhow!("{shown} is empty: there is no record in it"),
        OpenError::Corrupt { .. } => anyhow!("{shown} is damaged, or no record at all"),
        OpenError::Io { .. } if file.is_file() => match std::fs::File::open(path) {
            Err(reason) => anyhow!("{shown} could not be opened: {reason}"),
            Ok(_) => error.into(),
        },
        OpenError::Missing { .. }
        | OpenError::Io { .. }
        | OpenError::Owned { .. }
        | OpenError::NewerSchema { .. }
        | OpenError::NewerEvents { .. }
        | OpenError::Foreign { .. } => error.into(),
    }
}

/// `audit tail`.
pub(crate) fn tail(path: &Path, count: u64, form: Form) -> anyhow::Result<ExitCode> {
    let mut output = BufWriter::new(std::io::stdout().lock());
    block_on(async {
        let log = open(path)?;
        let head = log.head(Partition::ZERO).await?.lsn;
        let first = head.0.saturating_sub(count);
        let mut narrator = Narrator::default();
        let paint = Paint::stdout();
        pages(&log, Lsn(first.saturating_sub(LOOK_BACK)), async |stored, content| {
            let text = narrator.tell(&stored, content.as_deref());
            if stored.lsn.0 <= first {
                return Ok(());
            }
            match form {
                Form::Text => writeln!(output, "{}", line(&stored, &text, paint))?,
                Form::Json => {
                    let line = json!({
                        "lsn": stored.lsn.0,
                        "at": iso(stored.at),
                        "session": stored.session,
                        "kind": stored.kind,
                        "text": text,
                    });
                    writeln!(output, "{line}")?;
                }
            }
            Ok(())
        })
        .await
    })?;
    output.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// One entry as a line: position, time of day in UTC, kind, and what happened. Cut to the terminal, whole elsewhere.
pub(crate) fn line(stored: &Stored, text: &str, paint: Paint) -> String {
    let time = iso(stored.at);
    let time = time.get(11..23).unwrap_or(&time);
    let head = format!("{:>6}  {time}  {:<7}  ", stored.lsn.0, stored.kind);
    match paint {
        Paint::Plain => format!("{head}{text}"),
        Paint::Coloured => {
            let text = cut(text, COLUMNS.saturating_sub(head.chars().count()));
            format!("{}{text}", paint.tone(Tone::Faint, head))
        }
    }
}

/// `audit verify`.
pub(crate) fn verify(path: &Path, expected: Option<Head>, form: Form) -> anyhow::Result<ExitCode> {
    let report = block_on(async { Ok(open(path)?.verify(Partition::ZERO, expected).await?) })?;
    let head = format!("{}:{}", report.head.lsn, report.head.chain);
    let flaw = report.flaw.as_ref().map(ToString::to_string);
    let mut output = std::io::stdout().lock();
    match form {
        Form::Json => {
            let report = json!({ "records": report.records, "redacted": report.redacted, "head": head, "flaw": flaw });
            writeln!(output, "{report}")?;
        }
        Form::Text => {
            let paint = Paint::stdout();
            let verdict = match &flaw {
                None => paint.tone(Tone::Good, "every record fits"),
                Some(flaw) => paint.tone(Tone::Bad, format!("FLAW: {flaw}")),
            };
            writeln!(output, "chain     {verdict}")?;
            writeln!(output, "records   {} that fit, {} of them redacted", report.records, report.redacted)?;
            writeln!(output, "head      {head}")?;
        }
    }
    Ok(if flaw.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reads a head as [`verify`] prints it.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn parse_head(text: &str) -> Result<Head, String> {
    let (lsn, chain) = text.split_once(':').ok_or("a head is a position, a colon and 64 hex digits")?;
    let lsn = lsn.parse().map(Lsn).map_err(|error| format!("the position: {error}"))?;
    let chain = chain.parse().map_err(|error| format!("the chain: {error}"))?;
    Ok(Head { lsn, chain })
}

/// One record of an export. *Shape:* one line each, in the order of `lsn`; `facts` is the text that the chain covers.
#[derive(Serialize)]
struct Exported<'a> {
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

/// `audit export`.
pub(crate) fn export(path: &Path) -> anyhow::Result<ExitCode> {
    let mut output = BufWriter::new(std::io::stdout().lock());
    block_on(async {
        let log = open(path)?;
        pages(&log, Lsn(0), async |stored, content| {
            let facts: &RawValue =
                serde_json::from_str(&stored.facts).with_context(|| format!("record {} is no JSON", stored.lsn))?;
            let exported = Exported {
                lsn: stored.lsn.0,
                at: iso(stored.at),
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

/// Hands every record behind `after` to `take`, with its content where it has one.
pub(crate) async fn pages(
    log: &AnyLog,
    mut after: Lsn,
    mut take: impl AsyncFnMut(Stored, Option<std::sync::Arc<str>>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    loop {
        let page = log.read(Partition::ZERO, after, PAGE).await?;
        let lsns: Vec<Lsn> = page.iter().map(|stored| stored.lsn).collect();
        let is_last = page.len() < PAGE;
        let contents = log.contents(Partition::ZERO, &lsns).await?;
        for (stored, content) in page.into_iter().zip(contents) {
            after = stored.lsn;
            let content = match content {
                Some(Content::Text(text)) => Some(text),
                Some(Content::Redacted) | None => None,
            };
            take(stored, content).await?;
        }
        if is_last {
            return Ok(());
        }
    }
}

/// Waits for `work` where nothing else is to be done.
pub(crate) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

#[cfg(test)]
mod tests {
    use countersign_core::{digest::Digest, id::Lsn};
    use countersign_store::Head;

    use super::parse_head;

    #[test]
    fn a_head_reads_back_as_it_is_printed() {
        let head = Head { lsn: Lsn(7), chain: Digest::of(b"x") };
        assert_eq!(parse_head(&format!("{}:{}", head.lsn, head.chain)), Ok(head));
        for wrong in ["", "7", "x:00", "7:00"] {
            assert!(parse_head(wrong).is_err(), "{wrong}");
        }
    }
}
