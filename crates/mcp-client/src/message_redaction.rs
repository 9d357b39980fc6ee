//! Messages of a server without the values of secrets: the one place through which all of them come in.
//!
//! It must not know what a message means.

use rmcp::model::{ErrorCode, ErrorData, JsonRpcMessage, ServerJsonRpcMessage};
use serde_json::Value;

use crate::secret_texts::SecretTexts;

/// Members of a message that hold content. The others, such as its id, connect it with another message.
const CONTENT: [&str; 3] = ["params", "result", "error"];
/// Members of a result that only go back to the server, which needs them as it sent them. They are never shown.
const OPAQUE: [&str; 2] = ["nextCursor", "requestState"];

/// Returns a message without secrets in its texts, numbers and names of members. An answer that cannot be read without them
/// becomes an error, any other such message is `None`.
pub(crate) fn redact_message(secrets: &SecretTexts, message: ServerJsonRpcMessage) -> Option<ServerJsonRpcMessage> {
    if secrets.has_no_secrets() {
        return Some(message);
    }
    let Ok(mut value) = serde_json::to_value(&message) else { return unreadable(message) };
    let sent = value.clone();
    for member in CONTENT {
        if let Some(content) = value.get_mut(member) {
            redact_content(secrets, content);
        }
    }
    if value == sent {
        return Some(message);
    }
    serde_json::from_value(value).ok().or_else(|| unreadable(message))
}

fn redact_content(secrets: &SecretTexts, content: &mut Value) {
    let opaque = content.as_object_mut().into_iter().flat_map(|members| {
        OPAQUE.into_iter().filter_map(|name| Some((name, members.remove(name)?))).collect::<Vec<_>>()
    });
    let opaque: Vec<_> = opaque.collect();
    secrets.redact_value(content);
    if let Some(members) = content.as_object_mut() {
        members.extend(opaque.into_iter().map(|(name, value)| (name.to_owned(), value)));
    }
}

fn unreadable(message: ServerJsonRpcMessage) -> Option<ServerJsonRpcMessage> {
    let id = match message {
        JsonRpcMessage::Response(response) => Some(response.id),
        JsonRpcMessage::Error(error) => error.id,
        JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => return None,
    };
    let text = "the answer has a secret where it cannot be replaced";
    Some(JsonRpcMessage::error(ErrorData::new(ErrorCode::INTERNAL_ERROR, text, None), id))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use countersign_runtime::tools::{GatewaySecrets, secrets::Redactor};
    use serde_json::{Value, json};

    use super::redact_message;
    use crate::secret_texts::SecretTexts;

    fn redact(message: Value) -> Option<Value> {
        let given = BTreeMap::from([("PLAIN".to_owned(), "plainS3cretValue77".into())]);
        let secrets = GatewaySecrets::from_folder("/nonexistent/secrets".into(), given);
        secrets.secret_value("PLAIN").unwrap();
        let texts = SecretTexts::new(Redactor::for_secrets(["/srv/folder"], "[hidden]"), secrets)
            .with_credentials(Redactor::for_secrets(["hush-token"], "[hidden]"));
        let message = redact_message(&texts, serde_json::from_value(message).unwrap());
        message.map(|message| serde_json::to_value(message).unwrap())
    }

    #[test]
    fn a_secret_is_replaced_in_every_kind_of_message() {
        const SECRET: &str = "plainS3cretValue77";
        let result = |result: Value| json!({"jsonrpc": "2.0", "id": 1, "result": result});
        let form = json!({
            "type": "object",
            "properties": {"x": {"type": "string", "title": SECRET, "description": "key hush-token"}},
        });
        for message in [
            result(json!({"tools": [{
                "name": "a",
                "description": format!("connected as {SECRET}"),
                "inputSchema": {"type": "object", "description": SECRET, "properties": {SECRET: {"default": SECRET}}},
                "annotations": {"title": SECRET},
            }]})),
            result(json!({"resources": [{"uri": format!("x://{SECRET}"), "name": SECRET}]})),
            result(json!({"prompts": [{"name": "p", "description": SECRET}]})),
            result(json!({"contents": [{"uri": "x://a", "text": SECRET}]})),
            result(json!({"messages": [{"role": "user", "content": {"type": "text", "text": SECRET}}]})),
            result(json!({"content": [{"type": "text", "text": SECRET}], "structuredContent": {"a": [SECRET]}})),
            result(json!({
                "protocolVersion": "2025-06-18", "capabilities": {}, "instructions": SECRET,
                "serverInfo": {"name": SECRET, "version": SECRET},
            })),
            result(json!({"other": {"deep": [SECRET]}})),
            json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": SECRET, "data": {"a": SECRET}}}),
            json!({"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": {
                "mode": "form", "message": SECRET, "requestedSchema": form,
            }}),
            json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {
                "progressToken": 1, "progress": 1.0, "message": SECRET,
            }}),
            json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": SECRET}}),
        ] {
            let text = redact(message.clone()).unwrap().to_string();
            assert!(text.contains("[secret PLAIN]"), "{message}: {text}");
            assert!(!text.contains(SECRET) && !text.contains("hush-token"), "{message}: {text}");
        }
    }

    #[test]
    fn what_only_goes_back_to_the_server_and_plain_values_stay() {
        for message in [
            json!({"jsonrpc": "2.0", "id": 1, "result": {"tools": [], "nextCursor": "plainS3cretValue77"}}),
            json!({"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "/srv/folder"}]}}),
        ] {
            assert_eq!(redact(message.clone()), Some(message));
        }
    }
}
