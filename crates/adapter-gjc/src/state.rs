//! What `get_state` tells in this dialect: what omp has, and the tasks, the context, and what was asked for beside that.

use countersign_adapter_omp::{
    Door,
    commands::conversation::{self, Told, usage},
    todos,
};
use countersign_protocol::{
    RawJson,
    gjc::state::{DumpedTool, GjcSessionState, StateIncludes, shown_level},
    omp::OmpRequestId,
};
use countersign_runtime::RunEnvironment as _;
use tokio::task::JoinHandle;

pub(super) async fn get(door: &mut Door, id: Option<OmpRequestId>, include: StateIncludes) {
    let system_prompt = match include.system_prompt.then(|| system_prompt(door)).flatten() {
        Some(made) => made.await.ok().map(|text| vec![text]),
        None => None,
    };
    conversation::tell_state(door, id, move |door, told| {
        let tools = include.tools.then(|| dumped_tools(door));
        RawJson::from_wire(&state(told, door, system_prompt, tools))
    })
    .await;
}

fn state(
    Told { mut state, context }: Told,
    door: &Door,
    system_prompt: Option<Vec<String>>,
    dump_tools: Option<Vec<DumpedTool>>,
) -> GjcSessionState {
    state.thinking_level = state.thinking_level.as_deref().and_then(shown_level).map(str::to_owned);
    let todo_phases = door.seat().map(|seat| seat.workshop.todos().get()).unwrap_or_default();
    GjcSessionState {
        context_usage: context.map(|(tokens, window)| usage(tokens, window)),
        shared: state,
        todo_phases: todo_phases.iter().map(todos::wire).collect(),
        system_prompt,
        dump_tools,
    }
}

/// What the model is told before anybody speaks. It is made of files, so it is made off the loop.
fn system_prompt(door: &Door) -> Option<JoinHandle<String>> {
    let seat = door.seat()?;
    let (workshop, session) = (seat.workshop.clone(), seat.id.clone());
    let cwd = door.shelf.cwd.display().to_string();
    Some(tokio::task::spawn_blocking(move || {
        let registry = workshop.tool_registry(&session);
        let specs: Vec<_> = registry.tool_specs().collect();
        workshop.system_prompt(&session, &cwd, &specs)
    }))
}

fn dumped_tools(door: &Door) -> Vec<DumpedTool> {
    let Some(seat) = door.seat() else { return Vec::new() };
    let registry = seat.workshop.tool_registry(&seat.id);
    let specs = registry.tool_specs().map(|spec| DumpedTool {
        name: spec.name.clone(),
        description: spec.description.clone(),
        parameters: spec.schema.clone().into(),
    });
    specs.collect()
}
