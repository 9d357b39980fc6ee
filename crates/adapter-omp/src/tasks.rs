//! The list of tasks that a session has when it is opened: from its file, or from the one that it branches from.

use countersign_core::{
    engine::Command,
    id::{Lsn, SessionId},
    message::StoredMessage,
    session::{self, ImportedEntry, SessionEntry, SessionEntryKind},
};
use countersign_protocol::omp::session_file::SessionFileEntry as FileEntry;
use countersign_runtime::{
    CommandSource,
    tools::{TodoList, todo},
};

use super::{entries, open_session_error::OpenSessionError, todos::stored_phases};
use crate::session_file::{self, OpenedFile, SessionFileOpenError, entry_note::places_on_path};

/// Returns the list of tasks that a session begins with: it may be a branch of one that has tasks.
pub(super) fn imported_todos(beginning: &[ImportedEntry]) -> TodoList {
    let may_list =
        |entry: &&ImportedEntry| matches!(entry.kind, SessionEntryKind::ToolResult { .. } | SessionEntryKind::Other);
    let line = |imported: &ImportedEntry| {
        let entry = SessionEntry {
            id: imported.id.clone(),
            parent: imported.parent.clone(),
            kind: imported.kind.clone(),
            lsn: Lsn(0),
            content: Lsn(0),
            at: imported.made_at.unwrap_or_default(),
            tokens: imported.message.tokens,
            shown: true,
            pruned: None,
        };
        entries::to_file(&entry, &imported.message.content)
    };
    todo_list(beginning.iter().rev().filter(may_list).find_map(|imported| entry_phases(&line(imported)?)))
}

/// Returns the list of tasks as the conversation that ends with the last of `later`, or of the file where there are none, has it: from
/// a result of the model's, or from a person. `later` are the entries that the file lacks. Only entries that may have a list are read.
///
/// # Errors
/// As those of [`OpenedFile::read_entry`].
pub(super) fn todos_on_path(file: Option<&OpenedFile>, later: &[FileEntry]) -> Result<TodoList, SessionFileOpenError> {
    let mut expected = later.last().map(|entry| entry.id.as_str());
    // The parent of an entry stands before it. Others are of branches that were left.
    for entry in later.iter().rev() {
        if expected != Some(entry.id.as_str()) {
            continue;
        }
        if let Some(phases) = entry_phases(entry) {
            return Ok(todo_list(Some(phases)));
        }
        expected = entry.parent_id.as_deref();
    }
    let Some(file) = file else { return Ok(TodoList::default()) };
    let end = if later.is_empty() { file.notes().last().map(|note| note.id.as_str()) } else { expected };
    for at in places_on_path(file.notes(), end).filter(|at| file.notes()[*at].may_list_tasks) {
        let entry = file.read_entry(at)?;
        if let Some(phases) = entry_phases(&entry) {
            return Ok(todo_list(Some(phases)));
        }
    }
    Ok(TodoList::default())
}

fn entry_phases(entry: &FileEntry) -> Option<Vec<todo::TaskPhase>> {
    match session_file::convert::from_entry(entry) {
        Some((StoredMessage::ToolResult(result), _)) if result.tool_name == "todo_write" => {
            todo::TodoList::phases_of(&result.details?)
        }
        Some(_) => None,
        None => stored_phases(entry),
    }
}

fn todo_list(phases: Option<Vec<todo::TaskPhase>>) -> TodoList {
    let todos = TodoList::default();
    if let Some(phases) = phases {
        todos.set(phases);
    }
    todos
}

/// Says how many tasks of the list that came with a session are open: the agent is reminded of them.
pub(super) async fn count_tasks(
    requests: &CommandSource,
    id: &SessionId,
    list: &TodoList,
) -> Result<(), OpenSessionError> {
    let open = u32::try_from(list.open_count()).unwrap_or(u32::MAX);
    requests.send_command(Command::Session(id.clone(), session::Command::CountTasks { open })).await?;
    Ok(())
}
