//! What requests of a session have beside its conversation: the budget has to know, before a provider has counted it.
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

/// Estimates what the model is told first and what its tools take, and has the session know.
pub(super) async fn measure(door: &mut OmpAdapter) {
    let Some(seat) = door.current_session() else { return };
    let session = seat.id.clone();
    let read = seat.requests.read_state(move |engine| {
        let session = engine.state().session(&session)?;
        let own = session.settings().profile.system_prompt.as_ref().map_or(0, String::len);
        Some((session.cwd().to_owned(), own, session.settings().preamble))
    });
    let Some((Some((cwd, own, known)), _)) = read.await else { return };
    let registry = seat.environment.tool_registry(&seat.id);
    let specs: Vec<&ToolSpec> = registry.tool_specs().collect();
    let told = seat.environment.system_prompt(&seat.id, &cwd, &specs).len().saturating_add(own);
    let tools = specs.iter().map(|spec| spec.name.len() + spec.description.len() + spec.schema.to_string().len());
    let tokens = estimate_tokens(told.saturating_add(tools.sum()));
    if tokens == known {
        return;
    }
    let set = Command::Set { setting: SessionSetting::Preamble(tokens), entry: None };
    if let Err(refused) = seat.requests.send_command(EngineCommand::Session(seat.id.clone(), set)).await {
        tracing::warn!(%refused, "how long the first request is, is not recorded");
    }
}
