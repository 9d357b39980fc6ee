//! Tables of what the machines decide, each rule by its name.

mod edited_files;
mod gates;
mod restarts;
mod runs;
mod stage;
