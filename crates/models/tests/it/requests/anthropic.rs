//! Requests to Anthropic.

use super::*;

#[tokio::test]
async fn anthropic_sends_a_conversation() {
    let body =
        sent(|request| request.messages = conversation(ModelApi::AnthropicMessages), ModelApi::AnthropicMessages).await;
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    let picture = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aW1n"}});
    assert_eq!(
        body,
        json!({
            "model": "small-1",
            "max_tokens": 8192,
            "stream": true,
            "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "look"}, picture]},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "Hm", "signature": "c2ln"},
                    {"type": "text", "text": "I read."},
                    {"type": "tool_use", "id": "a_1", "name": "read", "input": {"path": "x"}},
                    {"type": "tool_use", "id": "b", "name": "read", "input": {}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "a_1", "content": [{"type": "text", "text": "seen"}, picture]},
                    {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "(no output)"}], "is_error": true},
                    {"type": "text", "text": "hurry"},
                    {"type": "text", "text": "go on", "cache_control": {"type": "ephemeral"}},
                ]},
            ],
            "tools": [{"name": "read", "description": "Reads a file.", "input_schema": schema}],
        })
    );
}

#[tokio::test]
async fn thinking_without_a_signature_goes_back_to_who_signs_nothing() {
    let api = ModelApi::AnthropicMessages;
    for (signature, want) in [
        (Some(String::new()), json!({"type": "thinking", "thinking": "Hm", "signature": ""})),
        // As of an answer that was broken off.
        (None, json!({"type": "tool_use", "id": "a", "name": "read", "input": {}})),
    ] {
        let thought = MessagePart::Thinking { text: "Hm".to_owned(), signature };
        let messages = vec![assistant_message(api, vec![thought, call("a", "{}")]), result("a", vec![], false)];
        let body = sent(|request| request.messages = messages, api).await;
        assert_eq!(body["messages"][0]["content"][0], want);
    }
}
