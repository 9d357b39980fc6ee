//! A run from its prompt to its end.

use countersign_testkit::process::{
    HostFixture, RpcHost, frame_shape, lines_with, message_roles, message_text as text_of, of_type,
    provider::{ProviderReply, ReplyPart, bash_part, call_part, text_part, text_reply},
};
use serde_json::json;

const USER: &str = "agent_start turn_start +user -user";
const TEXT: &str = "+assistant text_start text_delta text_end -assistant turn_end";

#[test]
fn the_message_of_a_person_says_so_on_the_wire_and_in_the_file() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("prompt");
    host.command_data(json!({ "type": "steer", "message": "steer" }));
    host.command_data(json!({ "type": "follow_up", "message": "follow" }));
    host.run_turn("again");
    let messages = host.session_messages();
    let of_person: Vec<_> = messages.iter().filter(|message| message["role"] == "user").collect();
    assert_eq!(of_person.len(), 4);
    assert!(of_person.iter().all(|message| message["attribution"] == "user"), "{of_person:?}");
    let lines = lines_with(&host.session_file(), "again");
    let mut in_file = lines.iter().filter(|line| line["message"]["role"] == "user").peekable();
    assert!(in_file.peek().is_some() && in_file.all(|line| line["message"]["attribution"] == "user"));
    host.close_cleanly();
}

#[test]
fn a_text_is_sent_in_order() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    place.provider.script_replies([ProviderReply {
        usage: (100, 50, 40),
        ..ProviderReply::new(vec![ReplyPart::Text(vec!["Grüße ".into(), "a\u{2028}b".into()])])
    }]);
    let frames = host.run_turn("hello");
    assert_eq!(frame_shape(&frames), format!("prompt {USER} {TEXT} agent_end"));
    let start = &of_type(&frames, "message_start")[1]["message"];
    assert_eq!(
        (&start["content"], &start["stopReason"], &start["usage"]["totalTokens"]),
        (&json!([]), &json!("stop"), &json!(0))
    );
    let end = of_type(&frames, "agent_end").remove(0);
    let messages = end["messages"].as_array().unwrap();
    assert_eq!(message_roles(messages), ["user", "assistant"]);
    assert_eq!(messages[0]["content"], json!([{ "type": "text", "text": "hello" }]));
    assert_eq!(text_of(&messages[1]), "Grüße a\u{2028}b");
    let usage = &messages[1]["usage"];
    assert_eq!([&usage["input"], &usage["output"], &usage["cacheRead"], &usage["totalTokens"]], [60, 50, 40, 150]);
    assert_eq!(&host.session_messages(), messages);
    host.close_cleanly();
}

#[test]
fn every_update_carries_the_message_so_far_twice() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    place.provider.script_replies([ProviderReply::new(vec![
        ReplyPart::Think(vec!["hm".into()]),
        text_part("so"),
        bash_part("k", "true"),
    ])]);
    for update in of_type(&host.run_turn("go"), "message_update") {
        assert_eq!(update["message"], update["assistantMessageEvent"]["partial"]);
    }
}

#[test]
fn thinking_comes_before_the_text_on_both_wires() {
    for model in ["fake/fake-1", "claude/claude-1"] {
        let place = HostFixture::new();
        let mut host = RpcHost::start(&place, &["--model", model]);
        place.provider.script_replies([ProviderReply::new(vec![
            ReplyPart::Think(vec!["hm ".into(), "ok".into()]),
            text_part("said"),
        ])]);
        let frames = host.run_turn("go");
        let thinking =
            "+assistant thinking_start thinking_delta thinking_end text_start text_delta text_end -assistant";
        assert_eq!(frame_shape(&frames), format!("prompt {USER} {thinking} turn_end agent_end"), "{model}");
        let content = host.session_messages()[1]["content"].clone();
        assert_eq!((&content[0]["thinking"], &content[1]["text"]), (&json!("hm ok"), &json!("said")), "{model}");
    }
}

#[test]
fn calls_are_sent_one_after_the_other_and_return_paired_on_both_wires() {
    for model in ["fake/fake-1", "claude/claude-1"] {
        let place = HostFixture::new();
        let mut host = RpcHost::start(&place, &["--model", model]);
        place.provider.script_replies([
            ProviderReply::new(vec![
                text_part("I go"),
                bash_part("k1", "echo one"),
                bash_part("k2", "echo two; exit 3"),
            ]),
            text_reply("done"),
        ]);
        let frames = host.run_turn("go");
        let assistant_frames = "+assistant text_start text_delta text_end toolcall_start toolcall_delta toolcall_end \
                    toolcall_start toolcall_delta toolcall_end -assistant";
        let ran = "+k1 -k1 +toolResult -toolResult +k2 -k2 +toolResult -toolResult turn_end";
        assert_eq!(
            frame_shape(&frames),
            format!("prompt {USER} {assistant_frames} {ran} turn_start {TEXT} agent_end"),
            "{model}"
        );
        let turns = of_type(&frames, "turn_end");
        assert_eq!(turns[0]["toolResults"].as_array().unwrap().len(), 2);
        let ends = of_type(&frames, "tool_execution_end");
        assert_eq!([&ends[0]["isError"], &ends[1]["isError"]], [&json!(false), &json!(true)]);
        let request = place.provider.last_request();
        assert!(request.is_paired(), "{model}");
        assert_eq!(request.call_result("k1").unwrap(), "one\n");
        assert!(request.call_result("k2").unwrap().contains('3'));
    }
}

#[test]
fn a_bad_call_is_an_error_result_and_the_run_goes_on() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let broken = ReplyPart::Call { id: "json".into(), name: "read".into(), arguments: "{\"path\": \"a".into() };
    let calls = vec![
        call_part("unknown", "frobnicate", &json!({})),
        call_part("missing", "write", &json!({ "content": "x" })),
        broken,
    ];
    place.provider.script_replies([ProviderReply::new(calls), text_reply("done")]);
    let frames = host.run_turn("go");
    assert!(of_type(&frames, "tool_execution_end").iter().all(|end| end["isError"] == true));
    let request = place.provider.last_request();
    assert!(request.is_paired());
    assert!(request.call_result("unknown").unwrap().contains("Tool frobnicate not found"));
    assert!(request.call_result("missing").unwrap().contains("path"));
    assert_eq!(text_of(host.session_messages().last().unwrap()), "done");
}

#[test]
fn an_answer_that_was_cut_off_by_its_limit_says_so() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    place.provider.script_replies([ProviderReply { stop: Some("length"), ..text_reply("half") }]);
    host.run_turn("go");
    assert_eq!(host.session_messages()[1]["stopReason"], "length");
}

#[test]
fn the_output_of_a_command_is_sent_while_it_runs() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let waits = "echo early; until test -e go; do sleep 0.01; done; echo late";
    place.provider.script_replies([ProviderReply::new(vec![bash_part("k", waits)])]);
    let from = host.send_prompt("go");
    let update = host.wait_event(from, "tool_execution_update");
    assert_eq!((&update["toolCallId"], text_of(&update["partialResult"]).as_str()), (&json!("k"), "early\n"));
    place.write_file("go", "");
    host.wait_settled(from);
    assert_eq!(place.provider.last_request().call_result("k").unwrap(), "early\nlate\n");
}
