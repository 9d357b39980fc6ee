//! Shared parts of the tools for files: the agent's folder, and the form of paths.

use countersign_protocol::gsv::workspace::WorkspacePath;
use countersign_runtime::tools::CallFailure;
use serde_json::{Map, Value, json};

use super::{super::workspace::AgentFolder, BuiltinCall};

/// Returns the schema of a path argument.
pub(super) fn path_schema(what: &str) -> Value {
    json!({"type": "string", "description": format!("{what}, from your folder on, such as memory/2026-01-31.md")})
}

/// Writes `path` as policy judges it and as the tool uses it: relative to the agent's folder, without a leading `/`.
pub(super) fn path_form(arguments: &mut Map<String, Value>) -> Result<(), CallFailure> {
    if let Some(Value::String(given)) = arguments.get_mut("path") {
        let path = WorkspacePath::from_text(given).map_err(|fault| CallFailure::Invalid(fault.message))?;
        let text = path.as_text();
        *given = if text.is_empty() { ".".to_owned() } else { text.to_owned() };
    }
    Ok(())
}

/// Works in the agent's folder, on a thread that may block. The work is finished, also if the call is stopped meanwhile.
pub(super) async fn in_folder<T: Send + 'static>(
    call: &BuiltinCall,
    path: &str,
    work: impl FnOnce(AgentFolder, WorkspacePath) -> Result<T, String> + Send + 'static,
) -> Result<T, CallFailure> {
    let path = WorkspacePath::from_text(path).map_err(|fault| CallFailure::Invalid(fault.message))?;
    let folder = AgentFolder::for_agent(&call.door.context.config.agents_dir, &call.agent);
    let done = tokio::task::spawn_blocking(move || work(folder, path)).await;
    done.map_err(|error| CallFailure::Failed(error.to_string()))?.map_err(CallFailure::Failed)
}
