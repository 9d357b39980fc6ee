//! Roles of a file on disk in a call that runs it.

use serde::{Deserialize, Serialize};

/// Part that a thing on disk plays in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileRole {
    /// A folder that it works in.
    Folder,
    /// A program that it runs.
    Program,
    /// A file that a program runs as its text.
    Script,
    /// Interpreter from the first line of a file that runs.
    Interpreter,
}
