//! Decisions in the record, for users, programs and spreadsheets, and the contents that can be removed from it.

use countersign_testkit::process::{
    AGENT_TOKEN, CommandOutput, GatewayFixture, GatewayServer, KITCHEN_TOKEN, agent_gate::AgentClient,
};
use serde_json::{Value, json};

fn audit(place: &GatewayFixture, arguments: &[&str]) -> CommandOutput {
    place.run(&[&["audit"], arguments, &["--config", "config.yaml"]].concat())
}

/// Returns the entries that `audit tail` finds.
fn tail_rows(place: &GatewayFixture, arguments: &[&str]) -> Vec<Value> {
    let output = audit(place, &[&["tail", "-n", "1000", "--json"], arguments].concat());
    assert_eq!(output.code, Some(0), "{output:?}");
    output.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Starts a gateway at which one action was free, one denied by a rule, one allowed and one denied by a person.
fn start_with_decisions(place: &GatewayFixture) -> GatewayServer {
    let gateway = GatewayServer::start(place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.call_tool(1, "turn", json!({ "thing": "lamp", "way": "on" }));
    agent.call_tool(2, "turn", json!({ "thing": "lock" }));
    agent.request_tool(3, "turn", json!({ "thing": "door", "way": "open" }));
    place.allow_gate(&place.wait_gate());
    agent.wait_reply(&json!(3));
    place.wait_gates(0);
    let mut kitchen = AgentClient::connect_authenticated(&gateway, KITCHEN_TOKEN);
    kitchen.request_tool(1, "turn", json!({ "thing": "gate", "way": "hidden-4711" }));
    let output = place.run_as_person(&["gates", "deny", &place.wait_gate(), "--reason", "not now"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    kitchen.wait_reply(&json!(1));
    // An answer after it: the earlier one was received.
    agent.confirm_received();
    kitchen.confirm_received();
    gateway
}

#[test]
fn every_end_says_by_what_or_whom_it_was_decided() {
    let place = GatewayFixture::new();
    let mut gateway = start_with_decisions(&place);
    let by = tail_rows(&place, &["--kind", "gate", "--outcome", "allowed"])[0]["by"].as_str().unwrap().to_owned();
    gateway.stop();
    let nothing = audit(&place, &["tail", "--tool", "nosuchtool"]);
    assert_eq!((nothing.code, nothing.out.as_str()), (Some(0), ""), "{nothing:?}");
    assert!(nothing.err.contains("no entry of the record matches the filters"), "{nothing:?}");
    let tail = audit(&place, &["tail", "-n", "1000"]).out;
    for want in [
        "done: turn(lamp, on) (allowed by rule \"turn(lamp*\" (permissions.yaml:6))".to_owned(),
        "denied by rule \"turn(lock*\" (permissions.yaml:7), not run: turn(lock, )".to_owned(),
        "approval required by default \"*\" (permissions.yaml:4): turn(door, open)".to_owned(),
        format!("allowed once by {by}: turn(door, open)"),
        format!("done: turn(door, open) (allowed by {by})"),
        format!("denied by {by} (not now): turn(gate, hidden-4711)"),
        format!("denied by {by}: not now, not run: turn(gate, hidden-4711)"),
    ] {
        assert!(tail.lines().any(|line| line.ends_with(&want)), "{want}\n{tail}");
    }
}

#[test]
fn filters_give_what_fits_all_of_them() {
    let place = GatewayFixture::new();
    start_with_decisions(&place).stop();
    let subjects = |arguments: &[&str]| -> Vec<String> {
        let text =
            |entry: &Value| format!("{} {}", entry["event"].as_str().unwrap(), entry["subject"].as_str().unwrap());
        tail_rows(&place, arguments).iter().map(text).collect()
    };
    assert_eq!(
        subjects(&["--outcome", "denied"]),
        ["ended turn(lock, )", "resolved turn(gate, hidden-4711)", "ended turn(gate, hidden-4711)"]
    );
    assert_eq!(subjects(&["--outcome", "denied", "--agent", "default"]), ["ended turn(lock, )"]);
    assert_eq!(subjects(&["--outcome", "denied", "--session", "agent:default"]), ["ended turn(lock, )"]);
    assert_eq!(
        subjects(&["--outcome", "done", "--outcome", "asked", "--agent", "kitchen"]),
        ["gated turn(gate, hidden-4711)"]
    );
    assert_eq!(subjects(&["--kind", "gate", "--agent", "kitchen"]).len(), 2);
    assert_eq!(subjects(&["--tool", "look"]), [""; 0]);
    assert_eq!(subjects(&["--tool", "turn", "--since", "2020-01-01", "--outcome", "done"]).len(), 2);
    assert_eq!(subjects(&["--tool", "turn", "--since", "1h", "--outcome", "done"]).len(), 2);
    assert_eq!(subjects(&["--until", "2020-01-01T00:00"]), [""; 0]);
    let call = tail_rows(&place, &["--outcome", "done"])[0]["call"].as_str().unwrap().to_owned();
    assert!(tail_rows(&place, &["--about", &call[24..]]).iter().all(|entry| entry["call"] == json!(call)));
    let newest = audit(&place, &["tail", "-n", "1", "--outcome", "denied", "--json"]);
    assert_eq!(newest.json()["subject"], json!("turn(gate, hidden-4711)"));
    let lines = audit(&place, &["export", "--outcome", "denied"]).out;
    assert_eq!(lines.lines().count(), 3);
    assert!(lines.lines().all(|line| serde_json::from_str::<Value>(line).unwrap()["chain"].is_string()));
    for wrong in
        [&["--since", "soon"][..], &["--outcome", "maybe"], &["--kind", "x"], &["--agent", "a", "--session", "b"]]
    {
        assert_eq!(audit(&place, &[&["tail"], wrong].concat()).code, Some(2), "{wrong:?}");
    }
}

#[test]
fn a_table_has_a_row_an_entry_and_no_formula() {
    let place = GatewayFixture::new();
    let mut gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.call_tool("=HYPERLINK(\"x\")", "look", json!({ "thing": "a,b" }));
    agent.call_tool(1, "look", json!({ "thing": "cat" }));
    drop(agent);
    gateway.stop();
    let table = audit(&place, &["export", "--format", "csv"]).out;
    let rows: Vec<&str> = table.split_terminator("\r\n").collect();
    assert_eq!(rows[0], "lsn,at,session,kind,event,call,gate,tool,subject,outcome,by,why,text,content_digest,chain");
    assert_eq!(rows.len() - 1, audit(&place, &["export"]).out.lines().count());
    for row in &rows {
        assert!(!row.split(',').any(|cell| cell.trim_start_matches('"').starts_with(['=', '+', '-', '@'])), "{row}");
    }
    let done = rows.iter().find(|row| row.contains(",done,")).unwrap();
    assert!(done.contains(",agent:default,call,ended,call_") && done.contains(",look,look(cat),done,,"), "{done}");
    assert_eq!(audit(&place, &["export", "--format", "csv", "--json"]).code, Some(1));
}

#[test]
fn what_was_removed_is_gone_from_every_file_and_the_chain_fits() {
    let place = GatewayFixture::new();
    let mut gateway = start_with_decisions(&place);
    let denied = tail_rows(&place, &["--agent", "kitchen", "--kind", "gate", "--outcome", "denied"]).remove(0);
    let gate = denied["gate"].as_str().unwrap();
    let running = audit(&place, &["redact", gate]);
    assert_eq!((running.code, running.err.contains("stop it first")), (Some(1), true), "{running:?}");
    gateway.stop();
    let head = audit(&place, &["verify", "--json"]).json()["head"].as_str().unwrap().to_owned();
    assert!(lies_somewhere(&place, "hidden-4711"));
    let little = audit(&place, &["redact", &gate[gate.len() - 7..]]);
    assert_eq!((little.code, lies_somewhere(&place, "hidden-4711")), (Some(1), true), "{little:?}");
    let output = audit(&place, &["redact", &gate[20..], "--json"]);
    assert_eq!(
        (output.code, &output.json()["removed"], &output.json()["flaw"]),
        (Some(0), &json!(4), &Value::Null),
        "{output:?}"
    );
    assert!(!lies_somewhere(&place, "hidden-4711"));
    let verified = audit(&place, &["verify", "--json", "--head", &head]);
    assert_eq!((verified.code, &verified.json()["redacted"]), (Some(0), &json!(4)), "{verified:?}");
    let again = audit(&place, &["redact", gate]);
    assert_eq!((again.code, again.err.contains("were removed already")), (Some(1), true), "{again:?}");
    let unknown = audit(&place, &["redact", "gate_12345678"]);
    assert_eq!((unknown.code, unknown.err.contains("`audit tail --json` ids too")), (Some(1), true), "{unknown:?}");
    let exported: Vec<Value> =
        audit(&place, &["export"]).out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let position_of = |has_content: bool| {
        let is_such = |entry: &&Value| {
            let is_bare = entry["content_digest"].is_null();
            entry["kind"] == "call" && entry["content"].is_string() == has_content && is_bare != has_content
        };
        exported.iter().find(is_such).unwrap()["lsn"].to_string()
    };
    let bare = audit(&place, &["redact", &position_of(false)]);
    let want = "has no contents of its own; the call is call_";
    assert_eq!((bare.code, bare.err.contains(want)), (Some(1), true), "{bare:?}");
    let position = position_of(true);
    let one = audit(&place, &["redact", &position, "--unreceived"]);
    let want = format!("removed   contents of 1 entry: {position}\n");
    assert_eq!((one.code, one.out.starts_with(&want)), (Some(0), true), "{one:?}");
    // The decisions stay, and the gateway continues.
    assert_eq!(tail_rows(&place, &["--agent", "kitchen", "--outcome", "denied"]).len(), 2);
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, KITCHEN_TOKEN);
    assert_eq!(agent.call_tool(7, "look", json!({ "thing": "cat" }))["status"], json!("executed"));
}

#[test]
fn what_is_not_over_or_not_received_is_not_removed_by_the_way() {
    let place = GatewayFixture::new();
    let mut gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "door" }));
    agent.request_tool(2, "turn", json!({ "thing": "gate" }));
    let waiting = place.wait_gates(2);
    drop(agent);
    let id = |at: usize| waiting[at]["id"].as_str().unwrap();
    assert_eq!(place.run_as_person(&["gates", "deny", id(0)]).code, Some(0));
    gateway.stop();
    for (gate, why) in [(id(0), "the agent has not received"), (id(1), "has not ended")] {
        let output = audit(&place, &["redact", gate]);
        assert_eq!((output.code, output.err.contains(why)), (Some(1), true), "{output:?}");
    }
    assert_eq!(audit(&place, &["redact", "--unreceived", id(1)]).code, Some(1));
    assert_eq!(audit(&place, &["redact", "--unreceived", id(0)]).code, Some(0));
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    assert_eq!(agent.pending_results(9), json!({ "results": [], "queued": [] }));
    assert_eq!(place.wait_gates(1)[0]["id"], json!(id(1)));
    for wrong in ["0", "99999", "call_nothing"] {
        assert_eq!(audit(&place, &["redact", wrong]).code, Some(1), "{wrong}");
    }
}

#[test]
fn a_request_whose_result_was_removed_is_not_done_again_under_its_key() {
    let place = GatewayFixture::new();
    let mut gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let keyed = |id: u64| {
        let params = json!({ "tool": "turn", "args": { "thing": "lamp" }, "idempotency_key": "k-1" });
        json!({ "method": "tool_request", "id": id, "params": params })
    };
    agent.exchange_frame(keyed(1));
    agent.confirm_received();
    drop(agent);
    gateway.stop();
    let call = tail_rows(&place, &["--outcome", "done"])[0]["call"].as_str().unwrap().to_owned();
    let redacted = audit(&place, &["redact", &call]);
    assert_eq!(redacted.code, Some(0), "{redacted:?}");
    let gateway = GatewayServer::start(&place);
    let again = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN).exchange_frame(keyed(2));
    assert_eq!(again["result"], json!({ "status": "executed", "data": null }), "{again}");
    assert_eq!(place.service.request_count("/turn/lamp"), 1);
}

/// Reports whether any file of the data directory holds `text`.
fn lies_somewhere(place: &GatewayFixture, text: &str) -> bool {
    let files = std::fs::read_dir(place.data_dir()).unwrap().map(|entry| entry.unwrap().path());
    let mut bytes = files.filter(|path| path.is_file()).map(|path| std::fs::read(path).unwrap());
    bytes.any(|bytes| bytes.windows(text.len()).any(|window| window == text.as_bytes()))
}
