//! State of `get_state` in this dialect: omp's, and the tasks, the context and the requested additions.

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

pub(super) async fn send_state(adapter: &mut OmpAdapter, id: Option<OmpRequestId>, include: StateIncludes) {
    let system_prompt = match include.system_prompt.then(|| system_prompt(adapter)).flatten() {
        Some(made) => made.await.ok().map(|text| vec![text]),
        None => None,
    };
    conversation::reply_with_state(adapter, id, move |adapter, reply| {
        let tools = include.tools.then(|| dumped_tools(adapter));
        RawJson::from_wire(&session_state(reply, adapter, system_prompt, tools))
    })
    .await;
}

fn session_state(
    StateReply { mut state, context }: StateReply,
    adapter: &OmpAdapter,
    system_prompt: Option<Vec<String>>,
    dump_tools: Option<Vec<DumpedTool>>,
) -> GjcSessionState {
    state.thinking_level = state.thinking_level.as_deref().and_then(shown_level).map(str::to_owned);
    let todo_phases =
        adapter.current_session().map(|current| current.environment.todo_list().get()).unwrap_or_default();
    GjcSessionState {
        context_usage: context.map(|(tokens, window)| context_usage(tokens, window)),
        shared: state,
        todo_phases: todo_phases.iter().map(todos::to_wire).collect(),
        system_prompt,
        dump_tools,
    }
}

/// Starts to build the system prompt. It is made of files, so it is made off the loop.
fn system_prompt(adapter: &OmpAdapter) -> Option<JoinHandle<String>> {
    let current = adapter.current_session()?;
    let (environment, session) = (current.environment.clone(), current.id.clone());
    let cwd = adapter.store.cwd.display().to_string();
    Some(tokio::task::spawn_blocking(move || {
        let registry = environment.tool_registry(&session);
        let specs: Vec<_> = registry.tool_specs().collect();
        environment.system_prompt(&session, &cwd, &specs)
    }))
}

fn dumped_tools(adapter: &OmpAdapter) -> Vec<DumpedTool> {
    let Some(current) = adapter.current_session() else { return Vec::new() };
    let registry = current.environment.tool_registry(&current.id);
    let specs = registry.tool_specs().map(|spec| DumpedTool {
        name: spec.name.clone(),
        description: spec.description.clone(),
        parameters: spec.schema.clone().into(),
    });
    specs.collect()
}
