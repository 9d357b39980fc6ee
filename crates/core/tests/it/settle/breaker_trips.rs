use countersign_core::{
    engine::Command,
    gate::{Answer, Scope},
    session::WhenBusy,
};

use super::only;
use crate::{
    stage::{Stage, Told, asking, wanted},
    states::{deny, thinking},
};

fn asked_about<const N: usize>(paths: [&str; N]) -> Stage {
    let mut stage = thinking(asking());
    stage.want(paths.map(|path| wanted("write", path)));
    stage
}

fn answer(stage: &mut Stage, answer: Answer) -> Told {
    let gate = stage.gate();
    stage.decide(gate, answer, "ana", None)
}

fn denied(times: usize) -> Stage {
    let mut stage = asked_about(["a", "b", "c", "d", "e"]);
    for _ in 0..times {
        answer(&mut stage, deny(None));
    }
    stage
}

#[test]
fn the_third_denial_in_a_row_denies_everything_that_is_still_asked() {
    for (times, waiting) in [(0, 5), (1, 4), (2, 3), (3, 0)] {
        assert_eq!(denied(times).engine.state().pending_gates().count(), waiting, "{times}");
    }
    assert!(denied(3).result().starts_with("Denied: three denials in a row."));
}

#[test]
fn an_allow_between_denials_begins_the_count_anew() {
    let mut stage = denied(2);
    let gate = stage.gate();
    stage.decide(gate, Answer::Allow(Scope::Once), "ana", None);
    assert_eq!(only(&answer(&mut stage, deny(None)), "run denied"), "run denied 1");
    assert_eq!(stage.engine.state().pending_gates().count(), 1);
}

#[test]
fn a_gate_that_nobody_answered_is_no_denial() {
    let mut stage = denied(2);
    stage.now = stage.engine.state().next_deadline().unwrap();
    stage.tell(Command::Tick);
    assert_eq!(only(&stage.want([wanted("write", "f")]), "gate opened").len(), OPENED.len());
}

const OPENED: &str = "gate opened approval [\"once\",\"session\",\"always\"]";

#[test]
fn a_tripped_run_asks_for_nothing_and_does_what_needs_no_asking() {
    for (case, tool, want) in [
        ("what would be asked about", "write", "call wanted, call ended denied"),
        ("what only reads", "look", "call wanted, call allowed, call started"),
        ("a question to the person", "ask", "call wanted, call allowed, call started"),
    ] {
        assert_eq!(only(&denied(3).want([wanted(tool, "f")]), "call"), want, "{case}");
    }
}

#[test]
fn the_next_run_asks_again() {
    let mut stage = denied(3);
    stage.answer(countersign_core::message::StopReason::Stop, Vec::new(), None);
    stage.prompt(WhenBusy::Refuse);
    assert_eq!(only(&stage.want([wanted("write", "f")]), "call"), "call wanted, call gated");
}
