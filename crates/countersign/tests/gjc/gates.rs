//! What runs ask: by dialogs where the host shows them, and what is left of it in the file of gates and after a crash.

use serde_json::{Value, json};

use crate::{
    host::{Host, soon},
    place::Place,
    provider::{Reply, call, say},
    speaking::{event, start, turn},
};

const UI: [&str; 2] = ["--mode", "rpc-ui"];

fn ask() -> Reply {
    let question =
        json!({"id": "q", "question": "Which?", "recommended": 1, "options": [{"label": "A"}, {"label": "B"}]});
    Reply::new(vec![call("k1", "ask", &json!({"questions": [question]}))])
}

fn plan() -> Reply {
    Reply::new(vec![call("k2", "workflow_plan", &json!({"plan": "Move it.", "title": "The move"}))])
}

/// The file of the session's gates, once `fits` says so.
fn file(place: &Place, session: &str, fits: impl Fn(&Value) -> bool) -> Value {
    let path = place.work.join(".gjc/state/workflow-gates").join(format!("{session}.json"));
    soon("the file of gates", || {
        let read: Value = serde_json::from_slice(&std::fs::read(&path).ok()?).ok()?;
        fits(&read).then_some(read)
    })
}

fn id(host: &mut Host) -> String {
    host.state()["sessionId"].as_str().unwrap().to_owned()
}

fn pending(host: &mut Host) -> Value {
    host.done(json!({"type": "get_pending_workflow_gates"}))["gates"].take()
}

#[test]
fn a_host_without_dialogs_is_not_asked_and_its_run_is_aborted() {
    let place = Place::new();
    place.provider.script([ask()]);
    let mut host = start(&place, &[]);
    let from = turn(&mut host, "hi");
    let ended = event(&host, from, "tool_execution_end");
    assert_eq!(ended["result"]["content"][0]["text"], "Ask tool requires interactive mode");
    assert_eq!(pending(&mut host), json!([]));
    let told =
        host.refused(json!({"type": "workflow_gate_response", "gate_id": "wg_x_ralplan_000001", "answer": null}));
    assert_eq!(told, "workflow gates are not available until unattended mode is negotiated");
    host.close_cleanly();
}

#[test]
fn a_question_and_a_plan_are_dialogs_and_their_answers_are_in_the_file() {
    let place = Place::new();
    place.provider.script([ask(), plan(), say("done")]);
    let mut host = start(&place, &UI);
    let session = id(&mut host);
    let short: String = session.replace('-', "").chars().rev().take(8).collect::<Vec<_>>().into_iter().rev().collect();
    let from = host.prompt("hi");
    let dialog = host.dialog(from);
    assert_eq!(dialog["options"], json!(["A", "B (Recommended)", "Other (type your own)"]));
    let question = format!("wg_{short}_deep-interview_000001");
    let waits = file(&place, &session, |file| file["gates"][&question]["status"] == "pending");
    assert_eq!(waits["counters"], json!({"deep-interview": 1}));
    let gates = pending(&mut host);
    assert_eq!((gates.as_array().unwrap().len(), &gates[0]), (1, &waits["gates"][&question]["gate"]));
    host.reply(&dialog, json!({"value": "B (Recommended)"}));
    let choosing = |frame: &Value| frame["type"] == "extension_ui_request" && frame["options"][0] == "approve";
    let dialog = host.wait(from, "the plan", choosing);
    assert_eq!(place.provider.last().result("k1").unwrap(), "User selected: B");
    host.reply(&dialog, json!({"value": "request-changes"}));
    let words = host.wait(from, "an editor", |frame| frame["method"] == "editor");
    host.reply(&words, json!({"value": "smaller"}));
    event(&host, from, "agent_end");
    let told = place.provider.last().result("k2").unwrap();
    assert_eq!(told, "The plan is not approved: changes are requested.\nsmaller");
    let plan = format!("wg_{short}_ralplan_000001");
    let file = file(&place, &session, |file| file["gates"][&plan]["advanced"] == true);
    assert_eq!(file["gates"][&plan]["answer"], json!({"decision": "request-changes", "comments": "smaller"}));
    assert_eq!(file["gates"][&question]["answer"], json!({"selected": ["B"]}));
    assert_eq!(file["gates"][&question]["resolution"]["status"], "accepted");
    assert_eq!(
        file["gates"][&plan]["gate"]["schema_hash"],
        "635e071647243e3738dc796bfc85d0d595ed9caa14e3c75a3d01cbc81cf620cb"
    );
    host.close_cleanly();
}

#[test]
fn a_plan_that_waits_outlives_a_kill_with_its_id_and_the_run_goes_on() {
    let place = Place::new();
    place.provider.script([plan(), say("done")]);
    let mut host = start(&place, &UI);
    let session = id(&mut host);
    let from = host.prompt("hi");
    host.dialog(from);
    let before = pending(&mut host);
    host.kill();
    std::fs::remove_dir_all(place.work.join(".gjc")).unwrap();
    let mut again = start(&place, &[&UI[..], &["--continue"]].concat());
    let dialog = again.dialog(0);
    assert_eq!((id(&mut again), pending(&mut again)), (session.clone(), before.clone()));
    again.reply(&dialog, json!({"value": "approve"}));
    event(&again, 0, "agent_end");
    assert_eq!(place.provider.last().result("k2").unwrap(), "The plan is approved.");
    let name = before[0]["gate_id"].as_str().unwrap();
    let file = file(&place, &session, |file| file["gates"][name]["advanced"] == true);
    assert_eq!(file["gates"][name]["answer"], json!({"decision": "approve"}));
    assert_eq!(pending(&mut again), json!([]));
    again.close_cleanly();
}

#[test]
fn an_abort_withdraws_what_waits_with_the_call_that_waits() {
    let place = Place::new();
    place.provider.script([plan()]);
    let mut host = start(&place, &UI);
    let from = host.prompt("hi");
    host.dialog(from);
    host.done(json!({"type": "abort"}));
    event(&host, from, "agent_end");
    assert_eq!(pending(&mut host), json!([]));
    host.close_cleanly();
}
