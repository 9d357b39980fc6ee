//! Workflows from their start to their end: stages, plans that are refused, questions in the form of the original's skills.

use countersign_testkit::process::{
    FramePosition, HostFixture, RpcHost, eventually,
    provider::{ProviderReply, ReplyPart, bash_part, call_part, text_reply},
};
use serde_json::{Value, json};

use crate::rpc::{event, start, turn};

fn negotiate(host: &mut RpcHost) {
    let budget =
        json!({"max_tokens": 1_000_000, "max_tool_calls": 99, "max_wall_time_ms": 3_600_000, "max_cost_usd": 9});
    let actions = [
        "command.host_tools",
        "command.message_read",
        "command.model",
        "file.write",
        "bash.readonly",
        "bash.mutating",
        "host_tool.invoke",
    ];
    let declaration = json!({"actor": "ci", "budget": budget, "scopes": ["message:read", "bash", "host_tools", "model"], "action_allowlist": actions});
    host.command_data(json!({"type": "negotiate_unattended", "declaration": declaration}));
}

fn gate(host: &RpcHost, from: FramePosition) -> Value {
    host.wait_event(from, "workflow_gate")
}

fn respond(host: &mut RpcHost, gate: &Value, answer: &Value) -> Value {
    host.run_command(json!({"type": "workflow_gate_response", "gate_id": gate["gate_id"], "answer": answer}))
}

fn plan(id: &str) -> ProviderReply {
    ProviderReply::new(vec![call_part(id, "workflow_plan", &json!({"plan": "Write it.", "title": "The plan"}))])
}

fn write(id: &str, path: &str) -> ProviderReply {
    ProviderReply::new(vec![call_part(id, "write", &json!({"path": path, "content": "x\n"}))])
}

const HELD: &str = "calls that change something wait until the person approves a plan or sends a message";

#[test]
fn a_plan_that_is_refused_holds_back_every_effect_until_the_person_speaks_or_approves_another() {
    for answer in [json!({"decision": "reject"}), json!({"decision": "request-changes", "comments": "smaller"})] {
        let place = HostFixture::new();
        let host_tool = ProviderReply::new(vec![call_part("h", "deploy", &json!({}))]);
        let script =
            [plan("p"), write("w", "early"), ProviderReply::new(vec![bash_part("b", "touch early")]), host_tool];
        let reads = ProviderReply::new(vec![bash_part("r", "ls"), call_part("l", "ls", &json!({"path": "."}))]);
        place.provider.script_replies(script.into_iter().chain([
            reads,
            plan("q"),
            write("v", "late"),
            text_reply("done"),
        ]));
        let mut host = start(&place, &[]);
        negotiate(&mut host);
        let parameters = json!({"type": "object", "properties": {}});
        let tool = json!({"name": "deploy", "description": "Deploys", "parameters": parameters});
        host.command_data(json!({"type": "set_host_tools", "tools": [tool]}));
        let from = host.send_prompt("go");
        let first = gate(&host, from);
        let since = host.frame_position();
        respond(&mut host, &first, &answer);
        let second = gate(&host, since);
        let request = place.provider.last_request();
        for id in ["w", "b", "h"] {
            let result = request.call_result(id).unwrap();
            assert!(result.contains(HELD), "{id}: {result}");
        }
        assert!(
            !request.call_result("r").unwrap().contains(HELD) && !request.call_result("l").unwrap().contains(HELD),
            "{request:?}"
        );
        assert_eq!(
            (place.read_file("early"), host.frames_since(from).iter().any(|frame| frame["type"] == "host_tool_call")),
            (None, false)
        );
        respond(&mut host, &second, &json!({"decision": "approve"}));
        event(&host, from, "agent_end");
        assert_eq!(place.read_file("late").as_deref(), Some("x\n"));
        host.close_cleanly();
    }

    let place = HostFixture::new();
    place.provider.script_replies([plan("p"), text_reply("I stop."), write("w", "late"), text_reply("done")]);
    let mut host = start(&place, &[]);
    negotiate(&mut host);
    let from = host.send_prompt("go");
    let first = gate(&host, from);
    respond(&mut host, &first, &json!({"decision": "reject"}));
    event(&host, from, "agent_end");
    turn(&mut host, "Write it all the same.");
    assert_eq!(place.read_file("late").as_deref(), Some("x\n"));
    host.close_cleanly();
}

fn ask(more: &Value) -> ProviderReply {
    let mut question = json!({"id": "q", "question": "Go?", "recommended": 0, "icon": "x",
                              "options": [{"label": "Approve execution via ultragoal"}, {"label": "Refine further", "hint": 1}]});
    question.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    ProviderReply::new(vec![call_part("k", "ask", &json!({"questions": [question]}))])
}

#[test]
fn questions_of_the_originals_skills_open_gates_of_the_stage_and_kind_that_they_name() {
    let place = HostFixture::new();
    let round = json!({"round_id": "r1", "round": 1, "component": "api", "dimension": "goal", "ambiguity": 0.4, "references": []});
    let approval = json!({"workflowGate": {"stage": "ralplan", "kind": "approval"}});
    let script = [
        ask(&json!({"deepInterview": round})),
        ask(&approval),
        write("w", "early"),
        ask(&approval),
        write("v", "late"),
        text_reply("done"),
    ];
    place.provider.script_replies(script);
    let mut host = start(&place, &[]);
    negotiate(&mut host);
    let from = host.send_prompt("go");
    let question = gate(&host, from);
    assert_eq!((&question["stage"], &question["kind"]), (&json!("deep-interview"), &json!("question")));
    let state = &question["context"]["stage_state"];
    let values = json!([state["round"], state["round_id"], state["component"], state["dimension"], state["ambiguity"]]);
    assert_eq!((values, &state["deep_interview_metadata"]), (json!([1, "r1", "api", "goal", 0.4]), &json!(true)));
    let since = host.frame_position();
    respond(&mut host, &question, &json!({"selected": ["Refine further"]}));
    let first = gate(&host, since);
    assert_eq!((&first["stage"], &first["kind"]), (&json!("ralplan"), &json!("approval")));
    assert!(first["gate_id"].as_str().unwrap().ends_with("_ralplan_000001"), "{first}");
    assert_eq!(host.command_data(json!({"type": "get_pending_workflow_gates"}))["gates"], json!([first]));
    let wrong = respond(&mut host, &first, &json!({"decision": "approve"}));
    assert_eq!(wrong["data"]["status"], "rejected", "its answers are those of a question");
    let since = host.frame_position();
    respond(&mut host, &first, &json!({"selected": ["Refine further"]}));
    let second = gate(&host, since);
    assert!(place.provider.last_request().call_result("w").unwrap().contains(HELD));
    let response = respond(&mut host, &second, &json!({"selected": ["Approve execution via ultragoal"]}));
    assert_eq!(response["data"]["status"], "accepted", "{response}");
    event(&host, from, "agent_end");
    assert_eq!((place.read_file("early"), place.read_file("late").as_deref()), (None, Some("x\n")));
    host.close_cleanly();
}

#[test]
fn a_host_starts_a_session_in_a_stage_by_a_command_or_an_option() {
    for (flags, message, want) in [
        (&[][..], "/skill:deep-interview Add a login.", 3),
        (&[], "/skill:ralplan Add a login.", 2),
        (&["--stage", "ultragoal"], "Add a login.", 1),
        (&["--stage=ralplan"], "/skill:deep-interview Add a login.", 3),
        (&[], "/skill:team Add a login.", 0),
        (&[], "Add a login.", 0),
    ] {
        let place = HostFixture::new();
        place.provider.script_replies([text_reply("one"), text_reply("two")]);
        let mut host = start(&place, flags);
        turn(&mut host, message);
        let prompt = place.provider.last_request().messages_text();
        assert_eq!(prompt.matches("# Stage: ").count(), want, "{flags:?} {message}");
        assert!(prompt.contains("Add a login."), "{prompt}");
        turn(&mut host, "And a logout.");
        let prompt = place.provider.last_request().messages_text();
        assert_eq!(prompt.matches("# Stage: ").count(), want, "it is the first message alone: {flags:?} {message}");
        host.close_cleanly();
    }
    for value in ["team", ""] {
        let place = HostFixture::new();
        let end = RpcHost::spawn(crate::rpc::command(&place, &["--stage", value])).close();
        assert_eq!((end.code, end.frames.len()), (Some(1), 0), "{end:?}");
        let problem = format!("--stage: unknown stage {value:?}: expected one of deep-interview, ralplan, ultragoal");
        assert!(end.stderr.contains(&problem), "{}", end.stderr);
    }
}

#[test]
fn a_file_of_the_project_takes_the_place_of_a_stage_however_it_is_started() {
    for (flags, message) in [(&[][..], "/skill:ralplan Add a login."), (&["--stage", "ralplan"], "Add a login.")] {
        let place = HostFixture::new();
        std::fs::create_dir_all(place.work.join(".gjc/commands")).unwrap();
        place.write_file(".gjc/commands/skill:ralplan.md", "Plan as we do: $ARGUMENTS");
        place.provider.script_replies([text_reply("one")]);
        let mut host = start(&place, flags);
        turn(&mut host, message);
        let prompt = place.provider.last_request().messages_text();
        assert!(prompt.contains("Plan as we do: Add a login.") && !prompt.contains("# Stage: "), "{flags:?}: {prompt}");
        host.close_cleanly();
    }
}

#[test]
fn a_gate_that_nobody_answered_is_unknown() {
    let place = HostFixture::new();
    place.provider.script_replies([plan("p"), plan("q"), text_reply("done")]);
    let mut host = start(&place, &[]);
    negotiate(&mut host);
    let from = host.send_prompt("go");
    let withdrawn = gate(&host, from);
    host.command_data(json!({"type": "abort"}));
    event(&host, from, "agent_end");
    let response = respond(&mut host, &withdrawn, &json!({"decision": "approve"}));
    assert_eq!(response["error"]["code"], "unknown_gate", "{response}");
    let from = host.send_prompt("go");
    let answered = gate(&host, from);
    respond(&mut host, &answered, &json!({"decision": "approve"}));
    event(&host, from, "agent_end");
    let response = respond(&mut host, &answered, &json!({"decision": "reject"}));
    assert_eq!(response["error"]["code"], "already_resolved", "{response}");
    host.close_cleanly();

    let place = HostFixture::new();
    place.provider.script_replies([text_reply("first"), plan("p"), text_reply("done")]);
    let mut host = start(&place, &[]);
    let budget = json!({"max_tokens": 100_000, "max_tool_calls": 9, "max_wall_time_ms": 60_000, "max_cost_usd": 9});
    let declaration = json!({"actor": "ci", "budget": budget, "scopes": ["session", "message:read"], "action_allowlist": ["command.session", "command.message_read"]});
    host.command_data(json!({"type": "negotiate_unattended", "declaration": declaration}));
    let from = host.send_prompt("go");
    event(&host, from, "agent_end");
    let from = host.send_prompt("go");
    let left = gate(&host, from);
    // The session that it leaves and enters is the same one.
    let file = host.session_state()["sessionFile"].clone();
    host.command_data(json!({"type": "switch_session", "sessionPath": file}));
    let response = respond(&mut host, &left, &json!({"decision": "approve"}));
    assert_eq!(response["error"]["code"], "unknown_gate", "{response}");
    host.close_cleanly();

    let place = HostFixture::with_config("countersign: { gates: { approval: { timeout: 1 } } }\n");
    place.provider.script_replies([plan("p"), text_reply("done")]);
    let mut host = start(&place, &[]);
    negotiate(&mut host);
    let from = host.send_prompt("go");
    let expired = gate(&host, from);
    event(&host, from, "agent_end");
    let response = respond(&mut host, &expired, &json!({"decision": "approve"}));
    assert_eq!(response["error"]["code"], "unknown_gate", "{response}");
    host.close_cleanly();
}

#[test]
fn a_client_of_the_first_release_gets_gates_without_options() {
    for (value, has_options) in [(None, true), (Some("none"), false)] {
        let place = HostFixture::new();
        place.provider.script_replies([plan("p"), text_reply("done")]);
        let mut command = crate::rpc::command(&place, &[]);
        command.envs(value.map(|value| ("GJC_RPC_GATE_OPTIONS", value)));
        let mut host = RpcHost::spawn(command);
        host.wait_event(0, "ready");
        negotiate(&mut host);
        let from = host.send_prompt("go");
        let opened = gate(&host, from);
        assert_eq!(opened["options"].is_array(), has_options, "{opened}");
        respond(&mut host, &opened, &json!({"decision": "approve"}));
        event(&host, from, "agent_end");
        host.close_cleanly();
    }
}

#[test]
fn time_that_runs_out_while_a_question_waits_says_so() {
    let place = HostFixture::new();
    place.provider.script_replies([ask(&json!({})), text_reply("done")]);
    let mut host = start(&place, &[]);
    let budget = json!({"max_tokens": 1_000_000, "max_tool_calls": 99, "max_wall_time_ms": 1_500, "max_cost_usd": 9});
    let declaration = json!({"actor": "ci", "budget": budget, "scopes": [], "action_allowlist": []});
    host.command_data(json!({"type": "negotiate_unattended", "declaration": declaration}));
    let from = host.send_prompt("go");
    let ended = event(&host, from, "tool_execution_end");
    assert_eq!(ended["result"]["content"][0]["text"], "unattended run aborted: unattended abort");
    let end = event(&host, from, "agent_end");
    assert_eq!((&end["stopReason"], &end["error"]["metric"]), (&json!("budget_exceeded"), &json!("wall_time")));
    host.close_cleanly();
}

#[test]
fn the_default_model_is_that_of_the_session_too_at_the_end_of_the_run() {
    let place = HostFixture::new();
    place.provider.script_replies([plan("p"), text_reply("done")]);
    let mut host = start(&place, &["--mode", "rpc-ui"]);
    let models = host.command_data(json!({"type": "get_available_models"}))["models"].take();
    let other = models.as_array().unwrap().iter().find(|model| model["id"] != "fake-1").unwrap().clone();
    let choose = |model: &Value| json!({"type": "set_default_model_selection", "provider": model["provider"], "modelId": model["id"]});
    let first = host.session_state()["model"].take();
    host.command_data(choose(&other));
    assert_eq!(host.session_state()["model"]["id"], other["id"]);
    let from = host.send_prompt("go");
    let dialog = host.wait_dialog(from);
    let due = host.send_command(choose(&first));
    assert_eq!(host.session_state()["model"]["id"], other["id"], "while a run works");
    let is_answered = host.frames_since(from).iter().any(|frame| frame["command"] == "set_default_model_selection");
    assert!(!is_answered, "the answer waits too");
    host.answer_dialog(&dialog, json!({"value": "approve"}));
    assert_eq!(host.wait_answer(&due)["success"], true);
    assert_eq!(host.session_state()["model"]["id"], first["id"]);
    let config = std::fs::read_to_string(place.agent.join("config.yml")).unwrap();
    assert!(config.contains(first["id"].as_str().unwrap()), "{config}");
    host.close_cleanly();
}

#[test]
fn a_session_with_a_name_or_a_command_is_in_its_file_though_no_model_answered() {
    for lines in [
        &[r#"{"type":"set_session_name","name":"The move"}"#, r#"{"type":"bash","command":"echo one"}"#][..],
        &[r#"{"type":"bash","command":"echo one"}"#],
        &[r#"{"type":"set_session_name","name":"The move"}"#],
    ] {
        let place = HostFixture::new();
        let mut host = start(&place, &[]);
        let file = host.session_file();
        for line in lines {
            host.command_data(serde_json::from_str(line).unwrap());
        }
        assert!(!file.exists());
        host.close_cleanly();
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text.contains("The move"), lines[0].contains("name"), "{text}");
        assert_eq!(text.contains("echo one"), lines.iter().any(|line| line.contains("bash")), "{text}");
        let mut again = start(&place, &["--continue"]);
        let name = again.session_state()["sessionName"].take();
        assert_eq!(name == "The move", lines[0].contains("name"), "{name}");
        let count = again.session_state()["messageCount"].take();
        assert_eq!(count, usize::from(text.contains("echo one")), "{text}");
        again.close_cleanly();
    }
    let place = HostFixture::new();
    let mut host = start(&place, &[]);
    let file = host.session_file();
    host.close_cleanly();
    assert!(!file.exists(), "a host that only looks leaves nothing behind");
}

#[test]
fn a_host_that_closes_its_end_of_standard_output_ends_the_process() {
    use std::{
        io::{BufRead as _, BufReader, Write as _},
        process::Stdio,
    };

    for product in ["omp", "gjc"] {
        let place = HostFixture::new();
        let mut command = match product {
            "omp" => RpcHost::omp_command(&place, &["--model", "fake/fake-1"]),
            _ => crate::rpc::command(&place, &[]),
        };
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut String::new()).unwrap();
        drop(output);
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"{\"type\":\"get_state\"}\n").unwrap();
        let code = eventually("the end of the process", || child.try_wait().unwrap()).code();
        assert_eq!(code, Some(0), "{product}");
        drop(input);
    }
}

#[test]
fn a_host_is_notified_of_a_provider_that_only_keeps_the_connection_alive() {
    let place = HostFixture::with_config("providers: { streamIdleTimeoutSeconds: 1 }\nretry: { maxRetries: 0 }\n");
    place
        .provider
        .script_replies([ProviderReply::new(vec![ReplyPart::Raw(": PROCESSING\n\n".into()), ReplyPart::Hang])]);
    let mut host = start(&place, &[]);
    let from = host.send_prompt("go");
    let notice = host.wait_frame(from, "the notice", |frame| frame["method"] == "notify");
    let message = "The model provider keeps the connection alive but has sent nothing of an answer for 0 s. The request fails after 1 s.";
    assert_eq!((&notice["notifyType"], &notice["message"]), (&json!("info"), &json!(message)));
    event(&host, from, "agent_end");
    turn(&mut host, "better?");
    host.close_cleanly();
}
