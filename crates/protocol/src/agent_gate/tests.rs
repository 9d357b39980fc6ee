use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    AgentGateRequest, JsonRpcError, JsonRpcFrame, code, encode_error, encode_result, executed_result, read_frame,
};

fn frame_outcome(frame: &str) -> (String, i32, String) {
    match read_frame(frame) {
        JsonRpcFrame { id, request: Err(fault) } => (id, fault.code, fault.message),
        JsonRpcFrame { id, request: Ok(request) } => (id, 0, format!("{request:?}")),
    }
}

#[test]
fn every_malformed_shape_has_its_error_and_its_id() {
    for (frame, id, code, message) in [
        ("{{{", "null", code::PARSE, "Parse error"),
        ("", "null", code::PARSE, "Parse error"),
        ("[]", "null", code::INVALID, "Invalid request: not an object"),
        (r#"[{"id":1,"method":"list_tools"}]"#, "null", code::INVALID, "Invalid request: not an object"),
        ("5", "null", code::INVALID, "Invalid request: not an object"),
        ("null", "null", code::INVALID, "Invalid request: not an object"),
        (r#"{"id":1,"id":2,"method":"x"}"#, "null", code::INVALID, "Invalid request: a member is there twice"),
        (r#"{"id":1}"#, "1", code::INVALID, "Missing method"),
        (r#"{"id":1,"method":""}"#, "1", code::INVALID, "Missing method"),
        (r#"{"id":2,"method":7}"#, "2", code::INVALID, "Invalid request: method is not a text"),
        (r#"{"id":"x","method":"nope"}"#, "\"x\"", code::NO_METHOD, "Unknown method: nope"),
        (r#"{"method":"tool_request","params":{"tool":"t"}}"#, "null", code::INVALID, "Missing request id"),
        (r#"{"id":null,"method":"tool_request","params":{"tool":"t"}}"#, "null", code::INVALID, "Missing request id"),
        (r#"{"id":3,"method":"tool_request"}"#, "3", code::INVALID, "Missing tool name"),
        (r#"{"id":3,"method":"tool_request","params":{"tool":""}}"#, "3", code::INVALID, "Missing tool name"),
        (
            r#"{"id":3,"method":"tool_request","params":{"tool":5}}"#,
            "3",
            code::INVALID,
            "Invalid request: tool is not a text",
        ),
        (
            r#"{"id":3,"method":"tool_request","params":[1]}"#,
            "3",
            code::INVALID,
            "Invalid request: params is not an object",
        ),
        (r#"{"id":3,"method":"auth","params":[]}"#, "3", code::INVALID, "Invalid request: params is not an object"),
        (
            r#"{"id":3,"method":"tool_request","params":{"tool":"t","args":[]}}"#,
            "3",
            code::INVALID,
            "Invalid request: args is not an object",
        ),
        (
            r#"{"id":3,"method":"tool_request","params":{"tool":"t","idempotency_key":1}}"#,
            "3",
            code::INVALID,
            "Invalid request: idempotency_key is not a text",
        ),
    ] {
        assert_eq!(frame_outcome(frame), (id.to_owned(), code, message.to_owned()), "{frame}");
    }
    assert_eq!(frame_outcome(&"[".repeat(200_000)).1, code::PARSE);
}

#[test]
fn an_id_comes_back_as_it_was_written() {
    for id in ["\"s\"", "\"\"", "0", "1.50", "{\"a\": [1]}", "-7", "9007199254740993", "123456789012345678901234567890"]
    {
        let incoming = read_frame(&format!(r#"{{"id":{id},"method":"list_tools"}}"#));
        assert_eq!(incoming, JsonRpcFrame { id: id.to_owned(), request: Ok(AgentGateRequest::ListTools) });
    }
    assert_eq!(read_frame(r#"{"method":"list_tools"}"#).id, "null");
}

#[test]
fn requests_are_read() {
    let args = json!({"b": 1, "a": [true]});
    let frame =
        json!({"id": 1, "method": "tool_request", "params": {"tool": "t", "args": args, "idempotency_key": "k"}});
    let want = AgentGateRequest::ToolRequest {
        tool: "t".to_owned(),
        args: args.as_object().cloned().unwrap_or_default(),
        key: Some("k".to_owned()),
    };
    assert_eq!(read_frame(&frame.to_string()).request, Ok(want));
    let auth = read_frame(r#"{"method":"auth","params":{"token":"x"}}"#).request;
    assert_eq!(auth, Ok(AgentGateRequest::Auth { token: Some("x".to_owned()) }));
    assert_eq!(
        read_frame(r#"{"method":"auth","params":{"token":5}}"#).request,
        Ok(AgentGateRequest::Auth { token: None })
    );
}

#[test]
fn replies_have_their_members_in_order() {
    assert_eq!(
        encode_result("7", &executed_result("[1]")),
        r#"{"jsonrpc":"2.0","result":{"status":"executed","data":[1]},"id":7}"#
    );
    let plain = JsonRpcError::new(code::DENIED, "no \"x\"");
    assert_eq!(
        encode_error("null", &plain),
        r#"{"jsonrpc":"2.0","error":{"code":-32003,"message":"no \"x\""},"id":null}"#
    );
    let more = JsonRpcError { data: Some(json!({"gate_id": "g"})), ..plain };
    assert!(encode_error("1", &more).ends_with(r#","data":{"gate_id":"g"}},"id":1}"#));
}

proptest! {
    #[test]
    fn whatever_comes_is_answered_by_one_json_object(frame in ".*") {
        let incoming = read_frame(&frame);
        if let Err(error) = incoming.request {
            let reply: Value = serde_json::from_str(&encode_error(&incoming.id, &error)).unwrap();
            prop_assert!(reply["error"]["code"].is_i64());
        }
    }
}
