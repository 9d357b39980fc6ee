//! Requests over Chat Completions.

use super::*;

#[tokio::test]
async fn completions_send_a_conversation() {
    let body =
        sent(|request| request.messages = conversation(ModelApi::OpenaiCompletions), ModelApi::OpenaiCompletions).await;
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    let picture = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,aW1n"}});
    assert_eq!(
        body,
        json!({
            "model": "small-1",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "look"}, picture]},
                {"role": "assistant", "content": "I read.", "tool_calls": [
                    {"type": "function", "id": "a:1", "function": {"name": "read", "arguments": "{\"path\":\"x\"}"}},
                    {"type": "function", "id": "b", "function": {"name": "read", "arguments": "{}"}},
                ]},
                {"role": "tool", "tool_call_id": "a:1", "content": "seen"},
                {"role": "tool", "tool_call_id": "b", "content": "(no output)"},
                {"role": "user", "content": [{"type": "text", "text": "Images of the tool results above:"}, picture]},
                {"role": "user", "content": [{"type": "text", "text": "hurry"}]},
                {"role": "user", "content": [{"type": "text", "text": "go on"}]},
            ],
            "stream": true,
            "stream_options": {"include_usage": true},
            "max_tokens": 8192,
            "tools": [{"type": "function", "function": {"name": "read", "description": "Reads a file.", "parameters": schema}}],
        })
    );
}

#[tokio::test]
async fn completions_send_back_what_came_with_an_answer_as_it_came() {
    let api = ModelApi::OpenaiCompletions;
    let done = || result("a", vec![MessagePart::text("seen")], false);
    for (case, message, want) in [
        (
            "a thought under its own name",
            assistant_message(api, vec![thought("Hm", "reasoning"), MessagePart::text("I read."), call("a", "{}")]),
            json!({"reasoning": "Hm", "tool_calls": [{"id": "a"}]}),
        ),
        (
            "a thought in two pieces",
            assistant_message(
                api,
                vec![
                    thought("H", "reasoning_content"),
                    MessagePart::text("I read."),
                    thought("m", "reasoning_content"),
                    call("a", "{}"),
                ],
            ),
            json!({"reasoning_content": "Hm", "tool_calls": [{"id": "a"}]}),
        ),
        (
            "Google's signature",
            assistant_message(api, vec![signed("a", r#"{"google":{"thought_signature":"U0lH"}}"#)]),
            json!({"tool_calls": [{"id": "a", "extra_content": {"google": {"thought_signature": "U0lH"}}}]}),
        ),
        (
            "any member of a call",
            assistant_message(api, vec![signed("a", r#"{"seal":"x","id":"evil","function":{}}"#)]),
            json!({"tool_calls": [{"id": "a", "seal": "x"}]}),
        ),
        (
            "any member of the function of a call",
            assistant_message(
                api,
                vec![signed("a", r#"{"function":{"thought_signature":"U0lH","name":"evil","arguments":"evil"}}"#)],
            ),
            json!({"tool_calls": [{"id": "a", "function": {"thought_signature": "U0lH", "name": "read", "arguments": "{}"}}]}),
        ),
        (
            "sealed reasoning",
            with_payload(
                assistant_message(api, vec![call("a", "{}")]),
                r#"{"members":{"reasoning_details":[{"data":"x"}],"reasoning_opaque":"y","role":"evil","content":"evil","tool_calls":[]}}"#,
            ),
            json!({"reasoning_details": [{"data": "x"}], "reasoning_opaque": "y", "tool_calls": [{"id": "a"}]}),
        ),
        (
            "sealed reasoning as omp keeps it",
            assistant_message(api, vec![signed("a", r#"{"type":"reasoning.encrypted","id":"a","data":"x"}"#)]),
            json!({"reasoning_details": [{"type": "reasoning.encrypted", "id": "a", "data": "x"}], "tool_calls": [{"id": "a"}]}),
        ),
        (
            "an empty thought",
            with_payload(assistant_message(api, vec![call("a", "{}")]), r#"{"members":{"reasoning_content":""}}"#),
            json!({"reasoning_content": "", "tool_calls": [{"id": "a"}]}),
        ),
        (
            "a thought under a name that is none",
            assistant_message(api, vec![thought("Hm", "content"), thought("Hm", "tool_calls"), call("a", "{}")]),
            json!({"tool_calls": [{"id": "a"}]}),
        ),
        (
            "a thought that led to no call, whose seal goes back all the same",
            with_payload(
                assistant_message(api, vec![thought("Hm", "reasoning"), MessagePart::text("Yes.")]),
                r#"{"members":{"reasoning_details":[{"data":"x"}]}}"#,
            ),
            json!({"reasoning_details": [{"data": "x"}]}),
        ),
    ] {
        let body = sent(|request| request.messages = vec![message, done()], api).await;
        assert_eq!(given(&body), [want], "{case}");
    }
}

#[tokio::test]
async fn a_provider_that_asks_for_thoughts_gets_one_with_every_call() {
    let api = ModelApi::OpenaiCompletions;
    let done = |id: &str| result(id, vec![MessagePart::text("seen")], false);
    let other = |parts| {
        let (provider, model) = ("elsewhere".to_owned(), "big-1".to_owned());
        RequestMessage::Assistant(AnswerMessage { parts, api, provider, model, payload: None })
    };
    let messages = vec![
        other(vec![thought("secret", "reasoning_content"), call("b", "{}")]),
        done("b"),
        assistant_message(api, vec![thought("Hm", "reasoning_content"), call("a", "{}")]),
        done("a"),
        assistant_message(api, vec![MessagePart::text("Yes.")]),
    ];
    let body = sent(|request| request.messages = messages, api).await;
    let want = [
        json!({"reasoning_content": "", "tool_calls": [{"id": "b"}]}),
        json!({"reasoning_content": "Hm", "tool_calls": [{"id": "a"}]}),
        json!({}),
    ];
    assert_eq!(given(&body), want);
}
