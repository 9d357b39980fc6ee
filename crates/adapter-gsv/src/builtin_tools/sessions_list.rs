//! `gsv__SessionsList`: lists the sessions in which users spoke, the last active first.

use countersign_core::tool::ToolEffect;
use countersign_protocol::RawJson;
use countersign_runtime::tools::CallFailure;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    super::{chat, registry},
    BuiltinCall, BuiltinResult, BuiltinTool, accept_unchanged,
};

/// Most sessions in one list.
const MOST: usize = 100;
/// Default number of sessions.
const USUAL: usize = 20;
/// Most messages of each.
const MOST_MESSAGES: usize = 20;

pub(super) const TOOL: BuiltinTool = BuiltinTool {
    name: "SessionsList",
    description: "Lists sessions, the last active first, with their last messages if messageLimit is given.",
    schema: || {
        json!({"type": "object", "properties": {
            "limit": {"type": "integer", "minimum": 1, "maximum": MOST, "description": "How many (default: 20)"},
            "offset": {"type": "integer", "minimum": 0, "description": "How many to pass over (default: 0)"},
            "messageLimit": {"type": "integer", "minimum": 0, "maximum": MOST_MESSAGES, "description": "How many messages of each (default: 0)"},
        }})
    },
    signature: &[],
    effect: ToolEffect::Reads,
    form: accept_unchanged,
    run: |call| Box::pin(run(call)),
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SessionsListArguments {
    limit: Option<usize>,
    offset: Option<usize>,
    message_limit: Option<usize>,
}

async fn run(mut call: BuiltinCall) -> BuiltinResult {
    let SessionsListArguments { limit, offset, message_limit } = call.read_arguments()?;
    let failed = |why: &dyn std::fmt::Display| CallFailure::Failed(why.to_string());
    let rows = registry::list_sessions(call.door.context.handle.log()).await.map_err(|error| failed(&error))?;
    let count = rows.len();
    let messages = message_limit.unwrap_or(0).min(MOST_MESSAGES);
    let mut sessions = Vec::new();
    for row in rows.into_iter().skip(offset.unwrap_or(0)).take(limit.unwrap_or(USUAL).clamp(1, MOST)) {
        let mut session = json!({
            "sessionKey": row.key,
            "createdAt": row.created_at,
            "lastActiveAt": row.last_at,
        });
        if let Some(label) = &row.label {
            session["label"] = label.as_str().into();
        }
        if messages > 0 {
            let last = chat::last_messages(&call.door, &row.key, messages).await;
            let last = last.map_err(|fault| failed(&fault.message))?;
            let last = last.iter().map(|message| serde_json::from_str::<Value>(RawJson::from_wire(message).as_text()));
            session["messages"] = last.collect::<Result<_, _>>().map_err(|error| failed(&error))?;
        }
        sessions.push(session);
    }
    Ok(json!({ "sessions": sessions, "count": count }).to_string())
}
