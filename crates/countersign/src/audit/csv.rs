//! The record as a table (RFC 4180).
//!
//! Agents choose much of the text in it, and spreadsheets take text for formulas. Nothing that they would is left at the
//! beginning of a cell.

use std::{
    borrow::Cow,
    io::{BufWriter, Write as _},
    process::ExitCode,
};

use countersign_core::id::Lsn;
use countersign_view::{record::event_name, time::format_iso};

use super::{RecordFilter, RecordFormatter, RecordOutcome, block_on, for_each_entry, open_located};
use crate::record_location::RecordLocation;

const HEAD: &str = "lsn,at,session,kind,event,call,gate,tool,subject,outcome,by,why,text,content_digest,chain";

/// Runs `audit export --format csv`.
pub(crate) fn export_csv(record: &RecordLocation, filter: &RecordFilter) -> anyhow::Result<ExitCode> {
    let mut output = BufWriter::new(std::io::stdout().lock());
    block_on(async {
        let log = open_located(record)?;
        let mut narrator = RecordFormatter::default();
        write!(output, "{HEAD}\r\n")?;
        for_each_entry(&log, Lsn(0), async |stored, content| {
            let (about, text) = narrator.describe_record(&stored, content.as_deref());
            if !filter.matches_record(&stored, &about) {
                return Ok(());
            }
            let row: [&str; 15] = [
                &stored.lsn.to_string(),
                &format_iso(stored.at),
                stored.session.as_ref().map_or("", |session| session.as_str()),
                &stored.kind,
                event_name(&stored),
                &about.call.map_or_else(String::new, |id| id.to_string()),
                &about.gate.map_or_else(String::new, |id| id.to_string()),
                about.tool.as_deref().unwrap_or_default(),
                about.subject.as_deref().unwrap_or_default(),
                about.outcome.map_or("", RecordOutcome::as_str),
                about.by.as_deref().unwrap_or_default(),
                about.why.as_deref().unwrap_or_default(),
                &text,
                &stored.content_digest.map_or_else(String::new, |digest| digest.to_string()),
                &stored.chain.to_string(),
            ];
            write!(output, "{}\r\n", row.map(escape_cell).join(","))?;
            Ok(())
        })
        .await
    })?;
    output.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Escapes one cell: never a formula, in quotes where it has to be.
fn escape_cell(text: &str) -> Cow<'_, str> {
    // Wide forms count too: spreadsheets of some languages take them for the narrow ones.
    let is_formula = text.trim_start().starts_with(['=', '+', '-', '@', '＝', '＋', '－', '＠'])
        || text.starts_with(['\t', '\r', '\n']);
    let text: Cow<'_, str> = if is_formula { format!("'{text}").into() } else { text.into() };
    if text.contains(['"', ',', '\r', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")).into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::escape_cell;

    #[test]
    fn a_cell_is_no_formula_and_reads_back() {
        for (text, want) in [
            ("turn(lamp)", "turn(lamp)"),
            ("", ""),
            ("a,b", "\"a,b\""),
            ("say \"x\"", "\"say \"\"x\"\"\""),
            ("two\nlines", "\"two\nlines\""),
            ("=1+1", "'=1+1"),
            ("=HYPERLINK(\"x\",\"y\")", "\"'=HYPERLINK(\"\"x\"\",\"\"y\"\")\""),
            ("+1", "'+1"),
            ("-1", "'-1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            (" =1", "' =1"),
            ("\t=1", "'\t=1"),
            ("＝1", "'＝1"),
            ("a=1", "a=1"),
        ] {
            assert_eq!(escape_cell(text), want, "{text:?}");
        }
    }
}
