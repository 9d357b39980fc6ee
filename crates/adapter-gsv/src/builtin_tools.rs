//! The gateway's own tools for runs of this adapter: `gsv__ListFiles` and the others, a file each, in one table.
//!
//! They are done inside the gateway, but only for runs: policy and gates see each call as any other, and `tool.invoke` does
//! not know them. Source: docs/protocol/gsv.md, Tools of the gateway.

mod config_get;
mod cron;
mod delete_file;
mod edit_file;
mod files;
mod list_files;
mod logs_get;
mod message;
mod read_file;
mod send_file;
mod session_send;
mod sessions_list;
mod write_file;

use std::sync::{Arc, LazyLock};

use countersign_config::lint::{ExtraArguments, KnownTool};
use countersign_core::{
    id::RunId,
    tool::{CallConcurrency, RepeatMode, ToolEffect, ToolSpec},
};
use countersign_protocol::gsv::tool::{NATIVE, ToolDefinition};
use countersign_runtime::tools::{AgentTool, CallFailure, CallOutput, CallRoute, ToolContext};
use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::GsvAdapter;

/// Result of a built-in tool: the text for the model, or the failure.
pub(super) type BuiltinResult = Result<String, CallFailure>;

/// Tool of the gateway.
pub(super) struct BuiltinTool {
    /// Name without the common prefix.
    pub(super) name: &'static str,
    /// Description for the model.
    pub(super) description: &'static str,
    /// JSON Schema of its arguments.
    pub(super) schema: fn() -> Value,
    /// Arguments in its signature, in order. Empty means all, sorted by key.
    pub(super) signature: &'static [&'static str],
    /// Effect of the tool: whether it changes anything.
    pub(super) effect: ToolEffect,
    /// Puts arguments into the one form in which they are judged and done.
    pub(super) form: fn(&mut Map<String, Value>) -> Result<(), CallFailure>,
    /// Runs the tool.
    pub(super) run: fn(BuiltinCall) -> BoxFuture<'static, BuiltinResult>,
}

/// Every built-in tool, in the order in which they are listed.
const TABLE: &[BuiltinTool] = &[
    list_files::TOOL,
    read_file::TOOL,
    write_file::TOOL,
    edit_file::TOOL,
    delete_file::TOOL,
    config_get::TOOL,
    logs_get::TOOL,
    cron::TOOL,
    message::TOOL,
    send_file::TOOL,
    sessions_list::TOOL,
    session_send::TOOL,
];

/// Returns arguments unchanged, for tools whose arguments policy judges as they come.
pub(super) const fn accept_unchanged(_: &mut Map<String, Value>) -> Result<(), CallFailure> {
    Ok(())
}

/// Call of a built-in tool.
pub(super) struct BuiltinCall {
    /// Adapter.
    pub(super) door: Arc<GsvAdapter>,
    /// Canonical key of the session in which the run works.
    pub(super) key: String,
    /// Agent whose run it is.
    pub(super) agent: String,
    /// Arguments of the tool.
    pub(super) arguments: Map<String, Value>,
    /// Token that stops the call.
    pub(super) cancel: CancellationToken,
}

impl BuiltinCall {
    /// Reads the arguments.
    ///
    /// # Errors
    /// [`CallFailure::Invalid`] that names the fault.
    pub(super) fn read_arguments<T: DeserializeOwned>(&mut self) -> Result<T, CallFailure> {
        let arguments = Value::Object(std::mem::take(&mut self.arguments));
        serde_json::from_value(arguments).map_err(|error| CallFailure::Invalid(format!("Invalid arguments: {error}")))
    }
}

/// Specification of each tool for the engine and models.
static SPECS: LazyLock<Vec<ToolSpec>> = LazyLock::new(|| {
    let spec = |native: &BuiltinTool| ToolSpec {
        name: format!("{NATIVE}__{}", native.name),
        description: native.description.to_owned(),
        schema: (native.schema)(),
        concurrency: match native.effect {
            ToolEffect::Reads => CallConcurrency::Shared,
            ToolEffect::Changes => CallConcurrency::Exclusive,
        },
        repeat: match native.effect {
            ToolEffect::Reads => RepeatMode::Idempotent,
            ToolEffect::Changes => RepeatMode::Once,
        },
        effect: native.effect,
        signature: native.signature,
    };
    TABLE.iter().map(spec).collect()
});

/// Tools that are not on the wire. Runs have them; `tools.list` returns the eleven that clients expect.
const OURS: [&str; 1] = [send_file::TOOL.name];

/// Returns the tools of the wire for `tools.list`, which lists them first.
pub(super) fn wire_definitions() -> Vec<ToolDefinition> {
    let to_definition = |spec: &ToolSpec| ToolDefinition {
        name: spec.name.clone(),
        description: spec.description.clone(),
        input_schema: spec.schema.as_object().cloned().unwrap_or_default(),
    };
    let of_the_wire = TABLE.iter().zip(SPECS.iter()).filter(|(native, _)| !OURS.contains(&native.name));
    of_the_wire.map(|(_, spec)| to_definition(spec)).collect()
}

/// Returns their full names with their arguments, for rules.
pub fn known_tools<'a>() -> impl Iterator<Item = KnownTool<'a>> {
    SPECS.iter().map(|spec| {
        let properties = spec.schema.get("properties").and_then(Value::as_object);
        let takes = properties.into_iter().flat_map(Map::keys).map(String::as_str).collect();
        KnownTool { name: &spec.name, takes, others: ExtraArguments::No }
    })
}

/// Returns all built-in tools for a run in a session.
pub(super) fn session_tools(door: &Arc<GsvAdapter>, place: &RunSession) -> Vec<Arc<dyn AgentTool>> {
    let tool = |(native, spec)| Arc::new(SessionTool { native, spec, door: Arc::clone(door), place: place.clone() });
    TABLE.iter().zip(SPECS.iter()).map(|pair| tool(pair) as Arc<dyn AgentTool>).collect()
}

/// Session in which a run works.
#[derive(Clone)]
pub(super) struct RunSession {
    /// Canonical key of the session.
    pub(super) key: String,
    /// Agent.
    pub(super) agent: String,
    /// Run, if one works.
    pub(super) run: Option<RunId>,
}

struct SessionTool {
    native: &'static BuiltinTool,
    spec: &'static ToolSpec,
    door: Arc<GsvAdapter>,
    place: RunSession,
}

impl AgentTool for SessionTool {
    fn spec(&self) -> &ToolSpec {
        self.spec
    }

    fn route_call(&self, arguments: &mut Map<String, Value>) -> Result<CallRoute, CallFailure> {
        (self.native.form)(arguments).map_err(prefix_error)?;
        Ok(CallRoute::Here)
    }

    fn run<'a>(
        &'a self,
        arguments: Map<String, Value>,
        cx: &'a ToolContext,
    ) -> BoxFuture<'a, Result<CallOutput, CallFailure>> {
        let RunSession { key, agent, .. } = self.place.clone();
        let call = BuiltinCall { door: Arc::clone(&self.door), key, agent, arguments, cancel: cx.cancel.clone() };
        let work = (self.native.run)(call);
        Box::pin(async move { work.await.map(CallOutput::from_text).map_err(prefix_error) })
    }
}

/// Adds the prefix that all errors of tools have on this wire.
fn prefix_error(failure: CallFailure) -> CallFailure {
    let with_prefix = |text: String| format!("Error: {text}");
    match failure {
        CallFailure::Invalid(text) => CallFailure::Invalid(with_prefix(text)),
        CallFailure::NotBegun(text) => CallFailure::NotBegun(with_prefix(text)),
        CallFailure::Failed(text) => CallFailure::Failed(with_prefix(text)),
        CallFailure::Cancelled(text) => CallFailure::Cancelled(with_prefix(text)),
        in_doubt @ CallFailure::InDoubt(_) => in_doubt,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{SPECS, TABLE};

    #[test]
    fn every_native_tool_has_its_own_name_and_a_schema_that_declares_what_its_signature_names() {
        let names: BTreeSet<&str> = TABLE.iter().map(|native| native.name).collect();
        assert_eq!(names.len(), TABLE.len());
        for spec in SPECS.iter() {
            assert_eq!(spec.schema["type"], "object", "{}", spec.name);
            for name in spec.signature {
                assert!(spec.schema["properties"][name].is_object(), "{}: {name}", spec.name);
            }
        }
    }
}
