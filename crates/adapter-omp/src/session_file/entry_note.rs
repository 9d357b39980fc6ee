//! What is kept of each entry of a session file while the file is open: enough to follow it without its content.
//!
//! It must not read a file, nor know what a log holds.

use countersign_protocol::omp::{
    AgentMessage,
    session_file::{SessionEntryBody, SessionFileEntry},
};

use super::context_cuts::{ContextCut, cut_of};

/// Name of the tool whose results are lists of tasks.
const TASK_TOOL: &str = "todo_write";

/// What is kept of an entry. Its size does not depend on what the entry says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryNote {
    /// Id of the entry.
    pub id: String,
    /// The entry before it; none for a root.
    pub parent: Option<String>,
    pub(super) cut: ContextCut,
    /// True if a list of tasks may be in it.
    pub(crate) may_list_tasks: bool,
}

impl EntryNote {
    /// Returns the note of an entry.
    pub(super) fn from_entry(entry: &SessionFileEntry) -> Self {
        let may_list_tasks = match &entry.body {
            SessionEntryBody::Message(body) => match &body.message {
                AgentMessage::ToolResult(result) => result.tool_name == TASK_TOOL,
                // A result that lacks something is one of these.
                AgentMessage::Other(_) => true,
                _ => false,
            },
            SessionEntryBody::Custom(_) => true,
            _ => false,
        };
        Self { id: entry.id.clone(), parent: entry.parent_id.clone(), cut: cut_of(entry), may_list_tasks }
    }
}

/// Returns the places of the entries on the path from the one with the id `end` to its root, the last one first. The parent of an entry
/// stands before it.
pub(crate) fn places_on_path<'a>(notes: &'a [EntryNote], end: Option<&'a str>) -> impl Iterator<Item = usize> + 'a {
    let mut expected = end;
    notes.iter().enumerate().rev().filter_map(move |(at, note)| {
        if expected != Some(note.id.as_str()) {
            return None;
        }
        expected = note.parent.as_deref();
        Some(at)
    })
}

/// Returns the places of the entries on the path from the last one to its root.
pub(super) fn places_on_last_path(notes: &[EntryNote]) -> impl Iterator<Item = usize> + '_ {
    places_on_path(notes, notes.last().map(|note| note.id.as_str()))
}
