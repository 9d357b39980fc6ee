//! Size of what requests of a session contain in addition to its conversation: the budget needs it before a provider has counted it.
//!
//! It must not know what a budget allows.

use countersign_adapter_omp::OmpAdapter;
use countersign_core::{
    engine::Command as EngineCommand,
    message::estimate_tokens,
    session::{Command, SessionSetting},
    tool::ToolSpec,
};
use countersign_runtime::RunEnvironment as _;

/// Estimates the size of the system prompt and of the tools, and reports it to the session.
pub(super) async fn measure_preamble(adapter: &mut OmpAdapter) {
    let Some(current) = adapter.current_session() else { return };
    let session = current.id.clone();
    let read = current.requests.read_state(move |engine| {
        let session = engine.state().session(&session)?;
        let own = session.settings().profile.system_prompt.as_ref().map_or(0, String::len);
        Some((session.cwd().to_owned(), own, session.settings().preamble))
    });
    let Some((Some((cwd, own, known)), _)) = read.await else { return };
    let registry = current.environment.tool_registry(&current.id);
    let specs: Vec<&ToolSpec> = registry.tool_specs().collect();
    let prompt_length = current.environment.system_prompt(&current.id, &cwd, &specs).len().saturating_add(own);
    let tools = specs.iter().map(|spec| spec.name.len() + spec.description.len() + spec.schema.to_string().len());
    let tokens = estimate_tokens(prompt_length.saturating_add(tools.sum()));
    if tokens == known {
        return;
    }
    let set = Command::Set { setting: SessionSetting::Preamble(tokens), entry: None };
    if let Err(refused) = current.requests.send_command(EngineCommand::Session(current.id.clone(), set)).await {
        tracing::warn!(%refused, "failed to record the length of the first request");
    }
}
