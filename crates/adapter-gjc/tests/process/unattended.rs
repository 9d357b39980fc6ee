//! Runs that work without people: within their budgets, and what becomes of them at the end of each.

use std::fs;

use countersign_testkit::process::{
    FramePosition, HostFixture, Latch, RpcHost, eventually,
    provider::{ProviderReply, ReplyPart, bash_part, call_part, error_reply, text_part, text_reply},
};
use serde_json::{Value, json};

use crate::rpc::{event, events, start};

/// Returns a declaration that covers prompts, reading and writing, with limits that no test reaches unless it says so.
fn declaration(more: Value) -> Value {
    let mut declaration = json!({
        "actor": "ci",
        "budget": { "max_tokens": 1_000_000, "max_tool_calls": 100, "max_wall_time_ms": 3_600_000, "max_cost_usd": 100 },
        "scopes": ["control", "message:read", "bash"],
        "action_allowlist": ["command.control", "command.message_read", "bash.readonly", "bash.mutating", "file.write"],
    });
    declaration.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    declaration
}

fn limited(name: &str, limit: impl Into<Value>) -> Value {
    let mut declaration = declaration(json!({}));
    declaration["budget"][name] = limit.into();
    declaration
}

fn negotiate(host: &mut RpcHost, declaration: &Value) -> Value {
    host.command_data(json!({ "type": "negotiate_unattended", "declaration": declaration }))
}

/// Sends a command that must fail, and gives its error, an object.
fn error(host: &mut RpcHost, command: Value) -> Value {
    let answer = host.run_command(command);
    assert_eq!(answer["success"], false, "{answer}");
    answer["error"].clone()
}

/// Returns the lines of the only audit file, each as event, outcome and what it names.
fn audit(place: &HostFixture) -> Vec<String> {
    let folder = place.work.join(".gjc/audit/unattended");
    let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let text = fs::read_to_string(&files[0]).unwrap();
    text.lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            assert_eq!((&line["schema_version"], &line["actor"]), (&json!(1), &json!("ci")), "{line}");
            let named = [&line["scope"], &line["action"], &line["budget"]["metric"]];
            let named = named.into_iter().filter_map(Value::as_str);
            let words = [line["event"].as_str().unwrap(), line["outcome"].as_str().unwrap()];
            words.into_iter().chain(named).collect::<Vec<_>>().join(" ")
        })
        .collect()
}

/// Returns the audit once its last line begins so.
fn audited(place: &HostFixture, last: &str) -> Vec<String> {
    eventually(last, || Some(audit(place)).filter(|lines| lines.last().is_some_and(|line| line.starts_with(last))))
}

/// Prompts, and gives the error with which that fails afterwards.
fn fails(host: &mut RpcHost, from: FramePosition) -> Value {
    host.wait_frame(from, "a failure of the prompt", |frame| {
        frame["type"] == "response" && frame["command"] == "prompt" && frame["success"] == false
    })["error"]
        .take()
}

const ENDED: [&str; 2] = ["unattended_aborted aborted", "unattended_abort_settled aborted"];

#[test]
fn a_run_within_its_budget_finishes() {
    let place = HostFixture::new();
    let write = call_part("w", "write", &json!({ "path": "a.txt", "content": "one\n" }));
    place.provider.script_replies([ProviderReply::new(vec![write, bash_part("b", "wc -l a.txt")]), text_reply("done")]);
    let mut host = start(&place, &[]);
    let accepted = negotiate(&mut host, &declaration(json!({})));
    assert_eq!(accepted["run_id"], host.session_state()["sessionId"]);
    assert_eq!(accepted["scopes"], json!(["control", "message:read", "bash", "prompt"]));
    let from = host.send_prompt("go");
    event(&host, from, "agent_end");
    assert_eq!(place.read_file("a.txt").as_deref(), Some("one\n"));
    assert_eq!(audited(&place, "unattended_negotiated"), ["unattended_negotiated accepted"]);
    host.close_cleanly();
}

#[test]
fn each_budget_that_is_used_up_ends_the_run() {
    let calls = || ProviderReply::new(vec![bash_part("a", "ls"), bash_part("b", "ls"), bash_part("c", "touch late")]);
    for (name, limit, metric, replies) in [
        (
            "max_tokens",
            json!(30_000),
            "tokens",
            vec![ProviderReply::new(vec![bash_part("a", "touch late")]).with_input_tokens(40_000)],
        ),
        // The prompt takes one.
        ("max_tool_calls", json!(3), "tool_calls", vec![calls()]),
        (
            "max_cost_usd",
            json!(0.001),
            "cost",
            vec![ProviderReply::new(vec![bash_part("a", "touch late")]).with_input_tokens(4_000)],
        ),
        ("max_wall_time_ms", json!(1_500), "wall_time", vec![ProviderReply::new(vec![ReplyPart::Hang])]),
    ] {
        let place = HostFixture::new();
        place.provider.script_replies(replies);
        let mut host = start(&place, &[]);
        negotiate(&mut host, &limited(name, limit));
        let from = host.send_prompt("go");
        let error = fails(&mut host, from);
        assert_eq!((&error["code"], &error["metric"]), (&json!("budget_exceeded"), &json!(metric)), "{error}");
        assert_eq!((&error["abort_status"], &error["run_id"]), (&json!("aborting"), &error["session_id"]), "{error}");
        assert!(error["observed"].as_f64() >= error["limit"].as_f64(), "{error}");
        let end = event(&host, from, "agent_end");
        assert_eq!((&end["stopReason"], &end["error"]), (&json!("budget_exceeded"), &error), "{name}");
        assert_eq!(place.read_file("late"), None, "{name}");
        let exceeded = format!("budget_exceeded exceeded {metric}");
        let want = ["unattended_negotiated accepted", &exceeded, ENDED[0], ENDED[1]];
        assert_eq!(audited(&place, "unattended_abort_settled"), want, "{name}");
        let failures = host.frames_since(from).into_iter().filter(|frame| frame["success"] == false).count();
        assert_eq!(failures, 1, "{name}: a breach is told once");
        host.close_cleanly();
    }
}

#[test]
fn a_run_that_ends_in_the_wait_for_its_next_attempt_has_an_end() {
    const WAITING: &str = "retry: { baseDelayMs: 600000, provider: { maxRetries: 0 } }\n";
    let ends = |host: &RpcHost, from| {
        let ends = events(host, from).into_iter().filter(|event| event["payload"]["event_type"] == "agent_end");
        ends.map(|event| event["payload"]["event"]["stopReason"].clone()).collect::<Vec<_>>()
    };
    for is_stopped in [false, true] {
        let place = HostFixture::with_config(WAITING);
        place.provider.script_replies([error_reply(500, "no")]);
        let mut host = start(&place, &[]);
        if !is_stopped {
            negotiate(&mut host, &limited("max_wall_time_ms", 1_500));
        }
        let from = host.send_prompt("go");
        event(&host, from, "auto_retry_start");
        if is_stopped {
            host.command_data(json!({ "type": "abort" }));
        } else {
            fails(&mut host, from);
        }
        let last = if is_stopped { "completed" } else { "budget_exceeded" };
        eventually("the last end", || (ends(&host, from) == [json!("paused"), json!(last)]).then_some(()));
        let all = events(&host, from);
        let kinds: Vec<_> = all.iter().filter_map(|event| event["payload"]["event_type"].as_str()).collect();
        assert!(kinds.ends_with(&["auto_retry_end", "agent_end"]), "{kinds:?}");
        host.close_cleanly();
    }
}

#[test]
fn a_breach_is_reported_to_the_prompt_whose_run_it_ends() {
    let place = HostFixture::new();
    place.provider.script_replies([ProviderReply::new(vec![
        bash_part("a", "ls"),
        bash_part("b", "ls"),
        bash_part("c", "touch late"),
    ])]);
    let mut host = start(&place, &[]);
    // Each prompt takes one, also the one that comes while the other's run works.
    negotiate(&mut host, &limited("max_tool_calls", 4));
    let from = host.frame_position();
    let prompt = |id: &str| json!({ "id": id, "type": "prompt", "message": "go" }).to_string() + "\n";
    host.write_input(prompt("first") + &prompt("second"));
    event(&host, from, "agent_end");
    let outcomes = |id: &str| {
        let all = host.frames_since(from).into_iter().filter(|frame| frame["type"] == "response" && frame["id"] == id);
        all.map(|frame| frame["success"] == true || frame["error"]["code"] == "budget_exceeded").collect::<Vec<_>>()
    };
    assert_eq!(
        (outcomes("first"), outcomes("second")),
        (vec![true, true], vec![false]),
        "{:?}",
        host.frames_since(from)
    );
    host.close_cleanly();
}

#[test]
fn more_of_a_budget_is_given_by_the_answer_to_a_gate() {
    for (decision, late) in [("approve", Some("")), ("decline", None)] {
        let place = HostFixture::new();
        place.provider.script_replies([
            ProviderReply::new(vec![bash_part("a", "ls"), bash_part("b", "touch late")]),
            text_reply("done"),
        ]);
        let mut host = start(&place, &[]);
        let mut declared = limited("max_tool_calls", 2);
        declared["on_breach"] = "gate".into();
        negotiate(&mut host, &declared);
        let from = host.send_prompt("go");
        let gate = host.wait_event(from, "workflow_gate");
        assert_eq!((&gate["stage"], &gate["kind"]), (&json!("ultragoal"), &json!("execution")), "{gate}");
        assert_eq!(place.read_file("late"), None, "{decision}: nothing begins meanwhile");
        let answer = json!({ "decision": decision });
        let wrong = json!({ "type": "workflow_gate_response", "gate_id": gate["gate_id"], "answer": "yes" });
        assert_eq!(host.command_data(wrong)["status"], "rejected");
        let resolution = host
            .command_data(json!({ "type": "workflow_gate_response", "gate_id": gate["gate_id"], "answer": answer }));
        assert_eq!(resolution["status"], "accepted", "{resolution}");
        if late.is_none() {
            let error = fails(&mut host, from);
            assert_eq!((&error["code"], &error["metric"]), (&json!("budget_exceeded"), &json!("tool_calls")));
        }
        event(&host, from, "agent_end");
        assert_eq!(place.read_file("late").as_deref(), late, "{decision}");
        let lines = ["gate_response_accepted accepted", ENDED[1]];
        let lines = if late.is_some() { &lines[..1] } else { &lines };
        let has = |audit: &Vec<String>| lines.iter().all(|line| audit.iter().any(|entry| entry == line));
        let audit = eventually("the lines of the end", || Some(audit(&place)).filter(has));
        assert!(audit.contains(&"gate_emitted info".to_owned()), "{audit:?}");
        assert!(audit.contains(&"budget_exceeded exceeded tool_calls".to_owned()), "{audit:?}");
        host.close_cleanly();
    }
}

#[test]
fn a_host_whose_time_is_up_can_still_look_and_give_more() {
    let place = HostFixture::new();
    let latch = Latch::default();
    place.provider.script_replies([ProviderReply::new(vec![ReplyPart::Until(latch.clone()), text_part("done")])]);
    let mut host = start(&place, &[]);
    let mut declared = limited("max_wall_time_ms", 1_500);
    declared["on_breach"] = "gate".into();
    negotiate(&mut host, &declared);
    let from = host.send_prompt("go");
    let gate = host.wait_event(from, "workflow_gate");
    assert_eq!(host.session_state()["isStreaming"], true, "what works may end");
    let waits = host.command_data(json!({ "type": "get_pending_workflow_gates" }));
    assert_eq!(waits["gates"][0]["gate_id"], gate["gate_id"]);
    assert_eq!(error(&mut host, json!({ "type": "bash", "command": "ls" }))["metric"], "wall_time");
    let answer = json!({ "decision": "approve" });
    let resolution =
        host.command_data(json!({ "type": "workflow_gate_response", "gate_id": gate["gate_id"], "answer": answer }));
    assert_eq!(resolution["status"], "accepted", "{resolution}");
    latch.open();
    event(&host, from, "agent_end");
    assert_eq!(host.command_data(json!({ "type": "bash", "command": "echo on" }))["output"], "on\n");
    host.close_cleanly();
}

#[test]
fn what_policy_asks_about_is_approved_like_a_plan() {
    let place = HostFixture::with_ask_rule();
    place.provider.script_replies([
        ProviderReply::new(vec![bash_part("a", "touch yes"), bash_part("b", "touch no")]),
        text_reply("done"),
    ]);
    let mut host = start(&place, &[]);
    negotiate(&mut host, &declaration(json!({})));
    let from = host.send_prompt("go");
    let mut respond = |command: &str, answer: Value| {
        let gate = host.wait_frame(from, command, |frame| {
            frame["type"] == "workflow_gate"
                && frame["context"]["prompt"].as_str().is_some_and(|text| text.contains(command))
        });
        assert_eq!((&gate["stage"], &gate["kind"]), (&json!("ralplan"), &json!("approval")), "{gate}");
        host.command_data(json!({ "type": "workflow_gate_response", "gate_id": gate["gate_id"], "answer": answer }))
    };
    assert_eq!(respond("touch yes", json!({ "decision": "approve" }))["status"], "accepted");
    let resolution = respond("touch no", json!({ "decision": "request-changes" }));
    assert_eq!(resolution["error"]["errors"][0]["keyword"], "missing_comments", "{resolution}");
    let resolution = respond("touch no", json!({ "decision": "reject", "comments": "not on a Sunday" }));
    assert_eq!(resolution["status"], "accepted", "{resolution}");
    event(&host, from, "agent_end");
    assert_eq!((place.read_file("yes").as_deref(), place.read_file("no")), (Some(""), None));
    let result = place.provider.last_request().call_result("b").unwrap();
    assert!(result.contains("not on a Sunday"), "{result}");
    host.close_cleanly();
}

#[test]
fn a_request_is_counted_with_the_system_prompt() {
    let place = HostFixture::new();
    let mut host = start(&place, &[]);
    // The prompt alone would fit by far.
    negotiate(&mut host, &limited("max_tokens", 600));
    let from = host.send_prompt("go");
    let error = fails(&mut host, from);
    assert_eq!((&error["metric"], &error["phase"]), (&json!("tokens"), &json!("turn preflight")), "{error}");
    assert!(error["observed"].as_u64() > Some(600), "{error}");
    assert_eq!(place.provider.request_count(), 0, "nobody was asked");
    host.close_cleanly();
}

#[test]
fn a_model_that_does_not_tell_what_it_uses_cannot_be_held_to_a_budget() {
    let place = HostFixture::new();
    let file = place.agent.join("models.yml");
    let models = fs::read_to_string(&file).unwrap();
    let quiet = models
        .replace("providers:\n  fake:\n", "providers:\n  fake:\n    compat: { supportsUsageInStreaming: false }\n");
    assert_ne!(quiet, models, "{models}");
    fs::write(&file, quiet).unwrap();
    let mut host = start(&place, &[]);
    let command = json!({ "type": "negotiate_unattended", "declaration": declaration(json!({})) });
    assert_eq!(error(&mut host, command)["code"], "unsupported_budget_metric");
    host.close_cleanly();
}

#[test]
fn no_tool_writes_into_the_audit() {
    let place = HostFixture::new();
    let write = |id, path: &str| call_part(id, "write", &json!({ "path": path, "content": "a lie" }));
    let tools = vec![
        write("w", ".gjc/audit/unattended/x.jsonl"),
        write("g", ".gjc/state/workflow-gates/x.json"),
        bash_part("b", "echo a lie >> .gjc/audit/unattended/y.jsonl"),
    ];
    place.provider.script_replies([ProviderReply::new(tools), text_reply("done")]);
    let mut host = start(&place, &[]);
    negotiate(&mut host, &declaration(json!({})));
    let from = host.send_prompt("go");
    event(&host, from, "agent_end");
    assert_eq!(audited(&place, "unattended_negotiated"), ["unattended_negotiated accepted"], "nothing else is there");
    for id in ["w", "g", "b"] {
        let result = place.provider.last_request().call_result(id).unwrap();
        assert!(result.contains("belongs to the gateway"), "{id}: {result}");
    }
    assert!(!place.work.join(".gjc/state").exists());
    host.close_cleanly();
}

#[test]
fn after_a_breach_nothing_begins_any_more() {
    let place = HostFixture::new();
    place.provider.script_replies([text_reply("hello").with_input_tokens(40_000)]);
    let mut host = start(&place, &[]);
    negotiate(&mut host, &limited("max_tokens", 30_000));
    let from = host.send_prompt("go");
    fails(&mut host, from);
    audited(&place, "unattended_abort_settled");
    for command in [
        json!({ "type": "prompt", "message": "again" }),
        json!({ "type": "bash", "command": "touch late" }),
        json!({ "type": "new_session" }),
    ] {
        let error = error(&mut host, command);
        assert!(["unattended_aborted", "scope_denied"].contains(&error["code"].as_str().unwrap()), "{error}");
    }
    let error = error(&mut host, json!({ "type": "negotiate_unattended", "declaration": declaration(json!({})) }));
    assert_eq!(error["code"], "unattended_aborted");
    assert_eq!(host.session_state()["isStreaming"], false, "what only reads is answered");
    host.close_cleanly();
}

#[test]
fn what_a_declaration_does_not_cover_is_refused() {
    let place = HostFixture::new();
    let mut host = start(&place, &[]);
    negotiate(&mut host, &declaration(json!({})));
    let session = host.session_state()["sessionId"].clone();
    let of = |code: &str, key: &str, value: &str| {
        let mut error = json!({ "code": code, "run_id": session, "session_id": session, "pre_side_effect": true });
        error[key] = value.into();
        error
    };
    let with_line = |mut error: Value, line: &str| {
        error["command"] = line.into();
        error
    };
    for (command, want) in [
        (json!({ "type": "new_session" }), of("scope_denied", "scope", "session")),
        (json!({ "type": "does_not_exist" }), of("scope_denied", "scope", "admin")),
        (json!({ "type": "set_host_tools", "tools": [] }), of("scope_denied", "scope", "host_tools")),
        (
            json!({ "type": "bash", "command": "bash -c 'rm x'" }),
            with_line(of("action_denied", "action", "file.delete"), "bash -c 'rm x'"),
        ),
        (
            json!({ "type": "bash", "command": "git push origin :x" }),
            with_line(of("action_denied", "action", "git.force_push"), "git push origin :x"),
        ),
    ] {
        assert_eq!(error(&mut host, command.clone()), want, "{command}");
    }
    let refused = [
        "unattended_negotiated accepted",
        "scope_denied denied session",
        "scope_denied denied admin",
        "scope_denied denied host_tools",
        "action_denied denied file.delete",
        "action_denied denied git.force_push",
    ];
    assert_eq!(audited(&place, "action_denied denied git.force_push"), refused);
    host.close_cleanly();
}

#[test]
fn the_agent_is_held_to_it_too() {
    let place = HostFixture::new();
    place.write_file("x", "kept");
    place.provider.script_replies([ProviderReply::new(vec![bash_part("a", "eval rm x")]), text_reply("done")]);
    let mut host = start(&place, &[]);
    negotiate(&mut host, &declaration(json!({})));
    let from = host.send_prompt("go");
    event(&host, from, "agent_end");
    assert_eq!(place.read_file("x").as_deref(), Some("kept"));
    let result = place.provider.last_request().call_result("a").unwrap();
    assert!(result.contains("does not cover action file.delete"), "{result}");
    let denied = ["unattended_negotiated accepted", "action_denied denied file.delete"];
    assert_eq!(audited(&place, "action_denied"), denied);
    host.close_cleanly();
}

#[test]
fn declaring_again_only_narrows() {
    let place = HostFixture::new();
    let mut host = start(&place, &[]);
    negotiate(&mut host, &limited("max_tokens", 500));
    negotiate(&mut host, &limited("max_tokens", 400));
    let wider = json!({ "type": "negotiate_unattended", "declaration": limited("max_tokens", 401) });
    let error = error(&mut host, wider);
    let message = "declaration widens what was negotiated: max_tokens";
    assert_eq!(error, json!({ "code": "invalid_unattended_declaration", "message": message }));
    host.close_cleanly();
}

#[test]
fn a_declaration_that_waits_for_somebody_is_answered_when_its_session_is_left() {
    for leaves in ["new_session", "end of input"] {
        let place = HostFixture::new();
        place.provider.script_replies([text_reply("hello")]);
        let mut host = start(&place, &[]);
        let mut declared = declaration(json!({ "renegotiable": true }));
        declared["scopes"].as_array_mut().unwrap().push("session".into());
        declared["action_allowlist"].as_array_mut().unwrap().push("command.session".into());
        let from = host.send_prompt("go");
        event(&host, from, "agent_end");
        negotiate(&mut host, &declared);
        let from = host.frame_position();
        declared["budget"]["max_tool_calls"] = 101.into();
        let request = host.send_command(json!({ "type": "negotiate_unattended", "declaration": declared }));
        host.wait_event(from, "workflow_gate");
        if leaves == "new_session" {
            host.command_data(json!({ "type": "new_session" }));
        } else {
            drop(host.take_input());
        }
        let error = host.wait_answer(&request)["error"].take();
        let message = "the session was left before anybody agreed to the declaration";
        assert_eq!(error, json!({ "code": "invalid_unattended_declaration", "message": message }), "{leaves}");
    }
}

#[test]
fn meters_and_terms_outlive_a_kill_and_the_audit_is_completed() {
    let place = HostFixture::new();
    let latch = Latch::default();
    place.provider.script_replies([ProviderReply::new(vec![ReplyPart::Until(latch.clone())])]);
    let mut host = start(&place, &[]);
    negotiate(&mut host, &limited("max_tool_calls", 2));
    host.send_prompt("go");
    place.provider.wait_request(0);
    host.kill();
    latch.open();
    // The file is completed from the log after the crash.
    let folder = place.work.join(".gjc/audit/unattended");
    let file = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let whole = fs::read_to_string(&file).unwrap();
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();

    let mut host = start(&place, &["--continue"]);
    assert_eq!(audited(&place, "unattended_negotiated"), ["unattended_negotiated accepted"]);
    let denied = error(&mut host, json!({ "type": "set_host_tools", "tools": [] }));
    assert_eq!(denied["code"], "scope_denied", "it is still under contract");
    let wider = json!({ "type": "negotiate_unattended", "declaration": limited("max_tool_calls", 3) });
    assert_eq!(error(&mut host, wider)["code"], "invalid_unattended_declaration");
    place.provider.script_replies([text_reply("hello")]);
    let from = host.send_prompt("again");
    event(&host, from, "agent_end");
    let error = error(&mut host, json!({ "type": "prompt", "message": "once more" }));
    let want = (&json!("budget_exceeded"), &json!("tool_calls"), &json!("prompt preflight"));
    assert_eq!((&error["code"], &error["metric"], &error["phase"]), want, "{error}");
    host.close_cleanly();
}

#[test]
fn another_session_is_under_the_same_contract() {
    let place = HostFixture::new();
    place.provider.script_replies([text_reply("hello")]);
    let mut host = start(&place, &[]);
    let mut wide = limited("max_tool_calls", 1);
    wide["scopes"].as_array_mut().unwrap().push("session".into());
    wide["action_allowlist"].as_array_mut().unwrap().push("command.session".into());
    let run = negotiate(&mut host, &wide)["run_id"].clone();
    let from = host.send_prompt("go");
    event(&host, from, "agent_end");
    host.command_data(json!({ "type": "new_session" }));
    let error = error(&mut host, json!({ "type": "prompt", "message": "again" }));
    assert_eq!((&error["code"], &error["run_id"]), (&json!("budget_exceeded"), &run), "{error}");
    assert_ne!(error["session_id"], run);
    host.close_cleanly();
}

#[test]
fn a_declaration_is_checked_before_anything_begins() {
    let place = HostFixture::new();
    let mut host = start(&place, &[]);
    for (declaration, code, message) in [
        (Value::Null, "invalid_unattended_declaration", "declaration is required"),
        (json!({ "actor": " " }), "invalid_unattended_declaration", "declaration.actor is required"),
        (
            declaration(json!({ "scopes": ["moon"] })),
            "invalid_unattended_declaration",
            "declaration.scopes contains unknown scope(s): moon",
        ),
        (limited("max_tool_calls", 0), "incomplete_budget", "budget.max_tool_calls must be a positive finite number"),
    ] {
        let refused = error(&mut host, json!({ "type": "negotiate_unattended", "declaration": declaration }));
        assert_eq!(refused, json!({ "code": code, "message": message }));
    }
    assert!(!place.work.join(".gjc").exists());
    host.command_data(json!({ "type": "new_session" }));
    host.close_cleanly();
}
