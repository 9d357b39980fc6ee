//! A call between the answer that wants it and its result, as frames need it.

use countersign_core::call;
use countersign_protocol::RawJson;
use serde_json::Value;

/// A call as its frames need it.
pub(super) struct ShownCall {
    pub(super) tool_call_id: String,
    pub(super) tool: String,
    pub(super) arguments: RawJson,
    pub(super) intent: Option<String>,
    pub(super) is_started: bool,
}

pub(super) fn shown_call(content: &call::CallDetails) -> ShownCall {
    ShownCall {
        tool_call_id: content.tool_call_id.to_string(),
        tool: content.tool.to_string(),
        arguments: Value::Object(content.arguments.clone()).into(),
        intent: content.intent.as_deref().map(str::to_owned),
        is_started: false,
    }
}
