use countersign_core::message::StopReason;

use super::only;
use crate::{
    stage::open,
    states::{calling, gated, thinking},
};

#[test]
fn a_turn_closes_when_every_call_of_it_has_ended() {
    let closed = "run turn_closed, run turn_opened, run asked";
    for (case, told, want) in [
        ("one call", calling(["write"]).end(0), closed),
        ("the first of two", calling(["look", "look"]).end(0), ""),
        ("the second of two", calling(["look", "look"]).end(1), ""),
        ("a call behind it begins", calling(["write", "write"]).end(0), ""),
    ] {
        assert_eq!(only(&told, "run"), want, "{case}");
    }
    let mut both = calling(["look", "look"]);
    both.end(1);
    assert_eq!(only(&both.end(0), "run"), closed, "both of two");
}

#[test]
fn a_turn_without_calls_closes_with_its_answer() {
    let told = thinking(open()).answer(StopReason::Stop, Vec::new(), None);
    assert_eq!(only(&told, "run"), "run answered, run turn_closed, run ended completed");
}

#[test]
fn the_calls_of_a_closed_turn_are_forgotten() {
    let mut stage = calling(["write"]);
    let call = stage.calls()[0];
    assert!(stage.engine.state().call(call).is_some());
    stage.end(0);
    assert!(stage.engine.state().call(call).is_none());
    assert_eq!(stage.calls(), []);
    assert_eq!(gated().calls().len(), 1);
}
