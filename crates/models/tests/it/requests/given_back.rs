//! Data of an answer that goes back with the next request.

use bytes::Bytes;
use countersign_models::{ModelEvent, decode};

use super::*;

/// Returns the request that follows an answer with these events.
async fn next(api: ModelApi, events: &[Value]) -> Value {
    let stream: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    let (mut parts, mut payload) = (Vec::new(), None);
    let events = decode(api, [Bytes::from(stream)]);
    assert!(matches!(events.last(), Some(Ok(ModelEvent::Stop(_)))), "{events:?}");
    for event in events {
        match event.unwrap() {
            ModelEvent::PartEnd { index, part } => parts.push((index, part)),
            ModelEvent::Payload(text) => payload = Some(text),
            _ => {}
        }
    }
    parts.sort_by_key(|(index, _)| *index);
    let parts: Vec<MessagePart> = parts.into_iter().map(|(_, part)| part).collect();
    let results = parts.iter().filter_map(|part| match part {
        MessagePart::ToolCall { id, .. } => Some(result(id, vec![MessagePart::text("seen")], false)),
        _ => None,
    });
    let results: Vec<_> = results.collect();
    let RequestMessage::Assistant(answer) = assistant_message(api, parts) else { panic!("an answer") };
    let answer = RequestMessage::Assistant(AnswerMessage { payload, ..answer });
    sent(|request| request.messages.extend([answer].into_iter().chain(results)), api).await
}

fn delta(delta: Value) -> Value {
    json!({"choices": [{"delta": delta}]})
}

fn end(reason: &str) -> Value {
    json!({"choices": [{"delta": {}, "finish_reason": reason}]})
}

fn calls(id: &str) -> Value {
    delta(json!({"tool_calls": [{"index": 0, "id": id, "function": {"name": "read", "arguments": "{}"}}]}))
}

/// Returns the whole answer after its deltas, with a call.
fn whole(mut message: Value, call: Value) -> Value {
    let mut all = json!({"id": "a", "function": {"name": "read", "arguments": "{}"}});
    all.as_object_mut().unwrap().extend(call.as_object().unwrap().clone());
    message["tool_calls"] = json!([all]);
    json!({"choices": [{"message": message, "finish_reason": "tool_calls"}]})
}

#[tokio::test]
async fn an_id_that_google_gave_goes_back_with_the_call_and_its_result() {
    let call = |id: Value| json!({"functionCall": {"id": id, "name": "bash", "args": {"c": 1}}});
    let frame = |parts: Value| json!({"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]});
    for (case, parts, want) in [
        ("given", json!([call("toolu:1".into())]), json!(["toolu:1"])),
        ("none given", json!([call(Value::Null)]), json!([null])),
        ("one of two", json!([call("".into()), call("b".into())]), json!([null, "b"])),
    ] {
        let body = next(ModelApi::GoogleGenerativeAi, &[frame(parts)]).await;
        let ids = |at: usize, name: &str| -> Value {
            body["contents"][at]["parts"].as_array().unwrap().iter().map(|part| part[name]["id"].clone()).collect()
        };
        assert_eq!(ids(1, "functionCall"), want, "{case}");
        assert_eq!(ids(2, "functionResponse"), want, "{case}");
    }
}

#[tokio::test]
async fn completions_send_pieces_back_as_what_they_are_pieces_of() {
    let block = |thinking: &str, seal: Value| json!({"thinking_blocks": [{"type": "thinking", "thinking": thinking, "signature": seal}]});
    let detail = |detail: Value| delta(json!({"reasoning_details": [detail]}));
    let text = |text: &str| detail(json!({"type": "reasoning.text", "text": text}));
    let sealed = || detail(json!({"type": "reasoning.encrypted", "index": 0, "id": "i", "data": "E"}));
    for (case, events, want) in [
        (
            "blocks",
            vec![
                delta(block("I ", Value::Null)),
                delta(block("look", Value::Null)),
                delta(block("", "SIG".into())),
                calls("a"),
            ],
            json!({"thinking_blocks": [{"type": "thinking", "thinking": "I look", "signature": "SIG"}], "tool_calls": [{"id": "a"}]}),
        ),
        (
            "details",
            vec![text("I "), text("look"), detail(json!({"type": "reasoning.text", "signature": "S"})), calls("a")],
            json!({"reasoning_details": [{"type": "reasoning.text", "text": "I look", "signature": "S"}], "tool_calls": [{"id": "a"}]}),
        ),
        (
            "sealed details again",
            vec![sealed(), sealed(), calls("a")],
            json!({"reasoning_details": [{"type": "reasoning.encrypted", "index": 0, "id": "i", "data": "E"}], "tool_calls": [{"id": "a"}]}),
        ),
        (
            "a state of a call",
            vec![
                delta(
                    json!({"tool_calls": [{"index": 0, "id": "a", "status": "in_progress", "function": {"name": "read", "arguments": ""}}]}),
                ),
                delta(json!({"tool_calls": [{"index": 0, "status": "completed", "function": {"arguments": "{}"}}]})),
            ],
            json!({"tool_calls": [{"id": "a", "status": "completed"}]}),
        ),
    ] {
        let events: Vec<_> = events.into_iter().chain([end("tool_calls")]).collect();
        let body = next(ModelApi::OpenaiCompletions, &events).await;
        assert_eq!(given(&body), [want], "{case}");
    }
}

#[tokio::test]
async fn completions_send_back_what_only_the_whole_message_says() {
    let extra = || json!({"extra_content": {"google": {"thought_signature": "LATE"}}});
    let sealed = || json!([{"type": "reasoning.encrypted", "data": "E"}]);
    let thought = || delta(json!({"reasoning_content": "RC"}));
    let back = |members: Value| {
        let mut want = json!({"reasoning_content": "RC", "tool_calls": [{"id": "a"}]});
        want.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        want
    };
    let late = json!({"id": "a", "extra_content": {"google": {"thought_signature": "LATE"}}});
    for (case, events, want) in [
        (
            "sealed reasoning and the signature of a call",
            vec![thought(), calls("a"), whole(json!({"reasoning_details": sealed()}), extra())],
            back(json!({"reasoning_details": sealed(), "tool_calls": [late.clone()]})),
        ),
        (
            "the signature of a call that is over",
            vec![thought(), calls("a"), delta(json!({"content": "hello"})), whole(json!({}), extra())],
            back(json!({"tool_calls": [late.clone()]})),
        ),
        (
            "the same signature",
            vec![
                thought(),
                delta(
                    json!({"tool_calls": [{"id": "a", "function": {"name": "read", "arguments": "{}"}, "extra_content": {"google": {"thought_signature": "LATE"}}}]}),
                ),
                whole(json!({}), extra()),
            ],
            back(json!({"tool_calls": [late]})),
        ),
        (
            "a thought",
            vec![
                delta(json!({"content": "hello"})),
                calls("a"),
                whole(json!({"content": "hello", "reasoning_content": "RC"}), json!({})),
            ],
            back(json!({})),
        ),
        (
            "a thought that was said",
            vec![thought(), calls("a"), whole(json!({"reasoning_content": "RC"}), json!({}))],
            back(json!({})),
        ),
        (
            "a thought that was said before anything else",
            vec![thought(), whole(json!({"reasoning_content": "RC"}), json!({}))],
            back(json!({})),
        ),
        (
            "sealed reasoning that was said",
            vec![
                thought(),
                delta(json!({"reasoning_details": sealed()})),
                calls("a"),
                whole(json!({"reasoning_details": sealed()}), json!({})),
            ],
            back(json!({"reasoning_details": sealed()})),
        ),
    ] {
        let body = next(ModelApi::OpenaiCompletions, &events).await;
        assert_eq!(given(&body), [want], "{case}");
    }
}

#[tokio::test]
async fn thinking_in_parts_of_the_content_goes_back_in_its_form() {
    let part = |text: &str| json!({"type": "thinking", "thinking": [{"type": "text", "text": text}]});
    let closed = |mut part: Value| {
        part.as_object_mut()
            .unwrap()
            .extend([("signature".to_owned(), "MS".into()), ("closed".to_owned(), true.into())]);
        part
    };
    let content = |part: Value| delta(json!({"content": [part]}));
    let summary = |text: &str, seal: &str| json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": text, "signature": seal}]});
    let sealed = |data: &str| json!({"type": "redacted_thinking", "data": data});
    let text = json!({"type": "text", "text": "Yes."});
    for (case, events, want) in [
        ("with a call", vec![content(closed(part("I think"))), calls("a")], json!([closed(part("I think"))])),
        (
            "with a text",
            vec![content(closed(part("I think"))), delta(json!({"content": "Yes."}))],
            json!([closed(part("I think")), text]),
        ),
        (
            "in pieces",
            vec![
                content(part("I ")),
                content(part("I ")),
                content(closed(part("think"))),
                delta(json!({"content": [text]})),
            ],
            json!([closed(part("I I think")), text]),
        ),
        (
            "two of them",
            vec![content(closed(part("one"))), content(closed(part("two"))), calls("a")],
            json!([closed(part("one")), closed(part("two"))]),
        ),
        (
            "as a text",
            vec![
                content(json!({"type": "thinking", "thinking": "ha "})),
                content(json!({"type": "thinking", "thinking": "ha "})),
                calls("a"),
            ],
            json!([{"type": "thinking", "thinking": "ha ha "}]),
        ),
        (
            "as a summary with a signature",
            vec![
                content(summary("I ", "")),
                content(summary("think", "")),
                content(summary("", "DS")),
                delta(json!({"content": "Yes."})),
                calls("a"),
            ],
            json!([summary("I think", "DS"), text]),
        ),
        (
            "sealed",
            vec![content(sealed("AA")), content(sealed("BB")), delta(json!({"content": "Yes."}))],
            json!([sealed("AA"), sealed("BB"), text]),
        ),
    ] {
        let events: Vec<_> = events.into_iter().chain([end("stop")]).collect();
        let body = next(ModelApi::OpenaiCompletions, &events).await;
        assert_eq!(body["messages"][2]["content"], want, "{case}");
    }
}

#[tokio::test]
async fn thinking_that_is_an_object_goes_back_as_it_came() {
    let thought = |thought: Value| delta(json!({"reasoning_content": thought}));
    let events = [
        thought(json!({"text": "I "})),
        thought(json!({"text": "think"})),
        thought(json!({"signature": "BS"})),
        calls("a"),
        end("tool_calls"),
    ];
    let body = next(ModelApi::OpenaiCompletions, &events).await;
    assert_eq!(body["messages"][2]["reasoning_content"], json!({"text": "I think", "signature": "BS"}));
}

#[tokio::test]
async fn what_a_call_repeats_of_its_tool_does_not_go_back() {
    let function = json!({"name": "read", "description": "Reads a file.", "strict": true, "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}, "arguments": "{}"});
    let events = [delta(json!({"tool_calls": [{"index": 0, "id": "a", "function": function}]})), end("tool_calls")];
    let body = next(ModelApi::OpenaiCompletions, &events).await;
    assert_eq!(body["messages"][2]["tool_calls"][0]["function"], json!({"name": "read", "arguments": "{}"}));
}

/// Events of Responses: an item begins, an item is done, and the end with the whole output.
fn added(at: u64, item: &Value) -> Value {
    json!({"type": "response.output_item.added", "output_index": at, "item": item})
}

fn done(at: u64, item: &Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": at, "item": item})
}

fn completed(output: &[&Value]) -> Value {
    json!({"type": "response.completed", "response": {"status": "completed", "output": output}})
}

#[tokio::test]
async fn responses_send_sealed_reasoning_back_wherever_it_came() {
    let bare = json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm"}]});
    let mut sealed = bare.clone();
    sealed["encrypted_content"] = "E".into();
    let shown = json!({"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm"}]});
    let mut both = shown.clone();
    both["encrypted_content"] = "E".into();
    let call = |id: &str| json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": "read", "arguments": "{}"});
    let (one, two) = (call("a"), call("b"));
    let second = json!({"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "F"});
    let streamed = |item: &Value, at: u64| vec![added(at, item), done(at, item)];
    for (case, events, want) in [
        (
            "when the answer ends",
            [streamed(&bare, 0), streamed(&one, 1), vec![completed(&[&sealed, &one])]].concat(),
            vec![&sealed, &one],
        ),
        (
            "when the answer ends, shown before",
            [streamed(&shown, 0), streamed(&one, 1), vec![completed(&[&both, &one])]].concat(),
            vec![&both, &one],
        ),
        (
            "when it begins",
            [vec![added(0, &sealed), done(0, &bare)], streamed(&one, 1), vec![completed(&[])]].concat(),
            vec![&sealed, &one],
        ),
        (
            "when it begins, and it never ends",
            [vec![added(0, &sealed)], streamed(&one, 1), vec![completed(&[])]].concat(),
            vec![&sealed, &one],
        ),
        ("behind its call", [streamed(&one, 0), vec![completed(&[&sealed, &one])]].concat(), vec![&sealed, &one]),
        (
            "behind one of two calls",
            [
                streamed(&sealed, 0),
                streamed(&one, 1),
                streamed(&two, 3),
                vec![completed(&[&sealed, &one, &second, &two])],
            ]
            .concat(),
            vec![&sealed, &one, &second, &two],
        ),
        (
            "twice",
            [streamed(&sealed, 0), streamed(&one, 1), vec![completed(&[&sealed, &one])]].concat(),
            vec![&sealed, &one],
        ),
    ] {
        let body = next(ModelApi::OpenaiResponses, &events).await;
        let sent: Vec<_> = body["input"].as_array().unwrap()[1..]
            .iter()
            .filter(|item| item["type"] != "function_call_output")
            .collect();
        let name = |item: &&Value| {
            if item["type"] == "reasoning" { (*item).clone() } else { item["call_id"].clone() }
        };
        // Results come after their calls, so the messages between them are compared alone.
        assert_eq!(sent.iter().map(name).collect::<Vec<_>>(), want.iter().map(name).collect::<Vec<_>>(), "{case}");
    }
}

#[tokio::test]
async fn responses_send_back_what_only_the_whole_output_says_of_an_item() {
    let text = json!({"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "I read."}]});
    let call = json!({"type": "function_call", "id": "fc_1", "call_id": "a", "name": "read", "arguments": "{}"});
    let (mut late_text, mut late_call) = (text.clone(), call.clone());
    late_text["phase"] = "commentary".into();
    late_call["namespace"] = "n".into();
    let events =
        [added(0, &text), done(0, &text), added(1, &call), done(1, &call), completed(&[&late_text, &late_call])];
    let body = next(ModelApi::OpenaiResponses, &events).await;
    assert_eq!(body["input"][1]["phase"], "commentary");
    assert_eq!(body["input"][2]["namespace"], "n");
    assert!(!body.to_string().contains("msg_1") && !body.to_string().contains("fc_1"));
}

#[tokio::test]
async fn anthropic_gets_back_the_members_of_its_blocks() {
    let block = |at: u64, block: Value| {
        [
            json!({"type": "content_block_start", "index": at, "content_block": block}),
            json!({"type": "content_block_stop", "index": at}),
        ]
    };
    let text = json!({"type": "text", "text": "I read.", "citations": null, "seal": "x"});
    let call = json!({"type": "tool_use", "id": "a", "name": "read", "input": {}, "caller": {"type": "direct"}});
    let events = [
        vec![json!({"type": "message_start", "message": {"id": "m"}})],
        block(0, text).to_vec(),
        block(1, call.clone()).to_vec(),
        vec![json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}), json!({"type": "message_stop"})],
    ]
    .concat();
    let body = next(ModelApi::AnthropicMessages, &events).await;
    assert_eq!(body["messages"][1]["content"], json!([{"type": "text", "text": "I read.", "seal": "x"}, call]));
}
