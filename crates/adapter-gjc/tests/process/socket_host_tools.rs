//! Tools of hosts that come and continue the socket: each call belongs to one host and to no other.

use countersign_testkit::process::{
    HostFixture, eventually,
    provider::{ProviderReply, call_part, text_reply},
};
use serde_json::{Value, json};

use crate::socket::{SocketClient, SocketProcess};

const DISCONNECTED: &str = "RPC client disconnected before host tool execution completed";

fn wants(id: &str) -> ProviderReply {
    ProviderReply::new(vec![call_part(id, "look_up", &json!({ "id": 1 }))])
}

fn lend(client: &mut SocketClient) {
    let tool = json!({"name": "look_up", "description": "Looks up", "parameters": {"type": "object"}});
    client.asks(json!({"type": "set_host_tools", "tools": [tool]}));
}

fn is_call(frame: &Value) -> bool {
    frame["type"] == "host_tool_call"
}

fn answer(client: &mut SocketClient, frames: &[Value], text: &str) {
    let result = json!({ "content": [{ "type": "text", "text": text }] });
    client.says(&json!({"type": "host_tool_result", "id": frames.last().unwrap()["id"], "result": result}));
}

/// Returns the text of the result that a call has in the conversation.
fn result(client: &mut SocketClient, id: &str) -> Option<String> {
    let (data, _) = client.asks(json!({"type": "get_messages"}));
    let messages = data["messages"].as_array().unwrap();
    let message = messages.iter().find(|message| message["toolCallId"] == id)?;
    message["content"][0]["text"].as_str().map(str::to_owned)
}

#[test]
fn a_client_that_goes_leaves_its_call_in_doubt_and_the_next_gets_only_what_it_lends_itself() {
    let place = HostFixture::new();
    place.provider.script_replies([wants("c1"), text_reply("done"), wants("c2"), text_reply("done")]);
    let process = SocketProcess::start(&place, &[]);
    let mut first = process.connect();
    lend(&mut first);
    first.says(&json!({"id": "1", "type": "prompt", "message": "go"}));
    first.wait("a call", is_call);
    drop(first);
    let mut second = process.connect();
    // Long before the time-out for silent hosts.
    assert_eq!(eventually("the end of the call", || result(&mut second, "c1")), DISCONNECTED);
    eventually("the end of the run", || {
        let (state, frames) = second.asks(json!({"type": "get_state"}));
        assert_eq!(frames.iter().filter(|frame| is_call(frame)).count(), 0, "{frames:#?}");
        (state["isStreaming"] == false).then_some(())
    });
    second.says(&json!({"id": "2", "type": "prompt", "message": "again"}));
    second
        .wait("the call", |frame| frame["payload"]["event_type"] == "message_end" && frame.to_string().contains("c2"));
    let (_, frames) = second.asks(json!({"type": "get_session_stats"}));
    assert_eq!(frames.iter().filter(|frame| is_call(frame)).count(), 0, "it lends nothing yet");
    lend(&mut second);
    let frames = second.wait("the call that waited", is_call);
    assert_eq!(frames.last().unwrap()["toolCallId"], "c2");
    answer(&mut second, &frames, "row");
    second.until("agent_end");
    assert_eq!(result(&mut second, "c2").as_deref(), Some("row"));
    assert_eq!(process.end(nix::sys::signal::Signal::SIGTERM), (Some(0), String::new()));
}

#[test]
fn a_new_controller_does_not_get_earlier_calls_and_a_resuming_one_keeps_its_tools() {
    let place = HostFixture::new();
    place.provider.script_replies([wants("c1"), text_reply("done"), wants("c2"), text_reply("done")]);
    let process = SocketProcess::start(&place, &[]);
    let mut first = process.connect();
    lend(&mut first);
    first.says(&json!({"id": "1", "type": "prompt", "message": "go"}));
    let seen = first.wait("a call", is_call);
    let mut second = process.connect();
    while first.hears().is_some() {}
    let last = seen.iter().filter_map(|frame| frame["seq"].as_u64()).next_back().unwrap_or_default();
    second.says(&json!({"type": "resume", "last_seq": last}));
    let missed = second.until("agent_end");
    assert_eq!(missed.iter().filter(|frame| is_call(frame)).count(), 0, "{missed:#?}");
    answer(&mut second, &seen, "too late");
    assert_eq!(result(&mut second, "c1").as_deref(), Some(DISCONNECTED));
    second.says(&json!({"id": "2", "type": "prompt", "message": "again"}));
    let frames = second.wait("a call", is_call);
    answer(&mut second, &frames, "row");
    second.until("agent_end");
    assert_eq!(result(&mut second, "c2").as_deref(), Some("row"));
}
