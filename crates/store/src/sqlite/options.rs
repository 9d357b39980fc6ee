//! Options with which a log in a file is opened.
//!
//! It must not know how they are used.

use std::{path::PathBuf, sync::Arc};

use crate::view::LogView;

/// Options of a log in a file.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// The newest format of events that the caller can read. A log in a newer one is refused, an older one is marked
    /// with this.
    pub event_format: u32,
    /// Path of a file of [`BALLAST_SIZE`](super::BALLAST_SIZE) that is given up when the disk is full. None by default.
    pub ballast: Option<PathBuf>,
    /// The most pages of 4 KiB that the file may have. As many as the disk holds by default.
    pub max_pages: Option<u32>,
    /// Number of reads that may run at the same time.
    pub readers: usize,
    /// Views that are folded from the records as they are written. Their names differ.
    pub views: Vec<Arc<dyn LogView>>,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { event_format: 1, ballast: None, max_pages: None, readers: 4, views: Vec::new() }
    }
}
