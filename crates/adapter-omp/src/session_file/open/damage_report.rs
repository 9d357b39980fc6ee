//! The report for users of what was left out of a session file or moved when it was read.
//!
//! It must not read the file.

use super::OpenedFile;
use crate::session_file::{TornEnd, context_cuts::count_wordless, entry_note::places_on_last_path};

impl OpenedFile {
    /// Reports the parts of the file that were left out or moved, and the summaries that do not count. `None` if it was
    /// read as it stands. `lost_images` is the number of images that could not be read with its entries.
    pub fn damage_report(&self, torn_end: TornEnd, lost_images: usize) -> Option<String> {
        let is_restored = self.is_torn() && torn_end == TornEnd::Restored;
        let lines = count_text(
            self.unreadable.saturating_sub(usize::from(is_restored)),
            "line could not be read and was left out",
            "lines could not be read and were left out",
        );
        let foreign = count_text(
            self.not_understood,
            "entry could not be understood and counts for nothing",
            "entries could not be understood and count for nothing",
        );
        let contents = count_text(
            self.incomplete,
            "entry has content that could not be understood and was left out",
            "entries have content that could not be understood and was left out",
        );
        let images = count_text(
            lost_images,
            "image could not be read and was left out",
            "images could not be read and were left out",
        );
        let entries = count_text(
            self.reattached,
            "entry whose parent is not in the file follows the entry before it",
            "entries whose parents are not in the file follow the entries before them",
        );
        let circles = count_text(
            self.looped,
            "entry whose parents lead back to it follows the entry before it",
            "entries whose parents lead back to them follow the entries before them",
        );
        let parts: Vec<String> = [lines, foreign, contents, images, entries, circles].into_iter().flatten().collect();
        let path = self.path.display();
        let damage = (!parts.is_empty()).then(|| format!("session file {path} is damaged: {}", parts.join("; ")));
        // It is whole, and another program can read all of it.
        let wordless = count_wordless(places_on_last_path(&self.notes).map(|at| self.notes[at].cut));
        let Some(wordless) = count_text(
            wordless,
            "compaction has no summary in words; the messages that it stands for are kept in full",
            "compactions have no summary in words; the messages that they stand for are kept in full",
        ) else {
            return damage;
        };
        Some(match damage {
            Some(damage) => format!("{damage}; {wordless}"),
            None => format!("session file {path}: {wordless}"),
        })
    }
}

/// Returns a part of the report with its count in front; `None` if there is nothing to report.
fn count_text(count: usize, one: &str, several: &str) -> Option<String> {
    match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        count => Some(format!("{count} {several}")),
    }
}
