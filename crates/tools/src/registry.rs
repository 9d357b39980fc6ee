//! The tools that runs have, by name and in one order.
//!
//! It must not decide who may call them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use countersign_core::tool::ToolSpec;
use serde_json::{Map, Value};

use crate::{
    ask::AskTool,
    bash::BashTool,
    edit::EditTool,
    find::FindTool,
    grep::GrepTool,
    ls::LsTool,
    read::ReadTool,
    sandbox::Sandbox,
    secrets::GatewaySecrets,
    todo_write::TodoWriteTool,
    tool::{AgentTool, EditFormat},
    workflow::WorkflowTool,
    write::WriteTool,
};

/// A set of tools. Clones share them.
///
/// # Example
///
/// ```
/// use countersign_tools::{CallFailure, ToolRegistry};
/// use serde_json::json;
///
/// let registry = ToolRegistry::standard().only_named(&["read", "grep"]);
/// assert!(registry.get("write").is_none());
///
/// let grep = registry.get("grep").expect("it is in the registry");
/// let arguments = grep.check_arguments(&json!({ "pattern": "TODO", "path": "src" }))?;
/// assert_eq!(grep.spec().signature_of(&arguments), "grep(TODO, src)");
/// # Ok::<(), CallFailure>(())
/// ```
#[derive(Clone)]
pub struct ToolRegistry(Vec<Arc<dyn AgentTool>>);

impl ToolRegistry {
    /// Creates `read`, `write`, `edit` (replacing text), `bash`, `grep`, `find`, `ls`, `todo_write`, `ask`.
    pub fn standard() -> Self {
        Self::with_edit(EditFormat::default())
    }

    /// Creates the same registry with another form of `edit`; [`crate::ToolContext::edit_mode`] should be the same.
    pub fn with_edit(mode: EditFormat) -> Self {
        Self(vec![
            Arc::new(ReadTool::default()),
            Arc::new(WriteTool::default()),
            Arc::new(EditTool::new(mode)),
            Arc::new(BashTool::default()),
            Arc::new(GrepTool::default()),
            Arc::new(FindTool::default()),
            Arc::new(LsTool::default()),
            Arc::new(TodoWriteTool::default()),
            Arc::new(AskTool::default()),
        ])
    }

    /// Confines commands by `sandbox`: they can declare more needs.
    #[must_use]
    pub fn in_sandbox(self, sandbox: &Sandbox) -> Self {
        self.with_bash(sandbox, GatewaySecrets::default())
    }

    /// Confines commands by `sandbox`, and lets them be given secrets.
    #[must_use]
    pub fn with_bash(mut self, sandbox: &Sandbox, secrets: GatewaySecrets) -> Self {
        for tool in self.0.iter_mut().filter(|tool| tool.spec().name == "bash") {
            let bash = BashTool::default().with_secrets(secrets.clone());
            *tool = Arc::new(if sandbox.is_on() { bash.in_sandbox(sandbox) } else { bash });
        }
        self
    }

    /// Adds the tools of a workflow at the end. Questions may name its stages.
    #[must_use]
    pub fn with_workflow(mut self) -> Self {
        for tool in self.0.iter_mut().filter(|tool| tool.spec().name == "ask") {
            *tool = Arc::new(AskTool::for_workflow());
        }
        self.0.extend(WorkflowTool::all_tools().map(|tool| Arc::new(tool) as Arc<dyn AgentTool>));
        self
    }

    /// Returns the tools of these names, in the order of the registry. Unknown names are skipped.
    #[must_use]
    pub fn only_named(&self, names: &[&str]) -> Self {
        Self(self.0.iter().filter(|tool| names.contains(&tool.spec().name.as_str())).cloned().collect())
    }

    /// Creates a registry of these tools, in this order. Of two with one name the first counts.
    pub fn from_tools(tools: Vec<Arc<dyn AgentTool>>) -> Self {
        Self(tools)
    }

    /// Returns all tools, always in the same order.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<dyn AgentTool>> {
        self.0.iter()
    }

    /// Returns the tool of a name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn AgentTool>> {
        self.0.iter().find(|tool| tool.spec().name == name)
    }

    /// Returns every argument that the tools of [`ToolRegistry::standard`] take in any form of theirs, by the name of the tool.
    pub fn argument_names() -> BTreeMap<String, BTreeSet<String>> {
        let forms = [EditFormat::Replace, EditFormat::Hashline, EditFormat::Patch].map(Self::with_edit);
        let held: Arc<dyn AgentTool> = Arc::new(BashTool::default().in_sandbox(&Sandbox::default()));
        let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for spec in forms.iter().flat_map(Self::tool_specs).chain([held.spec()]) {
            let properties = spec.schema.get("properties").and_then(Value::as_object);
            let names = properties.into_iter().flat_map(Map::keys).cloned();
            found.entry(spec.name.clone()).or_default().extend(names);
        }
        found
    }

    /// Returns all specs, always in the same order.
    pub fn tool_specs(&self) -> impl Iterator<Item = &ToolSpec> {
        self.0.iter().map(|tool| tool.spec())
    }
}

#[cfg(test)]
mod tests {
    use super::ToolRegistry;

    fn names(registry: &ToolRegistry) -> Vec<&str> {
        registry.tool_specs().map(|spec| spec.name.as_str()).collect()
    }

    #[test]
    fn the_arguments_of_a_tool_are_those_of_all_its_forms() {
        let all = ToolRegistry::argument_names();
        assert_eq!(all.keys().map(String::as_str).collect::<Vec<_>>(), {
            let mut names = names(&ToolRegistry::standard()).into_iter().map(str::to_owned).collect::<Vec<_>>();
            names.sort_unstable();
            names
        });
        for (tool, argument) in
            [("bash", "command"), ("bash", "needs"), ("edit", "old_text"), ("edit", "edits"), ("edit", "diff")]
        {
            assert!(all[tool].contains(argument), "{tool} {argument}: {:?}", all[tool]);
        }
    }

    #[test]
    fn tools_have_one_order_for_any_selection() {
        let all = ToolRegistry::standard();
        assert_eq!(names(&all), ["read", "write", "edit", "bash", "grep", "find", "ls", "todo_write", "ask"]);
        assert_eq!(names(&all.only_named(&["bash", "none", "read"])), ["read", "bash"]);
        assert_eq!(all.get("bash").unwrap().spec().name, "bash");
        assert!(all.only_named(&["read"]).get("bash").is_none());
        let more = all.only_named(&["ask"]).with_workflow();
        assert_eq!(names(&more), ["ask", "workflow_interview", "workflow_plan", "workflow_execution"]);
    }
}
