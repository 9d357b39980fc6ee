//! Every way in which a run begins, with every tool that it has: where the rules ask, none works unasked.

use std::collections::BTreeSet;

use countersign_testkit::process::{
    Gateway, GatewayFixture, GatewayOptions, eventually,
    gsv::GsvPeer,
    http::Http,
    provider::{Part, Reply, call, say},
};
use serde_json::{Map, Value, json};

const ASKING: &str = "defaults:\n  - { pattern: '*', action: ask }\n";

/// Something that fits a schema.
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

/// The tools that a model was told of, each with arguments that fit.
fn calls(request: &Value) -> Vec<(String, Part)> {
    let tools = request["tools"].as_array().unwrap();
    let one = |(number, tool): (usize, &Value)| {
        let function = &tool["function"];
        let name = function["name"].as_str().unwrap().to_owned();
        let part = call(&format!("c{number}"), &name, &sample(&function["parameters"]));
        (name, part)
    };
    tools.iter().enumerate().map(one).collect()
}

/// Has a run begin with everything that it could call, and gives the tools and what waits for people then.
fn begun(scene: &GatewayFixture, gateway: &Gateway, begin: impl Fn(&str)) -> (BTreeSet<String>, BTreeSet<String>) {
    let before = scene.provider.count();
    scene.provider.script([say("I see")]);
    begin("what can you do?");
    let calls = calls(&scene.provider.asked(before).body);
    let wanted: BTreeSet<String> = calls.iter().map(|(name, _)| name.clone()).collect();
    let parts = calls.into_iter().map(|(_, part)| part).collect();
    scene.provider.script([Reply::new(parts), say("done")]);
    begin("do all of it");
    scene.provider.asked(before + 1);
    let http = Http::new(&gateway.address);
    let waits = || http.get("/api/v1/gates").json()["gates"].as_array().unwrap().clone();
    let waiting = eventually(&format!("a gate for each of {wanted:?}"), || {
        let gates = waits();
        let asking = wanted.iter().filter(|name| !ASKS_ITSELF.contains(&name.as_str())).count();
        (gates.len() >= asking).then_some(gates)
    });
    // Nothing went on past them.
    assert_eq!(scene.provider.count(), before + 2, "{waiting:?}");
    let titles = waiting.iter().map(|gate| {
        let text = gate["tool"].as_str().or_else(|| gate["title"].as_str()).unwrap_or_default();
        text.to_owned()
    });
    (wanted, titles.collect())
}

fn settle(gateway: &Gateway) {
    let http = Http::new(&gateway.address);
    eventually("an end of what waits", || {
        let gates = http.get("/api/v1/gates").json();
        for gate in gates["gates"].as_array().unwrap() {
            let path = format!("/api/v1/gates/{}/deny", gate["id"].as_str().unwrap());
            http.post(&path, &json!({ "reason": "a test" }));
        }
        gates["gates"].as_array().unwrap().is_empty().then_some(())
    });
}

/// What asks a person by itself, so that nobody has to be asked whether it may.
const ASKS_ITSELF: [&str; 1] = ["ask"];

#[test]
fn mode_silently_skips_gate() {
    for mode in ["api", "hermes", "console", "gsv", "a job of gsv"] {
        let scene = GatewayOptions::for_models().config("").create();
        scene.write("permissions.yaml", ASKING);
        let gateway = scene.start();
        let http = Http::new(&gateway.address);
        let session = match mode {
            "api" => http.post("/api/v1/sessions", &json!({})).json()["id"].as_str().unwrap().to_owned(),
            "hermes" | "console" => {
                let told = http.post("/api/session/new", &json!({})).json();
                told["session"]["session_id"].as_str().unwrap().to_owned()
            }
            _ => "agent:main:main".to_owned(),
        };
        let lines = std::cell::RefCell::new(Vec::new());
        let begin = |words: &str| match mode {
            "api" => {
                let path = format!("/api/v1/sessions/{session}");
                eventually("rest", || (http.get(&path).json()["state"] == "resting").then_some(()));
                let said = http.post(&format!("{path}/messages"), &json!({ "text": words }));
                assert_eq!(said.status, 202, "{said:?}");
            }
            "hermes" => {
                let body = json!({ "session_id": session, "message": words });
                eventually("its turn", || (http.post("/api/chat/start", &body).status == 200).then_some(()));
            }
            "console" => {
                let form = format!("message={}", words.replace(' ', "+"));
                let http = http.clone().with("content-type", "application/x-www-form-urlencoded");
                let http = http.with("origin", &format!("http://{}", gateway.address));
                let said = http.send("POST", &format!("/console/sessions/{session}/say"), &form);
                assert_eq!(said.status, 303, "{said:?}");
            }
            "gsv" => {
                let mut peer = GsvPeer::client(&gateway, "c");
                peer.ok("chat.send", json!({ "sessionKey": session, "message": words }));
            }
            _ => {
                // What was asked on a line that is torn down may not have come.
                let mut peer = GsvPeer::client(&gateway, words);
                let job = json!({
                    "name": words, "schedule": { "kind": "every", "everyMs": 3_600_000 },
                    "spec": { "mode": "task", "message": words },
                });
                let made = peer.ok("cron.add", job);
                peer.post("cron.run", json!({ "id": made["job"]["id"], "mode": "force" }));
                lines.borrow_mut().push(peer);
            }
        };
        let (wanted, waits) = begun(&scene, &gateway, begin);
        let asked: BTreeSet<String> =
            wanted.iter().filter(|name| !ASKS_ITSELF.contains(&name.as_str())).cloned().collect();
        assert!(asked.len() >= 6, "{mode}: {asked:?}");
        assert!(asked.is_subset(&waits), "{mode}: {asked:?} is wanted, and {waits:?} waits");
        settle(&gateway);
    }
}
