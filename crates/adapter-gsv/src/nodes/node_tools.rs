//! Tools of the connected nodes.
//!
//! They exist while their node is connected, and follow from its last `connect`. This module must not know which calls are open.

use std::{collections::BTreeMap, sync::Arc};

use countersign_protocol::gsv::{
    runtime::RuntimeInfo,
    tool::{ParsedToolName, ToolDefinition},
};
use countersign_runtime::{PeerRegistry, tools::AgentTool};
use parking_lot::RwLock;

use super::node_tool::NodeTool;

/// Tools that nodes offer, and the links for calls of them.
#[derive(Default)]
pub(crate) struct NodeTools {
    peers: PeerRegistry,
    /// Tools by node.
    offers: RwLock<BTreeMap<String, Vec<Arc<NodeTool>>>>,
}

impl NodeTools {
    /// Returns the registry of the links.
    pub(crate) fn peer_registry(&self) -> &PeerRegistry {
        &self.peers
    }

    /// Returns the tools of all nodes.
    pub(crate) fn all_tools(&self) -> Vec<Arc<dyn AgentTool>> {
        let offers = self.offers.read();
        offers.values().flatten().map(|tool| Arc::clone(tool) as Arc<dyn AgentTool>).collect()
    }

    /// Returns their definitions for lists, under their full names.
    pub(super) fn tool_definitions(&self) -> Vec<ToolDefinition> {
        let full = |(node, tool): (&String, &Arc<NodeTool>)| {
            let own = tool.definition();
            ToolDefinition { name: ParsedToolName::of_node(node, &own.name), ..own.clone() }
        };
        let offers = self.offers.read();
        offers.iter().flat_map(|(node, tools)| tools.iter().map(move |tool| full((node, tool)))).collect()
    }

    /// Replaces the offer of a node.
    pub(super) fn set_offer(&self, node: &str, tools: &[ToolDefinition], runtime: Option<&RuntimeInfo>) {
        let tools = tools.iter().map(|tool| Arc::new(NodeTool::new(node, tool, runtime))).collect();
        self.offers.write().insert(node.to_owned(), tools);
    }

    /// Removes the offer of a node.
    pub(super) fn take_back(&self, node: &str) {
        self.offers.write().remove(node);
    }

    /// Returns the tool of a node by the node's own name for it, for runs.
    pub(super) fn tool_of_node(&self, node: &str, name: &str) -> Option<Arc<NodeTool>> {
        self.offers.read().get(node)?.iter().find(|tool| tool.spec().name == name).cloned()
    }

    /// Finds the tool with a full name, `node__Tool` or `node:Tool`.
    pub(super) fn find_tool(&self, name: &str) -> Option<Arc<NodeTool>> {
        let offers = self.offers.read();
        name_parts(name)
            .find_map(|(node, tool)| offers.get(node)?.iter().find(|of| of.definition().name == tool).cloned())
    }
}

/// Returns the ways in which a full name can be split.
pub(super) fn name_parts(name: &str) -> impl Iterator<Item = (&str, &str)> {
    ["__", ":"].into_iter().filter_map(|between| name.split_once(between))
}

#[cfg(test)]
mod tests {
    use countersign_protocol::gsv::tool::ToolDefinition;
    use countersign_runtime::tools::AgentTool as _;

    use super::NodeTools;

    fn tool(name: &str) -> ToolDefinition {
        ToolDefinition { name: name.to_owned(), description: String::new(), input_schema: serde_json::Map::new() }
    }

    fn names(toolbox: &NodeTools) -> Vec<String> {
        toolbox.all_tools().iter().map(|tool| tool.spec().name.clone()).collect()
    }

    #[test]
    fn a_run_has_the_tools_of_the_nodes_that_are_there() {
        let toolbox = NodeTools::default();
        toolbox.set_offer("pi", &[tool("Echo"), tool("Bash")], None);
        toolbox.set_offer("box", &[tool("Echo")], None);
        assert_eq!(names(&toolbox), ["box__Echo", "pi__Echo", "pi__Bash"]);
        toolbox.set_offer("pi", &[tool("Read")], None);
        assert_eq!(names(&toolbox), ["box__Echo", "pi__Read"]);
        toolbox.take_back("pi");
        assert_eq!(names(&toolbox), ["box__Echo"]);
    }

    #[test]
    fn a_name_is_found_however_it_is_written() {
        let toolbox = NodeTools::default();
        toolbox.set_offer("mac.local", &[tool("Echo"), tool("a__b")], None);
        for (name, want) in [
            ("mac.local__Echo", Some("mac-local-ebce48cc__Echo")),
            ("mac.local:Echo", Some("mac-local-ebce48cc__Echo")),
            ("mac.local:a__b", Some("mac-local-ebce48cc__a__b")),
            ("mac.local__a__b", Some("mac-local-ebce48cc__a__b")),
            ("mac.local__Nope", None),
            ("Echo", None),
            ("pi__Echo", None),
        ] {
            let found = toolbox.find_tool(name).map(|tool| tool.spec().name.clone());
            assert_eq!(found.as_deref(), want, "{name}");
        }
    }
}
