//! What `get_state` tells in this dialect: what omp has, and the tasks, the context, and what was asked for beside that.

use countersign_adapter_omp::{
    OmpAdapter,
    commands::conversation::{self, StateReply, context_usage},
    todos,
};
use countersign_protocol::{
    RawJson,
    gjc::state::{DumpedTool, GjcSessionState, StateIncludes, shown_level},
    omp::OmpRequestId,
};
use countersign_runtime::RunEnvironment as _;
use tokio::task::JoinHandle;

pub(super) async fn get(door: &mut OmpAdapter, id: Option<OmpRequestId>, include: StateIncludes) {
    let system_prompt = match include.system_prompt.then(|| system_prompt(door)).flatten() {
        Some(made) => made.await.ok().map(|text| vec![text]),
        None => None,
    };
    conversation::reply_with_state(door, id, move |door, told| {
        let tools = include.tools.then(|| dumped_tools(door));
        RawJson::from_wire(&state(told, door, system_prompt, tools))
    })
    .await;
}

fn state(
    StateReply { mut state, context }: StateReply,
    door: &OmpAdapter,
    system_prompt: Option<Vec<String>>,
    dump_tools: Option<Vec<DumpedTool>>,
) -> GjcSessionState {
    state.thinking_level = state.thinking_level.as_deref().and_then(shown_level).map(str::to_owned);
    let todo_phases = door.current_session().map(|seat| seat.environment.todo_list().get()).unwrap_or_default();
    GjcSessionState {
        context_usage: context.map(|(tokens, window)| context_usage(tokens, window)),
        shared: state,
        todo_phases: todo_phases.iter().map(todos::to_wire).collect(),
        system_prompt,
        dump_tools,
    }
}

/// What the model is told before anybody speaks. It is made of files, so it is made off the loop.
fn system_prompt(door: &OmpAdapter) -> Option<JoinHandle<String>> {
    let seat = door.current_session()?;
    let (workshop, session) = (seat.environment.clone(), seat.id.clone());
    let cwd = door.store.cwd.display().to_string();
    Some(tokio::task::spawn_blocking(move || {
        let registry = workshop.tool_registry(&session);
        let specs: Vec<_> = registry.tool_specs().collect();
        workshop.system_prompt(&session, &cwd, &specs)
    }))
}

fn dumped_tools(door: &OmpAdapter) -> Vec<DumpedTool> {
    let Some(seat) = door.current_session() else { return Vec::new() };
    let registry = seat.environment.tool_registry(&seat.id);
    let specs = registry.tool_specs().map(|spec| DumpedTool {
        name: spec.name.clone(),
        description: spec.description.clone(),
        parameters: spec.schema.clone().into(),
    });
    specs.collect()
}
