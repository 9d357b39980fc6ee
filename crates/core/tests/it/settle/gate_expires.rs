use countersign_core::{
    engine::Command,
    gate::{ApprovalScope, GateReply},
};

use super::only;
use crate::{
    stage::{Stage, asking, open},
    states::{calling, gated, under},
};

/// The gates that are resolved when time has passed up to `early` milliseconds before the first deadline.
fn tick(stage: &mut Stage, early: u64) -> String {
    stage.now.0 = stage.engine.state().next_deadline().expect("something waits").0 - early;
    only(&stage.tell(Command::Tick), "gate resolved")
}

#[test]
fn a_gate_expires_at_its_deadline_and_not_before() {
    for (case, mut stage, early, want) in [
        ("approval, at", gated(), 0, "gate resolved expired"),
        ("approval, before", gated(), 1, ""),
        ("question, at", calling(["ask"]), 0, "gate resolved expired"),
        ("question, before", calling(["ask"]), 1, ""),
        ("two of one time", under(asking(), ["write", "write"]), 0, "gate resolved expired, gate resolved expired"),
    ] {
        assert_eq!(tick(&mut stage, early), want, "{case}");
    }
}

#[test]
fn only_the_gate_whose_time_has_come_expires() {
    let mut stage = calling(["ask"]);
    let first = stage.engine.state().next_deadline().unwrap();
    stage.now.0 += 1_000;
    let gate = stage.gate();
    stage.decide(gate, GateReply::Decline, "ana", None);
    stage.now = first;
    assert_eq!(only(&stage.tell(Command::Tick), "gate"), "", "the first was answered, the second came later");
    assert_eq!(tick(&mut stage, 0), "gate resolved expired");
}

#[test]
fn a_gate_that_was_answered_does_not_expire() {
    let mut stage = gated();
    let deadline = stage.engine.state().next_deadline().unwrap();
    let gate = stage.gate();
    stage.decide(gate, GateReply::Allow(ApprovalScope::Once), "ana", None);
    stage.now = deadline;
    assert_eq!(only(&stage.tell(Command::Tick), "gate"), "");
}

#[test]
fn what_nobody_answered_is_no_allow_and_no_denial_by_a_person() {
    let mut stage = gated();
    stage.now = stage.engine.state().next_deadline().unwrap();
    let told = stage.tell(Command::Tick);
    let denied = "gate resolved expired, session entry tool_result, call ended denied, run turn_closed, \
                  run turn_opened, run asked";
    assert_eq!(told.0.join(", "), denied);
    assert_eq!(stage.result(), "Denied: nobody answered in time.");
    assert_eq!(stage.engine.state().policy().constraints().iter().count(), 0);
}

#[test]
fn a_question_that_nobody_answered_is_followed_by_the_next() {
    let mut stage = crate::states::under(open(), ["ask"]);
    tick(&mut stage, 0);
    tick(&mut stage, 0);
    assert_eq!(stage.result(), "Which?\n  (nobody answered in time)\nWhy?\n  (nobody answered in time)");
}
