use countersign_core::message::StopReason;

use super::facts_with;
use crate::{
    engine_fixture::open_rules,
    states::{calling, gated, thinking},
};

#[test]
fn a_turn_closes_when_every_call_of_it_has_ended() {
    let closed = "run turn_closed, run turn_opened, run asked";
    for (case, outcome, want) in [
        ("one call", calling(["write"]).end_call(0), closed),
        ("the first of two", calling(["look", "look"]).end_call(0), ""),
        ("the second of two", calling(["look", "look"]).end_call(1), ""),
        ("a call behind it begins", calling(["write", "write"]).end_call(0), ""),
    ] {
        assert_eq!(facts_with(&outcome, "run"), want, "{case}");
    }
    let mut both = calling(["look", "look"]);
    both.end_call(1);
    assert_eq!(facts_with(&both.end_call(0), "run"), closed, "both of two");
}

#[test]
fn a_turn_without_calls_closes_with_its_answer() {
    let outcome = thinking(open_rules()).answer(StopReason::Stop, Vec::new(), None);
    assert_eq!(facts_with(&outcome, "run"), "run answered, run turn_closed, run ended completed");
}

#[test]
fn the_calls_of_a_closed_turn_are_forgotten() {
    let mut stage = calling(["write"]);
    let call = stage.calls()[0];
    assert!(stage.engine.state().call(call).is_some());
    stage.end_call(0);
    assert!(stage.engine.state().call(call).is_none());
    assert_eq!(stage.calls(), []);
    assert_eq!(gated().calls().len(), 1);
}
