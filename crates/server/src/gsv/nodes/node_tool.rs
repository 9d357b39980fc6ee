//! A tool of a node, as runs see it. It is never run here.

use countersign_core::{
    id::PeerId,
    policy::Class,
    tool::{Effect, Lane, Repeat, Spec},
};
use countersign_protocol::gsv::tool::{Definition, Name};
use countersign_runtime::tools::{Away, Context, Failure, Output, Route, Tool};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};

/// How long a name may be that providers take.
const LONGEST: usize = 64;

/// One tool.
pub(in crate::gsv) struct NodeTool {
    node: String,
    definition: Definition,
    spec: Spec,
}

/// Who does the calls of a node's tools.
pub(super) fn peer_of(node: &str) -> PeerId {
    PeerId::new(format!("node:{node}"))
}

/// The node that a peer is.
pub(super) fn node_of(peer: &PeerId) -> Option<&str> {
    peer.as_str().strip_prefix("node:")
}

impl NodeTool {
    pub(super) fn new(node: &str, definition: &Definition) -> Self {
        let mut schema = definition.input_schema.clone();
        // Providers want it said that arguments are an object.
        schema.entry("type").or_insert_with(|| "object".into());
        schema.entry("properties").or_insert_with(|| Value::Object(Map::new()));
        let spec = Spec {
            name: name_for_models(node, &definition.name),
            description: definition.description.clone(),
            schema: Value::Object(schema),
            lane: Lane::Shared,
            repeat: Repeat::Once,
            effect: Effect::Changes,
            signature: named(&definition.name),
        };
        Self { node: node.to_owned(), definition: definition.clone(), spec }
    }

    /// The node.
    pub(super) fn node(&self) -> &str {
        &self.node
    }

    /// What the node says of it.
    pub(super) fn definition(&self) -> &Definition {
        &self.definition
    }
}

/// The arguments that stand in the signatures of tools which nodes usually have. All of them, in those of others.
fn named(tool: &str) -> &'static [&'static str] {
    match tool {
        "Bash" => &["command"],
        "Read" | "Write" | "Edit" => &["path"],
        "Glob" | "Grep" => &["pattern", "path"],
        _ => &[],
    }
}

/// The full name with what providers do not take replaced.
fn name_for_models(node: &str, tool: &str) -> String {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let name = Name::of_node(node, tool);
    let fine: String = name.chars().map(|c| if is_fine(c) { c } else { '-' }).collect();
    if fine.len() <= LONGEST {
        return fine;
    }
    // The end tells tools of one node apart, and a digest those of several.
    let digest = countersign_core::digest::Digest::of(name.as_bytes()).to_string();
    let digest: String = digest.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
    format!("{digest}-{}", &fine[fine.len() - (LONGEST - digest.len() - 1)..])
}

impl Tool for NodeTool {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The node checks its arguments itself: its schema is for models.
    fn check(&self, arguments: &Value) -> Result<Map<String, Value>, Failure> {
        arguments.as_object().cloned().ok_or_else(|| Failure::Invalid("the arguments must be an object".to_owned()))
    }

    fn route(&self, _: &mut Map<String, Value>) -> Result<Route, Failure> {
        Ok(Route::Peer(Away { peer: peer_of(&self.node), class: Class::HostToolInvoke }))
    }

    fn run<'a>(&'a self, _: Map<String, Value>, _: &'a Context) -> BoxFuture<'a, Result<Output, Failure>> {
        Box::pin(async { Err(Failure::NotBegun("this is done by a node".to_owned())) })
    }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, name_for_models};

    #[test]
    fn a_name_is_one_that_providers_take() {
        assert_eq!(name_for_models("macbook", "Bash"), "macbook__Bash");
        assert_eq!(name_for_models("mac.local", "Bash"), "mac-local__Bash");
        let (one, other) = (name_for_models(&"n".repeat(80), "Bash"), name_for_models(&"n".repeat(81), "Bash"));
        assert_eq!((one.len(), other.len()), (LONGEST, LONGEST));
        assert!(one.ends_with("n__Bash") && one != other, "{one} {other}");
    }
}
