//! The same call repeated: after the wait of the hook, after a killed hook, and after a crash of the gateway.

use countersign_testkit::process::GatewayServer;
use serde_json::json;

use crate::hook_process::{RunningHook, claude_command, claude_input, decision, fixture};

#[test]
fn at_its_deadline_a_hook_denies_and_the_same_call_takes_the_decision_once() {
    let place = fixture();
    let gateway = GatewayServer::start(&place);
    let input = claude_command("make").to_string();
    let (word, why) = decision(&RunningHook::start(&place, "claude", &["--wait", "1"], &input).finish());
    let gate = place.wait_gate();
    assert!(word == "deny" && why.contains(&gate) && why.contains("Try the same call again"), "{why}");
    // The person decides while nobody waits, and the gateway crashes.
    place.allow_gate(&gate);
    gateway.kill();
    let _gateway = GatewayServer::start(&place);
    let mut repeated = claude_command("make");
    repeated["tool_use_id"] = "toolu_2".into();
    // A model describes it in other words.
    repeated["tool_input"]["description"] = "Builds the project".into();
    let repeated = repeated.to_string();
    let again = RunningHook::start(&place, "claude", &["--wait", "1"], &repeated).finish();
    assert_eq!(decision(&again).0, "allow");
    let third = RunningHook::start(&place, "claude", &["--wait", "1"], &repeated).finish();
    assert_eq!(decision(&third).0, "deny", "one decision is for one call");
    assert_eq!(place.wait_gates(1).len(), 1);
}

#[test]
fn headless_claude_is_deferred_unless_two_calls_wait() {
    let place = fixture();
    let _gateway = GatewayServer::start(&place);
    let headless = [("CLAUDE_CODE_SESSION_ATTENDED", "0")];
    let start = |command: &str, wait: &str| {
        let input = claude_command(command).to_string();
        RunningHook::start_in(&place, "claude", &["--wait", wait], &input, &headless)
    };
    assert_eq!(decision(&start("make one", "1").finish()).0, "defer");
    let gate = place.wait_gate();
    place.allow_gate(&gate);
    assert_eq!(decision(&start("make one", "1").finish()).0, "allow", "the resumed program asks again");
    let pair = [start("make two", "2"), start("make three", "2")];
    place.wait_gates(2);
    for hook in pair {
        assert_eq!(decision(&hook.finish()).0, "deny", "the program would lose the first of two deferred calls");
    }
    // The program may ask about the calls of one message one after the other.
    for (call, want) in [("toolu_2", "defer"), ("toolu_3", "deny")] {
        let mut input = claude_command(&format!("make {call}"));
        input["prompt_id"] = json!("q");
        input["tool_use_id"] = json!(call);
        let hook = RunningHook::start_in(&place, "claude", &["--wait", "1"], &input.to_string(), &headless);
        assert_eq!(decision(&hook.finish()).0, want, "{call}");
    }
}

#[test]
fn a_deferred_call_that_the_gateway_has_forgotten_takes_its_decision() {
    let place = fixture();
    let gateway = GatewayServer::start(&place);
    let ask = || {
        let headless = [("CLAUDE_CODE_SESSION_ATTENDED", "0")];
        let input = claude_command("make").to_string();
        RunningHook::start_in(&place, "claude", &["--wait", "1"], &input, &headless).finish()
    };
    assert_eq!(decision(&ask()).0, "defer");
    place.allow_gate(&place.wait_gate());
    // Deferred calls are only remembered until a restart.
    gateway.kill();
    let _gateway = GatewayServer::start(&place);
    assert_eq!(decision(&ask()).0, "allow");
    assert_eq!(decision(&ask()).0, "defer", "one decision is for one call");
}

#[test]
fn a_killed_hook_takes_no_decision() {
    let place = fixture();
    let _gateway = GatewayServer::start(&place);
    let input = claude_command("make").to_string();
    let hook = RunningHook::start(&place, "claude", &[], &input);
    let gate = place.wait_gate();
    hook.kill();
    place.allow_gate(&gate);
    let again = RunningHook::start(&place, "claude", &["--wait", "1"], &input).finish();
    assert_eq!(decision(&again).0, "allow");
}

#[test]
fn another_folder_or_another_session_is_another_call() {
    let place = fixture();
    let _gateway = GatewayServer::start(&place);
    let wait =
        |input: &serde_json::Value| RunningHook::start(&place, "claude", &["--wait", "1"], &input.to_string()).finish();
    let first = claude_input("Bash", serde_json::json!({"command": "make"}));
    assert_eq!(decision(&wait(&first)).0, "deny");
    place.allow_gate(&place.wait_gate());
    let mut elsewhere = first.clone();
    elsewhere["cwd"] = "/srv/work/sub".into();
    assert_eq!(decision(&wait(&elsewhere)).0, "deny");
    let mut other = first.clone();
    other["session_id"] = "77".into();
    assert_eq!(decision(&wait(&other)).0, "deny");
    assert_eq!(decision(&wait(&first)).0, "allow");
}

#[test]
fn a_decision_that_was_taken_is_not_taken_again_after_a_crash() {
    let place = fixture();
    let gateway = GatewayServer::start(&place);
    let input = claude_command("make").to_string();
    let hook = RunningHook::start(&place, "claude", &[], &input);
    place.allow_gate(&place.wait_gate());
    assert_eq!(decision(&hook.finish()).0, "allow");
    gateway.kill();
    let _gateway = GatewayServer::start(&place);
    let again = RunningHook::start(&place, "claude", &["--wait", "1"], &input).finish();
    assert_eq!(decision(&again).0, "deny");
}
