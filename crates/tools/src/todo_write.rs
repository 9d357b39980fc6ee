//! `todo_write`: changes the session's list of tasks.
//!
//! It must not keep the list: the runner of the call takes it from the result and passes it in again.

use countersign_core::tool::{CallConcurrency, RepeatMode, ToolEffect, ToolSpec};
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    arguments,
    outcome::{CallFailure, CallOutput},
    todo::{PhaseTask, TaskPhase, TaskStatus},
    tool::{AgentTool, ToolContext},
};

/// The tool `todo_write`.
pub struct TodoWriteTool {
    spec: ToolSpec,
}

impl Default for TodoWriteTool {
    fn default() -> Self {
        let text = |description: &str| json!({"type": "string", "description": description});
        let status = json!({"type": "string", "enum": ["pending", "in_progress", "completed", "abandoned"]});
        let tasks = json!({"type": "array", "items": {"type": "object", "required": ["content"], "properties": {
            "content": text("One line"), "status": status, "notes": text("What came up"), "details": text("More than the one line"),
        }}});
        let phases = json!({"type": "array", "items": {"type": "object", "required": ["name"], "properties": {"name": text("Name"), "tasks": tasks}}});
        let description = "Keeps the list of tasks of this session, in phases. ops are applied in order, all or none: replace{phases} makes a new list, add_phase{name, tasks}, \
            add_task{phase, content}, update{id, status, content, notes, details}, remove_task{id}. Ids are in the result. One task is in_progress at a time, by itself the first that is open. Set a task to completed when it is done.";
        Self {
            spec: ToolSpec {
                name: "todo_write".to_owned(),
                description: description.to_owned(),
                schema: json!({"type": "object", "required": ["ops"], "properties": {
                    "ops": {"type": "array", "items": {"type": "object", "required": ["op"], "properties": {
                        "op": {"type": "string", "enum": ["replace", "add_phase", "add_task", "update", "remove_task"]},
                        "phases": phases,
                        "name": text("Name of the new phase"),
                        "tasks": tasks,
                        "phase": text("Id of a phase"),
                        "id": text("Id of a task"),
                        "content": text("One line"),
                        "status": status,
                        "notes": text("What came up"),
                        "details": text("More than the one line"),
                    }}},
                }}),
                concurrency: CallConcurrency::Exclusive,
                repeat: RepeatMode::Once,
                // The list is part of the conversation.
                effect: ToolEffect::Reads,
                signature: &[],
            },
        }
    }
}

#[derive(Deserialize)]
struct TodoWriteArguments {
    ops: Vec<TodoOp>,
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum TodoOp {
    Replace {
        phases: Vec<NewPhase>,
    },
    AddPhase(NewPhase),
    AddTask {
        phase: String,
        #[serde(flatten)]
        task: NewTask,
    },
    Update {
        id: String,
        #[serde(flatten)]
        change: TaskChange,
    },
    RemoveTask {
        id: String,
    },
}

#[derive(Deserialize)]
struct NewPhase {
    name: String,
    #[serde(default)]
    tasks: Vec<NewTask>,
}

#[derive(Deserialize)]
struct NewTask {
    content: String,
    #[serde(default)]
    status: TaskStatus,
    notes: Option<String>,
    details: Option<String>,
}

#[derive(Deserialize)]
struct TaskChange {
    content: Option<String>,
    status: Option<TaskStatus>,
    notes: Option<String>,
    details: Option<String>,
}

impl AgentTool for TodoWriteTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run<'a>(
        &'a self,
        arguments: Map<String, Value>,
        cx: &'a ToolContext,
    ) -> BoxFuture<'a, Result<CallOutput, CallFailure>> {
        Box::pin(async move {
            let TodoWriteArguments { ops } = arguments::parse_arguments(&self.spec.name, arguments)?;
            let mut phases = cx.todos.get();
            for (at, op) in ops.into_iter().enumerate() {
                apply_op(&mut phases, op)
                    .map_err(|problem| CallFailure::Failed(format!("ops[{at}]: {problem}; nothing was changed")))?;
            }
            begin_one(&mut phases);
            cx.todos.set(phases.clone());
            let details = json!({"phases": phases, "storage": cx.todos.storage});
            Ok(CallOutput::from_text(render_phases(&phases)).with_details(details))
        })
    }
}

fn apply_op(phases: &mut Vec<TaskPhase>, op: TodoOp) -> Result<(), String> {
    match op {
        TodoOp::Replace { phases: new } => {
            phases.clear();
            new.into_iter().for_each(|phase| add_phase(phases, phase));
        }
        TodoOp::AddPhase(phase) => add_phase(phases, phase),
        TodoOp::AddTask { phase, task } => {
            let task = with_id(task, next_id("task", task_ids(phases)));
            let known = phases.iter().map(|phase| phase.id.as_str()).collect::<Vec<_>>().join(", ");
            let phase = phases.iter_mut().find(|known| known.id == phase || known.name == phase);
            phase.ok_or_else(|| format!("there is no such phase; known: {known}"))?.tasks.push(task);
        }
        TodoOp::Update { id, change } => {
            let task = phases.iter_mut().flat_map(|phase| &mut phase.tasks).find(|task| task.id == id);
            let task = task.ok_or_else(|| format!("there is no task {id}"))?;
            let TaskChange { content, status, notes, details } = change;
            task.content = content.unwrap_or_else(|| std::mem::take(&mut task.content));
            task.status = status.unwrap_or(task.status);
            task.notes = notes.or_else(|| task.notes.take());
            task.details = details.or_else(|| task.details.take());
        }
        TodoOp::RemoveTask { id } => {
            let phase = phases.iter_mut().find(|phase| phase.tasks.iter().any(|task| task.id == id));
            phase.ok_or_else(|| format!("there is no task {id}"))?.tasks.retain(|task| task.id != id);
        }
    }
    Ok(())
}

/// Leaves one task in progress, as long as one is open: the first that is, else the first that is pending.
fn begin_one(phases: &mut [TaskPhase]) {
    let mut tasks: Vec<&mut PhaseTask> = phases.iter_mut().flat_map(|phase| &mut phase.tasks).collect();
    let of = |tasks: &[&mut PhaseTask], status| tasks.iter().position(|task| task.status == status);
    let Some(begun) = of(&tasks, TaskStatus::InProgress).or_else(|| of(&tasks, TaskStatus::Pending)) else { return };
    for (at, task) in tasks.iter_mut().enumerate() {
        if at == begun {
            task.status = TaskStatus::InProgress;
        } else if task.status == TaskStatus::InProgress {
            task.status = TaskStatus::Pending;
        }
    }
}

fn add_phase(phases: &mut Vec<TaskPhase>, NewPhase { name, tasks }: NewPhase) {
    let id = next_id("phase", phases.iter().map(|phase| phase.id.as_str()));
    phases.push(TaskPhase { id, name, tasks: Vec::new() });
    for task in tasks {
        let task = with_id(task, next_id("task", task_ids(phases)));
        if let Some(phase) = phases.last_mut() {
            phase.tasks.push(task);
        }
    }
}

fn with_id(NewTask { content, status, notes, details }: NewTask, id: String) -> PhaseTask {
    PhaseTask { id, content, status, notes, details }
}

fn task_ids(phases: &[TaskPhase]) -> impl Iterator<Item = &str> {
    phases.iter().flat_map(|phase| &phase.tasks).map(|task| task.id.as_str())
}

/// Returns one more than the highest number, so that the id of a removed task in the middle does not come back for another.
fn next_id<'a>(kind: &str, used: impl Iterator<Item = &'a str>) -> String {
    let numbers = used.filter_map(|id| id.strip_prefix(kind)?.strip_prefix('-')?.parse::<u64>().ok());
    format!("{kind}-{}", numbers.max().unwrap_or(0) + 1)
}

fn render_phases(phases: &[TaskPhase]) -> String {
    let tasks = || phases.iter().flat_map(|phase| &phase.tasks);
    if phases.is_empty() {
        return "The list is empty".to_owned();
    }
    let open = tasks().filter(|task| task.status.is_open()).count();
    let mut text = format!("{open} of {} tasks open", tasks().count());
    for phase in phases {
        text.push_str(&format!("\n\n{} ({})", phase.name, phase.id));
        for task in &phase.tasks {
            let mark = match task.status {
                TaskStatus::Pending => ' ',
                TaskStatus::InProgress => '>',
                TaskStatus::Completed => 'x',
                TaskStatus::Abandoned => '-',
            };
            text.push_str(&format!("\n[{mark}] {}: {}", task.id, task.content));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::TodoWriteTool;
    use crate::{
        todo::TodoList,
        tool::testing::{ToolFixture, failure, text},
    };

    async fn listed(case: &ToolFixture, ops: Value) -> String {
        text(&case.run(&TodoWriteTool::default(), json!({"ops": ops})).await).to_owned()
    }

    #[tokio::test]
    async fn operations_change_the_list_in_order() {
        let case = ToolFixture::new();
        let tasks = json!([{"content": "look"}, {"content": "think", "status": "in_progress"}]);
        for (ops, want) in [
            (json!([]), "The list is empty"),
            (
                json!([{"op": "replace", "phases": [{"name": "First", "tasks": tasks}]}]),
                "2 of 2 tasks open\n\nFirst (phase-1)\n[ ] task-1: look\n[>] task-2: think",
            ),
            (
                json!([{"op": "update", "id": "task-1", "status": "completed"}, {"op": "remove_task", "id": "task-2"}]),
                "0 of 1 tasks open\n\nFirst (phase-1)\n[x] task-1: look",
            ),
            (
                json!([{"op": "add_phase", "name": "Then"}, {"op": "add_task", "phase": "phase-2", "content": "act"}]),
                "1 of 2 tasks open\n\nFirst (phase-1)\n[x] task-1: look\n\nThen (phase-2)\n[>] task-2: act",
            ),
            (
                json!([{"op": "update", "id": "task-2", "status": "abandoned", "content": "act later"}]),
                "0 of 2 tasks open\n\nFirst (phase-1)\n[x] task-1: look\n\nThen (phase-2)\n[-] task-2: act later",
            ),
        ] {
            assert_eq!(listed(&case, ops.clone()).await, want, "{ops}");
        }
    }

    #[tokio::test]
    async fn one_task_is_in_progress_as_long_as_one_is_open() {
        let case = ToolFixture::new();
        let begins = |status: &str| json!({"content": status, "status": status});
        let list = |of: &[&str]| {
            let tasks: Vec<Value> = of.iter().map(|status| begins(status)).collect();
            json!([{"op": "replace", "phases": [{"name": "P", "tasks": tasks[..1]}, {"name": "Q", "tasks": tasks[1..]}]}])
        };
        for (given, want) in [
            (["pending", "pending", "pending"], "in_progress pending pending"),
            (["completed", "abandoned", "pending"], "completed abandoned in_progress"),
            (["pending", "in_progress", "in_progress"], "pending in_progress pending"),
            (["completed", "abandoned", "completed"], "completed abandoned completed"),
        ] {
            listed(&case, list(&given)).await;
            let tasks: Vec<_> = case.cx.todos.get().into_iter().flat_map(|phase| phase.tasks).collect();
            let states = tasks.iter().map(|task| serde_json::to_value(task.status).unwrap());
            let states: Vec<String> = states.map(|state| state.as_str().unwrap().to_owned()).collect();
            assert_eq!(states.join(" "), want, "{given:?}");
        }
    }

    #[tokio::test]
    async fn the_list_is_in_the_details_and_reads_back() {
        let case = ToolFixture::new();
        let ops = json!([{"op": "add_phase", "name": "A", "tasks": [{"content": "x", "notes": "n"}]}]);
        let details = case.run(&TodoWriteTool::default(), json!({"ops": ops})).await.unwrap().details.unwrap();
        let task = json!({"id": "task-1", "content": "x", "status": "in_progress", "notes": "n"});
        assert_eq!(details, json!({"phases": [{"id": "phase-1", "name": "A", "tasks": [task]}], "storage": "session"}));
        assert_eq!(TodoList::phases_of(&details), Some(case.cx.todos.get()));
        assert_eq!(case.cx.todos.open_count(), 1);
    }

    #[tokio::test]
    async fn an_operation_that_fails_leaves_the_list_as_it_was() {
        let case = ToolFixture::new();
        for (ops, want) in [
            (
                json!([{"op": "add_phase", "name": "A"}, {"op": "remove_task", "id": "task-9"}]),
                "ops[1]: there is no task task-9; nothing was changed",
            ),
            (json!([{"op": "update", "id": "t"}]), "ops[0]: there is no task t; nothing was changed"),
            (
                json!([{"op": "add_task", "phase": "p", "content": "c"}]),
                "ops[0]: there is no such phase; known: ; nothing was changed",
            ),
            (json!([{"op": "add_task"}]), "Invalid arguments for todo_write:\n- missing field `phase`"),
        ] {
            let got = case.run(&TodoWriteTool::default(), json!({"ops": ops})).await;
            assert_eq!(failure(&got), want);
            assert!(case.cx.todos.get().is_empty());
        }
    }
}
