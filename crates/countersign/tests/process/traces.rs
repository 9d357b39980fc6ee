//! Traces as a collector gets them: content of the record, in the names of OpenTelemetry, and no text of users.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use countersign_testkit::process::{
    GatewayFixture, GatewayServer, eventually,
    gsv::{GsvPeer, write_part},
    provider::{ProviderReply, text_reply},
    run_command,
    server::{self, FakeServer},
};
use serde_json::{Value, json};

const KEY: &str = "collector-key-77ab02";

/// Starts a gateway that exports to `collector` without delay.
fn start(scene: &GatewayFixture, collector: &str, more: &[(&str, &str)]) -> GatewayServer {
    let mut command = scene.binary_command();
    command.args(["serve", "--config", "config.yaml"]).env("COUNTERSIGN_LOG", "info");
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector).env("OTEL_BSP_SCHEDULE_DELAY", "20");
    command.env("OTEL_EXPORTER_OTLP_HEADERS", format!("x-key={KEY}")).envs(more.iter().copied());
    GatewayServer::spawn(command)
}

/// Sends a message and waits for the end of its run.
fn talk(peer: &mut GsvPeer, key: &str, message: &str, run: &str) -> Value {
    peer.expect_ok("chat.send", json!({ "sessionKey": key, "message": message, "runId": run }));
    peer.wait_event("chat", &json!({ "runId": run }))
}

/// Returns all spans that it received.
fn exported_spans(collector: &FakeServer) -> Vec<Value> {
    let count = collector.request_count(|_| true);
    let requests = (0..count).map(|number| collector.wait_request(number, |_| true));
    let spans = |request: server::ServerRequest| {
        assert_eq!((request.path.as_str(), request.header("content-type")), ("/v1/traces", "application/json"));
        assert_eq!(request.header("x-key"), KEY);
        request.body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()
    };
    requests.flat_map(spans).collect()
}

/// Returns its attributes as plain values.
fn attributes(span: &Value) -> BTreeMap<String, String> {
    let read = |one: &Value| {
        let value = &one["value"];
        let text = match (&value["stringValue"], &value["intValue"]) {
            (Value::String(text), _) | (_, Value::String(text)) => text.clone(),
            _ => value["arrayValue"]["values"][0]["stringValue"].as_str().unwrap().to_owned(),
        };
        (one["key"].as_str().unwrap().to_owned(), text)
    };
    span["attributes"].as_array().unwrap().iter().map(read).collect()
}

fn named<'a>(spans: &'a [Value], name: &str) -> Vec<&'a Value> {
    spans.iter().filter(|span| span["name"] == name).collect()
}

#[test]
fn a_run_with_a_call_that_waits_for_a_person_is_one_trace_without_a_word_of_it() {
    let scene = GatewayFixture::for_peers();
    let collector = FakeServer::start(|_| (200, "{}".to_owned()));
    let gateway = start(&scene, &collector.url, &[("OTEL_SERVICE_NAME", "front")]);
    let mut peer = GsvPeer::connect_client(&gateway, "tester");
    scene
        .provider
        .script_replies([ProviderReply::new(vec![write_part("c0", "canary-name.txt")]), text_reply("canary-answer")]);
    talk(&mut peer, "s", "canary-question", "r-1");
    scene.allow_gate(&scene.wait_gate());
    let spans = eventually("the run is told", || {
        let spans = exported_spans(&collector);
        (!named(&spans, "invoke_agent").is_empty()).then_some(spans)
    });
    let run = named(&spans, "invoke_agent")[0];
    let call = named(&spans, "execute_tool gsv__WriteFile")[0];
    let gate = named(&spans, "countersign.gate approval")[0];
    let chats = named(&spans, "chat small-1");
    assert_eq!(chats.len(), 2, "{spans:#?}");
    assert!(spans.iter().all(|span| span["traceId"] == run["traceId"]), "{spans:#?}");
    assert!(run.get("parentSpanId").is_none());
    for child in [call, chats[0], chats[1]] {
        assert_eq!(child["parentSpanId"], run["spanId"], "{child}");
    }
    assert_eq!(gate["parentSpanId"], call["spanId"]);
    let of_call = attributes(call);
    for (name, want) in [
        ("gen_ai.operation.name", "execute_tool"),
        ("gen_ai.tool.name", "gsv__WriteFile"),
        ("gen_ai.tool.call.id", "c0"),
        ("countersign.verdict", "countersigned"),
        ("countersign.call.end", "done"),
        ("countersign.gate.id", &attributes(gate)["countersign.gate.id"]),
    ] {
        assert_eq!(of_call[name], want, "{name}");
    }
    let (first, second) = (attributes(chats[0]), attributes(chats[1]));
    assert_eq!(first["gen_ai.provider.name"], "local");
    assert_eq!(first["gen_ai.response.finish_reasons"], "tool_call");
    assert_eq!(second["gen_ai.response.finish_reasons"], "stop");
    assert_eq!(attributes(gate)["countersign.verdict"], "allowed");
    assert_eq!(attributes(run)["countersign.run.end"], "completed");
    assert!(attributes(run).contains_key("gen_ai.usage.input_tokens"), "{run}");
    let nanos = |span: &Value, end: &str| span[end].as_str().unwrap().parse::<u64>().unwrap();
    assert!(nanos(run, "startTimeUnixNano") <= nanos(call, "startTimeUnixNano"));
    assert!(nanos(call, "endTimeUnixNano") <= nanos(run, "endTimeUnixNano"));
    let first = collector.wait_request(0, |_| true);
    let resource = &first.body["resourceSpans"][0]["resource"]["attributes"];
    assert!(
        resource.as_array().unwrap().contains(&json!({ "key": "service.name", "value": { "stringValue": "front" } }))
    );
    for number in 0..collector.request_count(|_| true) {
        let text = collector.wait_request(number, |_| true).text;
        assert!(!text.contains("canary") && !text.contains("tester") && !text.contains("by the agent"), "{text}");
    }
    assert!(!gateway.log_text().contains(KEY));
    drop(gateway);
    scene.verify_log();
}

#[test]
fn a_collector_that_is_slow_to_come_changes_nothing_for_anybody_and_gets_what_waited() {
    let scene = GatewayFixture::for_peers();
    let request_count = Arc::new(AtomicUsize::new(0));
    let collector = FakeServer::start(move |_| match request_count.fetch_add(1, SeqCst) {
        0 => (503, String::new()),
        _ => (200, r#"{"partialSuccess":{"rejectedSpans":"1","errorMessage":"too\u001bold"}}"#.to_owned()),
    });
    let gateway = start(&scene, &collector.url, &[]);
    let mut peer = GsvPeer::connect_client(&gateway, "tester");
    scene.provider.script_replies([text_reply("on")]);
    assert_eq!(talk(&mut peer, "s", "go", "r-1")["state"], "final");
    gateway.wait_for_log("failed to export traces: the collector returned status 503");
    gateway.wait_for_log("the trace collector accepts spans");
    gateway.wait_for_log("too\\u{1b}old");
    let again = collector.wait_request(1, |_| true);
    assert_eq!(again.text, collector.wait_request(0, |_| true).text, "the same batch comes again");
}

#[test]
fn remaining_spans_are_exported_at_the_end() {
    let scene = GatewayFixture::for_peers();
    let collector = FakeServer::start(|_| (200, String::new()));
    let mut gateway = start(&scene, &collector.url, &[("OTEL_BSP_SCHEDULE_DELAY", "600000")]);
    let mut peer = GsvPeer::connect_client(&gateway, "tester");
    scene.provider.script_replies([text_reply("on")]);
    talk(&mut peer, "s", "go", "r-1");
    assert_eq!(collector.request_count(|_| true), 0);
    assert_eq!(gateway.stop().code, Some(0));
    let spans = exported_spans(&collector);
    assert_eq!(named(&spans, "chat small-1").len(), 1, "{spans:#?}");
}

#[test]
fn a_variable_without_meaning_is_named_before_anything_begins() {
    for (name, value, want) in [
        ("OTEL_TRACES_SAMPLER", "sometimes", "OTEL_TRACES_SAMPLER: expected always_on"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://me:hunter2@localhost", "must not contain credentials"),
    ] {
        let scene = GatewayFixture::for_peers();
        let mut command = scene.binary_command();
        command.args(["serve", "--config", "config.yaml"]).env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1");
        command.env(name, value);
        let ended = run_command(command);
        assert!(ended.code != Some(0) && ended.err.contains(want) && !ended.err.contains("hunter2"), "{ended:?}");
        assert!(!scene.log_path().exists(), "nothing was begun");
    }
}
