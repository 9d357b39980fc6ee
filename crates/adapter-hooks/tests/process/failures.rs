//! Whatever fails on our side blocks the call: exit code 2, and no document.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::UnixListener,
    process::Stdio,
};

use countersign_testkit::process::{GatewayFixture, GatewayServer};
use serde_json::{Value, json};

use crate::hook_process::{HookAnswer, RunningHook, claude_command, claude_input, decision, fixture, run_hook};

fn is_blocked(answer: &HookAnswer) -> bool {
    answer.code == Some(2) && answer.document.is_none() && !answer.message.is_empty()
}

#[test]
fn without_a_gateway_every_call_is_blocked() {
    let place = fixture();
    for program in ["claude", "codex", "gemini", "opencode"] {
        let answer = run_hook(&place, program, &claude_command("echo hi"));
        assert!(is_blocked(&answer) && answer.message.contains("countersign serve"), "{answer:?}");
    }
    // Copilot CLI shows its agent nothing of a failed hook, and obeys a denial.
    let answer = run_hook(&place, "copilot", &json!({}));
    let denied = answer.document.as_ref().unwrap_or_else(|| panic!("{answer:?}"));
    assert_eq!((answer.code, &denied["permissionDecision"]), (Some(0), &json!("deny")));
    assert!(denied["permissionDecisionReason"].as_str().unwrap().contains("countersign serve"), "{answer:?}");
    let mut after = claude_command("echo hi");
    after["hook_event_name"] = json!("PostToolUse");
    let answer = run_hook(&place, "claude", &after);
    assert!(answer.code == Some(1) && answer.message.contains("the call ran"), "it was not blocked: {answer:?}");
    let server = GatewayServer::start(&place);
    let hook = RunningHook::start(&place, "claude", &[], &claude_command("make").to_string());
    place.wait_gate();
    server.kill();
    let answer = hook.finish();
    assert!(is_blocked(&answer) && answer.message.contains("repeat the call"), "{answer:?}");
}

#[test]
fn a_configuration_in_the_folder_of_the_program_selects_no_gateway() {
    let place = fixture();
    let _gateway = GatewayServer::start(&place);
    // The fixture's own folder has a config.yaml, whose gateway runs.
    let mut command = place.binary_command();
    command.args(["hook", "claude"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(claude_command("echo hi").to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]), "{output:?}");
}

#[test]
fn input_that_cannot_be_decided_is_blocked() {
    let place = fixture();
    let _gateway = GatewayServer::start(&place);
    let run = |place: &GatewayFixture, program: &str, input: &str| {
        RunningHook::start(place, program, &["--wait", "1"], input).finish()
    };
    let changed = |field: &str, value: Value| {
        let mut input = claude_command("echo hi");
        input[field] = value;
        input.to_string()
    };
    for (input, named) in [
        (String::new(), "JSON"),
        ("hello".to_owned(), "JSON"),
        ("[]".to_owned(), "JSON"),
        (changed("hook_event_name", json!("PreToolUze")), "hook_event_name"),
        (changed("hook_event_name", json!(null)), "hook_event_name"),
        (changed("session_id", json!("")), "session_id"),
        (changed("session_id", json!("../x y")), "session_id"),
        (changed("cwd", json!("relative")), "cwd"),
        (changed("tool_name", json!(7)), "tool_name"),
        (changed("tool_input", json!("x")), "tool_input"),
    ] {
        let answer = run(&place, "claude", &input);
        assert!(is_blocked(&answer) && answer.message.contains(named), "{input}: {answer:?}");
    }
    for wrong in ["cursor", "Claude", ""] {
        let answer = run(&place, wrong, &claude_command("echo hi").to_string());
        assert!(is_blocked(&answer), "{wrong}: {answer:?}");
    }
    for flags in [&["--wait", "0"][..], &["--wait", "soon"], &["--unknown"]] {
        let answer = RunningHook::start(&place, "claude", flags, &claude_command("echo hi").to_string()).finish();
        assert!(is_blocked(&answer), "{flags:?}: {answer:?}");
    }
    // The reason is for the agent where the call itself is wrong.
    let (word, why) = decision(&run_hook(&place, "claude", &claude_input("Bash", json!({"command": 5}))));
    assert!(word == "deny" && why.contains("Bash needs the text argument command"), "{why}");
    let large = "x".repeat(2 << 20);
    let (word, why) = decision(&run_hook(&place, "claude", &claude_command(&format!("echo {large}"))));
    assert!(word == "deny" && why.contains("too large"), "{why}");
    let huge = format!("{{\"x\": \"{}\"}}", "x".repeat(17 << 20));
    let answer = run(&place, "claude", &huge);
    assert!(is_blocked(&answer) && answer.message.contains("larger than"), "{:?}", answer.code);
    let mut unknown = claude_command("echo hi");
    unknown["of_a_newer_version"] = json!({"x": [1]});
    assert_eq!(decision(&run_hook(&place, "claude", &unknown)).0, "allow", "unknown fields change nothing");
}

#[test]
fn an_answer_that_no_program_obeys_blocks_the_call() {
    let place = fixture();
    fs::create_dir_all(place.data_dir()).unwrap();
    let listener = UnixListener::bind(place.data_dir().join("countersign.sock")).unwrap();
    for answer in [
        "{\"ok\":{}}\n",
        "{\"ok\":{\"verdict\":\"deny\"}}\n",
        "{\"ok\":{\"exit\":1}}\n",
        "{\"ok\":{\"exit\":1,\"message\":\"x\"}}\n",
        "{\"ok\":{\"exit\":0,\"document\":{\"foo\":1}}}\n",
        "{\"ok\":{\"exit\":0}}",
        "",
    ] {
        for program in ["claude", "codex"] {
            let hook = RunningHook::start(&place, program, &["--wait", "1"], &claude_command("echo hi").to_string());
            let (mut stream, _) = listener.accept().unwrap();
            BufReader::new(&stream).read_line(&mut String::new()).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            drop(stream);
            let ended = hook.finish();
            assert!(is_blocked(&ended), "{program} {answer}: {ended:?}");
        }
    }
}
