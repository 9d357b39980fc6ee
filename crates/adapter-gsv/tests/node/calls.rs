//! Each tool, through the wire.

use serde_json::{Value, json};

use crate::{fake_gateway::FakeGateway, node_process::NodeFixture};

#[test]
fn a_node_says_what_it_offers_and_what_it_is() {
    let (place, gateway) = (NodeFixture::new(), FakeGateway::start());
    let (mut node, line) = place.start_connected(&gateway);
    assert_eq!(node.ready(), format!("countersign node desk connected to {}", gateway.url()));
    let hello = &line.hello;
    assert_eq!((&hello["minProtocol"], &hello["maxProtocol"], &hello["journal"]), (&json!(1), &json!(1), &json!(true)));
    assert_eq!(
        hello["client"],
        json!({ "id": "desk", "version": env!("CARGO_PKG_VERSION"), "platform": "linux", "mode": "node" })
    );
    assert_eq!(hello["auth"], json!({ "token": "tok-node-4c1d" }));
    let names: Vec<&str> =
        hello["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["Bash", "Process", "Read", "Write", "Edit", "Glob", "Grep"]);
    for tool in hello["tools"].as_array().unwrap() {
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        assert!(tool["description"].as_str().is_some_and(|text| !text.is_empty()), "{tool}");
        assert!(hello["nodeRuntime"]["toolCapabilities"][tool["name"].as_str().unwrap()].is_array(), "{tool}");
    }
    let runtime = &hello["nodeRuntime"];
    assert_eq!((&runtime["hostRole"], &runtime["hostOs"]), (&json!("execution"), &json!("linux")));
    assert_eq!(runtime["hostEnv"], json!(["COLOUR", "HOME", "PATH", "SHELL"]));
    assert_eq!(runtime["hostCapabilities"].as_array().unwrap().len(), 6);
}

#[test]
fn each_tool_does_what_gateways_expect() {
    let (place, gateway) = (NodeFixture::new(), FakeGateway::start());
    let (_node, mut line) = place.start_connected(&gateway);
    let path = place.workspace_path("a.txt");
    let workspace = place.folder.join("work").display().to_string();
    assert_eq!(
        line.call("c1", "Write", json!({ "path": "a.txt", "content": "one\ntwo\n" })),
        json!({ "path": path, "bytes": 8 })
    );
    assert_eq!(
        line.call("c2", "Edit", json!({ "path": "a.txt", "oldString": "two", "newString": "2" })),
        json!({ "path": path, "replacements": 1 })
    );
    assert_eq!(
        line.call("c3", "Read", json!({ "path": "a.txt" })),
        json!({ "path": path, "content": "     1\tone\n     2\t2", "lines": 2 })
    );
    assert_eq!(
        line.call("c4", "Glob", json!({ "pattern": "*.txt" })),
        json!({ "pattern": "*.txt", "basePath": workspace, "matches": [path], "count": 1 })
    );
    assert_eq!(
        line.call("c5", "Grep", json!({ "pattern": "o.e" })),
        json!({ "matches": [{ "path": path, "line": 1, "content": "one" }], "count": 1 })
    );
    let done = line.call("c6", "Bash", json!({ "command": "cat a.txt; echo $COLOUR ${COUNTERSIGN_NODE_TOKEN-none}" }));
    assert_eq!(
        (&done["status"], &done["exitCode"], &done["workdir"]),
        (&json!("completed"), &json!(0), &json!(workspace))
    );
    assert_eq!(done["output"], "one\n2\nblue none\n");
    assert_eq!(line.call("c7", "Process", json!({ "action": "list" }))["sessions"], json!([]));
    assert_eq!(line.fails("c8", "Nope", json!({})), "Tool not found: Nope");
    assert_eq!(line.fails("c9", "Read", json!({})), "Invalid arguments: path is required");
    assert_eq!(line.fails("c10", "Read", json!([1])), "Invalid arguments: they must be an object");
}

#[test]
fn a_repeated_call_runs_once() {
    let (place, gateway) = (NodeFixture::new(), FakeGateway::start());
    let (_node, mut line) = place.start_connected(&gateway);
    let append = json!({ "command": "echo once >> marks" });
    let first = line.call("c1", "Bash", append.clone());
    let again = line.call("c1", "Bash", append);
    assert_eq!(first, again);
    // The same id names the same call, whatever the other fields are.
    assert_eq!(line.call("c1", "Read", json!({ "path": "marks" })), first);
    assert_eq!(place.read("work/marks"), "once\n");
}

#[test]
fn calls_run_in_parallel_and_too_many_are_refused() {
    let (place, gateway) = (NodeFixture::new(), FakeGateway::start());
    let (_node, mut line) = place.start_connected(&gateway);
    // The command waits for a file that does not exist yet.
    let held = json!({ "command": "while [ ! -e go ]; do sleep 0.05; done" });
    for number in 0..64 {
        line.invoke(&format!("held-{number}"), "Bash", held.clone());
    }
    assert_eq!(line.call("quick", "Glob", json!({ "pattern": "*" }))["count"], 0);
    let mut refused = 0;
    for number in 0..400 {
        line.invoke(&format!("flood-{number}"), "Bash", held.clone());
        if number % 40 == 0 {
            // A call that works is not refused, however full the node is.
            line.invoke("held-0", "Bash", held.clone());
        }
    }
    for number in 0..400 {
        let outcome = line.outcome(&format!("flood-{number}"));
        let error = outcome["error"].as_str().unwrap();
        assert!(
            error.starts_with("not run: 64 commands") || error.starts_with("Not run: the node has 256 calls"),
            "{error}"
        );
        refused += 1;
    }
    assert_eq!(refused, 400);
    line.call("go", "Write", json!({ "path": "go", "content": "" }));
    for number in 0..64 {
        assert_eq!(line.outcome(&format!("held-{number}"))["result"]["exitCode"], 0, "{number}");
    }
}

#[test]
fn programs_and_the_log_are_looked_for() {
    let (place, gateway) = (NodeFixture::new(), FakeGateway::start());
    let (_node, mut line) = place.start_connected(&gateway);
    let probe = |id: &str, kind: &str| json!({ "probeId": id, "kind": kind, "bins": ["sh", "no-such-tool", "../sh", ""], "timeoutMs": 1000 });
    line.event("node.probe", probe("p1", "bins"));
    let request = line.next_request("node.probe.result");
    line.answer(&request, json!({ "ok": true }));
    assert_eq!(
        request["params"],
        json!({ "probeId": "p1", "ok": true, "bins": { "no-such-tool": false, "sh": true } })
    );
    line.event("node.probe", probe("p2", "moon"));
    let request = line.next_request("node.probe.result");
    assert_eq!(request["params"], json!({ "probeId": "p2", "ok": false, "error": "Unknown probe kind: moon" }));
    line.call("c1", "Glob", json!({ "pattern": "*" }));
    line.event("logs.get", json!({ "callId": "l1", "lines": 1 }));
    let request = line.next_request("logs.result");
    assert_eq!((&request["params"]["callId"], &request["params"]["truncated"]), (&json!("l1"), &json!(true)));
    let lines = request["params"]["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 1);
    let logged: Value = serde_json::from_str(lines[0].as_str().unwrap()).unwrap();
    assert_eq!((&logged["fields"]["message"], &logged["fields"]["tool"]), (&json!("call completed"), &json!("Glob")));
    assert!(!place.read("data/node.log").contains("tok-node"));
}

#[test]
fn what_cannot_be_read_changes_nothing() {
    let (place, gateway) = (NodeFixture::new(), FakeGateway::start());
    let (_node, mut line) = place.start_connected(&gateway);
    for frame in [
        "no JSON",
        "[]",
        r#"{"type":"evt","event":"tool.invoke"}"#,
        r#"{"type":"evt","event":"tool.invoke","payload":{"tool":"Bash"}}"#,
        r#"{"type":"evt","event":"tool.resume","payload":7}"#,
        r#"{"type":"evt","event":"chat","payload":{}}"#,
        r#"{"type":"res","id":"99","ok":true}"#,
    ] {
        line.raw(frame);
    }
    line.raw(r#"{"type":"req","id":"g1","method":"chat.send","params":{}}"#);
    assert_eq!(line.call("c1", "Glob", json!({ "pattern": "*" }))["count"], 0);
    let unasked = line.unread_frames();
    let want = json!({ "type": "res", "id": "g1", "ok": false, "error": { "code": 404, "message": "Unknown method: chat.send" } });
    assert_eq!(unasked, [want]);
}
