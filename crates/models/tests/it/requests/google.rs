//! Requests to Google.

use super::*;

#[tokio::test]
async fn google_sends_a_conversation() {
    let body =
        sent(|request| request.messages = conversation(ModelApi::GoogleGenerativeAi), ModelApi::GoogleGenerativeAi)
            .await;
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    let picture = json!({"inlineData": {"mimeType": "image/png", "data": "aW1n"}});
    assert_eq!(
        body,
        json!({
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "contents": [
                {"role": "user", "parts": [{"text": "look"}, picture]},
                {"role": "model", "parts": [
                    {"thought": true, "text": "Hm", "thoughtSignature": "c2ln"},
                    {"text": "I read."},
                    {"functionCall": {"name": "read", "args": {"path": "x"}}, "thoughtSignature": "sig"},
                    {"functionCall": {"name": "read", "args": {}}, "thoughtSignature": "sig"},
                ]},
                {"role": "user", "parts": [
                    {"functionResponse": {"name": "read", "response": {"output": "seen"}}},
                    {"functionResponse": {"name": "read", "response": {"error": "(no output)"}}},
                    picture,
                    {"text": "hurry"},
                    {"text": "go on"},
                ]},
            ],
            "tools": [{"functionDeclarations": [{"name": "read", "description": "Reads a file.", "parametersJsonSchema": schema}]}],
            "generationConfig": {"maxOutputTokens": 8192},
        })
    );
}
