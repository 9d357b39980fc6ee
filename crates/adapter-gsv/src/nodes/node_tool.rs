//! Tool of a node, as runs see it. It never runs here.

use countersign_core::{
    call,
    policy::Class,
    tool::{CallConcurrency, ForeignTool, RepeatMode, ShellInput, ShellMachine, ToolEffect, ToolSpec},
};
use countersign_protocol::gsv::{
    runtime::{MachineCapability, RuntimeInfo},
    tool::{ParsedToolName, ToolDefinition},
};
use countersign_runtime::tools::{AgentTool, CallFailure, CallOutput, CallRoute, PeerRoute, ToolContext};
use countersign_view::protocol::peer_of;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// Longest name that providers accept.
const LONGEST: usize = 64;
/// Number of digits of a digest that distinguish names.
const DIGEST: usize = 8;

/// One tool.
pub(crate) struct NodeTool {
    node: String,
    definition: ToolDefinition,
    /// True if the node declares that it needs a shell.
    needs_shell: bool,
    spec: ToolSpec,
}

impl NodeTool {
    pub(super) fn new(node: &str, definition: &ToolDefinition, runtime: Option<&RuntimeInfo>) -> Self {
        let mut schema = definition.input_schema.clone();
        // Providers require that arguments are an object.
        schema.entry("type").or_insert_with(|| "object".into());
        schema.entry("properties").or_insert_with(|| Value::Object(Map::new()));
        let spec = ToolSpec {
            name: name_for_models(node, &definition.name),
            description: definition.description.clone(),
            schema: Value::Object(schema),
            concurrency: CallConcurrency::Shared,
            repeat: RepeatMode::Once,
            effect: ToolEffect::Changes,
            signature: signature_arguments(&definition.name),
        };
        let needs = runtime.and_then(|runtime| runtime.tool_capabilities.get(&definition.name));
        let needs_shell = needs.is_some_and(|needs| needs.contains(&MachineCapability::ShellExec));
        Self { node: node.to_owned(), definition: definition.clone(), needs_shell, spec }
    }

    /// Returns the part of a call with these arguments that a shell reads, at the node.
    pub(super) fn shell_for(&self, arguments: &Map<String, Value>) -> ShellInput {
        let ToolDefinition { name, input_schema: schema, .. } = &self.definition;
        let foreign = ForeignTool { name, schema, needs_shell: self.needs_shell, machine: ShellMachine::Other };
        ShellInput::of_foreign(&foreign, arguments)
    }

    /// Returns the node.
    pub(super) fn node_id(&self) -> &str {
        &self.node
    }

    /// Returns the node's definition of it.
    pub(super) fn definition(&self) -> &ToolDefinition {
        &self.definition
    }
}

/// Returns the details of a call of a node's tool by its name for agents, as far as they are known without the node: no schema is
/// known, and the name and the arguments show the text for a shell. `None` if it is no name of a node's tool.
pub fn assumed_call(name: &str, arguments: &Map<String, Value>) -> Option<call::CallDetails> {
    let (node, tool) = name.split_once("__").filter(|(node, tool)| !node.is_empty() && !tool.is_empty())?;
    let definition = ToolDefinition { name: tool.to_owned(), description: String::new(), input_schema: Map::new() };
    let mut there = NodeTool::new(node, &definition, None);
    name.clone_into(&mut there.spec.name);
    Some(call::CallDetails {
        tool: name.into(),
        tool_call_id: "".into(),
        intent: None,
        signature: there.spec.signature_of(arguments),
        named: there.spec.signature.iter().map(|name| (*name).to_owned()).collect(),
        class: Some(Class::HostToolInvoke),
        shell: Some(there.shell_for(arguments)),
        arguments: arguments.clone(),
        problem: None,
        request: None,
        pins: None,
        leads_to: None,
    })
}

/// Returns the arguments in the signatures of tools that nodes usually have. For others: all arguments.
fn signature_arguments(tool: &str) -> &'static [&'static str] {
    match tool {
        "Bash" => &["command"],
        "Read" | "Write" | "Edit" => &["path"],
        "Glob" | "Grep" => &["pattern", "path"],
        _ => &[],
    }
}

/// Returns the full name in a form that providers accept. Two tools never share a name: a part that must change, or that looks as
/// if it had changed, ends in a digest of itself.
fn name_for_models(node: &str, tool: &str) -> String {
    // Two characters separate the parts.
    let named = |longest| ParsedToolName::of_node(&name_part(node, longest), &name_part(tool, longest));
    let name = named(LONGEST);
    if name.len() <= LONGEST { name } else { named((LONGEST - 2) / 2) }
}

fn name_part(text: &str, longest: usize) -> String {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if text.chars().all(is_fine) && text.len() <= longest && !ends_like_a_digest(text) {
        return text.to_owned();
    }
    let fine: String = text.chars().map(|c| if is_fine(c) { c } else { '-' }).collect();
    let digest = hex::encode(Sha256::digest(text.as_bytes()));
    let kept = fine.len().min(longest.saturating_sub(DIGEST + 1));
    format!("{}-{}", &fine[..kept], &digest[..DIGEST])
}

fn ends_like_a_digest(text: &str) -> bool {
    let end = text.rsplit_once('-').map(|(_, end)| end);
    end.is_some_and(|end| end.len() == DIGEST && end.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

impl AgentTool for NodeTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// Accepts any arguments: the node checks them itself, and its schema is for models.
    fn check_arguments(&self, arguments: &Value) -> Result<Map<String, Value>, CallFailure> {
        arguments.as_object().cloned().ok_or_else(|| CallFailure::Invalid("the arguments must be an object".to_owned()))
    }

    fn route_call(&self, arguments: &mut Map<String, Value>) -> Result<CallRoute, CallFailure> {
        let shell = self.shell_for(arguments);
        Ok(CallRoute::Peer(PeerRoute { peer: peer_of(&self.node), class: Class::HostToolInvoke, shell }))
    }

    fn run<'a>(&'a self, _: Map<String, Value>, _: &'a ToolContext) -> BoxFuture<'a, Result<CallOutput, CallFailure>> {
        Box::pin(async { Err(CallFailure::NotBegun("this is done by a node".to_owned())) })
    }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, name_for_models};

    #[test]
    fn a_name_is_one_that_providers_take_and_stays_where_it_can() {
        for (node, tool, want) in [
            ("macbook", "Bash", "macbook__Bash"),
            ("mac-local", "Bash", "mac-local__Bash"),
            ("mac.local", "Bash", "mac-local-ebce48cc__Bash"),
            ("mac local", "Bash", "mac-local-4cdf1ace__Bash"),
            ("mac", "a.b", "mac__a-b-2e7336dc"),
            ("mac-deadbeef", "Bash", "mac-deadbeef-c6a281af__Bash"),
        ] {
            assert_eq!(name_for_models(node, tool), want, "{node} {tool}");
        }
    }

    #[test]
    fn two_tools_never_have_one_name() {
        let long = "n".repeat(80);
        let odd = ["mac.local", "mac-local", "mac local", "mac:local", &long, &format!("{long}n"), "é", "è"];
        let mut nodes: Vec<String> = odd.map(str::to_owned).into();
        // A changed name may be the name of another node.
        nodes.extend(odd.iter().map(|node| name_for_models(node, "x").trim_end_matches("__x").to_owned()));
        nodes.sort();
        nodes.dedup();
        let tools = ["Bash", "a.b", "a-b", &"t".repeat(128), &"t".repeat(127)];
        let all: Vec<String> =
            nodes.iter().flat_map(|node| tools.iter().map(move |tool| name_for_models(node, tool))).collect();
        let different: std::collections::BTreeSet<&String> = all.iter().collect();
        assert_eq!(different.len(), all.len(), "{all:#?}");
        assert!(all.iter().all(|name| name.len() <= LONGEST && name.is_ascii()), "{all:#?}");
    }
}
