//! What is sent, to the letter.

use countersign_models::{
    Api, AssistantMessage, Level, Message, Modality, Model, Part, Providers, Request, Thinking, ThinkingMode,
};
use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::{
    entry,
    http::{Server, reply},
    request,
};

/// The body that a provider gets for `request`.
async fn sent(change: impl FnOnce(&mut Request), api: Api) -> Value {
    let server = Server::start(vec![reply("400 Bad Request", "application/json", r#"{"error":"enough"}"#)]).await;
    let mut request = request(entry(api, &server.url));
    change(&mut request);
    Providers::default().stream(request).collect::<Vec<_>>().await;
    serde_json::from_str(&server.requests()[0].body).unwrap()
}

fn said(api: Api, parts: Vec<Part>) -> Message {
    Message::Assistant(AssistantMessage {
        parts,
        api,
        provider: "local".to_owned(),
        model: "small-1".to_owned(),
        payload: None,
    })
}

fn call(id: &str, arguments: &str) -> Part {
    let (id, arguments) = (id.to_owned(), arguments.to_owned());
    Part::ToolCall { id, name: "read".to_owned(), arguments, signature: Some("sig".to_owned()) }
}

fn result(id: &str, parts: Vec<Part>, is_error: bool) -> Message {
    Message::ToolResult { id: id.to_owned(), name: "read".to_owned(), parts, is_error }
}

fn image() -> Part {
    Part::Image { mime_type: "image/png".to_owned(), data: "aW1n".to_owned() }
}

/// A conversation with everything in it: an image, thinking, two calls (one with broken arguments), results out of
/// order with a prompt between them, an image in a result, a developer's word.
fn conversation(api: Api) -> Vec<Message> {
    let signature = match api {
        Api::OpenaiResponses => r#"{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"ZW5j"}"#,
        Api::AnthropicMessages | Api::OpenaiCompletions | Api::GoogleGenerativeAi | Api::Demo => "c2ln",
    };
    vec![
        Message::User(vec![Part::text("look"), image()]),
        said(
            api,
            vec![
                Part::Thinking { text: "Hm".to_owned(), signature: Some(signature.to_owned()) },
                Part::text("I read."),
                call("a:1", r#"{"path":"x"}"#),
                call("b", "{broken"),
            ],
        ),
        result("b", vec![], true),
        Message::User(vec![Part::text("hurry")]),
        result("a:1", vec![Part::text("seen"), image()], false),
        Message::Developer(vec![Part::text("go on")]),
    ]
}

#[tokio::test]
async fn completions_send_a_conversation() {
    let body = sent(|request| request.messages = conversation(Api::OpenaiCompletions), Api::OpenaiCompletions).await;
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
async fn anthropic_sends_a_conversation() {
    let body = sent(|request| request.messages = conversation(Api::AnthropicMessages), Api::AnthropicMessages).await;
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
async fn responses_send_a_conversation() {
    let body = sent(|request| request.messages = conversation(Api::OpenaiResponses), Api::OpenaiResponses).await;
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
async fn google_sends_a_conversation() {
    let body = sent(|request| request.messages = conversation(Api::GoogleGenerativeAi), Api::GoogleGenerativeAi).await;
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

#[tokio::test]
async fn a_level_is_told_in_the_words_of_the_wire() {
    let mode = |mode, min_level, max_level| Some(Thinking { mode, min_level, max_level });
    let all = |of| mode(of, Level::Minimal, Level::Xhigh);
    for (case, api, thinking, level, field, want) in [
        ("effort", Api::OpenaiCompletions, None, Level::High, "/reasoning_effort", json!("high")),
        ("no effort", Api::OpenaiCompletions, None, Level::Off, "/reasoning_effort", Value::Null),
        (
            "clamped",
            Api::OpenaiCompletions,
            mode(ThinkingMode::Effort, Level::Low, Level::High),
            Level::Xhigh,
            "/reasoning_effort",
            json!("high"),
        ),
        (
            "responses",
            Api::OpenaiResponses,
            None,
            Level::Low,
            "/reasoning",
            json!({"effort": "low", "summary": "auto"}),
        ),
        ("responses off", Api::OpenaiResponses, None, Level::Off, "/reasoning", Value::Null),
        (
            "budget",
            Api::AnthropicMessages,
            None,
            Level::Low,
            "/thinking",
            json!({"type": "enabled", "budget_tokens": 4096}),
        ),
        // Room for an answer is left below the cap of 8192.
        (
            "cut budget",
            Api::AnthropicMessages,
            None,
            Level::High,
            "/thinking",
            json!({"type": "enabled", "budget_tokens": 7168}),
        ),
        ("disabled", Api::AnthropicMessages, None, Level::Off, "/thinking", json!({"type": "disabled"})),
        (
            "adaptive",
            Api::AnthropicMessages,
            all(ThinkingMode::AnthropicAdaptive),
            Level::Xhigh,
            "/thinking",
            json!({"type": "adaptive"}),
        ),
        (
            "adaptive effort",
            Api::AnthropicMessages,
            all(ThinkingMode::AnthropicAdaptive),
            Level::Xhigh,
            "/output_config",
            json!({"effort": "max"}),
        ),
        (
            "google budget",
            Api::GoogleGenerativeAi,
            None,
            Level::Xhigh,
            "/generationConfig/thinkingConfig",
            json!({"includeThoughts": true, "thinkingBudget": 24575}),
        ),
        (
            "google off",
            Api::GoogleGenerativeAi,
            None,
            Level::Off,
            "/generationConfig/thinkingConfig",
            json!({"thinkingBudget": 0}),
        ),
        (
            "google level",
            Api::GoogleGenerativeAi,
            mode(ThinkingMode::GoogleLevel, Level::Low, Level::High),
            Level::Minimal,
            "/generationConfig/thinkingConfig",
            json!({"includeThoughts": true, "thinkingLevel": "LOW"}),
        ),
    ] {
        let change = |request: &mut Request| {
            let mut entry = (*request.entry).clone();
            entry.thinking = thinking;
            (request.entry, request.level) = (entry.into(), Some(level));
        };
        let body = sent(change, api).await;
        assert_eq!(body.pointer(field).cloned().unwrap_or_default(), want, "{case}");
    }
}

#[tokio::test]
async fn a_call_without_a_result_gets_one_and_a_result_without_a_call_is_left_out() {
    let messages = vec![
        said(Api::OpenaiCompletions, vec![call("a", "{}")]),
        Message::User(vec![Part::text("well?")]),
        result("z", vec![Part::text("stray")], false),
        said(Api::OpenaiCompletions, vec![call("a", "{}")]),
        result("a", vec![Part::text("one")], false),
        result("a", vec![Part::text("again")], false),
    ];
    let body = sent(|request| request.messages = messages, Api::OpenaiCompletions).await;
    let roles = body["messages"].as_array().unwrap().iter().skip(1).map(|message| {
        (message["role"].as_str().unwrap().to_owned(), message["content"].as_str().unwrap_or("-").to_owned())
    });
    let want = [
        ("assistant", "-"),
        ("tool", "No result was recorded for this call"),
        ("user", "-"),
        ("assistant", "-"),
        ("tool", "one"),
    ];
    let want = want.map(|(role, content)| (role.to_owned(), content.to_owned()));
    assert_eq!(roles.collect::<Vec<_>>(), want);
}

/// Somebody else may have gone on with the conversation while the call waited for its leave.
#[tokio::test]
async fn a_result_that_came_late_stands_behind_its_call() {
    let messages = vec![
        said(Api::OpenaiCompletions, vec![call("a", "{}")]),
        Message::User(vec![Part::text("well?")]),
        said(Api::OpenaiCompletions, vec![Part::text("I wait")]),
        result("a", vec![Part::text("one")], false),
    ];
    let body = sent(|request| request.messages = messages, Api::OpenaiCompletions).await;
    let roles: Vec<_> = body["messages"].as_array().unwrap().iter().skip(1).map(|it| it["role"].clone()).collect();
    assert_eq!(roles, ["assistant", "tool", "user", "assistant"]);
    assert_eq!(body["messages"][2]["content"], "one");
}

#[tokio::test]
async fn what_another_model_kept_to_itself_is_not_sent_and_its_ids_are_made_to_fit() {
    let long = format!("{}|{}", "fc_1".repeat(12), "x".repeat(30));
    let other = |parts| {
        let (provider, model) = ("elsewhere".to_owned(), "big-1".to_owned());
        Message::Assistant(AssistantMessage { parts, api: Api::OpenaiResponses, provider, model, payload: None })
    };
    let thought = || Part::Thinking { text: "secret".to_owned(), signature: Some("sig".to_owned()) };
    let messages = vec![
        Message::User(vec![Part::text("hi")]),
        other(vec![thought()]),
        other(vec![thought(), Part::Redacted { data: "x".to_owned() }, call(&long, "{}"), call("same", "{}")]),
        result(&long, vec![Part::text("one")], false),
        result("same", vec![Part::text("two")], false),
        other(vec![call("same", "{}")]),
        result("same", vec![Part::text("three")], false),
    ];
    let body = sent(|request| request.messages = messages, Api::AnthropicMessages).await;
    assert!(!body.to_string().contains("secret"));
    let blocks: Vec<_> = body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|message| message["content"].as_array().unwrap())
        .collect();
    let of = |kind: &str, field: &str| -> Vec<String> {
        blocks
            .iter()
            .filter(|block| block["type"] == kind)
            .map(|block| block[field].as_str().unwrap().to_owned())
            .collect()
    };
    let ids = of("tool_use", "id");
    assert_eq!(ids, of("tool_result", "tool_use_id"));
    assert_eq!(ids[1..], ["same", "same_2"]);
    assert!(
        ids[0].len() <= 64 && ids[0].bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'),
        "{}",
        ids[0]
    );
}

#[tokio::test]
async fn a_model_without_eyes_is_told_that_there_was_an_image() {
    let change = |request: &mut Request| {
        let mut entry = (*request.entry).clone();
        entry.input = vec![Modality::Text];
        request.entry = entry.into();
        request.messages = vec![Message::User(vec![image()])];
    };
    let body = sent(change, Api::OpenaiCompletions).await;
    assert_eq!(body["messages"][1]["content"][0]["text"], "(an image was here; this model takes no images)");
}

#[tokio::test]
async fn a_cap_is_never_above_the_models_own() {
    for (cap, want) in [(None, 8192), (Some(500), 500), (Some(99_999), 8192)] {
        let body = sent(|request| request.max_tokens = cap, Api::OpenaiCompletions).await;
        assert_eq!(body["max_tokens"], want);
    }
}

#[tokio::test]
async fn a_cap_leaves_room_for_the_prompt_in_the_window() {
    for (api, field) in [
        (Api::OpenaiCompletions, "/max_tokens"),
        (Api::AnthropicMessages, "/max_tokens"),
        (Api::OpenaiResponses, "/max_output_tokens"),
        (Api::GoogleGenerativeAi, "/generationConfig/maxOutputTokens"),
    ] {
        for (window, prompt, least, most) in [
            // The prompt's 12,000 bytes and a little for what stands around them.
            (32_768, 12_000, 29_000, 29_768),
            // An eighth is asked for in any case.
            (32_768, 120_000, 4_096, 4_096),
            (0, 12_000, 32_768, 32_768),
        ] {
            let change = |request: &mut Request| {
                let mut entry = (*request.entry).clone();
                (entry.context_window, entry.max_tokens) = (window, 32_768);
                request.entry = entry.into();
                request.messages = vec![Message::User(vec![Part::text("x".repeat(prompt))])];
            };
            let cap = sent(change, api).await.pointer(field).unwrap().as_u64().unwrap();
            assert!((least..=most).contains(&cap), "{api}: {window} {prompt}: {cap}");
        }
    }
}

fn thought(text: &str, signature: &str) -> Part {
    Part::Thinking { text: text.to_owned(), signature: Some(signature.to_owned()) }
}

fn signed(id: &str, signature: &str) -> Part {
    let (id, name, arguments) = (id.to_owned(), "read".to_owned(), "{}".to_owned());
    Part::ToolCall { id, name, arguments, signature: Some(signature.to_owned()) }
}

fn with_payload(message: Message, payload: &str) -> Message {
    match message {
        Message::Assistant(said) => Message::Assistant(AssistantMessage { payload: Some(payload.to_owned()), ..said }),
        other => other,
    }
}

/// The messages of the model in a request, without what is written from their parts.
fn given(body: &Value) -> Vec<Value> {
    let messages = body["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "assistant");
    messages
        .map(|message| {
            let mut message = message.clone();
            let members = message.as_object_mut().unwrap();
            for name in ["role", "content"] {
                members.remove(name);
            }
            for call in members.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
                let call = call.as_object_mut().unwrap();
                call.remove("type");
                if call["function"].as_object().unwrap().keys().eq(["name", "arguments"]) {
                    call.remove("function");
                }
            }
            message
        })
        .collect()
}

#[tokio::test]
async fn completions_send_back_what_came_with_an_answer_as_it_came() {
    let api = Api::OpenaiCompletions;
    let done = || result("a", vec![Part::text("seen")], false);
    for (case, message, want) in [
        (
            "a thought under its own name",
            said(api, vec![thought("Hm", "reasoning"), Part::text("I read."), call("a", "{}")]),
            json!({"reasoning": "Hm", "tool_calls": [{"id": "a"}]}),
        ),
        (
            "a thought in two pieces",
            said(
                api,
                vec![
                    thought("H", "reasoning_content"),
                    Part::text("I read."),
                    thought("m", "reasoning_content"),
                    call("a", "{}"),
                ],
            ),
            json!({"reasoning_content": "Hm", "tool_calls": [{"id": "a"}]}),
        ),
        (
            "Google's signature",
            said(api, vec![signed("a", r#"{"google":{"thought_signature":"U0lH"}}"#)]),
            json!({"tool_calls": [{"id": "a", "extra_content": {"google": {"thought_signature": "U0lH"}}}]}),
        ),
        (
            "any member of a call",
            said(api, vec![signed("a", r#"{"seal":"x","id":"evil","function":{}}"#)]),
            json!({"tool_calls": [{"id": "a", "seal": "x"}]}),
        ),
        (
            "any member of the function of a call",
            said(
                api,
                vec![signed("a", r#"{"function":{"thought_signature":"U0lH","name":"evil","arguments":"evil"}}"#)],
            ),
            json!({"tool_calls": [{"id": "a", "function": {"thought_signature": "U0lH", "name": "read", "arguments": "{}"}}]}),
        ),
        (
            "sealed reasoning",
            with_payload(
                said(api, vec![call("a", "{}")]),
                r#"{"members":{"reasoning_details":[{"data":"x"}],"reasoning_opaque":"y","role":"evil","content":"evil","tool_calls":[]}}"#,
            ),
            json!({"reasoning_details": [{"data": "x"}], "reasoning_opaque": "y", "tool_calls": [{"id": "a"}]}),
        ),
        (
            "sealed reasoning as omp keeps it",
            said(api, vec![signed("a", r#"{"type":"reasoning.encrypted","id":"a","data":"x"}"#)]),
            json!({"reasoning_details": [{"type": "reasoning.encrypted", "id": "a", "data": "x"}], "tool_calls": [{"id": "a"}]}),
        ),
        (
            "an empty thought",
            with_payload(said(api, vec![call("a", "{}")]), r#"{"members":{"reasoning_content":""}}"#),
            json!({"reasoning_content": "", "tool_calls": [{"id": "a"}]}),
        ),
        (
            "a thought under a name that is none",
            said(api, vec![thought("Hm", "content"), thought("Hm", "tool_calls"), call("a", "{}")]),
            json!({"tool_calls": [{"id": "a"}]}),
        ),
        (
            "a thought that led to no call, whose seal goes back all the same",
            with_payload(
                said(api, vec![thought("Hm", "reasoning"), Part::text("Yes.")]),
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
    let api = Api::OpenaiCompletions;
    let done = |id: &str| result(id, vec![Part::text("seen")], false);
    let other = |parts| {
        let (provider, model) = ("elsewhere".to_owned(), "big-1".to_owned());
        Message::Assistant(AssistantMessage { parts, api, provider, model, payload: None })
    };
    let messages = vec![
        other(vec![thought("secret", "reasoning_content"), call("b", "{}")]),
        done("b"),
        said(api, vec![thought("Hm", "reasoning_content"), call("a", "{}")]),
        done("a"),
        said(api, vec![Part::text("Yes.")]),
    ];
    let body = sent(|request| request.messages = messages, api).await;
    let want = [
        json!({"reasoning_content": "", "tool_calls": [{"id": "b"}]}),
        json!({"reasoning_content": "Hm", "tool_calls": [{"id": "a"}]}),
        json!({}),
    ];
    assert_eq!(given(&body), want);
}

#[tokio::test]
async fn what_a_provider_gave_goes_to_no_other() {
    let seals = |api| {
        let text = Part::Text { text: "I read.".to_owned(), signature: Some(r#"{"phase":"SEAL"}"#.to_owned()) };
        let parts = vec![
            thought("SEAL", "reasoning_content"),
            Part::Redacted { data: "SEAL".to_owned() },
            text,
            signed("a", r#"{"seal":"SEAL"}"#),
        ];
        with_payload(said(api, parts), r#"{"members":{"reasoning_details":["SEAL"]}}"#)
    };
    let apis = [Api::OpenaiCompletions, Api::AnthropicMessages, Api::OpenaiResponses, Api::GoogleGenerativeAi];
    for api in apis {
        for (case, provider, model, from) in [
            ("another provider", "elsewhere", "small-1", api),
            ("another model", "local", "big-1", api),
            ("another wire", "local", "small-1", apis[(apis.iter().position(|it| *it == api).unwrap() + 1) % 4]),
        ] {
            let Message::Assistant(said) = seals(from) else { panic!("an answer") };
            let foreign = AssistantMessage { provider: provider.to_owned(), model: model.to_owned(), ..said };
            let messages = vec![Message::Assistant(foreign), result("a", vec![Part::text("seen")], false)];
            let body = sent(|request| request.messages = messages, api).await;
            assert!(!body.to_string().contains("SEAL"), "{api}: {case}: {body}");
        }
    }
}

#[tokio::test]
async fn responses_send_back_what_came_with_an_item() {
    let api = Api::OpenaiResponses;
    let text = Part::Text {
        text: "I read.".to_owned(),
        signature: Some(r#"{"v":1,"id":"msg_1","phase":"commentary"}"#.to_owned()),
    };
    let messages = vec![said(api, vec![text, signed("a", r#"{"v":1,"id":"fc_1","namespace":"n"}"#)])];
    let body = sent(|request| request.messages = messages, api).await;
    assert_eq!(body["input"][0]["phase"], "commentary");
    assert_eq!(body["input"][1]["namespace"], "n");
    assert!(!body.to_string().contains("msg_1") && !body.to_string().contains("fc_1"));
}

#[tokio::test]
async fn thinking_without_a_signature_goes_back_to_who_signs_nothing() {
    let api = Api::AnthropicMessages;
    for (signature, want) in [
        (Some(String::new()), json!({"type": "thinking", "thinking": "Hm", "signature": ""})),
        // As of an answer that was broken off.
        (None, json!({"type": "tool_use", "id": "a", "name": "read", "input": {}})),
    ] {
        let thought = Part::Thinking { text: "Hm".to_owned(), signature };
        let messages = vec![said(api, vec![thought, call("a", "{}")]), result("a", vec![], false)];
        let body = sent(|request| request.messages = messages, api).await;
        assert_eq!(body["messages"][0]["content"][0], want);
    }
}
