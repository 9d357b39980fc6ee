//! Sessions of gjc hosts that live in a gateway.

use std::fs;

use countersign_testkit::process::{
    AttachFixture, HostFixture, RpcHost, eventually,
    provider::{ProviderReply, bash_part, call_part, text_reply},
};
use serde_json::{Value, json};

use crate::rpc::{event, events, start, turn};

#[test]
fn a_question_and_a_plan_are_answered_from_the_command_line() {
    let attached = AttachFixture::for_host(HostFixture::new(), "");
    let (place, gate) = (&attached.host, &attached.gateway);
    let _gateway = attached.start_gateway();
    let question = json!({"id": "q", "question": "Which?", "options": [{"label": "Left"}, {"label": "Right"}]});
    let ask = call_part("k1", "ask", &json!({"questions": [question]}));
    let plan = |id| ProviderReply::new(vec![call_part(id, "workflow_plan", &json!({"plan": "Move it."}))]);
    place.provider.script_replies([ProviderReply::new(vec![ask]), plan("k2"), plan("k3"), text_reply("done")]);
    let mut host = start(place, &["--mode", "rpc-ui", &attached.attach_flag()]);
    let from = host.send_prompt("go");
    let waits = |kind: &str| {
        eventually(kind, || {
            let rows = gate.run_as_person(&["gates", "list", "--json"]).json();
            let row = rows.as_array()?.iter().find(|row| row["kind"] == kind)?.clone();
            Some((row["id"].as_str()?.to_owned(), row))
        })
    };
    let (id, row) = waits("question");
    assert_eq!((&row["choices"], row.get("several")), (&json!(["Left", "Right"]), None));
    let shown = gate.run_as_person(&["gates", "show", &id]).out;
    assert!(shown.contains("2. Right") && shown.contains("gates answer"), "{shown}");
    gate.run_as_person(&["gates", "answer", &id, "Right"]);
    let (first, row) = waits("plan");
    assert_eq!(row["choices"], json!(["approve", "request-changes", "reject"]));
    gate.run_as_person(&["gates", "answer", &first, "request-changes", "smaller steps"]);
    let (second, _) = eventually("the next plan", || Some(waits("plan")).filter(|(id, _)| *id != first));
    gate.run_as_person(&["gates", "allow", &second]);
    event(&host, from, "agent_end");
    let last = place.provider.last_request();
    assert_eq!(last.call_result("k1").unwrap(), "User selected: Right");
    assert_eq!(last.call_result("k2").unwrap(), "The plan is not approved: changes are requested.\nsmaller steps");
    assert_eq!(last.call_result("k3").unwrap(), "The plan is approved.");
    host.close_cleanly();
}

#[test]
fn an_attached_session_is_listed_and_hands_its_work_over() {
    let attached = AttachFixture::for_host(HostFixture::new(), "");
    let place = &attached.host;
    let _gateway = attached.start_gateway();
    place.provider.script_replies([text_reply("hello"), text_reply("All is done."), text_reply("I know.")]);
    let mut host = start(place, &[&attached.attach_flag()]);
    let listed = || {
        let mut listing = place.binary_command();
        listing.args(["sessions", "running", "--json"]).env("GJC_CODING_AGENT_DIR", &place.agent);
        let listed: Value = serde_json::from_slice(&listing.output().unwrap().stdout).unwrap();
        listed.as_array().unwrap().iter().map(|one| one["sessionId"].clone()).collect::<Vec<_>>()
    };
    let first = host.session_state()["sessionId"].take();
    assert_eq!(listed(), std::slice::from_ref(&first));
    turn(&mut host, "hi");
    let handed = host.command_data(json!({ "type": "handoff" }));
    let saved = fs::read_to_string(handed["savedPath"].as_str().unwrap()).unwrap();
    assert_eq!(saved, "All is done.\n");
    let second = host.session_state()["sessionId"].take();
    assert_ne!(second, first);
    eventually("the record of the other session", || (listed() == [second.clone()]).then_some(()));
    turn(&mut host, "go on");
    assert!(place.provider.last_request().messages_text().contains("All is done."));
    host.close_cleanly();
    eventually("the end of the record", || listed().is_empty().then_some(()));
}

#[test]
fn an_attached_session_is_decided_at_the_gateway_and_taken_up_again() {
    let attached = AttachFixture::for_host(HostFixture::with_ask_rule(), "");
    let (place, gate) = (&attached.host, &attached.gateway);
    let _gateway = attached.start_gateway();
    let people = |arguments: &[&str]| gate.run_as_person(&[arguments, &["--json"]].concat()).json();
    let attach = attached.attach_flag();
    let mut host = start(place, &[&attach]);
    let session = host.session_state()["sessionId"].take();
    place.provider.script_replies([ProviderReply::new(vec![bash_part("k", "touch ran")]), text_reply("done")]);
    let from = host.send_prompt("go");
    host.wait_dialog(from);
    let gates = people(&["gates", "list"]);
    assert_eq!(
        (&gates[0]["door"], &gates[0]["session"], gates.as_array().unwrap().len()),
        (&json!("gjc"), &session, 1)
    );
    host.kill();
    let mut host = start(place, &[&attach, "--continue"]);
    assert_eq!(host.session_state()["sessionId"], session);
    host.wait_dialog(0);
    people(&["gates", "allow", gates[0]["id"].as_str().unwrap()]);
    event(&host, 0, "agent_end");
    assert!(place.read_file("ran").is_some(), "it ran in the host's working folder");
    let host_events = events(&host, 0);
    assert!(host_events.iter().all(|event| event["session_id"] == session), "{host_events:?}");
    host.write_input(b"{\"id\":\"l\",\"type\":\"set_session_name\",\"name\":\"a\xffb\"}\n");
    host.wait_frame(0, "the line that is no text", |frame| frame["id"] == "l" && frame["success"] == true);
    assert_eq!(host.session_state()["sessionName"], "a\u{fffd}b");
    host.close_cleanly();
}

#[test]
fn a_host_of_omp_that_takes_over_a_session_is_bound_by_its_contract() {
    let attached = AttachFixture::for_host(HostFixture::new(), "");
    let place = &attached.host;
    let _gateway = attached.start_gateway();
    place.provider.script_replies([text_reply("hello")]);
    let mut host = start(place, &[&attached.attach_flag()]);
    let file = host.session_file();
    let budget =
        json!({"max_tokens": 1_000_000, "max_tool_calls": 9, "max_wall_time_ms": 3_600_000, "max_cost_usd": 9});
    let declaration =
        json!({"actor": "ci", "budget": budget, "scopes": ["prompt"], "action_allowlist": ["command.prompt"]});
    host.command_data(json!({"type": "negotiate_unattended", "declaration": declaration}));
    turn(&mut host, "hi");
    host.close_cleanly();
    let mut host = RpcHost::start(place, &[&attached.attach_flag(), "--session", &file.display().to_string()]);
    let set = json!({"type": "set_todos", "phases": []});
    assert_eq!(host.run_command(set.clone())["error"]["code"], "scope_denied");
    // Another session in its place is under the same contract.
    host.command_data(json!({"type": "new_session"}));
    assert_eq!(host.run_command(set)["error"]["code"], "scope_denied");
    host.close_cleanly();
}
