//! State that a provider gives with an answer and requires back: through the session file, a resume and a branch, and to no
//! other provider.

use countersign_testkit::process::{
    HostFixture, lines_with,
    provider::{ProviderReply, ProviderRequest, ReplyPart, text_reply},
};
use serde_json::{Value, json};

const SEAL: &str = "U0lH";

/// Returns a thought, a sealed one, and a call that is signed.
fn sealed(id: &str) -> ProviderReply {
    let chunk = |delta: Value, finish: Value| {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
        format!("data: {}\n\n", json!({ "id": "r", "choices": [choice] }))
    };
    let call = json!({
        "index": 0, "id": id, "type": "function",
        "function": { "name": "bash", "arguments": json!({ "command": "true", "_i": "a test" }).to_string() },
        "extra_content": { "google": { "thought_signature": SEAL } },
    });
    let chunks = [
        chunk(json!({ "reasoning_content": "I look." }), Value::Null),
        chunk(
            json!({ "reasoning_details": [{ "type": "reasoning.encrypted", "data": SEAL, "index": 0 }] }),
            Value::Null,
        ),
        chunk(json!({ "tool_calls": [call] }), "tool_calls".into()),
        "data: [DONE]\n\n".to_owned(),
    ];
    ProviderReply::new(vec![ReplyPart::Raw(chunks.concat()), ReplyPart::Cut])
}

/// Returns the message of the model with the call, as the provider is sent it.
fn called(request: &ProviderRequest) -> Value {
    let has_calls = |message: &&Value| message.get("tool_calls").is_some();
    request.messages().iter().find(has_calls).cloned().unwrap_or_default()
}

fn assert_given_back(request: &ProviderRequest, when: &str) {
    let message = called(request);
    assert_eq!(message["reasoning_content"], "I look.", "{when}: {message}");
    assert_eq!(message["reasoning_details"][0]["data"], SEAL, "{when}: {message}");
    let call = &message["tool_calls"][0];
    assert_eq!(call["extra_content"]["google"]["thought_signature"], SEAL, "{when}: {message}");
}

fn assert_kept_from(request: &ProviderRequest, who: &str) {
    let body = request.body.to_string();
    assert!(!body.contains(SEAL) && !body.contains("I look."), "{who}: {body}");
    assert!(body.contains("\"bash\"") && request.is_paired(), "{who}: {body}");
}

#[test]
fn what_came_with_a_call_goes_back_through_resume_and_branch_and_to_no_other_model() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    place.provider.script_replies([sealed("k1"), text_reply("done")]);
    host.run_turn("go");
    assert_given_back(&place.provider.last_request(), "within the run");
    let file = host.session_file();
    let lines = lines_with(&file, SEAL);
    let message = lines.iter().map(|line| &line["message"]).find(|message| message["stopReason"] == "toolUse").unwrap();
    assert_eq!(message["content"][0]["thinkingSignature"], "reasoning_content");
    assert_eq!(
        message["content"][1]["thoughtSignature"],
        json!({ "google": { "thought_signature": SEAL } }).to_string()
    );
    assert_eq!(message["providerPayload"]["members"]["reasoning_details"][0]["data"], SEAL);
    host.close_cleanly();

    let mut host = place.resume_host();
    host.run_turn("again");
    assert_given_back(&place.provider.last_request(), "after a resume");
    for (provider, model) in [("fake", "fake-2"), ("claude", "claude-1")] {
        host.command_data(json!({ "type": "set_model", "provider": provider, "modelId": model }));
        host.run_turn("and you?");
        assert_kept_from(&place.provider.last_request(), model);
    }
    host.command_data(json!({ "type": "set_model", "provider": "fake", "modelId": "fake-1" }));
    host.run_turn("back again");
    assert_given_back(&place.provider.last_request(), "back at its model");

    let users = host.command_data(json!({ "type": "get_branch_messages" }))["messages"].clone();
    host.command_data(json!({ "type": "branch", "entryId": users[1]["entryId"] }));
    host.run_turn("another way");
    assert_given_back(&place.provider.last_request(), "after a branch");
    host.close_cleanly();
}

/// A file of a host that this binary did not write: its log is made from the file.
#[test]
fn what_a_session_file_holds_goes_back_where_the_log_is_gone() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    place.provider.script_replies([sealed("k1"), text_reply("done")]);
    host.run_turn("go");
    let file = host.session_file();
    host.close_cleanly();
    let text = std::fs::read_to_string(file).unwrap();
    let copy = place.agent.join("copy.jsonl");
    std::fs::write(&copy, text).unwrap();
    let mut host = place.start(&["--session", copy.to_str().unwrap()]);
    host.run_turn("again");
    assert_given_back(&place.provider.last_request(), "from the file alone");
    host.close_cleanly();
}
