//! Turns messages of session files and of the wire into those of the log, and back.
//!
//! It must not lose anything: what the log has no place for travels with the message and comes back as long as the
//! message is unchanged.

use countersign_core::{
    message::{ExtensionMessage, ExtraFields, MessageBlock, StoredMessage, SummaryMessage},
    time::Millis,
};
use countersign_protocol::{
    RawJson,
    omp::{
        AgentMessage,
        session_file::{SessionEntryBody, SessionFileEntry},
    },
};
use countersign_view::time::parse_iso;
use serde_json::{Map, Value};

use super::{blocks, context_cuts::is_in_words};

type JsonMembers = Map<String, Value>;

/// The member of a message of the log that holds, of the message it came from, what it cannot say itself.
const ORIGINAL: &str = "$wire";

/// The name that stands in a session file for the thinking level that the session was started with.
pub(crate) const INHERIT: &str = "inherit";

/// Returns the message of the log, and its time, which the log keeps separately.
///
/// Plain text becomes a block, code that was run becomes a command, and an unknown role becomes a message that is never shown.
pub fn from_wire(message: &AgentMessage) -> (StoredMessage, Option<Millis>) {
    let Ok(Value::Object(mut wire)) = serde_json::to_value(message) else { return (opaque_message(Value::Null), None) };
    let at = wire.shift_remove("timestamp").and_then(|at| at.as_u64()).map(Millis);
    let mut converted = parse_message(&wire).unwrap_or_else(|| opaque_message(Value::Object(wire.clone())));
    let back = to_members(&converted);
    let lost: JsonMembers = wire
        .iter()
        .filter(|(name, value)| back.get(*name).is_none_or(|same| !values_equal(same, value)))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    if !lost.is_empty() && *extra_members(&mut converted) != [(ORIGINAL.to_owned(), Value::Object(wire.clone()))].into()
    {
        // A role of its own is kept whole.
        let original = if lost.contains_key("role") { wire } else { lost };
        extra_members(&mut converted).insert(ORIGINAL.to_owned(), Value::Object(original));
    }
    (converted, at)
}

/// Returns the message for a session file or the wire.
pub fn to_wire(message: &StoredMessage, at: Millis) -> AgentMessage {
    let mut plain = message.clone();
    let original = extra_members(&mut plain).remove(ORIGINAL);
    let mut wire = to_members(&plain);
    if let Some(Value::Object(original)) = original {
        let candidate = if original.contains_key("role") {
            original
        } else {
            wire.iter().chain(&original).map(|(name, value)| (name.clone(), value.clone())).collect()
        };
        // Changed values must not come back.
        let mut same = parse_message(&candidate).unwrap_or_else(|| opaque_message(Value::Object(candidate.clone())));
        extra_members(&mut same).remove(ORIGINAL);
        if same == plain {
            wire = candidate;
        }
    }
    match &plain {
        StoredMessage::BranchSummary(_) => drop(wire.entry("fromId").or_insert_with(|| "root".into())),
        StoredMessage::CompactionSummary(_) => drop(wire.entry("tokensBefore").or_insert_with(|| 0.into())),
        _ => {}
    }
    wire.insert("timestamp".to_owned(), at.0.into());
    let text = Value::Object(wire).to_string();
    serde_json::from_str(&text)
        .unwrap_or_else(|_| AgentMessage::Other(RawJson::parse(text).unwrap_or_else(|_| Value::Null.into())))
}

/// Returns the message that an entry of a session file stands for in the context; `None` where it stands for none.
pub fn from_entry(entry: &SessionFileEntry) -> Option<(StoredMessage, Option<Millis>)> {
    let at = parse_iso(&entry.timestamp);
    match &entry.body {
        SessionEntryBody::Message(body) => {
            let (message, own) = from_wire(&body.message);
            Some((message, own.or(at)))
        }
        SessionEntryBody::CustomMessage(body) => {
            let mut members = serde_json::to_value(body).ok()?;
            members["role"] = "custom".into();
            Some((parse_message(members.as_object()?)?, at))
        }
        // The messages that it stands for are shown instead.
        SessionEntryBody::Compaction(body) if !is_in_words(body) => None,
        SessionEntryBody::Compaction(body) => {
            let mut summary = SummaryMessage {
                summary: body.summary.clone(),
                short_summary: body.short_summary.clone(),
                tokens_before: Some(body.tokens_before),
                extra: ExtraFields::new(),
            };
            for (name, value) in [("details", &body.details), ("preserveData", &body.preserve_data)] {
                if let Some(value) = value.as_ref().and_then(|value| value.decode_as().ok()) {
                    summary.extra.insert(name.to_owned(), value);
                }
            }
            // It says whether the summary is the text, so it stays with the data.
            if let Some(method) = body.extra.get("method") {
                summary.extra.insert("method".to_owned(), method.clone());
            }
            summary.extra.insert("firstKeptEntryId".to_owned(), body.first_kept_entry_id.clone().into());
            Some((StoredMessage::CompactionSummary(summary), at))
        }
        SessionEntryBody::BranchSummary(body) => {
            let extra = [("fromId".to_owned(), body.from_id.clone().into())].into();
            Some((
                StoredMessage::BranchSummary(SummaryMessage {
                    summary: body.summary.clone(),
                    extra,
                    ..SummaryMessage::default()
                }),
                at,
            ))
        }
        SessionEntryBody::ModelChange(_)
        | SessionEntryBody::ThinkingLevelChange(_)
        | SessionEntryBody::ServiceTierChange(_)
        | SessionEntryBody::Custom(_)
        | SessionEntryBody::Label(_)
        | SessionEntryBody::TtsrInjection(_)
        | SessionEntryBody::SessionInit(_)
        | SessionEntryBody::ModeChange(_)
        | SessionEntryBody::SessionInfo(_)
        | SessionEntryBody::Unknown(_) => None,
    }
}

/// Reads the provider and the id of a change of the model as related programs write it, with the two apart.
pub(crate) fn foreign_model(entry: &SessionFileEntry) -> Option<(String, String)> {
    let SessionEntryBody::Unknown(line) = &entry.body else { return None };
    let line: Value = line.decode_as().ok()?;
    let text = |key: &str| Some(line.get(key)?.as_str()?.to_owned());
    (text("type")? == "model_change").then_some(())?;
    Some((text("provider")?, text("modelId")?))
}

/// Reads the members of a message as far as the log has a place for them. `None` if it is of a role or form that it has
/// none for.
pub(super) fn parse_message(wire: &JsonMembers) -> Option<StoredMessage> {
    let mut wire = wire.clone();
    match wire.get("role")?.as_str()? {
        "hookMessage" => drop(wire.insert("role".to_owned(), "custom".into())),
        "pythonExecution" => {
            let code = wire.shift_remove("code")?;
            wire.insert("command".to_owned(), code);
            wire.insert("role".to_owned(), "bashExecution".into());
        }
        _ => {}
    }
    for name in ["details", "meta", "attribution", "responseId", "errorMessage", "shortSummary", "exitCode"] {
        if wire.get(name).is_some_and(Value::is_null) {
            wire.shift_remove(name);
        }
    }
    if wire.get("role").is_some_and(|role| role == "assistant") {
        complete_assistant(&mut wire);
    }
    for name in ["duration", "ttft"] {
        if let Some(number) = wire.get(name).and_then(Value::as_f64) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, which is meant")]
            wire.insert(name.to_owned(), (number.round() as u64).into());
        }
    }
    match wire.get_mut("content") {
        Some(Value::String(text)) => {
            let text = std::mem::take(text);
            wire.insert("content".to_owned(), serde_json::to_value([MessageBlock::from_text(text)]).ok()?);
        }
        Some(Value::Array(blocks)) => blocks.retain_mut(blocks::complete_block),
        Some(_) | None => {}
    }
    serde_json::from_value(Value::Object(wire)).ok()
}

/// Adds the fields that an assistant's message may lack: it used nothing, it was done, and its author is unknown.
fn complete_assistant(wire: &mut JsonMembers) {
    if wire.get("usage").is_none_or(Value::is_null) {
        wire.insert("usage".to_owned(), Value::Object(JsonMembers::new()));
    }
    for (name, usual) in [("api", ""), ("provider", ""), ("model", ""), ("stopReason", "stop")] {
        if wire.get(name).is_none_or(Value::is_null) {
            wire.insert(name.to_owned(), usual.into());
        }
    }
}

/// Returns a message that we cannot express: kept whole, never shown, without content.
fn opaque_message(wire: Value) -> StoredMessage {
    let role = wire.get("role").and_then(Value::as_str).unwrap_or_default().to_owned();
    let extra = if wire.is_null() { ExtraFields::new() } else { [(ORIGINAL.to_owned(), wire)].into() };
    StoredMessage::Custom(ExtensionMessage {
        custom_type: role,
        content: Vec::new(),
        display: false,
        details: None,
        extra,
    })
}

fn to_members(message: &StoredMessage) -> JsonMembers {
    match serde_json::to_value(message) {
        Ok(Value::Object(members)) => members,
        Ok(_) | Err(_) => JsonMembers::new(),
    }
}

/// Reports whether two values are equal: `0` and `0.0` are.
fn values_equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left == right || left.as_f64() == right.as_f64(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| values_equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(name, value)| right.get(name).is_some_and(|other| values_equal(value, other)))
        }
        _ => left == right,
    }
}

fn extra_members(message: &mut StoredMessage) -> &mut ExtraFields {
    match message {
        StoredMessage::User(user_message) | StoredMessage::Developer(user_message) => &mut user_message.extra,
        StoredMessage::Assistant(assistant) => &mut assistant.extra,
        StoredMessage::ToolResult(result) => &mut result.extra,
        StoredMessage::BashExecution(execution) => &mut execution.extra,
        StoredMessage::CompactionSummary(summary) | StoredMessage::BranchSummary(summary) => &mut summary.extra,
        StoredMessage::FileMention(mention) => &mut mention.extra,
        StoredMessage::Custom(custom) => &mut custom.extra,
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::message::{MessageBlock, StoredMessage};
    use countersign_protocol::omp::AgentMessage;
    use serde_json::{Value, json};

    use super::{Millis, from_wire, to_wire};

    fn wire(value: &Value) -> AgentMessage {
        serde_json::from_str(&value.to_string()).unwrap()
    }

    fn usage() -> Value {
        json!({"input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 3, "premiumRequests": 1.5,
               "cost": {"input": 0, "output": 0.5, "cacheRead": 0, "cacheWrite": 0, "total": 0.5}})
    }

    fn every_kind() -> Vec<Value> {
        vec![
            json!({"role": "user", "content": "plain", "timestamp": 5}),
            json!({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image", "data": "aGk=", "mimeType": "image/png"}], "attribution": "user", "synthetic": false, "timestamp": 5, "mood": {"x": 1}}),
            json!({"role": "user", "content": [{"type": "text", "text": "a", "more": 1}, {"type": "video", "x": [1]}], "timestamp": 5}),
            json!({"role": "developer", "content": [{"type": "text", "text": "go on"}], "synthetic": true, "timestamp": 5}),
            json!({"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "thinkingSignature": "s"}, {"type": "redactedThinking", "data": "d"},
                {"type": "text", "text": "t", "textSignature": "ts"},
                {"type": "toolCall", "id": "c", "name": "read", "arguments": {"path": "a", "_i": "look"}, "thoughtSignature": "g", "intent": "look", "more": 1},
            ], "api": "openai-completions", "provider": "p", "model": "m", "responseId": "r", "usage": usage(), "stopReason": "toolUse",
               "timestamp": 5, "duration": 12.25, "ttft": 3, "providerPayload": {"k": [1]}, "extra": null}),
            json!({"role": "toolResult", "toolCallId": "c", "toolName": "read", "content": [{"type": "text", "text": "x"}], "details": {"a": 1.5}, "isError": false, "prunedAt": 7, "timestamp": 5}),
            json!({"role": "bashExecution", "command": "ls", "output": "o", "cancelled": true, "truncated": false, "meta": {"a": 1}, "timestamp": 5, "excludeFromContext": true}),
            json!({"role": "pythonExecution", "code": "1+1", "output": "2", "exitCode": 0, "cancelled": false, "truncated": false, "timestamp": 5}),
            json!({"role": "custom", "customType": "x", "content": "text", "display": true, "details": [1], "attribution": "agent", "timestamp": 5}),
            json!({"role": "compactionSummary", "summary": "s", "shortSummary": "t", "tokensBefore": 9, "timestamp": 5}),
            json!({"role": "branchSummary", "summary": "s", "fromId": "e1", "timestamp": 5}),
            json!({"role": "fileMention", "files": [{"path": "a", "content": "b", "lineCount": 1}], "timestamp": 5}),
            json!({"role": "oracle", "says": [{"deep": true}], "timestamp": 5}),
        ]
    }

    #[test]
    fn what_was_read_is_written_as_it_was() {
        for given in every_kind() {
            let given = wire(&given);
            let (message, at) = from_wire(&given);
            let text = |message: &AgentMessage| {
                let mut value = serde_json::to_value(message).unwrap();
                value.sort_all_objects();
                value.to_string()
            };
            assert_eq!(text(&to_wire(&message, at.unwrap())), text(&given), "{message:?}");
            // Through the log as well.
            let kept: StoredMessage = serde_json::from_str(&serde_json::to_string(&message).unwrap()).unwrap();
            assert_eq!(kept, message);
        }
    }

    #[test]
    fn what_was_changed_since_never_comes_back() {
        let given = json!({"role": "toolResult", "toolCallId": "c", "toolName": "read", "content": [{"type": "text", "text": "secret", "more": 1}], "isError": false, "timestamp": 5});
        let (mut message, _) = from_wire(&wire(&given));
        let StoredMessage::ToolResult(result) = &mut message else { panic!("a result") };
        result.content = vec![MessageBlock::from_text("put away")];
        let text = serde_json::to_string(&to_wire(&message, Millis(6))).unwrap();
        assert!(text.contains("put away") && !text.contains("secret") && !text.contains("$wire"), "{text}");
    }

    #[test]
    fn text_becomes_blocks_and_code_becomes_a_command() {
        let convert = |at: usize| from_wire(&wire(&every_kind()[at])).0;
        assert!(
            matches!(convert(0), StoredMessage::User(user_message) if user_message.content == [MessageBlock::from_text("plain")])
        );
        assert!(
            matches!(convert(7), StoredMessage::BashExecution(run) if run.command == "1+1" && run.exit_code == Some(0))
        );
        assert!(
            matches!(convert(12), StoredMessage::Custom(custom) if custom.custom_type == "oracle" && custom.content.is_empty() && !custom.display)
        );
    }
}
