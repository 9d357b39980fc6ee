//! Methods of nodes and about them.

use super::*;

#[test]
fn an_exec_event_is_taken_whatever_it_is() {
    let event = |params: Value| match read("node.exec.event", params) {
        Ok(GsvRequest::NodeExecEvent(report)) => report,
        other => panic!("{other:?}"),
    };
    let why = |params: Value| match event(params) {
        ExecReport::Unreadable(why) => why,
        ExecReport::Event(event) => panic!("{event:?}"),
    };
    let kinds = "event must be one of started, finished, failed, timed_out";
    for (params, want) in [
        (json!({"eventId": "e", "sessionId": "s", "event": "melted"}), kinds),
        (json!({"eventId": "e", "sessionId": "s", "event": 7}), kinds),
        (json!({"eventId": "e", "sessionId": "s"}), "event required"),
        (json!({"eventId": "e", "event": "failed"}), "sessionId required"),
        (json!({"eventId": "e", "sessionId": ["s"], "event": "failed"}), "sessionId must be a string"),
        (json!([1]), "params must be an object"),
        (Value::Null, "sessionId required"),
    ] {
        assert_eq!(why(params.clone()), want, "{params}");
    }
    let odd = json!({"eventId": "e", "sessionId": "s", "event": "failed", "exitCode": "one", "signal": 9, "endedAt": -1, "callId": 5});
    let ExecReport::Event(odd) = event(odd) else { panic!("it is an event") };
    let (code, signal, ended, call) = (odd.exit_code, odd.signal, odd.ended_at, odd.call_id);
    assert_eq!((code, signal, ended, call), (None, None, None, None));
    // Without an id it is identified by its members.
    let nameless = |at: u64| match event(json!({"sessionId": "s", "event": "failed", "endedAt": at})) {
        ExecReport::Event(event) => event.event_id,
        ExecReport::Unreadable(why) => panic!("{why}"),
    };
    assert!(nameless(1) == nameless(1) && nameless(1) != nameless(2));
}

#[test]
fn a_result_is_passed_on_as_it_was_written_and_read_like_everything() {
    let read =
        |params: &str| GsvRequest::from_params(Method::ToolResult, Some(&RawJson::parse(params.to_owned()).unwrap()));
    let result = |params: &str| match read(params) {
        Ok(GsvRequest::ToolResult(outcome)) => Ok(outcome.result.map(|result| result.as_text().to_owned())),
        Ok(other) => panic!("{other:?}"),
        Err(fault) => Err(fault.message),
    };
    for (params, want) in [
        (r#"{"callId":"c","result":{"b":1.50, "a":null}}"#, Some(r#"{"b":1.50, "a":null}"#)),
        (r#"{"result":1,"callId":"c","result":"2"}"#, Some(r#""2""#)),
        (r#"{"callId":"c","result":null}"#, Some("null")),
        (r#"{"callId":"c"}"#, None),
    ] {
        assert_eq!(result(params), Ok(want.map(str::to_owned)), "{params}");
    }
    let deep = format!(r#"{{"callId":"c","result":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    for (params, why) in [
        (deep.as_str(), "params cannot be read: recursion limit exceeded"),
        (r#"{"callId":"c","result":"\ud800"}"#, "params cannot be read: "),
        (r#"{"callId":"c","result":[1e999]}"#, "params cannot be read: number out of range"),
        (r#"{"result":[1]}"#, "callId required"),
        ("[1]", "params must be an object"),
        ("null", "callId required"),
    ] {
        let error = result(params).unwrap_err();
        assert!(error.starts_with(why), "{params}: {error}");
    }
}

#[test]
fn the_node_whose_log_is_wanted_is_the_only_one_or_named() {
    let node = |id: Option<&str>, connected: &[&str]| {
        let params = LogsGet { node_id: id.map(str::to_owned), lines: 1 };
        params.select_node(connected).map(str::to_owned).map_err(|fault| (fault.code, fault.message))
    };
    assert_eq!(node(None, &["a"]), Ok(text("a")));
    assert_eq!(node(Some("b"), &["a", "b"]), Ok(text("b")));
    assert_eq!(node(Some("c"), &["a", "b"]), Err((503, text("Node not connected"))));
    assert_eq!(node(None, &[]), Err((503, text("No nodes connected"))));
    assert_eq!(node(None, &["a", "b"]), Err((400, text("nodeId required when multiple nodes are connected"))));
}
