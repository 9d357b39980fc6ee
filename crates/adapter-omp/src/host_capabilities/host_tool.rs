//! A tool of the host, as runs see it. It is never run here.

use std::sync::Arc;

use countersign_core::{
    id::PeerId,
    policy::Class,
    tool::{CallConcurrency, ForeignTool, RepeatMode, ShellInput, ShellMachine, ToolEffect, ToolSpec},
};
use countersign_protocol::gjc::host_tool::HostTool;
use countersign_runtime::tools::{
    AgentTool, CallFailure, CallOutput, CallRoute, PeerRoute, ToolContext, conform_arguments,
};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};

/// One tool.
pub(super) struct HostProvidedTool {
    spec: ToolSpec,
    /// Of the arguments, as the host wrote it.
    schema: Value,
    peer: PeerId,
}

impl HostProvidedTool {
    pub(super) fn new(tool: &Arc<HostTool>, peer: PeerId) -> Self {
        // It was read when the set was taken. A schema that cannot be read fits nothing.
        let schema: Value = tool.parameters.decode_as().unwrap_or(Value::Bool(false));
        let mut shown = schema.clone();
        if let Some(members) = shown.as_object_mut() {
            // Providers require the type of arguments to be an object.
            members.entry("type").or_insert_with(|| "object".into());
            members.entry("properties").or_insert_with(|| Value::Object(Map::new()));
        }
        let spec = ToolSpec {
            name: tool.name.clone(),
            description: tool.description.clone(),
            schema: shown,
            concurrency: CallConcurrency::Shared,
            repeat: RepeatMode::Once,
            effect: ToolEffect::Changes,
            signature: &[],
        };
        Self { spec, schema, peer }
    }
}

impl AgentTool for HostProvidedTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn check_arguments(&self, arguments: &Value) -> Result<Map<String, Value>, CallFailure> {
        conform_arguments(&self.spec.name, &self.schema, arguments)
    }

    fn route_call(&self, arguments: &mut Map<String, Value>) -> Result<CallRoute, CallFailure> {
        let none = Map::new();
        let foreign = ForeignTool {
            name: &self.spec.name,
            schema: self.schema.as_object().unwrap_or(&none),
            needs_shell: false,
            // Most hosts work on this machine. If one does not, more calls require approval than necessary.
            machine: ShellMachine::This,
        };
        let shell = ShellInput::of_foreign(&foreign, arguments);
        Ok(CallRoute::Peer(PeerRoute { peer: self.peer.clone(), class: Class::HostToolInvoke, shell }))
    }

    fn run<'a>(&'a self, _: Map<String, Value>, _: &'a ToolContext) -> BoxFuture<'a, Result<CallOutput, CallFailure>> {
        Box::pin(async { Err(CallFailure::NotBegun("this is done by the host".to_owned())) })
    }
}
