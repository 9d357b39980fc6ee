use countersign_core::{
    engine::ActiveRules,
    run::ResolvedCall,
    tool::{CallConcurrency, RepeatMode, ToolEffect},
};

use super::facts_from;
use crate::{
    engine_fixture::{EngineFixture, asking_rules, open_rules, rules_from, tool_call},
    states::thinking,
};

const STARTS: &str = "call allowed, call started";
const ASKS: &str = "call gated, gate opened approval [\"once\",\"session\",\"always\"]";
const GOES_ON: &str = "run turn_closed, run turn_opened, run asked";

fn judged(rules: ActiveRules, wants: ResolvedCall) -> (EngineFixture, String) {
    let mut stage = thinking(rules);
    let outcome = stage.request_calls([wants]);
    let summary = facts_from(&outcome, "call wanted").replacen("call wanted, ", "", 1);
    (stage, summary)
}

fn broken() -> ResolvedCall {
    ResolvedCall { problem: Some("no such tool".into()), ..tool_call("write", "a") }
}

#[test]
fn a_call_is_allowed_denied_or_gated_by_policy() {
    let refused = format!("session entry tool_result, call ended denied, {GOES_ON}");
    let failed = format!("session entry tool_result, call ended failed, {GOES_ON}");
    let question = "call allowed, call started, gate opened question []";
    for (case, rules, wants, want) in [
        ("no rules, a stdio door", open_rules(), tool_call("write", "a"), STARTS),
        ("no rules, elsewhere", asking_rules(), tool_call("write", "a"), ASKS),
        ("it only reads inside", asking_rules(), tool_call("look", "a"), STARTS),
        ("it reads outside", asking_rules(), tool_call("look", "/etc/x"), ASKS),
        ("a rule allows", rules_from(&["allow write(a)"]), tool_call("write", "a"), STARTS),
        ("a rule asks", rules_from(&["ask write(a)"]), tool_call("write", "a"), ASKS),
        ("a rule denies", rules_from(&["deny write(a)"]), tool_call("write", "a"), &refused),
        ("deny before allow", rules_from(&["allow write(a)", "deny write(*)"]), tool_call("write", "a"), &refused),
        ("allow before ask", rules_from(&["ask write(*)", "allow write(a)"]), tool_call("write", "a"), STARTS),
        ("a floor", open_rules(), tool_call("bash", "rm -rf /"), "call gated, gate opened approval [\"once\"]"),
        (
            "no rule covers a floor",
            rules_from(&["allow *"]),
            tool_call("bash", "rm -rf /"),
            "call gated, gate opened approval [\"once\"]",
        ),
        ("a question to a person", open_rules(), tool_call("ask", ""), question),
        ("nobody has to allow a question", asking_rules(), tool_call("ask", ""), question),
        ("a rule may deny a question", rules_from(&["deny ask(*)"]), tool_call("ask", ""), &refused),
        ("it cannot be run", open_rules(), broken(), &failed),
        ("nobody is asked about what cannot be run", asking_rules(), broken(), &failed),
    ] {
        assert_eq!(judged(rules, wants).1, want, "{case}");
    }
}

#[test]
fn the_model_reads_why_a_call_was_not_run() {
    let rule = "Denied by policy: by rule \"write(a)\" (permissions.yaml)";
    for (case, rules, wants, want) in [
        ("by rule", rules_from(&["deny write(a)"]), tool_call("write", "a"), rule),
        ("problem", open_rules(), broken(), "no such tool"),
    ] {
        assert_eq!(judged(rules, wants).0.last_result(), want, "{case}");
    }
}

#[test]
fn each_call_of_a_message_is_judged_by_itself_and_in_order() {
    let mut stage = thinking(rules_from(&["deny write(b)", "ask write(c)"]));
    let outcome = stage.request_calls(
        ["a", "b", "c"].map(|path| ResolvedCall { concurrency: CallConcurrency::Shared, ..tool_call("write", path) }),
    );
    let want = "call wanted, call wanted, call wanted, call allowed, session entry tool_result, call ended denied, \
                call gated, gate opened approval [\"once\",\"session\",\"always\"], call started";
    assert_eq!(facts_from(&outcome, "call wanted"), want);
}

#[test]
fn nothing_is_judged_while_the_process_closes() {
    let mut stage = thinking(asking_rules());
    stage.engine.quiesce();
    assert_eq!(stage.request_calls([tool_call("write", "a")]).0.last().unwrap(), "call wanted");
}

#[test]
fn a_tool_that_may_change_something_needs_approval_whatever_its_concurrency() {
    let reads = tool_call("look", "a");
    for (case, wants, want) in [
        ("reads", reads.clone(), STARTS),
        ("reads, alone", ResolvedCall { concurrency: CallConcurrency::Exclusive, ..reads.clone() }, STARTS),
        ("reads, not to be repeated", ResolvedCall { repeat: RepeatMode::Once, ..reads.clone() }, STARTS),
        ("changes", ResolvedCall { effect: ToolEffect::Changes, ..reads }, ASKS),
    ] {
        assert_eq!(judged(asking_rules(), wants).1, want, "{case}");
    }
}
