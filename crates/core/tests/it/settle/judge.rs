use countersign_core::{
    engine::ActiveRules,
    run::ResolvedCall,
    tool::{Lane, RepeatMode, ToolEffect},
};

use super::from;
use crate::{
    stage::{Stage, asking, open, ruled, wanted},
    states::thinking,
};

const STARTS: &str = "call allowed, call started";
const ASKS: &str = "call gated, gate opened approval [\"once\",\"session\",\"always\"]";
const GOES_ON: &str = "run turn_closed, run turn_opened, run asked";

fn judged(rules: ActiveRules, wants: ResolvedCall) -> (Stage, String) {
    let mut stage = thinking(rules);
    let told = stage.want([wants]);
    let told = from(&told, "call wanted").replacen("call wanted, ", "", 1);
    (stage, told)
}

fn broken() -> ResolvedCall {
    ResolvedCall { problem: Some("no such tool".into()), ..wanted("write", "a") }
}

#[test]
fn a_call_is_allowed_refused_or_asked_about_as_policy_says() {
    let refused = format!("session entry tool_result, call ended denied, {GOES_ON}");
    let failed = format!("session entry tool_result, call ended failed, {GOES_ON}");
    let asked = "call allowed, call started, gate opened question []";
    for (case, rules, wants, want) in [
        ("no rules, a stdio door", open(), wanted("write", "a"), STARTS),
        ("no rules, elsewhere", asking(), wanted("write", "a"), ASKS),
        ("it only reads inside", asking(), wanted("look", "a"), STARTS),
        ("it reads outside", asking(), wanted("look", "/etc/x"), ASKS),
        ("a rule allows", ruled(&["allow write(a)"]), wanted("write", "a"), STARTS),
        ("a rule asks", ruled(&["ask write(a)"]), wanted("write", "a"), ASKS),
        ("a rule denies", ruled(&["deny write(a)"]), wanted("write", "a"), &refused),
        ("deny before allow", ruled(&["allow write(a)", "deny write(*)"]), wanted("write", "a"), &refused),
        ("allow before ask", ruled(&["ask write(*)", "allow write(a)"]), wanted("write", "a"), STARTS),
        ("a floor", open(), wanted("bash", "rm -rf /"), "call gated, gate opened approval [\"once\"]"),
        (
            "no rule covers a floor",
            ruled(&["allow *"]),
            wanted("bash", "rm -rf /"),
            "call gated, gate opened approval [\"once\"]",
        ),
        ("a question to a person", open(), wanted("ask", ""), asked),
        ("nobody has to allow a question", asking(), wanted("ask", ""), asked),
        ("a rule may deny a question", ruled(&["deny ask(*)"]), wanted("ask", ""), &refused),
        ("it cannot be run", open(), broken(), &failed),
        ("nobody is asked about what cannot be run", asking(), broken(), &failed),
    ] {
        assert_eq!(judged(rules, wants).1, want, "{case}");
    }
}

#[test]
fn the_model_is_told_why_a_call_was_not_run() {
    let rule = "Denied by policy: by rule \"write(a)\" (permissions.yaml)";
    for (case, rules, wants, want) in [
        ("by rule", ruled(&["deny write(a)"]), wanted("write", "a"), rule),
        ("problem", open(), broken(), "no such tool"),
    ] {
        assert_eq!(judged(rules, wants).0.result(), want, "{case}");
    }
}

#[test]
fn each_call_of_a_message_is_judged_by_itself_and_in_order() {
    let mut stage = thinking(ruled(&["deny write(b)", "ask write(c)"]));
    let told = stage.want(["a", "b", "c"].map(|path| ResolvedCall { lane: Lane::Shared, ..wanted("write", path) }));
    let want = "call wanted, call wanted, call wanted, call allowed, session entry tool_result, call ended denied, \
                call gated, gate opened approval [\"once\",\"session\",\"always\"], call started";
    assert_eq!(from(&told, "call wanted"), want);
}

#[test]
fn nothing_is_judged_while_the_process_closes() {
    let mut stage = thinking(asking());
    stage.engine.quiesce();
    assert_eq!(stage.want([wanted("write", "a")]).0.last().unwrap(), "call wanted");
}

#[test]
fn a_tool_that_may_change_something_is_asked_about_whatever_its_lane() {
    let reads = wanted("look", "a");
    for (case, wants, want) in [
        ("reads", reads.clone(), STARTS),
        ("reads, alone", ResolvedCall { lane: Lane::Exclusive, ..reads.clone() }, STARTS),
        ("reads, not to be repeated", ResolvedCall { repeat: RepeatMode::Once, ..reads.clone() }, STARTS),
        ("changes", ResolvedCall { effect: ToolEffect::Changes, ..reads }, ASKS),
    ] {
        assert_eq!(judged(asking(), wants).1, want, "{case}");
    }
}
