//! Takes the matches of one file, within what all files together may show.
//!
//! It must not know which file it is.

use std::io;

use grep_searcher::{Searcher, Sink, SinkContext, SinkMatch};
use tokio_util::sync::CancellationToken;

use crate::text;

/// The most that is shown of one line, in bytes.
const LINE: usize = 500;

/// Remaining budget of shown matches.
pub(super) struct MatchBudget {
    /// Matches to pass over.
    pub(super) skip: usize,
    /// Matches to show.
    pub(super) left: usize,
    /// Bytes to show.
    pub(super) bytes: usize,
    /// True if there is more than may be shown.
    pub(super) exceeded: bool,
}

pub(super) struct FileSink<'a> {
    budget: &'a mut MatchBudget,
    cancel: &'a CancellationToken,
    /// Context that is shown only if a match of ours comes next to it.
    pending: String,
    lines: String,
    matches: usize,
}

impl<'a> FileSink<'a> {
    pub(super) fn new(budget: &'a mut MatchBudget, cancel: &'a CancellationToken) -> Self {
        Self { budget, cancel, pending: String::new(), lines: String::new(), matches: 0 }
    }

    /// Returns the lines to show and how many of them are matches.
    pub(super) fn into_lines(self) -> (String, usize) {
        (self.lines, self.matches)
    }
}

impl Sink for FileSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        if self.cancel.is_cancelled() {
            return Ok(false);
        }
        if self.budget.skip > 0 {
            self.budget.skip -= 1;
            self.pending.clear();
            return Ok(true);
        }
        let first = found.line_number().unwrap_or(0);
        let mut shown = std::mem::take(&mut self.pending);
        for (number, line) in (first..).zip(found.lines()) {
            write_line(&mut shown, number, ':', line);
        }
        if self.budget.left == 0 || shown.len() > self.budget.bytes {
            self.budget.exceeded = true;
            return Ok(false);
        }
        self.budget.left -= 1;
        self.budget.bytes -= shown.len();
        self.lines.push_str(&shown);
        self.matches += 1;
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, found: &SinkContext<'_>) -> Result<bool, io::Error> {
        let mut line = String::new();
        write_line(&mut line, found.line_number().unwrap_or(0), '-', found.bytes());
        let behind_ours = *found.kind() == grep_searcher::SinkContextKind::After && self.matches > 0;
        if behind_ours && line.len() <= self.budget.bytes {
            self.budget.bytes -= line.len();
            self.lines.push_str(&line);
        } else if !behind_ours {
            self.pending.push_str(&line);
        }
        Ok(true)
    }

    fn context_break(&mut self, _: &Searcher) -> Result<bool, io::Error> {
        self.pending.clear();
        if self.matches > 0 {
            self.pending.push_str("--\n");
        }
        Ok(true)
    }
}

fn write_line(text: &mut String, number: u64, sign: char, line: &[u8]) {
    let line = String::from_utf8_lossy(line);
    let line = line.trim_end_matches(['\n', '\r']);
    let cut = text::start_of(line, LINE);
    let more = if cut.len() < line.len() { "…" } else { "" };
    text.push_str(&format!("{number}{sign}{cut}{more}\n"));
}
