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
        let lines = match self.unreadable.saturating_sub(usize::from(is_restored)) {
            0 => None,
            1 => Some("1 line could not be read and was left out".to_owned()),
            more => Some(format!("{more} lines could not be read and were left out")),
        };
        let foreign = match self.not_understood {
            0 => None,
            1 => Some("1 entry could not be understood and counts for nothing".to_owned()),
            more => Some(format!("{more} entries could not be understood and count for nothing")),
        };
        let contents = match self.incomplete {
            0 => None,
            1 => Some("1 entry has content that could not be understood and was left out".to_owned()),
            more => Some(format!("{more} entries have content that could not be understood and was left out")),
        };
        let images = match lost_images {
            0 => None,
            1 => Some("1 image could not be read and was left out".to_owned()),
            more => Some(format!("{more} images could not be read and were left out")),
        };
        let entries = match self.reattached {
            0 => None,
            1 => Some("1 entry whose parent is not in the file follows the entry before it".to_owned()),
            more => Some(format!("{more} entries whose parents are not in the file follow the entries before them")),
        };
        let circles = match self.looped {
            0 => None,
            1 => Some("1 entry whose parents lead back to it follows the entry before it".to_owned()),
            more => Some(format!("{more} entries whose parents lead back to them follow the entries before them")),
        };
        let parts: Vec<String> = [lines, foreign, contents, images, entries, circles].into_iter().flatten().collect();
        let path = self.path.display();
        let damage = (!parts.is_empty()).then(|| format!("session file {path} is damaged: {}", parts.join("; ")));
        // It is whole, and another program can read all of it.
        let wordless = match count_wordless(places_on_last_path(&self.notes).map(|at| self.notes[at].cut)) {
            0 => return damage,
            1 => "1 compaction has no summary in words; the messages that it stands for are kept in full".to_owned(),
            more => format!(
                "{more} compactions have no summary in words; the messages that they stand for are kept in full"
            ),
        };
        Some(match damage {
            Some(damage) => format!("{damage}; {wordless}"),
            None => format!("session file {path}: {wordless}"),
        })
    }
}
