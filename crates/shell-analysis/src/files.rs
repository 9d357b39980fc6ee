//! What a shell line would run from disk, as far as its text tells: programs, scripts, and the folders in between.
//!
//! It touches no disk. What cannot be told is said, so that nobody takes it for looked at.

mod arguments;
mod commands;
mod role;
mod state;
mod walk;
mod wrappers;

pub use self::role::FileRole;

/// The most things that are named of one line.
pub(super) const MOST: usize = 512;

/// Where a line runs, as far as names are concerned.
#[derive(Clone, Debug, Default)]
pub struct LookupContext {
    /// The folder in which it begins, absolute.
    pub folder: String,
    /// The home folder, if it is known.
    pub home: Option<String>,
    /// Where the shell looks for programs, if that is known.
    pub path: Option<String>,
}

/// What a line would run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineFiles {
    /// What it names, in order.
    pub named: Vec<NamedFile>,
    /// What nobody can tell, each with the reason.
    pub unknown: Vec<String>,
}

/// One thing that a line names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFile {
    /// As it is written.
    pub name: String,
    /// What it is to the line.
    pub role: FileRole,
    /// Where it is looked for, in this order: absolute paths, the first that is there counts.
    pub tried: Vec<String>,
    /// Whether a place counts only if a program is there.
    pub is_searched: bool,
    /// Whether it is only perhaps run: where nothing is there, nothing is said.
    pub is_perhaps: bool,
    /// Whether a command before it in the line may make it.
    pub may_be_made: bool,
    /// Where the programs are looked for that its first line names; absent if that is not known.
    pub path: Option<String>,
}

/// Tells what `command`, run in `place`, would run from disk.
pub fn find_files(command: &str, place: &LookupContext) -> LineFiles {
    walk::FileWalk::new(command, place).collect_files(command)
}

#[cfg(test)]
mod tests;
