//! The way in for a fuzz loop: any bytes are a frame.

use serde_json::{Map, Value, json, value::RawValue};

use super::{Incoming, Request, code, executed, fault, read, result};

/// Reads `bytes` as one frame, and checks that every reply is one JSON object that bears the client's id to the letter, that a
/// refusal has a code and words, and that a request reads back the same when it is written out.
///
/// # Panics
/// Where that does not hold: a finding.
pub fn fuzz(bytes: &[u8]) {
    let Incoming { id, request } = read(&String::from_utf8_lossy(bytes));
    let reply = match &request {
        Ok(_) => result(&id, &executed("null")),
        Err(refusal) => {
            assert!((-32768..=-32000).contains(&refusal.code) && !refusal.message.is_empty(), "{refusal:?}");
            fault(&id, refusal)
        }
    };
    let members: std::collections::BTreeMap<String, Box<RawValue>> =
        serde_json::from_str(&reply).unwrap_or_else(|error| panic!("{reply:?}: {error}"));
    assert_eq!(members["id"].get(), id, "{reply:?}");
    assert_eq!(members.contains_key("error"), request.is_err(), "{reply:?}");
    let Ok(request) = request else { return };
    let written = written(&id, &request);
    let Incoming { id: same, request: again } = read(&written);
    assert_eq!((same, again), (id, Ok(request)), "{written:?}");
    assert!(matches!(read(&format!("[{written}]")).request, Err(refusal) if refusal.code == code::INVALID));
}

fn written(id: &str, request: &Request) -> String {
    let (method, params) = match request {
        Request::Auth { token } => ("auth", token.iter().map(|token| ("token", json!(token))).collect()),
        Request::ToolRequest { tool, args, key } => {
            let mut params = vec![("tool", json!(tool)), ("args", Value::Object(args.clone()))];
            params.extend(key.iter().map(|key| ("idempotency_key", json!(key))));
            ("tool_request", params)
        }
        Request::ListTools => ("list_tools", Vec::new()),
        Request::PendingResults => ("get_pending_results", Vec::new()),
    };
    let params: Map<String, Value> = params.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    format!(r#"{{"method":"{method}","params":{},"id":{id}}}"#, Value::Object(params))
}
