//! Every way in which a run begins, with every tool that it has: where the rules ask, none works unasked.

use std::collections::BTreeSet;

use countersign_testkit::process::{
    GatewayFixture, GatewayOptions, GatewayServer, eventually,
    gsv::GsvPeer,
    http::HttpClient,
    provider::{ProviderReply, ReplyPart, call_part, text_reply},
};
use serde_json::{Map, Value, json};

const ASKING: &str = "defaults:\n  - { pattern: '*', action: ask }\n";

/// Returns a value that fits a schema.
fn sample(schema: &Value) -> Value {
    if let Some(first) = schema["enum"].as_array().and_then(|values| values.first()) {
        return first.clone();
    }
    if let Some(first) = ["anyOf", "oneOf"].iter().find_map(|name| schema[*name].as_array()?.first()) {
        return sample(first);
    }
    let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str());
    match kind {
        Some("object") => {
            let required: BTreeSet<&str> =
                schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let members = schema["properties"].as_object().into_iter().flatten();
            let members = members.filter(|(name, _)| required.contains(name.as_str()));
            Value::Object(members.map(|(name, schema)| (name.clone(), sample(schema))).collect::<Map<_, _>>())
        }
        Some("array") => json!([sample(&schema["items"])]),
        Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or_else(|| json!(1)),
        Some("boolean") => json!(true),
        _ => json!("x"),
    }
}

/// Returns the tools that a model got, each with valid arguments.
fn calls(request: &Value) -> Vec<(String, ReplyPart)> {
    let tools = request["tools"].as_array().unwrap();
    let one = |(number, tool): (usize, &Value)| {
        let function = &tool["function"];
        let name = function["name"].as_str().unwrap().to_owned();
        let part = call_part(&format!("c{number}"), &name, &sample(&function["parameters"]));
        (name, part)
    };
    tools.iter().enumerate().map(one).collect()
}

/// Has a run begin with everything that it could call, and gives the tools and what waits for people then.
fn run_all_tools(
    scene: &GatewayFixture,
    gateway: &GatewayServer,
    begin: impl Fn(&str),
) -> (BTreeSet<String>, BTreeSet<String>) {
    let before = scene.provider.request_count();
    scene.provider.script_replies([text_reply("I see")]);
    begin("what can you do?");
    let calls = calls(&scene.provider.wait_request(before).body);
    let called_tools: BTreeSet<String> = calls.iter().map(|(name, _)| name.clone()).collect();
    let parts = calls.into_iter().map(|(_, part)| part).collect();
    scene.provider.script_replies([ProviderReply::new(parts), text_reply("done")]);
    begin("do all of it");
    scene.provider.wait_request(before + 1);
    let http = HttpClient::new(&gateway.address);
    let waits = || http.get("/api/v1/gates").json()["gates"].as_array().unwrap().clone();
    let waiting = eventually(&format!("a gate for each of {called_tools:?}"), || {
        let gates = waits();
        let asking = called_tools.iter().filter(|name| !ASKS_ITSELF.contains(&name.as_str())).count();
        (gates.len() >= asking).then_some(gates)
    });
    // Nothing went on past them.
    assert_eq!(scene.provider.request_count(), before + 2, "{waiting:?}");
    let titles = waiting.iter().map(|gate| {
        let text = gate["tool"].as_str().or_else(|| gate["title"].as_str()).unwrap_or_default();
        text.to_owned()
    });
    (called_tools, titles.collect())
}

fn settle(gateway: &GatewayServer) {
    let http = HttpClient::new(&gateway.address);
    eventually("an end of what waits", || {
        let gates = http.get("/api/v1/gates").json();
        for gate in gates["gates"].as_array().unwrap() {
            let path = format!("/api/v1/gates/{}/deny", gate["id"].as_str().unwrap());
            http.post(&path, &json!({ "reason": "a test" }));
        }
        gates["gates"].as_array().unwrap().is_empty().then_some(())
    });
}

/// Tools that ask an approver by themselves and need no approval for it.
const ASKS_ITSELF: [&str; 1] = ["ask"];

#[test]
fn mode_silently_skips_gate() {
    for mode in ["api", "hermes", "console", "gsv", "a job of gsv"] {
        let scene = GatewayOptions::for_models().with_config("").create();
        scene.write_file("permissions.yaml", ASKING);
        let gateway = scene.start();
        let http = HttpClient::new(&gateway.address);
        let session = match mode {
            "api" => http.post("/api/v1/sessions", &json!({})).json()["id"].as_str().unwrap().to_owned(),
            "hermes" | "console" => {
                let reply = http.post("/api/session/new", &json!({})).json();
                reply["session"]["session_id"].as_str().unwrap().to_owned()
            }
            _ => "agent:main:main".to_owned(),
        };
        let lines = std::cell::RefCell::new(Vec::new());
        let begin = |words: &str| match mode {
            "api" => {
                let path = format!("/api/v1/sessions/{session}");
                eventually("rest", || (http.get(&path).json()["state"] == "resting").then_some(()));
                let reply = http.post(&format!("{path}/messages"), &json!({ "text": words }));
                assert_eq!(reply.status, 202, "{reply:?}");
            }
            "hermes" => {
                let body = json!({ "session_id": session, "message": words });
                eventually("its turn", || (http.post("/api/chat/start", &body).status == 200).then_some(()));
            }
            "console" => {
                let form = format!("message={}", words.replace(' ', "+"));
                let http = http.clone().with_header("content-type", "application/x-www-form-urlencoded");
                let http = http.with_header("origin", &format!("http://{}", gateway.address));
                let reply = http.send_request("POST", &format!("/console/sessions/{session}/say"), &form);
                assert_eq!(reply.status, 303, "{reply:?}");
            }
            "gsv" => {
                let mut peer = GsvPeer::connect_client(&gateway, "c");
                peer.expect_ok("chat.send", json!({ "sessionKey": session, "message": words }));
            }
            _ => {
                // A request on a connection that is torn down may not have arrived.
                let mut peer = GsvPeer::connect_client(&gateway, words);
                let job = json!({
                    "name": words, "schedule": { "kind": "every", "everyMs": 3_600_000 },
                    "spec": { "mode": "task", "message": words },
                });
                let made = peer.expect_ok("cron.add", job);
                peer.send_request("cron.run", json!({ "id": made["job"]["id"], "mode": "force" }));
                lines.borrow_mut().push(peer);
            }
        };
        let (called_tools, waits) = run_all_tools(&scene, &gateway, begin);
        let gated_tools: BTreeSet<String> =
            called_tools.iter().filter(|name| !ASKS_ITSELF.contains(&name.as_str())).cloned().collect();
        assert!(gated_tools.len() >= 6, "{mode}: {gated_tools:?}");
        assert!(gated_tools.is_subset(&waits), "{mode}: {gated_tools:?} is wanted, and {waits:?} waits");
        settle(&gateway);
    }
}
