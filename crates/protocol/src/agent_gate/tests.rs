use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Fault, Incoming, Request, code, executed, fault, read, result};

fn told(frame: &str) -> (String, i32, String) {
    match read(frame) {
        Incoming { id, request: Err(fault) } => (id, fault.code, fault.message),
        Incoming { id, request: Ok(request) } => (id, 0, format!("{request:?}")),
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
        assert_eq!(told(frame), (id.to_owned(), code, message.to_owned()), "{frame}");
    }
    assert_eq!(told(&"[".repeat(200_000)).1, code::PARSE);
}

#[test]
fn an_id_comes_back_as_it_was_written() {
    for id in ["\"s\"", "\"\"", "0", "1.50", "{\"a\": [1]}", "-7", "9007199254740993", "123456789012345678901234567890"]
    {
        let incoming = read(&format!(r#"{{"id":{id},"method":"list_tools"}}"#));
        assert_eq!(incoming, Incoming { id: id.to_owned(), request: Ok(Request::ListTools) });
    }
    assert_eq!(read(r#"{"method":"list_tools"}"#).id, "null");
}

#[test]
fn requests_are_read() {
    let args = json!({"b": 1, "a": [true]});
    let frame =
        json!({"id": 1, "method": "tool_request", "params": {"tool": "t", "args": args, "idempotency_key": "k"}});
    let want = Request::ToolRequest {
        tool: "t".to_owned(),
        args: args.as_object().cloned().unwrap_or_default(),
        key: Some("k".to_owned()),
    };
    assert_eq!(read(&frame.to_string()).request, Ok(want));
    let auth = read(r#"{"method":"auth","params":{"token":"x"}}"#).request;
    assert_eq!(auth, Ok(Request::Auth { token: Some("x".to_owned()) }));
    assert_eq!(read(r#"{"method":"auth","params":{"token":5}}"#).request, Ok(Request::Auth { token: None }));
}

#[test]
fn replies_have_their_members_in_order() {
    assert_eq!(result("7", &executed("[1]")), r#"{"jsonrpc":"2.0","result":{"status":"executed","data":[1]},"id":7}"#);
    let plain = Fault::new(code::DENIED, "no \"x\"");
    assert_eq!(fault("null", &plain), r#"{"jsonrpc":"2.0","error":{"code":-32003,"message":"no \"x\""},"id":null}"#);
    let more = Fault { data: Some(json!({"gate_id": "g"})), ..plain };
    assert!(fault("1", &more).ends_with(r#","data":{"gate_id":"g"}},"id":1}"#));
}

proptest! {
    #[test]
    fn whatever_comes_is_answered_by_one_json_object(frame in ".*") {
        let incoming = read(&frame);
        if let Err(told) = incoming.request {
            let reply: Value = serde_json::from_str(&fault(&incoming.id, &told)).unwrap();
            prop_assert!(reply["error"]["code"].is_i64());
        }
    }
}
