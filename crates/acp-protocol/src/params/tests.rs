use serde_json::{Value, json};

use super::{
    ClientFeatures, ElicitationAnswer, InitializeParams, ListSessionsParams, OpenSessionParams, PermissionAnswer,
    PromptParams, SetConfigOptionParams, SetModeParams,
};

#[test]
fn a_version_is_a_number_or_its_text() {
    for (version, want) in [(json!(1), Some(1)), (json!("1"), Some(1)), (json!(2), Some(2)), (json!(0), Some(0))] {
        let params = json!({ "protocolVersion": version });
        assert_eq!(InitializeParams::read(&params).ok().map(|params| params.version), want, "{version}");
    }
    for (version, found) in [(json!("x"), "\"x\""), (json!(1.5), "1.5"), (Value::Null, "absent")] {
        let fault = InitializeParams::read(&json!({ "protocolVersion": version })).unwrap_err().to_string();
        assert_eq!(fault, format!("Invalid params: protocolVersion: {found}: expected a whole number, such as 1"));
    }
}

#[test]
fn an_editor_has_what_it_declares_as_an_object() {
    let read = |capabilities: Value| {
        InitializeParams::read(&json!({ "protocolVersion": 1, "clientCapabilities": capabilities })).unwrap().features
    };
    assert_eq!(
        read(json!({ "elicitation": { "form": {} }, "session": { "notices": {} } })),
        ClientFeatures { forms: true, notices: true }
    );
    for none in [json!({}), json!({ "elicitation": {} }), json!({ "elicitation": { "form": null } }), json!(7)] {
        assert_eq!(read(none.clone()), ClientFeatures::default(), "{none}");
    }
}

type Reader = fn(&Value) -> Result<(), String>;

#[test]
fn a_refusal_names_the_field_its_value_and_what_is_accepted() {
    let new: Reader = |params| OpenSessionParams::read_new(params).map(drop).map_err(|fault| fault.to_string());
    let load: Reader = |params| OpenSessionParams::read_existing(params).map(drop).map_err(|fault| fault.to_string());
    let prompt: Reader = |params| PromptParams::read(params).map(drop).map_err(|fault| fault.to_string());
    let mode: Reader = |params| SetModeParams::read(params).map(drop).map_err(|fault| fault.to_string());
    let option: Reader = |params| SetConfigOptionParams::read(params).map(drop).map_err(|fault| fault.to_string());
    let list: Reader = |params| ListSessionsParams::read(params).map(drop).map_err(|fault| fault.to_string());
    for (read, params, want) in [
        (new, json!([]), "params: []: expected an object"),
        (new, json!({}), "cwd: absent: expected a text"),
        (new, json!({ "cwd": "src" }), r#"cwd: "src": expected an absolute path"#),
        (new, json!({ "cwd": "/w", "mcpServers": {} }), "mcpServers: {}: expected a list"),
        (new, json!({ "cwd": "/w", "mcpServers": [{}] }), "mcpServers[0].name: absent: expected a text"),
        (
            new,
            json!({ "cwd": "/w", "mcpServers": [{ "name": "n" }] }),
            "mcpServers[0].command: absent: expected a text",
        ),
        (
            new,
            json!({ "cwd": "/w", "mcpServers": [{ "name": "n", "command": "c", "args": [1] }] }),
            "mcpServers[0].args[0]: 1: expected a text",
        ),
        (
            new,
            json!({ "cwd": "/w", "additionalDirectories": ["/x"] }),
            r#"additionalDirectories: ["/x"]: expected no further folders: a session has one"#,
        ),
        (
            new,
            json!({ "cwd": "/w", "systemPrompt": {} }),
            "systemPrompt: {}: expected no system prompt: the operator's files have it",
        ),
        (load, json!({ "cwd": "/w" }), "sessionId: absent: expected a text"),
        (load, json!({ "cwd": "/w", "sessionId": "" }), r#"sessionId: "": expected a text that is not empty"#),
        (
            prompt,
            json!({ "sessionId": "s", "prompt": [] }),
            "prompt: []: expected a list with at least one block of content",
        ),
        (prompt, json!({ "sessionId": "s", "prompt": "hi" }), r#"prompt: "hi": expected a list"#),
        (
            prompt,
            json!({ "sessionId": "s", "prompt": [{ "type": "text", "text": "a" }, { "type": "video" }] }),
            r#"prompt[1].type: "video": expected text, image, audio, resource_link or resource"#,
        ),
        (
            prompt,
            json!({ "sessionId": "s", "prompt": [{ "type": "resource", "resource": { "uri": "f" } }] }),
            "prompt[0].resource.text: absent: expected a text",
        ),
        (mode, json!({ "sessionId": "s" }), "modeId: absent: expected a text"),
        (option, json!({ "sessionId": "s", "configId": "model", "value": true }), "value: true: expected a text"),
        (list, json!({ "cursor": 3 }), "cursor: 3: expected a text"),
    ] {
        assert_eq!(read(&params), Err(format!("Invalid params: {want}")), "{params}");
    }
}

#[test]
fn further_members_are_ignored() {
    let params = json!({ "cwd": "/w", "mcpServers": [], "_meta": { "yolo": true }, "mode": "yolo" });
    let read = OpenSessionParams::read_new(&params).unwrap();
    assert_eq!(read, OpenSessionParams { session: None, cwd: "/w".to_owned(), mcp_servers: Vec::new() });
}

#[test]
fn only_a_chosen_option_is_an_answer() {
    for (result, want) in [
        (json!({ "outcome": { "outcome": "selected", "optionId": "x" } }), Ok(PermissionAnswer::Selected("x".into()))),
        (json!({ "outcome": { "outcome": "cancelled" } }), Ok(PermissionAnswer::Cancelled)),
        (json!({ "outcome": "selected" }), Err("outcome.outcome: absent: expected a text")),
        (json!({ "outcome": { "outcome": "selected" } }), Err("outcome.optionId: absent: expected a text")),
        (json!({ "outcome": { "outcome": "ok" } }), Err(r#"outcome.outcome: "ok": expected selected or cancelled"#)),
        (json!(null), Err("outcome.outcome: absent: expected a text")),
    ] {
        let got = PermissionAnswer::read(&result).map_err(|fault| fault.to_string());
        assert_eq!(got, want.map_err(|text| format!("Invalid params: {text}")), "{result}");
    }
}

#[test]
fn a_form_is_answered_by_choices_or_words() {
    for (result, want) in [
        (json!({ "action": "accept", "content": { "answer": "a" } }), Ok(Some(vec!["a"]))),
        (json!({ "action": "accept", "content": { "answer": ["a", "b"] } }), Ok(Some(vec!["a", "b"]))),
        (json!({ "action": "accept", "content": { "other": "mine", "answer": null } }), Ok(Some(vec!["mine"]))),
        (json!({ "action": "decline" }), Ok(None)),
        (json!({ "action": "cancel" }), Ok(None)),
        (json!({ "action": "accept" }), Err("content: absent: expected an answer")),
        (json!({ "action": "yes" }), Err(r#"action: "yes": expected accept, decline or cancel"#)),
    ] {
        let want = want
            .map(|texts| match texts {
                Some(texts) => ElicitationAnswer::Accepted(texts.into_iter().map(str::to_owned).collect()),
                None => ElicitationAnswer::Dismissed,
            })
            .map_err(|text| format!("Invalid params: {text}"));
        assert_eq!(ElicitationAnswer::read(&result).map_err(|fault| fault.to_string()), want, "{result}");
    }
}
