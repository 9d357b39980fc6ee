//! Files that a shell line would run from disk, as far as its text shows: programs, scripts, and the folders in between.
//!
//! It touches no disk. Unknown parts are reported, so that they do not pass as checked.

mod arguments;
mod commands;
mod role;
mod state;
mod walk;
mod wrappers;

pub use self::role::FileRole;

/// The most things that are named of one line.
pub(super) const MOST: usize = 512;

/// Folders and search path in which a line runs.
#[derive(Clone, Debug, Default)]
pub struct LookupContext {
    /// The folder in which it begins, absolute.
    pub folder: String,
    /// The home folder, if it is known.
    pub home: Option<String>,
    /// Search path of the shell, if it is known.
    pub path: Option<String>,
}

/// Files that a line would run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineFiles {
    /// Files that it names, in order.
    pub named: Vec<NamedFile>,
    /// Reasons for the parts that cannot be determined.
    pub unknown: Vec<String>,
}

/// One thing that a line names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFile {
    /// As it is written.
    pub name: String,
    /// Role of the file in the line.
    pub role: FileRole,
    /// Paths of the lookup, in this order: absolute, the first that exists counts.
    pub tried: Vec<String>,
    /// True if a path counts only if a program is there.
    pub is_searched: bool,
    /// True if it is only perhaps run: if no file is there, none is reported.
    pub is_perhaps: bool,
    /// True if a command before it in the line may make it.
    pub may_be_made: bool,
    /// Search path for the programs that its first line names; absent if it is not known.
    pub path: Option<String>,
}

/// Tells what `command`, run in `place`, would run from disk.
pub fn find_files(command: &str, place: &LookupContext) -> LineFiles {
    walk::FileWalk::new(command, place).collect_files(command)
}

#[cfg(test)]
mod tests;
