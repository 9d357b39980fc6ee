//! Tasks that a host sets.

use countersign_core::{engine::Command as EngineCommand, session::Command};
use countersign_protocol::{
    gjc::state::{SetTodosResult, TodoPhase},
    omp::{OmpRequestId, OmpResponse},
};

use crate::{
    door::Door,
    refusal_text::problem,
    todos::{content, numbered, wire},
};

/// Puts other tasks in the place of those that are there. They count once they are recorded.
pub(super) async fn set(door: &mut Door, id: Option<OmpRequestId>, phases: Vec<TodoPhase>) {
    const NAME: &str = "set_todos";
    let phases = numbered(phases);
    let Some(seat) = door.seat() else { return };
    let said = content(&phases, door.shelf.common.clock.now());
    let tasks = phases.iter().flat_map(|phase| &phase.tasks);
    let open = u32::try_from(tasks.filter(|task| task.status.is_open()).count()).unwrap_or(u32::MAX);
    let command = EngineCommand::Session(seat.id.clone(), Command::SetTasks { entry: said, open });
    door.ask(command, move |door, replied| match replied {
        Ok(_) => {
            let todo_phases = phases.iter().map(wire).collect();
            if let Some(seat) = door.seat() {
                seat.workshop.todos().set(phases);
            }
            door.write(&OmpResponse::success(id, NAME, &SetTodosResult { todo_phases }));
        }
        Err(refused) => door.write(&OmpResponse::failure(id, NAME, problem(&refused))),
    })
    .await;
}
