//! Tools of runs for tests: one of the gateway's own, and none of a node.

use std::sync::Arc;

use countersign_config::{
    KnownEntities,
    lint::{self, ExtraArguments},
};
use countersign_core::call;
use serde_json::{Map, Value};

use super::{adapter::RunTools, tool_inventory::ToolInventory};

/// A gateway whose runs have one tool of their own, `gsv__Cron`.
pub(super) struct FakeRunTools;

impl RunTools for FakeRunTools {
    fn own_tools(&self) -> Vec<lint::KnownTool<'static>> {
        vec![lint::KnownTool { name: "gsv__Cron", takes: vec!["action"], others: ExtraArguments::No }]
    }

    fn node_call(&self, _: &str, _: &Map<String, Value>) -> Option<call::CallDetails> {
        None
    }
}

/// Returns what rules are about as far as a configuration says it.
pub(super) fn test_inventory(known: KnownEntities) -> ToolInventory {
    ToolInventory::from_known(known, Arc::new(FakeRunTools))
}
