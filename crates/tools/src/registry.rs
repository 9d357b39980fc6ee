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
    ask::Ask,
    bash::Bash,
    edit::Edit,
    find::Find,
    grep::Grep,
    ls::Ls,
    read::Read,
    sandbox::Sandbox,
    secrets::Secrets,
    todo_write::TodoWrite,
    tool::{EditMode, Tool},
    workflow::Workflow,
    write::Write,
};

/// A set of tools. Clones share them.
#[derive(Clone)]
pub struct Registry(Vec<Arc<dyn Tool>>);

impl Registry {
    /// `read`, `write`, `edit` (replacing text), `bash`, `grep`, `find`, `ls`, `todo_write`, `ask`.
    pub fn standard() -> Self {
        Self::with_edit(EditMode::default())
    }

    /// The same with another form of `edit`; [`crate::Context::edit_mode`] should say the same.
    pub fn with_edit(mode: EditMode) -> Self {
        Self(vec![
            Arc::new(Read::default()),
            Arc::new(Write::default()),
            Arc::new(Edit::new(mode)),
            Arc::new(Bash::default()),
            Arc::new(Grep::default()),
            Arc::new(Find::default()),
            Arc::new(Ls::default()),
            Arc::new(TodoWrite::default()),
            Arc::new(Ask::default()),
        ])
    }

    /// The same for commands that `sandbox` holds: they can ask for more.
    #[must_use]
    pub fn in_sandbox(self, sandbox: &Sandbox) -> Self {
        self.with_bash(sandbox, Secrets::default())
    }

    /// The same for commands that `sandbox` holds, and that can be given secrets.
    #[must_use]
    pub fn with_bash(mut self, sandbox: &Sandbox, secrets: Secrets) -> Self {
        for tool in self.0.iter_mut().filter(|tool| tool.spec().name == "bash") {
            let bash = Bash::default().releasing(secrets.clone());
            *tool = Arc::new(if sandbox.is_on() { bash.in_sandbox(sandbox) } else { bash });
        }
        self
    }

    /// The same with the tools of a workflow behind them. Questions may name its stages.
    #[must_use]
    pub fn with_workflow(mut self) -> Self {
        for tool in self.0.iter_mut().filter(|tool| tool.spec().name == "ask") {
            *tool = Arc::new(Ask::of_workflows());
        }
        self.0.extend(Workflow::all().map(|tool| Arc::new(tool) as Arc<dyn Tool>));
        self
    }

    /// The tools of these names, in the order of the registry. Names that nobody has are passed over.
    #[must_use]
    pub fn only(&self, names: &[&str]) -> Self {
        Self(self.0.iter().filter(|tool| names.contains(&tool.spec().name.as_str())).cloned().collect())
    }

    /// These tools, in this order. Of two of one name the first counts.
    pub fn of(tools: Vec<Arc<dyn Tool>>) -> Self {
        Self(tools)
    }

    /// All tools, always in the same order.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<dyn Tool>> {
        self.0.iter()
    }

    /// The tool of a name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.0.iter().find(|tool| tool.spec().name == name)
    }

    /// Every argument that the tools of [`Registry::standard`] take in any form of theirs, by the name of the tool.
    pub fn arguments() -> BTreeMap<String, BTreeSet<String>> {
        let forms = [EditMode::Replace, EditMode::Hashline, EditMode::Patch].map(Self::with_edit);
        let held: Arc<dyn Tool> = Arc::new(Bash::default().in_sandbox(&Sandbox::default()));
        let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for spec in forms.iter().flat_map(Self::specs).chain([held.spec()]) {
            let properties = spec.schema.get("properties").and_then(Value::as_object);
            let names = properties.into_iter().flat_map(Map::keys).cloned();
            found.entry(spec.name.clone()).or_default().extend(names);
        }
        found
    }

    /// All specs, always in the same order.
    pub fn specs(&self) -> impl Iterator<Item = &ToolSpec> {
        self.0.iter().map(|tool| tool.spec())
    }
}

#[cfg(test)]
mod tests {
    use super::Registry;

    fn names(registry: &Registry) -> Vec<&str> {
        registry.specs().map(|spec| spec.name.as_str()).collect()
    }

    #[test]
    fn the_arguments_of_a_tool_are_those_of_all_its_forms() {
        let all = Registry::arguments();
        assert_eq!(all.keys().map(String::as_str).collect::<Vec<_>>(), {
            let mut names = names(&Registry::standard()).into_iter().map(str::to_owned).collect::<Vec<_>>();
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
    fn tools_have_one_order_whatever_is_asked_for() {
        let all = Registry::standard();
        assert_eq!(names(&all), ["read", "write", "edit", "bash", "grep", "find", "ls", "todo_write", "ask"]);
        assert_eq!(names(&all.only(&["bash", "none", "read"])), ["read", "bash"]);
        assert_eq!(all.get("bash").unwrap().spec().name, "bash");
        assert!(all.only(&["read"]).get("bash").is_none());
        let more = all.only(&["ask"]).with_workflow();
        assert_eq!(names(&more), ["ask", "workflow_interview", "workflow_plan", "workflow_execution"]);
    }
}
