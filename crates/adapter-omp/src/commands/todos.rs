//! Tasks that a host sets.

use countersign_core::{engine::Command as EngineCommand, session::Command};
use countersign_protocol::{
    gjc::state::{SetTodosResult, TodoPhase},
    omp::{OmpRequestId, OmpResponse},
};

use crate::{
    adapter::OmpAdapter,
    refusal_text::refusal_message,
    todos::{entry_content, number_phases, to_wire},
};

/// Puts other tasks in the place of those that are there. They count once they are recorded.
pub(super) async fn set_todos(adapter: &mut OmpAdapter, id: Option<OmpRequestId>, phases: Vec<TodoPhase>) {
    const NAME: &str = "set_todos";
    let phases = number_phases(phases);
    let Some(seat) = adapter.current_session() else { return };
    let message = entry_content(&phases, adapter.store.common.clock.now());
    let tasks = phases.iter().flat_map(|phase| &phase.tasks);
    let open = u32::try_from(tasks.filter(|task| task.status.is_open()).count()).unwrap_or(u32::MAX);
    let command = EngineCommand::Session(seat.id.clone(), Command::SetTasks { entry: message, open });
    adapter
        .send_command(command, move |adapter, replied| match replied {
            Ok(_) => {
                let todo_phases = phases.iter().map(to_wire).collect();
                if let Some(seat) = adapter.current_session() {
                    seat.environment.todo_list().set(phases);
                }
                adapter.write_frame(&OmpResponse::success(id, NAME, &SetTodosResult { todo_phases }));
            }
            Err(refused) => adapter.write_frame(&OmpResponse::failure(id, NAME, refusal_message(&refused))),
        })
        .await;
}
