//! `gsv__LogsGet`: the last lines of a node's log.

use std::time::Duration;

use countersign_core::tool::ToolEffect;
use countersign_protocol::{RawJson, gsv::node};
use countersign_runtime::tools::CallFailure;
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;

use super::{super::nodes, BuiltinCall, BuiltinResult, BuiltinTool, accept_unchanged};

/// Longest time in which the node answers.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest part of a log for a model, in bytes.
const LONGEST: usize = 200_000;

pub(super) const TOOL: BuiltinTool = BuiltinTool {
    name: "LogsGet",
    description: "Reads the last lines of the log of a connected node.",
    schema: || {
        json!({"type": "object", "properties": {
            "nodeId": {"type": "string", "description": "Which node (default: the only one)"},
            "lines": {"type": "integer", "minimum": 1, "maximum": node::LogsGet::MOST, "description": "How many (default: 100)"},
        }})
    },
    signature: &[],
    effect: ToolEffect::Reads,
    form: accept_unchanged,
    run: |call| Box::pin(run(call)),
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogsGetArguments {
    node_id: Option<String>,
    lines: Option<u64>,
}

async fn run(mut call: BuiltinCall) -> BuiltinResult {
    let LogsGetArguments { node_id, lines } = call.read_arguments()?;
    let node_id = node_id.filter(|id| !id.trim().is_empty());
    let request =
        node::LogsGet { node_id, lines: lines.unwrap_or(node::LogsGet::DEFAULT).clamp(1, node::LogsGet::MOST) };
    let read = timeout(PATIENCE, nodes::logs::read_node_log(&call.door, &request));
    let late = || CallFailure::Failed(format!("the node did not answer within {} seconds", PATIENCE.as_secs()));
    let mut logs = read.await.map_err(|_| late())?.map_err(|fault| CallFailure::Failed(fault.message))?;
    let lines = nodes::logs::newest_lines(logs.lines, usize::MAX, LONGEST);
    (logs.count, logs.truncated) = (lines.kept.len(), logs.truncated || lines.is_cut);
    logs.lines = lines.kept;
    Ok(RawJson::from_wire(&logs).as_text().to_owned())
}
