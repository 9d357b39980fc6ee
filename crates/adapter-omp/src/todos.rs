//! The tasks of a session as its host sets and sees them, and as its file keeps what a host set.

use std::collections::BTreeSet;

use countersign_core::{session::MessageContent, time::Millis};
use countersign_protocol::{
    ExtraMembers, RawJson,
    gjc::state::{TodoPhase, TodoTask},
    omp::{
        event::TodoStatus,
        session_file::{CustomEntry, SessionEntryBody, SessionFileEntry},
    },
};
use countersign_runtime::tools::todo;
use countersign_view::time;
use serde_json::json;

/// Name of the entry of a list that a user set, in session files.
const ENTRY: &str = "user_todo_edit";

/// Returns a phase as a host sees it.
pub fn to_wire(phase: &todo::TaskPhase) -> TodoPhase {
    let task = |task: &todo::PhaseTask| TodoTask {
        id: Some(task.id.clone()),
        content: task.content.clone(),
        status: match task.status {
            todo::TaskStatus::Pending => TodoStatus::Pending,
            todo::TaskStatus::InProgress => TodoStatus::InProgress,
            todo::TaskStatus::Completed => TodoStatus::Completed,
            todo::TaskStatus::Abandoned => TodoStatus::Abandoned,
        },
        notes: task.notes.as_ref().map(|notes| notes.split('\n').map(str::to_owned).collect()),
    };
    TodoPhase { id: Some(phase.id.clone()), name: phase.name.clone(), tasks: phase.tasks.iter().map(task).collect() }
}

/// Returns the phases with an id for each of them and their tasks: the one that was given, unless it is there already.
pub(crate) fn number_phases(phases: Vec<TodoPhase>) -> Vec<todo::TaskPhase> {
    let given = phases.iter().flat_map(|phase| phase.tasks.iter().map(|task| &task.id).chain([&phase.id]));
    let given: BTreeSet<String> = given.flatten().cloned().collect();
    let mut taken = BTreeSet::new();
    let mut id_of = |requested: Option<String>, word: &str| {
        let fresh = || (1..).map(|number: usize| format!("{word}-{number}"));
        let requested = requested.filter(|id| !id.is_empty() && !taken.contains(id));
        let id =
            requested.or_else(|| fresh().find(|id| !taken.contains(id) && !given.contains(id))).unwrap_or_default();
        taken.insert(id.clone());
        id
    };
    let mut numbered = Vec::with_capacity(phases.len());
    for TodoPhase { id, name, tasks } in phases {
        let id = id_of(id, "phase");
        let tasks = tasks.into_iter().map(|TodoTask { id, content, status, notes }| todo::PhaseTask {
            id: id_of(id, "task"),
            content,
            status: match status {
                TodoStatus::Pending => todo::TaskStatus::Pending,
                TodoStatus::InProgress => todo::TaskStatus::InProgress,
                TodoStatus::Completed => todo::TaskStatus::Completed,
                TodoStatus::Abandoned => todo::TaskStatus::Abandoned,
            },
            notes: notes.map(|notes| notes.join("\n")).filter(|notes| !notes.is_empty()),
            details: None,
        });
        numbered.push(todo::TaskPhase { id, name, tasks: tasks.collect() });
    }
    numbered
}

/// Returns the line of a session file that keeps `phases`. Its ids are those that it gets there.
pub(crate) fn entry_content(phases: &[todo::TaskPhase], now: Millis) -> MessageContent {
    let body = SessionEntryBody::Custom(CustomEntry {
        custom_type: ENTRY.to_owned(),
        data: Some(json!({ "phases": phases }).into()),
        extra: ExtraMembers::default(),
    });
    let line = SessionFileEntry { id: "0".to_owned(), parent_id: None, timestamp: time::format_iso(now), body };
    MessageContent { content: RawJson::from_wire(&line).as_text().into(), tokens: 0 }
}

/// Returns the list that an entry of a session file keeps, if it is one of these.
pub fn stored_phases(entry: &SessionFileEntry) -> Option<Vec<todo::TaskPhase>> {
    let SessionEntryBody::Custom(custom) = &entry.body else { return None };
    let data = custom.data.as_ref().filter(|_| custom.custom_type == ENTRY)?;
    todo::TodoList::phases_of(&data.decode_as().ok()?)
}

/// Returns the same, of the entry's content in the log.
pub(crate) fn stored_phases_in(content: &str) -> Option<Vec<todo::TaskPhase>> {
    content.contains(ENTRY).then(|| SessionFileEntry::parse(content).ok()).flatten().as_ref().and_then(stored_phases)
}

#[cfg(test)]
mod tests {
    use countersign_core::time::Millis;
    use countersign_protocol::gjc::state::TodoPhase;
    use serde_json::json;

    use super::{entry_content, number_phases, stored_phases_in, to_wire};

    #[test]
    fn a_list_that_was_set_is_read_back_from_its_entry() {
        let given = json!([
            { "name": "one", "tasks": [
                { "id": "task-2", "content": "a", "status": "pending", "notes": ["n", "m"] },
                { "content": "b", "status": "abandoned" },
                { "id": "task-2", "content": "c", "status": "completed" },
            ] },
            { "id": "p", "name": "two", "tasks": [] },
        ]);
        let given: Vec<TodoPhase> = serde_json::from_value(given).unwrap();
        let phases = number_phases(given);
        assert_eq!(stored_phases_in(&entry_content(&phases, Millis(0)).content), Some(phases.clone()));
        let shown: Vec<TodoPhase> = phases.iter().map(to_wire).collect();
        assert_eq!(
            serde_json::to_value(shown).unwrap(),
            json!([
                { "id": "phase-1", "name": "one", "tasks": [
                    { "id": "task-2", "content": "a", "status": "pending", "notes": ["n", "m"] },
                    { "id": "task-1", "content": "b", "status": "abandoned" },
                    { "id": "task-3", "content": "c", "status": "completed" },
                ] },
                { "id": "p", "name": "two", "tasks": [] },
            ])
        );
    }
}
