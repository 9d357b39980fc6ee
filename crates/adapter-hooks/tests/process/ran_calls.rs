//! Calls that ran, compared with those that were allowed.

use countersign_testkit::process::{GatewayOptions, GatewayServer};
use serde_json::{Value, json};

use crate::hook_process::{RULES, RunningHook, claude_command, fixture, run_hook};

fn after(mut input: Value) -> Value {
    input["hook_event_name"] = json!("PostToolUse");
    input["tool_response"] = json!({"stdout": "hi", "stderr": ""});
    input["duration_ms"] = json!(12);
    input
}

#[test]
fn a_call_that_ran_as_allowed_is_no_incident_and_another_one_is() {
    let place = fixture();
    let gateway = GatewayServer::start(&place);
    let allowed = claude_command("echo hi");
    run_hook(&place, "claude", &allowed);
    let mut ran = after(allowed);
    // Claude Code reports the folder after the command.
    ran["cwd"] = json!("/srv/work/sub");
    let answer = run_hook(&place, "claude", &ran);
    assert_eq!((answer.code, answer.document), (Some(0), None));
    assert!(place.pending_gates().is_empty());
    // Another hook has rewritten it, or a rule denied it and it ran in spite of that.
    let denied = claude_command("rm -rf x");
    run_hook(&place, "claude", &denied);
    for _ in 0..2 {
        assert_eq!(run_hook(&place, "claude", &after(denied.clone())).code, Some(0));
    }
    let incident = place.wait_gates(1).remove(0);
    let text = incident.to_string();
    assert!(text.contains("bash(rm -rf x)") && text.contains("was not allowed"), "{text}");
    gateway.kill();
    let _gateway = GatewayServer::start(&place);
    assert_eq!(place.wait_gates(1)[0]["id"], incident["id"], "until somebody has noted it");
    let noted = place.run_as_person(&["gates", "answer", incident["id"].as_str().unwrap(), "Noted"]);
    assert_eq!(noted.code, Some(0), "{noted:?}");
    place.verify_log();
}

#[test]
fn each_call_is_compared_with_its_own_decision() {
    let place = fixture();
    let _gateway = GatewayServer::start(&place);
    let mut first = claude_command("make deploy");
    first["tool_use_id"] = json!("a");
    let hook = RunningHook::start(&place, "claude", &[], &first.to_string());
    place.allow_gate(&place.wait_gate());
    hook.finish();
    run_hook(&place, "claude", &after(first));
    let mut second = claude_command("make deploy");
    second["tool_use_id"] = json!("b");
    let hook = RunningHook::start(&place, "claude", &[], &second.to_string());
    place.deny_gate(&place.wait_gate());
    hook.finish();
    run_hook(&place, "claude", &after(second));
    assert!(place.wait_gates(1)[0].to_string().contains("was not allowed"));
}

#[test]
fn an_incident_has_room_however_many_approvals_are_pending() {
    let place =
        GatewayOptions::new().with_config("rate_limit: { max_pending_approvals: 1 }\n").with_rules(RULES).create();
    let _gateway = GatewayServer::start(&place);
    let hook = RunningHook::start(&place, "claude", &["--wait", "1"], &claude_command("make").to_string());
    hook.finish();
    run_hook(&place, "claude", &after(claude_command("curl x | sh")));
    let gates = place.wait_gates(2);
    assert!(gates.iter().any(|gate| gate.to_string().contains("was not allowed")), "{gates:?}");
}

#[test]
fn one_decision_is_for_one_call() {
    let place = fixture();
    let gateway = GatewayServer::start(&place);
    let with_id = |id: &str| {
        let mut input = claude_command("echo hi");
        input["tool_use_id"] = id.into();
        input
    };
    run_hook(&place, "claude", &with_id("a"));
    for _ in 0..2 {
        run_hook(&place, "claude", &after(with_id("a")));
    }
    assert!(place.pending_gates().is_empty(), "the same report again is about the same call");
    run_hook(&place, "claude", &after(with_id("b")));
    assert!(place.wait_gates(1)[0].to_string().contains("was not allowed"));
    gateway.kill();
    let _gateway = GatewayServer::start(&place);
    // Of a call before the start the record knows only what it did.
    run_hook(&place, "claude", &after(with_id("a")));
    assert_eq!(place.wait_gates(1).len(), 1);
    run_hook(&place, "claude", &after(with_id("c")));
    assert_eq!(place.wait_gates(2).len(), 2);
}

#[test]
fn a_command_that_ran_in_another_folder_is_an_incident() {
    let place = fixture();
    let _gateway = GatewayServer::start(&place);
    let gemini = |event: &str, folder: &str| {
        json!({
            "session_id": "g0", "cwd": "/srv/work", "hook_event_name": event, "tool_name": "run_shell_command",
            "tool_input": {"command": "echo hi", "directory": folder},
        })
    };
    run_hook(&place, "gemini", &gemini("BeforeTool", "a"));
    run_hook(&place, "gemini", &gemini("AfterTool", "a"));
    assert!(place.pending_gates().is_empty());
    run_hook(&place, "gemini", &gemini("AfterTool", "/"));
    assert!(place.wait_gates(1)[0].to_string().contains("was not allowed"));
    for (program, event, ran) in
        [("codex", "PreToolUse", "PostToolUse"), ("opencode", "tool.execute.before", "tool.execute.after")]
    {
        let input = |event: &str, folder: &str| {
            // Codex runs each command with a closed input.
            let closing = if (program, event) == ("codex", ran) { "exec < /dev/null\n" } else { "" };
            let arguments = json!({"command": format!("{closing}echo {program}"), "workdir": folder});
            json!({
                "session_id": "s0", "sessionID": "s0", "cwd": "/srv/work", "hook_event_name": event, "tool_name": "Bash",
                "tool": "bash", "tool_input": arguments, "args": arguments, "tool_use_id": "1", "callID": "1",
            })
        };
        let known = place.pending_gates().len();
        run_hook(&place, program, &input(event, "/tmp/a"));
        run_hook(&place, program, &input(ran, "/tmp/a"));
        assert_eq!(place.pending_gates().len(), known, "{program}");
        run_hook(&place, program, &input(ran, "/"));
        place.wait_gates(known + 1);
    }
}

#[test]
fn a_call_that_ran_is_compared_whatever_its_result_is() {
    let place = fixture();
    let _gateway = GatewayServer::start(&place);
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let large = format!("\"{}\"", "x".repeat(17 << 20));
    for (number, response) in ["{\"stdout\":\"\\ud83d\"}", "1e999", &deep, &large].into_iter().enumerate() {
        let mut ran = after(claude_command(&format!("rm {number}")));
        ran["tool_response"] = json!("RESULT");
        let whole = ran.to_string().replace("\"RESULT\"", response);
        let answer = RunningHook::start(&place, "claude", &[], &whole).finish();
        assert_eq!((answer.code, answer.document), (Some(0), None), "{number}: {}", answer.message);
        place.wait_gates(number + 1);
    }
    let unknown = after(claude_command("rm x")).to_string().replace("\"rm x\"", "\"\\ud83d\"");
    let answer = RunningHook::start(&place, "claude", &[], &unknown).finish();
    assert!(answer.code == Some(1) && answer.message.contains("the call ran"), "{answer:?}");
}
