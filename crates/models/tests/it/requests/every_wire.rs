//! Promises of every wire.

use super::*;

#[tokio::test]
async fn a_level_has_the_word_of_its_wire() {
    let mode = |mode, min_level, max_level| Some(ThinkingSupport { mode, min_level, max_level });
    let all = |of| mode(of, ThinkingLevel::Minimal, ThinkingLevel::Xhigh);
    for (case, api, thinking, level, field, want) in [
        ("effort", ModelApi::OpenaiCompletions, None, ThinkingLevel::High, "/reasoning_effort", json!("high")),
        ("no effort", ModelApi::OpenaiCompletions, None, ThinkingLevel::Off, "/reasoning_effort", Value::Null),
        (
            "clamped",
            ModelApi::OpenaiCompletions,
            mode(ThinkingParameter::Effort, ThinkingLevel::Low, ThinkingLevel::High),
            ThinkingLevel::Xhigh,
            "/reasoning_effort",
            json!("high"),
        ),
        (
            "responses",
            ModelApi::OpenaiResponses,
            None,
            ThinkingLevel::Low,
            "/reasoning",
            json!({"effort": "low", "summary": "auto"}),
        ),
        ("responses off", ModelApi::OpenaiResponses, None, ThinkingLevel::Off, "/reasoning", Value::Null),
        (
            "budget",
            ModelApi::AnthropicMessages,
            None,
            ThinkingLevel::Low,
            "/thinking",
            json!({"type": "enabled", "budget_tokens": 4096}),
        ),
        // Room for an answer is left below the cap of 8192.
        (
            "cut budget",
            ModelApi::AnthropicMessages,
            None,
            ThinkingLevel::High,
            "/thinking",
            json!({"type": "enabled", "budget_tokens": 7168}),
        ),
        ("disabled", ModelApi::AnthropicMessages, None, ThinkingLevel::Off, "/thinking", json!({"type": "disabled"})),
        (
            "adaptive",
            ModelApi::AnthropicMessages,
            all(ThinkingParameter::AnthropicAdaptive),
            ThinkingLevel::Xhigh,
            "/thinking",
            json!({"type": "adaptive"}),
        ),
        (
            "adaptive effort",
            ModelApi::AnthropicMessages,
            all(ThinkingParameter::AnthropicAdaptive),
            ThinkingLevel::Xhigh,
            "/output_config",
            json!({"effort": "max"}),
        ),
        (
            "google budget",
            ModelApi::GoogleGenerativeAi,
            None,
            ThinkingLevel::Xhigh,
            "/generationConfig/thinkingConfig",
            json!({"includeThoughts": true, "thinkingBudget": 24575}),
        ),
        (
            "google off",
            ModelApi::GoogleGenerativeAi,
            None,
            ThinkingLevel::Off,
            "/generationConfig/thinkingConfig",
            json!({"thinkingBudget": 0}),
        ),
        (
            "google level",
            ModelApi::GoogleGenerativeAi,
            mode(ThinkingParameter::GoogleLevel, ThinkingLevel::Low, ThinkingLevel::High),
            ThinkingLevel::Minimal,
            "/generationConfig/thinkingConfig",
            json!({"includeThoughts": true, "thinkingLevel": "LOW"}),
        ),
    ] {
        let change = |request: &mut ModelRequest| {
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
        assistant_message(ModelApi::OpenaiCompletions, vec![call("a", "{}")]),
        RequestMessage::User(vec![MessagePart::text("well?")]),
        result("z", vec![MessagePart::text("stray")], false),
        assistant_message(ModelApi::OpenaiCompletions, vec![call("a", "{}")]),
        result("a", vec![MessagePart::text("one")], false),
        result("a", vec![MessagePart::text("again")], false),
    ];
    let body = sent(|request| request.messages = messages, ModelApi::OpenaiCompletions).await;
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

/// The conversation may have continued while the call waited for its approval.
#[tokio::test]
async fn a_result_that_came_late_stands_behind_its_call() {
    let messages = vec![
        assistant_message(ModelApi::OpenaiCompletions, vec![call("a", "{}")]),
        RequestMessage::User(vec![MessagePart::text("well?")]),
        assistant_message(ModelApi::OpenaiCompletions, vec![MessagePart::text("I wait")]),
        result("a", vec![MessagePart::text("one")], false),
    ];
    let body = sent(|request| request.messages = messages, ModelApi::OpenaiCompletions).await;
    let roles: Vec<_> = body["messages"].as_array().unwrap().iter().skip(1).map(|it| it["role"].clone()).collect();
    assert_eq!(roles, ["assistant", "tool", "user", "assistant"]);
    assert_eq!(body["messages"][2]["content"], "one");
}

#[tokio::test]
async fn what_another_model_kept_to_itself_is_not_sent_and_its_ids_are_made_to_fit() {
    let long = format!("{}|{}", "fc_1".repeat(12), "x".repeat(30));
    let other = |parts| {
        let (provider, model) = ("elsewhere".to_owned(), "big-1".to_owned());
        RequestMessage::Assistant(AnswerMessage {
            parts,
            api: ModelApi::OpenaiResponses,
            provider,
            model,
            payload: None,
        })
    };
    let thought = || MessagePart::Thinking { text: "secret".to_owned(), signature: Some("sig".to_owned()) };
    let messages = vec![
        RequestMessage::User(vec![MessagePart::text("hi")]),
        other(vec![thought()]),
        other(vec![thought(), MessagePart::Redacted { data: "x".to_owned() }, call(&long, "{}"), call("same", "{}")]),
        result(&long, vec![MessagePart::text("one")], false),
        result("same", vec![MessagePart::text("two")], false),
        other(vec![call("same", "{}")]),
        result("same", vec![MessagePart::text("three")], false),
    ];
    let body = sent(|request| request.messages = messages, ModelApi::AnthropicMessages).await;
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
async fn a_model_without_images_reads_that_there_was_one() {
    let change = |request: &mut ModelRequest| {
        let mut entry = (*request.entry).clone();
        entry.input = vec![InputModality::Text];
        request.entry = entry.into();
        request.messages = vec![RequestMessage::User(vec![image()])];
    };
    let body = sent(change, ModelApi::OpenaiCompletions).await;
    assert_eq!(body["messages"][1]["content"][0]["text"], "(an image was here; this model takes no images)");
}

#[tokio::test]
async fn a_cap_is_never_above_the_models_own() {
    for (cap, want) in [(None, 8192), (Some(500), 500), (Some(99_999), 8192)] {
        let body = sent(|request| request.max_tokens = cap, ModelApi::OpenaiCompletions).await;
        assert_eq!(body["max_tokens"], want);
    }
}

#[tokio::test]
async fn a_cap_leaves_room_for_the_prompt_in_the_window() {
    for (api, field) in [
        (ModelApi::OpenaiCompletions, "/max_tokens"),
        (ModelApi::AnthropicMessages, "/max_tokens"),
        (ModelApi::OpenaiResponses, "/max_output_tokens"),
        (ModelApi::GoogleGenerativeAi, "/generationConfig/maxOutputTokens"),
    ] {
        for (window, prompt, least, most) in [
            // The prompt's 12,000 bytes and a little for its frame.
            (32_768, 12_000, 29_000, 29_768),
            // An eighth is requested in any case.
            (32_768, 120_000, 4_096, 4_096),
            (0, 12_000, 32_768, 32_768),
        ] {
            let change = |request: &mut ModelRequest| {
                let mut entry = (*request.entry).clone();
                (entry.context_window, entry.max_tokens) = (window, 32_768);
                request.entry = entry.into();
                request.messages = vec![RequestMessage::User(vec![MessagePart::text("x".repeat(prompt))])];
            };
            let cap = sent(change, api).await.pointer(field).unwrap().as_u64().unwrap();
            assert!((least..=most).contains(&cap), "{api}: {window} {prompt}: {cap}");
        }
    }
}

#[tokio::test]
async fn what_a_provider_gave_goes_to_no_other() {
    let seals = |api| {
        let text = MessagePart::Text { text: "I read.".to_owned(), signature: Some(r#"{"phase":"SEAL"}"#.to_owned()) };
        let parts = vec![
            thought("SEAL", "reasoning_content"),
            MessagePart::Redacted { data: "SEAL".to_owned() },
            text,
            signed("a", r#"{"seal":"SEAL"}"#),
        ];
        with_payload(assistant_message(api, parts), r#"{"members":{"reasoning_details":["SEAL"]}}"#)
    };
    let apis = [
        ModelApi::OpenaiCompletions,
        ModelApi::AnthropicMessages,
        ModelApi::OpenaiResponses,
        ModelApi::GoogleGenerativeAi,
    ];
    for api in apis {
        for (case, provider, model, from) in [
            ("another provider", "elsewhere", "small-1", api),
            ("another model", "local", "big-1", api),
            ("another wire", "local", "small-1", apis[(apis.iter().position(|it| *it == api).unwrap() + 1) % 4]),
        ] {
            let RequestMessage::Assistant(answer) = seals(from) else { panic!("an answer") };
            let foreign = AnswerMessage { provider: provider.to_owned(), model: model.to_owned(), ..answer };
            let messages =
                vec![RequestMessage::Assistant(foreign), result("a", vec![MessagePart::text("seen")], false)];
            let body = sent(|request| request.messages = messages, api).await;
            assert!(!body.to_string().contains("SEAL"), "{api}: {case}: {body}");
        }
    }
}

#[tokio::test]
async fn a_query_of_the_base_address_stays_behind_the_path() {
    for (api, base, want) in [
        (ModelApi::OpenaiCompletions, "/v1?api-version=2024", "/v1/chat/completions?api-version=2024"),
        (ModelApi::OpenaiCompletions, "/v1/?a=b/&c=d", "/v1/chat/completions?a=b/&c=d"),
        (ModelApi::OpenaiCompletions, "/v1?", "/v1/chat/completions"),
        (ModelApi::OpenaiCompletions, "/v1//", "/v1/chat/completions"),
        (ModelApi::OpenaiResponses, "/v1?api-version=2024", "/v1/responses?api-version=2024"),
        (ModelApi::AnthropicMessages, "/v1?api-version=2024", "/v1/messages?api-version=2024"),
        (ModelApi::AnthropicMessages, "?api-version=2024", "/v1/messages?api-version=2024"),
        (
            ModelApi::GoogleGenerativeAi,
            "/v1?api-version=2024",
            "/v1/models/small-1:streamGenerateContent?api-version=2024&alt=sse",
        ),
    ] {
        let server =
            ReplyServer::start(vec![reply("400 Bad Request", "application/json", r#"{"error":"enough"}"#)]).await;
        let request = request(entry(api, &format!("{}{base}", server.url)));
        ProviderClient::default().stream(request).collect::<Vec<_>>().await;
        let head = server.requests()[0].head.clone();
        // The server lowers the case of its input.
        assert_eq!(head.split(' ').nth(1), Some(want.to_lowercase().as_str()), "{api}: {base}");
    }
}
