//! The output of a command: the end of it, or the requested part, and the whole in a file if it is long.
//!
//! It must not know how a command ended.

use std::{borrow::Cow, path::PathBuf, time::SystemTime};

use serde_json::{Value, json};
use tokio::{
    fs::{File, OpenOptions},
    io::AsyncWriteExt as _,
};

use crate::{
    artifacts,
    outcome::CallOutput,
    text::{self, SHOWN_BYTES},
};

/// Number of bytes that are held before the front is dropped.
const HELD: usize = 4 * SHOWN_BYTES;
/// The most that the file of one output takes.
const KEPT: u64 = 64 << 20;

/// Requested lines of an output: the first of them, the last, or both ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LineWindow {
    pub(crate) head: Option<usize>,
    pub(crate) tail: Option<usize>,
}

/// Takes an output in.
pub(crate) struct OutputCollector {
    window: LineWindow,
    folder: Option<PathBuf>,
    file: Option<(File, PathBuf)>,
    /// The end, or with `head` the beginning.
    held: Vec<u8>,
    /// The end, if both ends are requested.
    ending: Vec<u8>,
    bytes: u64,
    line_ends: usize,
    /// True if a line has begun that has no end yet.
    is_in_line: bool,
}

/// Text between the two ends of an output.
const GAP: &str = "[…]\n";

/// Shown part of an output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShownOutput {
    pub(crate) text: String,
    /// True if `text` is not all.
    pub(crate) truncated: bool,
    pub(crate) total_lines: usize,
    pub(crate) total_bytes: u64,
    pub(crate) artifact: Option<PathBuf>,
    /// Lines as people count them: a line end at the very end begins no other.
    all: usize,
    /// Number of lines before the gap, if both ends are shown and something is between them.
    gap_after: Option<usize>,
    window: LineWindow,
}

impl OutputCollector {
    pub(crate) fn new(window: LineWindow, folder: Option<PathBuf>) -> Self {
        Self {
            window,
            folder,
            file: None,
            held: Vec::new(),
            ending: Vec::new(),
            bytes: 0,
            line_ends: 0,
            is_in_line: false,
        }
    }

    pub(crate) async fn push(&mut self, chunk: &[u8]) {
        let before = self.bytes;
        self.bytes += chunk.len() as u64;
        self.line_ends += chunk.iter().filter(|byte| **byte == b'\n').count();
        self.is_in_line = chunk.last().map_or(self.is_in_line, |byte| *byte != b'\n');
        if self.window.head.is_some() && self.window.tail.is_some() {
            self.ending.extend_from_slice(chunk);
            if self.ending.len() > HELD {
                self.ending.drain(..self.ending.len() - SHOWN_BYTES);
            }
        }
        if self.window.head.is_some() {
            let room = (2 * SHOWN_BYTES).saturating_sub(self.held.len());
            self.held.extend_from_slice(&chunk[..chunk.len().min(room)]);
        } else {
            self.held.extend_from_slice(chunk);
        }
        if self.bytes > SHOWN_BYTES as u64 {
            self.keep_in_file(chunk, before).await;
        }
        if self.window.head.is_none() && self.held.len() > HELD {
            self.held.drain(..self.held.len() - SHOWN_BYTES);
        }
    }

    /// Writes to the file, which begins when the output is longer than what can be shown. Without it the output is only
    /// cut.
    async fn keep_in_file(&mut self, chunk: &[u8], before: u64) {
        if self.file.is_none()
            && let Some(folder) = self.folder.take()
        {
            match create_log_file(folder).await {
                Ok(made) => self.file = Some(made),
                Err(error) => tracing::warn!(%error, "cannot create a file for a long output"),
            }
            // All that came before is still held.
            let all = usize::try_from(before).unwrap_or(usize::MAX).min(self.held.len());
            let earlier = self.held[..all].to_vec();
            self.write_bytes(&earlier, 0).await;
        }
        self.write_bytes(chunk, before).await;
    }

    async fn write_bytes(&mut self, bytes: &[u8], at: u64) {
        let Some((file, path)) = &mut self.file else { return };
        let room = usize::try_from(KEPT.saturating_sub(at)).unwrap_or(usize::MAX);
        if let Err(error) = file.write_all(&bytes[..bytes.len().min(room)]).await {
            tracing::warn!(%error, path = %path.display(), "cannot write all of a long output to its file");
            self.file = None;
        }
    }

    /// Returns the output so far, as an update.
    pub(crate) fn partial_output(&self) -> CallOutput {
        let whole = match std::str::from_utf8(&self.held) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Ok(_) | Err(_) => self.held.len(),
        };
        let shown = self.shown_output(&self.held[..whole]);
        CallOutput::from_text(shown.text.clone()).with_details(shown.truncation_details())
    }

    pub(crate) async fn finish(mut self) -> ShownOutput {
        if let Some((file, path)) = &mut self.file
            && let Err(error) = file.flush().await
        {
            tracing::warn!(%error, path = %path.display(), "cannot write all of a long output to its file");
        }
        self.shown_output(&self.held)
    }

    fn shown_output(&self, held: &[u8]) -> ShownOutput {
        let total_lines = if self.bytes == 0 { 0 } else { self.line_ends + 1 };
        let all = self.line_ends + usize::from(self.is_in_line);
        let mut gap_after = None;
        let text = match self.window {
            LineWindow { head: None, tail } => last_lines(&tail_text(held), tail).to_owned(),
            LineWindow { head: Some(head), tail: None } => {
                text::start_of(first_lines(&String::from_utf8_lossy(held), head), SHOWN_BYTES).to_owned()
            }
            LineWindow { head: Some(head), tail: Some(tail) } => {
                let (text, first) = self.first_and_last(held, all, head, tail);
                gap_after = first;
                text
            }
        };
        // Text is never shorter than the bytes that it represents.
        let truncated = gap_after.is_some() || count_lines(&text) < all || self.bytes > text.len() as u64;
        let artifact = self.file.as_ref().map(|(_, path)| path.clone());
        ShownOutput {
            text,
            truncated,
            total_lines,
            total_bytes: self.bytes,
            artifact,
            all,
            gap_after,
            window: self.window,
        }
    }

    /// Returns the first and the last lines, with the number of the first; all of them, if nothing is between the two.
    fn first_and_last(&self, held: &[u8], all: usize, head: usize, tail: usize) -> (String, Option<usize>) {
        let beginning = String::from_utf8_lossy(held);
        if all <= head.saturating_add(tail) && self.bytes <= SHOWN_BYTES as u64 {
            return (beginning.into_owned(), None);
        }
        let ending = tail_text(&self.ending);
        let first = text::start_of(first_lines(&beginning, head), SHOWN_BYTES / 2);
        let last = text::end_of(last_lines(&ending, Some(tail)), SHOWN_BYTES / 2);
        let line_end = if first.ends_with('\n') { "" } else { "\n" };
        (format!("{first}{line_end}{GAP}{last}"), Some(count_lines(first)))
    }
}

/// Counts the lines of a text as people do.
fn count_lines(text: &str) -> usize {
    text.lines().count()
}

impl ShownOutput {
    /// Returns the number of shown lines.
    fn line_count(&self) -> usize {
        count_lines(&self.text) - usize::from(self.gap_after.is_some())
    }

    /// Returns the number of shown bytes.
    fn byte_count(&self) -> usize {
        self.text.len() - self.gap_after.map_or(0, |_| GAP.len())
    }

    /// Describes the parts that are not shown. None if all are.
    pub(crate) fn truncation_note(&self) -> Option<String> {
        if !self.truncated {
            return None;
        }
        let what = match self.gap_after {
            Some(first) => format!("first {first} and the last {}", self.line_count().saturating_sub(first)),
            None if self.window.head.is_none() => format!("last {}", self.line_count()),
            None => format!("first {}", self.line_count()),
        };
        let mut note = format!(
            "[Showing the {what} of {} lines ({} of {})",
            self.all,
            text::format_size(self.byte_count() as u64),
            text::format_size(self.total_bytes)
        );
        if let Some(path) = &self.artifact {
            let whole = if self.total_bytes > KEPT { "First 64 MiB of the output" } else { "Full output" };
            note.push_str(&format!(". {whole}: {}", path.display()));
        }
        note.push(']');
        Some(note)
    }

    /// Returns `{}` or `{"meta":{"truncation":…}}`.
    pub(crate) fn truncation_details(&self) -> Value {
        if !self.truncated {
            return json!({});
        }
        let shown = self.line_count();
        let is_line_limited = self.window != LineWindow::default() && self.total_bytes <= SHOWN_BYTES as u64;
        let mut truncation = json!({
            "direction": if self.window.head.is_none() { "tail" } else { "head" },
            "truncatedBy": if is_line_limited { "lines" } else { "bytes" },
            "totalLines": self.all,
            "totalBytes": self.total_bytes,
            "outputLines": shown,
            "outputBytes": self.byte_count(),
        });
        // Two ends are no range.
        if self.gap_after.is_none() {
            let start = if self.window.head.is_none() { self.all.saturating_sub(shown) + 1 } else { 1 };
            truncation["shownRange"] = json!({"start": start, "end": (start + shown).saturating_sub(1)});
        }
        if let Some(path) = &self.artifact {
            truncation["artifactId"] = path.file_name().map(|name| name.to_string_lossy().into_owned()).into();
        }
        json!({"meta": {"truncation": truncation}})
    }
}

/// Returns the end of `bytes` as text, from a whole character on.
fn tail_text(bytes: &[u8]) -> Cow<'_, str> {
    let from = bytes.len().saturating_sub(SHOWN_BYTES);
    // The rest of a character that began before; what is no character at all is shown as such.
    let rest =
        if from == 0 { 0 } else { bytes[from..].iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count() };
    match String::from_utf8_lossy(&bytes[from + rest..]) {
        Cow::Owned(text) if text.len() > SHOWN_BYTES => Cow::Owned(text::end_of(&text, SHOWN_BYTES).to_owned()),
        text => text,
    }
}

fn first_lines(text: &str, count: usize) -> &str {
    match text.match_indices('\n').nth(count.saturating_sub(1)) {
        Some((at, _)) if count > 0 => &text[..=at],
        Some(_) | None => text,
    }
}

/// Returns the last lines. A line end at the very end ends the last line; it does not begin another.
fn last_lines(text: &str, count: Option<usize>) -> &str {
    let Some(count) = count else { return text };
    let body = text.strip_suffix('\n').unwrap_or(text);
    match body.rmatch_indices('\n').nth(count.saturating_sub(1)) {
        Some((at, _)) => &text[at + 1..],
        None => text,
    }
}

async fn create_log_file(folder: PathBuf) -> std::io::Result<(File, PathBuf)> {
    let folder = tokio::task::spawn_blocking(move || {
        artifacts::create_folder(&folder, SystemTime::now())?;
        Ok::<_, std::io::Error>(folder)
    });
    let folder = folder.await.map_err(std::io::Error::other)??;
    let mut random = [0; 6];
    getrandom::fill(&mut random).map_err(|error| std::io::Error::other(error.to_string()))?;
    let path = folder.join(format!("bash-{}.log", hex::encode(random)));
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).await?;
    Ok((file, path))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{LineWindow, OutputCollector, ShownOutput};

    async fn collected(window: LineWindow, chunks: &[&[u8]]) -> ShownOutput {
        let mut collector = OutputCollector::new(window, None);
        for chunk in chunks {
            collector.push(chunk).await;
        }
        collector.finish().await
    }

    #[tokio::test]
    async fn a_window_shows_the_first_lines_the_last_or_both_ends() {
        let of = |head, tail| LineWindow { head, tail };
        for (window, want) in [
            (of(None, None), "1\n2\n3\n4\n"),
            (of(Some(2), None), "1\n2\n"),
            (of(None, Some(2)), "3\n4\n"),
            (of(Some(1), Some(2)), "1\n[…]\n3\n4\n"),
            (of(Some(2), Some(2)), "1\n2\n3\n4\n"),
            (of(Some(9), Some(9)), "1\n2\n3\n4\n"),
        ] {
            let shown = collected(window, &[b"1\n2", b"\n3\n4\n"]).await;
            assert_eq!((shown.text.as_str(), shown.total_lines, shown.total_bytes), (want, 5, 8), "{window:?}");
            assert_eq!(shown.truncated, want != "1\n2\n3\n4\n", "{window:?}");
        }
    }

    #[tokio::test]
    async fn what_is_shown_is_counted_as_people_count_lines() {
        let ten = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10";
        for (window, end, want) in [
            (LineWindow { head: Some(3), tail: None }, "\n", Some("first 3 of 10 lines (6 B of 21 B)")),
            (LineWindow { head: None, tail: Some(2) }, "", Some("last 2 of 10 lines (4 B of 20 B)")),
            (
                LineWindow { head: Some(1), tail: Some(2) },
                "\n",
                Some("first 1 and the last 2 of 10 lines (7 B of 21 B)"),
            ),
            (LineWindow { head: Some(10), tail: None }, "\n", None),
        ] {
            let shown = collected(window, &[ten.as_bytes(), end.as_bytes()]).await;
            assert_eq!(shown.truncation_note(), want.map(|want| format!("[Showing the {want}]")), "{window:?}");
        }
    }

    #[tokio::test]
    async fn the_last_50_kib_are_shown_from_a_whole_character_on() {
        let text = "ä".repeat(60_000);
        let chunks: Vec<&[u8]> = text.as_bytes().chunks(1001).collect();
        let shown = collected(LineWindow::default(), &chunks).await;
        assert_eq!(shown.text, "ä".repeat(25_600));
        assert!(shown.truncated);
        let odd = format!("{text}x");
        assert_eq!(collected(LineWindow::default(), &[odd.as_bytes()]).await.text, format!("{}x", "ä".repeat(25_599)));
    }

    #[tokio::test]
    async fn what_is_not_text_is_marked_and_never_longer_than_the_limit() {
        assert_eq!(collected(LineWindow::default(), &[b"a\xFFb"]).await.text, "a\u{FFFD}b");
        let shown = collected(LineWindow::default(), &[&[0xFF; 51_200]]).await;
        assert!(shown.text.len() <= 51_200 && shown.text.chars().all(|letter| letter == '\u{FFFD}'));
    }

    #[tokio::test]
    async fn an_update_waits_for_the_rest_of_a_character() {
        let mut collector = OutputCollector::new(LineWindow::default(), None);
        collector.push(b"a\xC3").await;
        assert_eq!(collector.partial_output().content[0].as_text(), Some("a"));
    }

    #[tokio::test]
    async fn a_long_output_is_kept_whole_in_a_file() {
        let folder = tempfile::tempdir().unwrap();
        for window in [LineWindow::default(), LineWindow { head: Some(1), tail: None }] {
            let mut collector = OutputCollector::new(window, Some(folder.path().join("made")));
            let mut all = Vec::new();
            for at in 0..9000 {
                let line = format!("line {at} of many\n");
                all.extend_from_slice(line.as_bytes());
                collector.push(line.as_bytes()).await;
            }
            let shown = collector.finish().await;
            assert!(fs::read(shown.artifact.as_ref().unwrap()).unwrap() == all);
            assert!(shown.truncation_note().unwrap().contains("Full output: "));
        }
    }
}
