//! Gates of runs: dialogs where the host shows them, the file of gates, and the state after a crash.

use countersign_testkit::process::{
    HostFixture, RpcHost, eventually,
    provider::{ProviderReply, ReplyPart, bash_part, call_part, text_reply},
};
use serde_json::{Value, json};

use crate::rpc::{event, start, turn};

const UI: [&str; 2] = ["--mode", "rpc-ui"];

fn ask() -> ProviderReply {
    let question =
        json!({"id": "q", "question": "Which?", "recommended": 1, "options": [{"label": "A"}, {"label": "B"}]});
    ProviderReply::new(vec![call_part("k1", "ask", &json!({"questions": [question]}))])
}

fn plan() -> ProviderReply {
    ProviderReply::new(vec![call_part("k2", "workflow_plan", &json!({"plan": "Move it.", "title": "The move"}))])
}

/// Returns the file of the session's gates, once `fits` is true.
fn file(place: &HostFixture, session: &str, fits: impl Fn(&Value) -> bool) -> Value {
    let path = place.work.join(".gjc/state/workflow-gates").join(format!("{session}.json"));
    eventually("the file of gates", || {
        let read: Value = serde_json::from_slice(&std::fs::read(&path).ok()?).ok()?;
        fits(&read).then_some(read)
    })
}

fn id(host: &mut RpcHost) -> String {
    host.session_state()["sessionId"].as_str().unwrap().to_owned()
}

fn pending(host: &mut RpcHost) -> Value {
    host.command_data(json!({"type": "get_pending_workflow_gates"}))["gates"].take()
}

#[test]
fn a_host_without_dialogs_gets_no_question_and_its_run_is_aborted() {
    let place = HostFixture::new();
    place.provider.script_replies([ask()]);
    let mut host = start(&place, &[]);
    let from = turn(&mut host, "hi");
    let ended = event(&host, from, "tool_execution_end");
    assert_eq!(ended["result"]["content"][0]["text"], "Ask tool requires interactive mode");
    assert_eq!(pending(&mut host), json!([]));
    let error =
        host.command_error(json!({"type": "workflow_gate_response", "gate_id": "wg_x_ralplan_000001", "answer": null}));
    assert_eq!(error, "workflow gates are not available until unattended mode is negotiated");
    host.close_cleanly();
}

#[test]
fn an_answer_of_ten_mebibytes_is_rejected_and_the_gate_waits_on() {
    let place = HostFixture::new();
    place.provider.script_replies([plan(), text_reply("done")]);
    let mut host = start(&place, &[]);
    let budget =
        json!({"max_tokens": 1_000_000, "max_tool_calls": 9, "max_wall_time_ms": 3_600_000, "max_cost_usd": 9});
    let declaration = json!({"actor": "ci", "budget": budget, "scopes": ["message:read"], "action_allowlist": []});
    host.command_data(json!({"type": "negotiate_unattended", "declaration": declaration}));
    let from = host.send_prompt("hi");
    let gate = host.wait_event(from, "workflow_gate")["gate_id"].clone();
    let mut answer =
        |answer: Value| host.command_data(json!({"type": "workflow_gate_response", "gate_id": gate, "answer": answer}));
    let resolution = answer(json!({"decision": "approve", "comments": "x".repeat(10 << 20)}));
    let error = &resolution["error"]["errors"][0];
    assert_eq!(
        (&resolution["status"], &error["keyword"]),
        (&json!("rejected"), &json!("maxAnswerBytes")),
        "{resolution}"
    );
    assert_eq!(answer(json!({"decision": "approve"}))["status"], "accepted");
    event(&host, from, "agent_end");
    host.close_cleanly();
}

#[test]
fn a_gate_that_still_waits_is_shown_again_when_people_are_reminded() {
    let config = "countersign: { gates: { approval: { remind: 0.3, timeout: 600 } } }\n";
    let place = HostFixture::with_config(config);
    place.provider.script_replies([plan()]);
    let mut host = start(&place, &[]);
    let budget =
        json!({"max_tokens": 1_000_000, "max_tool_calls": 9, "max_wall_time_ms": 3_600_000, "max_cost_usd": 9});
    let declaration = json!({"actor": "ci", "budget": budget, "scopes": [], "action_allowlist": []});
    host.command_data(json!({"type": "negotiate_unattended", "declaration": declaration}));
    let from = host.send_prompt("hi");
    let gate = host.wait_event(from, "workflow_gate");
    let is_again = |frames: &[Value]| frames.iter().filter(|frame| **frame == gate).count() == 2;
    eventually("the gate again", || is_again(&host.frames_since(from)).then_some(()));
    host.kill();

    let place = HostFixture::with_config(config);
    place.provider.script_replies([plan()]);
    let mut host = start(&place, &UI);
    let from = host.send_prompt("hi");
    host.wait_dialog(from);
    let notification = host.wait_frame(from, "a notice", |frame| frame["method"] == "notify");
    assert_eq!(notification["message"], "An answer is still waited for: The move");
    host.kill();
}

#[test]
fn a_question_and_a_plan_are_dialogs_and_their_answers_are_in_the_file() {
    let place = HostFixture::new();
    place.provider.script_replies([ask(), plan(), text_reply("done")]);
    let mut host = start(&place, &UI);
    let session = id(&mut host);
    let short: String = session.replace('-', "").chars().rev().take(8).collect::<Vec<_>>().into_iter().rev().collect();
    let from = host.send_prompt("hi");
    let dialog = host.wait_dialog(from);
    assert_eq!(dialog["options"], json!(["A", "B (Recommended)", "Other (type your own)"]));
    let question = format!("wg_{short}_deep-interview_000001");
    let waits = file(&place, &session, |file| file["gates"][&question]["status"] == "pending");
    assert_eq!(waits["counters"], json!({"deep-interview": 1}));
    let gates = pending(&mut host);
    assert_eq!((gates.as_array().unwrap().len(), &gates[0]), (1, &waits["gates"][&question]["gate"]));
    host.answer_dialog(&dialog, json!({"value": "B (Recommended)"}));
    let choosing = |frame: &Value| frame["type"] == "extension_ui_request" && frame["options"][0] == "approve";
    let dialog = host.wait_frame(from, "the plan", choosing);
    assert_eq!(place.provider.last_request().call_result("k1").unwrap(), "User selected: B");
    host.answer_dialog(&dialog, json!({"value": "request-changes"}));
    let words = host.wait_frame(from, "an editor", |frame| frame["method"] == "editor");
    host.answer_dialog(&words, json!({"value": "smaller"}));
    event(&host, from, "agent_end");
    let result = place.provider.last_request().call_result("k2").unwrap();
    assert_eq!(result, "The plan is not approved: changes are requested.\nsmaller");
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
fn a_run_whose_approved_call_was_cut_off_does_not_resume_and_the_host_is_notified() {
    let place = HostFixture::with_ask_rule();
    let command = "echo ran >> count; sh -c 'echo $$ > pid; exec sleep 300'";
    place.provider.script_replies([ProviderReply::new(vec![bash_part("k9", command)])]);
    let mut host = start(&place, &UI);
    let from = host.send_prompt("hi");
    let dialog = host.wait_dialog(from);
    host.answer_dialog(&dialog, json!({ "value": "Allow once" }));
    place.wait_for("pid");
    host.kill();
    let mut again = start(&place, &[&UI[..], &["--continue"]].concat());
    let notification = again.wait_frame(0, "a notice", |frame| frame["method"] == "notify");
    assert!(notification["message"].as_str().unwrap().contains("the run stands"), "{notification}");
    assert_eq!((place.provider.request_count(), &again.session_state()["isStreaming"]), (1, &json!(false)));
    place.provider.script_replies([text_reply("done")]);
    let from = again.send_prompt("go on");
    event(&again, from, "agent_end");
    assert!(place.provider.last_request().call_result("k9").unwrap().contains("Outcome unknown"));
    assert_eq!(place.read_file("count").unwrap(), "ran\n");
    again.close_cleanly();
}

#[test]
fn a_host_that_shows_no_questions_is_notified_of_one_that_an_earlier_process_opened() {
    let place = HostFixture::new();
    place.provider.script_replies([plan(), text_reply("done")]);
    let mut host = start(&place, &UI);
    let from = host.send_prompt("hi");
    host.wait_dialog(from);
    host.kill();
    let mut again = start(&place, &["--continue"]);
    let notification = again.wait_frame(0, "a notice", |frame| frame["method"] == "notify");
    let message = notification["message"].as_str().unwrap();
    assert!(message.contains("--mode rpc-ui") && message.ends_with(": The move"), "{notification}");
    again.command_data(json!({ "type": "abort" }));
    event(&again, 0, "agent_end");
    again.close_cleanly();
}

#[test]
fn a_plan_that_waits_outlives_a_kill_with_its_id_and_the_run_goes_on() {
    let place = HostFixture::new();
    place.provider.script_replies([plan(), text_reply("done")]);
    let mut host = start(&place, &UI);
    let session = id(&mut host);
    let from = host.send_prompt("hi");
    host.wait_dialog(from);
    let before = pending(&mut host);
    // The file follows the record.
    let name = before[0]["gate_id"].as_str().unwrap();
    file(&place, &session, |file| file["gates"][name].is_object());
    host.kill();
    std::fs::remove_dir_all(place.work.join(".gjc")).unwrap();
    let mut again = start(&place, &[&UI[..], &["--continue"]].concat());
    let dialog = again.wait_dialog(0);
    assert_eq!((id(&mut again), pending(&mut again)), (session.clone(), before.clone()));
    again.answer_dialog(&dialog, json!({"value": "approve"}));
    event(&again, 0, "agent_end");
    assert_eq!(place.provider.last_request().call_result("k2").unwrap(), "The plan is approved.");
    let file = file(&place, &session, |file| file["gates"][name]["advanced"] == true);
    assert_eq!(file["gates"][name]["answer"], json!({"decision": "approve"}));
    assert_eq!(pending(&mut again), json!([]));
    again.close_cleanly();
}

#[test]
fn an_abort_withdraws_what_waits_with_the_call_that_waits() {
    let place = HostFixture::new();
    place.provider.script_replies([plan()]);
    let mut host = start(&place, &UI);
    let from = host.send_prompt("hi");
    host.wait_dialog(from);
    host.command_data(json!({"type": "abort"}));
    event(&host, from, "agent_end");
    assert_eq!(pending(&mut host), json!([]));
    host.close_cleanly();
}

/// Enters unattended mode.
fn negotiate(host: &mut RpcHost) {
    let budget = json!({"max_tokens": 1e9, "max_tool_calls": 100, "max_wall_time_ms": 1e9, "max_cost_usd": 100});
    let declaration = json!({"actor": "ci", "budget": budget, "scopes": ["message:read", "session", "control"],
        "action_allowlist": ["command.message_read", "command.session", "command.control"]});
    host.command_data(json!({"type": "negotiate_unattended", "declaration": declaration}));
}

fn gate(host: &RpcHost, from: usize) -> Value {
    host.wait_event(from, "workflow_gate")
}

fn respond(host: &mut RpcHost, gate: &Value, answer: Value, key: &str) -> Value {
    let id = &gate["gate_id"];
    host.run_command(json!({"type": "workflow_gate_response", "gate_id": id, "answer": answer, "idempotency_key": key}))
}

#[test]
fn an_unattended_host_answers_gates_each_once() {
    let place = HostFixture::new();
    place.provider.script_replies([ask(), plan(), text_reply("done")]);
    let mut host = start(&place, &[]);
    negotiate(&mut host);
    let from = host.send_prompt("hi");
    let question = gate(&host, from);
    assert_eq!((&question["stage"], &question["kind"]), (&json!("deep-interview"), &json!("question")));
    assert_eq!(question["options"][1], json!({"value": "B", "label": "B", "description": "recommended"}));
    for (answer, path, keyword) in [
        (json!(null), "#", "type"),
        (json!({"selected": ["C"]}), "#/selected/0", "enum"),
        (json!({"selected": "A".repeat(300 * 1024)}), "#", "maxAnswerBytes"),
        (json!({"selected": ["A", "B"]}), "#", "anyOf"),
    ] {
        let response = respond(&mut host, &question, answer, "k");
        assert_eq!(
            (&response["success"], &response["data"]["status"]),
            (&json!(true), &json!("rejected")),
            "{response}"
        );
        let error = &response["data"]["error"];
        assert_eq!(
            (&error["code"], &error["schema_hash"]),
            (&json!("invalid_workflow_gate_answer"), &question["schema_hash"])
        );
        assert_eq!((&error["errors"][0]["path"], &error["errors"][0]["keyword"]), (&json!(path), &json!(keyword)));
    }
    let from = host.frame_position();
    let resolution = respond(&mut host, &question, json!({"selected": ["A"], "other": false}), "k")["data"].take();
    assert_eq!(resolution["answer_hash"], "235c23fbf5b803af65c42299759b59db6d34418450129e9dc05f73f8ba6443a2");
    let plan = gate(&host, from);
    let again = respond(&mut host, &question, json!({"other": false, "selected": ["A"]}), "k")["data"].take();
    assert_eq!(again, resolution, "the stored resolution");
    for (gate, answer, key, code) in [
        (question.clone(), json!({"selected": ["B"]}), "k", "idempotency_conflict"),
        (question.clone(), json!({"selected": ["A"]}), "other", "already_resolved"),
        (json!({"gate_id": "wg_nothing_ralplan_000001"}), json!(1), "k", "unknown_gate"),
        (json!({"gate_id": "wg"}), json!(1), "k", "unknown_gate"),
    ] {
        let response = respond(&mut host, &gate, answer, key);
        assert_eq!((&response["success"], &response["error"]["code"]), (&json!(false), &json!(code)), "{response}");
    }
    let unnamed = respond(&mut host, &plan, json!({"decision": "request-changes"}), "p");
    assert_eq!(unnamed["data"]["error"]["errors"][0]["keyword"], "missing_comments");
    respond(&mut host, &plan, json!({"decision": "approve"}), "p");
    event(&host, from, "agent_end");
    assert_eq!(place.provider.last_request().call_result("k1").unwrap(), "User selected: A");
    assert_eq!(place.provider.last_request().call_result("k2").unwrap(), "The plan is approved.");
    let session = id(&mut host);
    let audit = std::fs::read_to_string(place.work.join(format!(".gjc/audit/unattended/{session}.jsonl"))).unwrap();
    for word in [
        "gate_emitted",
        "gate_response_accepted",
        "gate_response_rejected",
        "gate_response_idempotent_replay",
        "gate_response_idempotency_conflict",
        "gate_response_already_resolved",
        "gate_response_unknown_gate",
    ] {
        assert!(audit.contains(&format!("\"event\":\"{word}\"")), "{word}: {audit}");
    }
    assert!(!audit.contains("\"selected\""), "an answer is never in it");
    host.close_cleanly();
}

#[test]
fn an_answer_that_counted_is_audited_also_where_the_process_died_before_its_line() {
    let place = HostFixture::new();
    place.provider.script_replies([plan(), text_reply("done")]);
    let mut host = start(&place, &[]);
    negotiate(&mut host);
    let from = host.send_prompt("hi");
    let waits = gate(&host, from);
    respond(&mut host, &waits, json!({"decision": "approve"}), "k");
    let session = id(&mut host);
    host.kill();
    let file = place.work.join(format!(".gjc/audit/unattended/{session}.jsonl"));
    let whole = std::fs::read_to_string(&file).unwrap();
    let (before, line) = whole.trim_end().rsplit_once('\n').unwrap();
    assert!(line.contains("gate_response_accepted"), "{whole}");
    std::fs::write(&file, format!("{before}\n")).unwrap();
    let mut again = start(&place, &["--continue"]);
    negotiate(&mut again);
    respond(&mut again, &waits, json!({"decision": "approve"}), "k");
    let audit = std::fs::read_to_string(&file).unwrap();
    let accepted: Vec<&str> = audit.lines().filter(|line| line.contains("gate_response_accepted")).collect();
    let read = |line: &str| {
        let mut read: Value = serde_json::from_str(line).unwrap();
        // It gets a new number, and says when the answer was recorded.
        for member in ["event_id", "timestamp"] {
            read.as_object_mut().unwrap().remove(member);
        }
        read
    };
    assert_eq!(accepted.iter().map(|line| read(line)).collect::<Vec<_>>(), [read(line)]);
    again.close_cleanly();
}

#[test]
fn a_run_that_resumes_by_itself_after_a_kill_is_sent_whole() {
    let place = HostFixture::new();
    place.provider.script_replies([plan(), ProviderReply::new(vec![ReplyPart::Hang]), text_reply("done")]);
    let mut host = start(&place, &[]);
    negotiate(&mut host);
    let from = host.send_prompt("hi");
    let waits = gate(&host, from);
    respond(&mut host, &waits, json!({"decision": "approve"}), "k");
    place.provider.wait_request(1);
    host.kill();
    let again = start(&place, &["--continue"]);
    event(&again, 0, "agent_end");
    let types = again.frames_since(0);
    let types: Vec<&str> = types.iter().filter_map(|frame| frame["payload"]["event_type"].as_str()).collect();
    assert_eq!(
        types.join(" "),
        "agent_start turn_start message_start message_update message_update message_update message_end turn_end agent_end"
    );
    again.close_cleanly();
}

/// Point at which a process dies between the opening of a gate and the continuation of the run with its answer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum CrashPoint {
    /// The gate was opened and shown.
    Emitted,
    /// The answer was sent; its arrival is unknown.
    Answered,
    /// It was accepted, and the sender knows.
    Accepted,
    /// The model has the result.
    Advanced,
}

#[test]
fn a_kill_anywhere_between_a_gate_and_what_follows_loses_nothing_and_doubles_nothing() {
    for dies in [CrashPoint::Emitted, CrashPoint::Answered, CrashPoint::Accepted, CrashPoint::Advanced] {
        let place = HostFixture::new();
        place.provider.script_replies([plan(), text_reply("done")]);
        let mut host = start(&place, &[]);
        negotiate(&mut host);
        let from = host.send_prompt("hi");
        let waits = gate(&host, from);
        let answer = json!({"decision": "approve", "comments": "go"});
        match dies {
            CrashPoint::Emitted => {}
            CrashPoint::Answered => {
                let sent = json!({"type": "workflow_gate_response", "gate_id": waits["gate_id"], "answer": answer, "idempotency_key": "k"});
                host.write_input(format!("{sent}\n"));
            }
            CrashPoint::Accepted => drop(respond(&mut host, &waits, answer.clone(), "k")),
            CrashPoint::Advanced => {
                respond(&mut host, &waits, answer.clone(), "k");
                event(&host, from, "agent_end");
            }
        }
        host.kill();
        let mut again = start(&place, &["--continue"]);
        let open = pending(&mut again);
        let is_open = open != json!([]);
        assert!(is_open == (dies == CrashPoint::Emitted) || dies == CrashPoint::Answered, "{dies:?}: {open}");
        negotiate(&mut again);
        if is_open {
            assert_eq!(gate(&again, 0), waits, "{dies:?}: it is emitted again, the same to the letter");
        }
        let response = respond(&mut again, &waits, answer, "k");
        assert_eq!(
            (&response["success"], &response["data"]["status"]),
            (&json!(true), &json!("accepted")),
            "{dies:?}: {response}"
        );
        if is_open {
            event(&again, 0, "agent_end");
        } else if dies != CrashPoint::Advanced {
            // An answer that was confirmed as counted takes effect by itself.
            eventually("the end of the run", || (again.session_state()["isStreaming"] == false).then_some(()));
        }
        assert_eq!(
            place.provider.last_request().messages_text().matches("The plan is approved.").count(),
            1,
            "{dies:?}"
        );
        assert!(place.provider.last_request().is_paired());
        again.close_cleanly();
    }
}
