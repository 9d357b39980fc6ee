//! Decisions of rules and people about calls of each program.

use std::{fs, os::unix::fs::symlink};

use countersign_testkit::process::{GatewayOptions, GatewayServer};
use serde_json::{Value, json};

use crate::hook_process::{RunningHook, claude_command, claude_input, decision, fixture, run_hook};

#[test]
fn rules_decide_about_calls_of_every_program() {
    let place = fixture();
    let _gateway = GatewayServer::start(&place);
    let codex = |command: &str| {
        json!({
            "session_id": "c0", "turn_id": "1", "cwd": "/srv/work", "hook_event_name": "PreToolUse", "model": "m",
            "permission_mode": "default", "tool_name": "Bash", "tool_input": {"command": command}, "tool_use_id": "call_1",
        })
    };
    let gemini = |command: &str| {
        json!({
            "session_id": "g0", "transcript_path": "/x", "cwd": "/srv/work", "hook_event_name": "BeforeTool",
            "timestamp": "2026-11-27T10:00:00Z", "tool_name": "run_shell_command", "tool_input": {"command": command},
        })
    };
    let copilot = |command: &str| {
        json!({
            "sessionId": "p0", "timestamp": 1, "cwd": "/srv/work", "toolName": "bash",
            "toolArgs": json!({"command": command}).to_string(),
        })
    };
    let opencode = |command: &str| {
        json!({
            "hook_event_name": "tool.execute.before", "tool": "bash", "sessionID": "ses_0", "callID": "call_1",
            "args": {"command": command, "description": "d"}, "cwd": "/srv/work",
        })
    };
    for (program, allowed, denied) in [
        ("opencode", opencode("echo hi"), opencode("rm -rf x")),
        ("claude", claude_command("echo hi"), claude_command("rm -rf x")),
        ("codex", codex("echo hi"), codex("rm -rf x")),
        ("gemini", gemini("echo hi"), gemini("rm -rf x")),
        ("copilot", copilot("echo hi"), copilot("rm -rf x")),
    ] {
        let yes = run_hook(&place, program, &allowed);
        let want = match program {
            "claude" => {
                Some(json!({"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}))
            }
            "codex" => Some(json!({"hookSpecificOutput": {
                "hookEventName": "PreToolUse", "permissionDecision": "allow",
                "updatedInput": {"command": "exec < /dev/null\necho hi"},
            }})),
            "gemini" | "opencode" => Some(json!({"decision": "allow"})),
            _ => Some(json!({"permissionDecision": "allow"})),
        };
        assert_eq!((yes.code, &yes.document, yes.message.as_str()), (Some(0), &want, ""), "{program}");
        let no = run_hook(&place, program, &denied);
        let document = no.document.as_ref().unwrap();
        let (word, why) = match program {
            "claude" | "codex" => {
                let decided = &document["hookSpecificOutput"];
                (&decided["permissionDecision"], &decided["permissionDecisionReason"])
            }
            "gemini" | "opencode" => (&document["decision"], &document["reason"]),
            _ => (&document["permissionDecision"], &document["permissionDecisionReason"]),
        };
        assert_eq!((no.code, word), (Some(0), &json!("deny")), "{program}");
        assert!(why.as_str().unwrap().contains("Denied by policy"), "{program}: {why}");
    }
    assert!(place.pending_gates().is_empty());
    place.verify_log();
}

#[test]
fn codex_starts_no_program_that_obeys_what_is_written_to_it_later() {
    let place = GatewayOptions::new().with_rules("defaults:\n  - { pattern: \"*\", action: allow }\n").create();
    let _gateway = GatewayServer::start(&place);
    let input = |command: &str| {
        json!({
            "session_id": "c0", "cwd": "/srv/work", "hook_event_name": "PreToolUse", "tool_name": "Bash",
            "tool_input": {"command": command}, "tool_use_id": "call_1",
        })
    };
    for (command, is_allowed) in
        [("cat | bash", false), ("python3", false), ("python3 < /dev/null", true), ("bash x.sh", true)]
    {
        let answer = run_hook(&place, "codex", &input(command));
        match is_allowed {
            true => {
                assert_eq!(decision(&answer).0, "allow", "{command}");
                let input = &answer.document.as_ref().unwrap()["hookSpecificOutput"]["updatedInput"];
                assert_eq!(*input, json!({ "command": format!("exec < /dev/null\n{command}") }));
            }
            false => assert!(decision(&answer).1.contains("< /dev/null"), "{command}: {answer:?}"),
        }
        // Claude Code has no way to write to a command.
        let (word, _) = decision(&run_hook(&place, "claude", &claude_command(command)));
        assert_eq!(word, "allow", "{command}");
    }
}

#[test]
fn a_person_decides_about_what_no_rule_covers() {
    let place = fixture();
    let _gateway = GatewayServer::start(&place);
    for allowed in [true, false] {
        let mut input = claude_command("make install");
        input["agent_id"] = json!("a1");
        input["agent_type"] = json!("Explore");
        let hook = RunningHook::start(&place, "claude", &[], &input.to_string());
        let gate = place.wait_gates(1).remove(0);
        assert_eq!(
            [&gate["door"], &gate["session"], &gate["subject"]],
            [&json!("claude"), &json!("claude:5f0c"), &json!("bash(make install)")]
        );
        assert_eq!(gate["requester"], "claude:5f0c/Explore:a1");
        let id = gate["id"].as_str().unwrap();
        let shown = place.run_as_person(&["gates", "show", id]).out;
        assert!(shown.contains("asked by  claude:5f0c/Explore:a1 in session \"claude:5f0c\""), "{shown}");
        if allowed {
            place.allow_gate(id)
        } else {
            place.deny_gate(id)
        }
        let (word, why) = decision(&hook.finish());
        assert_eq!(word, if allowed { "allow" } else { "deny" });
        assert!(allowed || why.contains("Denied by") && why.contains(id), "{why}");
    }
    let exported = place.run_as_person(&["audit", "export"]).out;
    assert!(exported.contains("claude:5f0c/Explore:a1"), "the record names the agent below the main one");
    place.verify_log();
}

#[test]
fn a_command_is_judged_in_the_folder_of_the_program() {
    let place = fixture();
    let _gateway = GatewayServer::start(&place);
    let rule = |input: &Value| RunningHook::start(&place, "claude", &["--wait", "1"], &input.to_string()).finish();
    // Outside of the folder in which the session began a broad rule covers no change.
    let mut inside = claude_input("Bash", json!({"command": "touch made.txt"}));
    assert_eq!(decision(&rule(&inside)).0, "allow");
    inside["cwd"] = json!("/etc");
    let (word, why) = decision(&rule(&inside));
    assert!(word == "deny" && why.contains("is still open"), "{why}");
    let gate = place.wait_gates(1).remove(0);
    assert_eq!(gate["arguments"]["cwd"], "/etc", "{gate}");
}

#[test]
fn a_prompt_of_the_program_is_answered_in_its_own_form() {
    let place = fixture();
    let _gateway = GatewayServer::start(&place);
    for (command, behavior) in [("echo hi", "allow"), ("rm x", "deny")] {
        let mut input = claude_command(command);
        input["hook_event_name"] = json!("PermissionRequest");
        let answer = run_hook(&place, "claude", &input);
        let decided = &answer.document.as_ref().unwrap()["hookSpecificOutput"];
        assert_eq!(decided["hookEventName"], "PermissionRequest");
        assert_eq!(decided["decision"]["behavior"], behavior, "{answer:?}");
    }
}

#[test]
fn without_rules_only_reading_in_the_folder_of_the_session_is_allowed() {
    let place = GatewayOptions::new().with_rules("rules: []\n").create();
    let _gateway = GatewayServer::start(&place);
    for (tool, arguments, want) in [
        ("Read", json!({"file_path": "/srv/work/a.txt"}), "allow"),
        ("Read", json!({"file_path": "/srv/other/a.txt"}), "deny"),
        ("Write", json!({"file_path": "/srv/work/a.txt", "content": "x"}), "deny"),
        ("Bash", json!({"command": "ls"}), "deny"),
        ("WebFetch", json!({"url": "http://x"}), "deny"),
    ] {
        let input = claude_input(tool, arguments).to_string();
        let answer = RunningHook::start(&place, "claude", &["--wait", "1"], &input).finish();
        assert_eq!(decision(&answer).0, want, "{input}");
    }
}

#[test]
fn the_call_of_a_proof_is_denied_whatever_the_rules_say() {
    let place = fixture();
    let _gateway = GatewayServer::start(&place);
    let (word, why) = decision(&run_hook(&place, "claude", &claude_command("echo hi # countersign-proof-of-guard")));
    assert!(word == "deny" && why.contains("proves a guard"), "{why}");
}

#[test]
fn a_link_hides_no_file_that_a_rule_or_the_floor_protects() {
    let place = GatewayOptions::new().with_rules("rules: [ { pattern: \"*\", action: allow } ]\n").create();
    let _gateway = GatewayServer::start(&place);
    let work = place.folder.join("work");
    fs::create_dir_all(work.join(".git")).unwrap();
    symlink(work.join(".git"), work.join("g2")).unwrap();
    symlink(place.data_dir(), work.join("data")).unwrap();
    for (tool, arguments, want) in [
        ("Write", json!({"file_path": "plain.txt", "content": "x"}), "allow"),
        ("Write", json!({"file_path": ".git/config", "content": "x"}), "deny"),
        ("Write", json!({"file_path": "g2/config", "content": "x"}), "deny"),
        ("Write", json!({"file_path": "x\n/../.git/config", "content": "x"}), "deny"),
        ("Read", json!({"file_path": "data/web.key"}), "deny"),
        ("Grep", json!({"pattern": "x", "path": "data/web.key"}), "deny"),
        (
            "apply_patch",
            json!({"patch": "*** Begin Patch\n*** Add File: .git/hooks/pre-commit\n+x\n*** End Patch"}),
            "deny",
        ),
    ] {
        let mut input = claude_input(tool, arguments);
        input["cwd"] = work.to_str().unwrap().into();
        let answer = RunningHook::start(&place, "claude", &["--wait", "1"], &input.to_string()).finish();
        assert_eq!(decision(&answer).0, want, "{input}");
    }
}

#[test]
fn an_agent_below_the_main_one_works_in_the_folder_of_the_session() {
    let place = fixture();
    let _gateway = GatewayServer::start(&place);
    run_hook(&place, "claude", &claude_command("echo hi"));
    let mut below = claude_command("touch passwd");
    below["cwd"] = json!("/etc");
    below["agent_id"] = json!("a2");
    let answer = RunningHook::start(&place, "claude", &["--wait", "1"], &below.to_string()).finish();
    assert_eq!(decision(&answer).0, "deny");
}

#[test]
fn a_prompt_about_a_call_takes_the_decision_that_was_made_for_its_id() {
    let place = fixture();
    let _gateway = GatewayServer::start(&place);
    let input = |event: &str, command: &str| {
        json!({
            "session_id": "c0", "cwd": "/srv/work", "hook_event_name": event, "tool_name": "Bash",
            "tool_input": {"command": command, "description": event}, "tool_use_id": "call_1",
        })
    };
    let hook = RunningHook::start(&place, "codex", &[], &input("PreToolUse", "make").to_string());
    place.allow_gate(&place.wait_gate());
    assert_eq!(decision(&hook.finish()).0, "allow");
    let answer = run_hook(&place, "codex", &input("PermissionRequest", "make"));
    let decided = &answer.document.as_ref().unwrap()["hookSpecificOutput"]["decision"];
    assert_eq!(decided["behavior"], "allow", "{answer:?}");
    assert!(place.pending_gates().is_empty(), "one call is one question");
    let other = input("PermissionRequest", "make clean").to_string();
    let answer = RunningHook::start(&place, "codex", &["--wait", "1"], &other).finish();
    assert_eq!(answer.document.unwrap()["hookSpecificOutput"]["decision"]["behavior"], "deny");
    assert_eq!(place.wait_gates(1).len(), 1);
}

#[test]
fn a_decision_is_not_taken_once_a_rule_denies_the_call() {
    let place = fixture();
    let gateway = GatewayServer::start(&place);
    let input = claude_command("make").to_string();
    let ask = || RunningHook::start(&place, "claude", &["--wait", "1"], &input).finish();
    assert_eq!(decision(&ask()).0, "deny");
    place.allow_gate(&place.wait_gate());
    gateway.kill();
    let rules = "rules:\n  - { pattern: \"bash(make*)\", action: deny }\n";
    fs::write(place.folder.join("permissions.yaml"), rules).unwrap();
    let _gateway = GatewayServer::start(&place);
    let (word, why) = decision(&ask());
    assert!(word == "deny" && why.contains("Denied by policy"), "{why}");
}
