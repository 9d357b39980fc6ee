//! Requests over Responses.

use super::*;

#[tokio::test]
async fn responses_send_a_conversation() {
    let body =
        sent(|request| request.messages = conversation(ModelApi::OpenaiResponses), ModelApi::OpenaiResponses).await;
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    let picture = json!({"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,aW1n"});
    assert_eq!(
        body,
        json!({
            "model": "small-1",
            "instructions": "Be brief.",
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "look"}, picture]},
                {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "ZW5j"},
                {"role": "assistant", "content": [{"type": "output_text", "text": "I read."}]},
                {"type": "function_call", "call_id": "a:1", "name": "read", "arguments": "{\"path\":\"x\"}"},
                {"type": "function_call", "call_id": "b", "name": "read", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "a:1", "output": [{"type": "input_text", "text": "seen"}, picture]},
                {"type": "function_call_output", "call_id": "b", "output": "(no output)"},
                {"role": "user", "content": [{"type": "input_text", "text": "hurry"}]},
                {"role": "developer", "content": [{"type": "input_text", "text": "go on"}]},
            ],
            "stream": true,
            "store": false,
            "max_output_tokens": 8192,
            "tools": [{"type": "function", "name": "read", "description": "Reads a file.", "parameters": schema, "strict": false}],
            "include": ["reasoning.encrypted_content"],
        })
    );
}

#[tokio::test]
async fn responses_send_back_what_came_with_an_item() {
    let api = ModelApi::OpenaiResponses;
    let text = MessagePart::Text {
        text: "I read.".to_owned(),
        signature: Some(r#"{"v":1,"id":"msg_1","phase":"commentary"}"#.to_owned()),
    };
    let messages = vec![assistant_message(api, vec![text, signed("a", r#"{"v":1,"id":"fc_1","namespace":"n"}"#)])];
    let body = sent(|request| request.messages = messages, api).await;
    assert_eq!(body["input"][0]["phase"], "commentary");
    assert_eq!(body["input"][1]["namespace"], "n");
    assert!(!body.to_string().contains("msg_1") && !body.to_string().contains("fc_1"));
}
