use countersign_core::{
    engine::Command,
    gate::{ApprovalScope, GateReply},
};

use super::facts_with;
use crate::{
    engine_fixture::{EngineFixture, asking_rules, open_rules},
    states::{calling, gated, under},
};

/// Returns the gates that are resolved when time has passed up to `early` milliseconds before the first deadline.
fn tick(stage: &mut EngineFixture, early: u64) -> String {
    stage.now.0 = stage.engine.state().next_deadline().expect("something waits").0 - early;
    facts_with(&stage.send_command(Command::Tick), "gate resolved")
}

#[test]
fn a_gate_expires_at_its_deadline_and_not_before() {
    for (case, mut stage, early, want) in [
        ("approval, at", gated(), 0, "gate resolved expired"),
        ("approval, before", gated(), 1, ""),
        ("question, at", calling(["ask"]), 0, "gate resolved expired"),
        ("question, before", calling(["ask"]), 1, ""),
        (
            "two of one time",
            under(asking_rules(), ["write", "write"]),
            0,
            "gate resolved expired, gate resolved expired",
        ),
    ] {
        assert_eq!(tick(&mut stage, early), want, "{case}");
    }
}

#[test]
fn only_the_gate_whose_time_has_come_expires() {
    let mut stage = calling(["ask"]);
    let first = stage.engine.state().next_deadline().unwrap();
    stage.now.0 += 1_000;
    let gate = stage.oldest_gate();
    stage.answer_gate(gate, GateReply::Decline, "ana", None);
    stage.now = first;
    assert_eq!(
        facts_with(&stage.send_command(Command::Tick), "gate"),
        "",
        "the first was answered, the second came later"
    );
    assert_eq!(tick(&mut stage, 0), "gate resolved expired");
}

#[test]
fn a_gate_that_was_answered_does_not_expire() {
    let mut stage = gated();
    let deadline = stage.engine.state().next_deadline().unwrap();
    let gate = stage.oldest_gate();
    stage.answer_gate(gate, GateReply::Allow(ApprovalScope::Once), "ana", None);
    stage.now = deadline;
    assert_eq!(facts_with(&stage.send_command(Command::Tick), "gate"), "");
}

#[test]
fn what_nobody_answered_is_no_allow_and_no_denial_by_a_person() {
    let mut stage = gated();
    stage.now = stage.engine.state().next_deadline().unwrap();
    let outcome = stage.send_command(Command::Tick);
    let denied = "gate resolved expired, session entry tool_result, call ended denied, run turn_closed, \
                  run turn_opened, run asked";
    assert_eq!(outcome.0.join(", "), denied);
    assert_eq!(stage.last_result(), "Denied: nobody answered in time.");
    assert_eq!(stage.engine.state().policy().constraints().iter().count(), 0);
}

#[test]
fn a_question_that_nobody_answered_is_followed_by_the_next() {
    let mut stage = crate::states::under(open_rules(), ["ask"]);
    tick(&mut stage, 0);
    tick(&mut stage, 0);
    assert_eq!(stage.last_result(), "Which?\n  (nobody answered in time)\nWhy?\n  (nobody answered in time)");
}
