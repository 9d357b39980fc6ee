//! The session files that hosts read, copy and open again: their names, their lines, their images.
//!
//! It must not know the engine: it turns files into entries and entries into files, and says by which mark a file
//! is known again. The lines themselves are `countersign_protocol::omp::session_file`'s. Source:
//! docs/protocol/omp.md, Session files; ARCHITECTURE.md, The file and the log.

pub mod blobs;
mod blocks;
pub(crate) mod context_cuts;
pub mod convert;
mod entry_damage;
pub(crate) mod entry_note;
pub mod find;
mod line_reader;
pub(crate) mod line_scanner;
pub mod mark;
pub mod name;
pub mod open;
mod torn_end;
pub mod writer;

pub use blobs::BlobStore;
pub use entry_note::EntryNote;
pub use mark::FileMark;
pub use open::{OpenedFile, SessionFileOpenError, open_file};
pub use torn_end::TornEnd;
pub use writer::{EntryWriter, SessionFileWriteError, UnansweredPolicy};
