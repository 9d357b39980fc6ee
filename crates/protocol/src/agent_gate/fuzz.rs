//! The way in for a fuzz loop: any bytes are a frame.

use serde_json::{Map, Value, json, value::RawValue};

use super::{AgentGateRequest, JsonRpcFrame, code, encode_error, encode_result, executed_result, read_frame};

/// Reads `bytes` as one frame, and checks that every reply is one JSON object that bears the client's id to the letter, that a
/// refusal has a code and words, and that a request reads back the same when it is written out.
///
/// # Panics
/// If that does not hold: a finding.
pub fn fuzz(bytes: &[u8]) {
    let JsonRpcFrame { id, request } = read_frame(&String::from_utf8_lossy(bytes));
    let reply = match &request {
        Ok(_) => encode_result(&id, &executed_result("null")),
        Err(refusal) => {
            assert!((-32768..=-32000).contains(&refusal.code) && !refusal.message.is_empty(), "{refusal:?}");
            encode_error(&id, refusal)
        }
    };
    let members: std::collections::BTreeMap<String, Box<RawValue>> =
        serde_json::from_str(&reply).unwrap_or_else(|error| panic!("{reply:?}: {error}"));
    assert_eq!(members["id"].get(), id, "{reply:?}");
    assert_eq!(members.contains_key("error"), request.is_err(), "{reply:?}");
    let Ok(request) = request else { return };
    let written = encode_request(&id, &request);
    let JsonRpcFrame { id: same, request: again } = read_frame(&written);
    assert_eq!((same, again), (id, Ok(request)), "{written:?}");
    assert!(matches!(read_frame(&format!("[{written}]")).request, Err(refusal) if refusal.code == code::INVALID));
}

fn encode_request(id: &str, request: &AgentGateRequest) -> String {
    let (method, params) = match request {
        AgentGateRequest::Auth { token } => ("auth", token.iter().map(|token| ("token", json!(token))).collect()),
        AgentGateRequest::ToolRequest { tool, args, key } => {
            let mut params = vec![("tool", json!(tool)), ("args", Value::Object(args.clone()))];
            params.extend(key.iter().map(|key| ("idempotency_key", json!(key))));
            ("tool_request", params)
        }
        AgentGateRequest::ListTools => ("list_tools", Vec::new()),
        AgentGateRequest::PendingResults => ("get_pending_results", Vec::new()),
    };
    let params: Map<String, Value> = params.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    format!(r#"{{"method":"{method}","params":{},"id":{id}}}"#, Value::Object(params))
}
