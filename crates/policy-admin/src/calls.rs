//! Subjects for policy of calls of runs, without a call.

use countersign_core::{
    CallOrigin, call,
    id::SessionId,
    policy::{Class, PolicySubject},
    tool::{ForeignTool, ShellInput, ShellMachine, ToolEffect, ToolSpec},
};
use countersign_runtime::tools::ToolRegistry;
use serde_json::{Map, Value};

/// Returns the subject for policy of a call of a tool of runs; `None` if runs have none of this name.
pub fn run_tool_subject(door: &str, cwd: &str, tool: &str, arguments: &Map<String, Value>) -> Option<PolicySubject> {
    let registry = ToolRegistry::standard();
    let spec = registry.tool_specs().find(|spec| spec.name == tool)?;
    let effect = if spec.effect == ToolEffect::Reads { ToolEffect::Reads } else { ToolEffect::Changes };
    let content = call_content(spec.signature_of(arguments), spec.signature, tool, arguments);
    Some(call_subject(door, cwd, &content, effect))
}

/// Returns the subject for policy of a call of a tool that a host lends.
pub fn host_tool_subject(door: &str, cwd: &str, tool: &str, arguments: &Map<String, Value>) -> PolicySubject {
    let spec = ToolSpec {
        name: tool.to_owned(),
        description: String::new(),
        schema: Value::Null,
        concurrency: countersign_core::tool::CallConcurrency::Shared,
        repeat: countersign_core::tool::RepeatMode::Once,
        effect: ToolEffect::Changes,
        signature: &[],
    };
    // No schema is known here.
    let foreign = ForeignTool { name: tool, schema: &Map::new(), needs_shell: false, machine: ShellMachine::This };
    let content = call::CallDetails {
        class: Some(Class::HostToolInvoke),
        shell: Some(ShellInput::of_foreign(&foreign, arguments)),
        ..call_content(spec.signature_of(arguments), &[], tool, arguments)
    };
    call_subject(door, cwd, &content, ToolEffect::Changes)
}

fn call_content(signature: String, named: &[&str], tool: &str, arguments: &Map<String, Value>) -> call::CallDetails {
    call::CallDetails {
        pins: None,
        leads_to: None,
        tool: tool.into(),
        tool_call_id: "".into(),
        arguments: arguments.clone(),
        intent: None,
        signature,
        named: named.iter().map(|name| (*name).to_owned()).collect(),
        class: None,
        shell: None,
        problem: None,
        request: None,
    }
}

fn call_subject(door: &str, cwd: &str, content: &call::CallDetails, effect: ToolEffect) -> PolicySubject {
    let session = SessionId::new("trial");
    let place = CallOrigin { session: &session, door: Some(door), cwd, folder: cwd, is_shell_used: false };
    countersign_core::subject_at(place, content, effect)
}
