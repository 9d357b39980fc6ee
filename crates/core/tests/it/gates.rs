use countersign_core::{engine::Command, id::GateId};

use crate::{
    stage::{Stage, asking, open, wanted},
    states::deny,
};

fn gated(tool: &str, path: &str) -> (Stage, GateId) {
    let mut stage = Stage::new(asking());
    stage.prompt(countersign_core::session::WhenBusy::Refuse);
    stage.want([wanted(tool, path)]);
    let gate = stage.gate();
    (stage, gate)
}

#[test]
fn a_denial_binds_and_the_same_persons_allow_lifts_it() {
    let (mut stage, gate) = gated("write", "a");
    let denied = stage.decide(gate, deny(None), "ana", None).0;
    assert_eq!(denied[..3], ["gate resolved denied", "policy constrained", "run denied 1"]);
    let again = stage.want([wanted("write", "a")]).0;
    assert_eq!(again[3..5], ["session entry tool_result", "call ended denied"]);
}

#[test]
fn three_denials_in_a_row_end_the_asking_of_a_run() {
    let mut stage = Stage::new(asking());
    stage.prompt(countersign_core::session::WhenBusy::Refuse);
    stage.want(["a", "b", "c", "d"].map(|path| wanted("write", path)));
    for _ in 0..2 {
        let gate = stage.gate();
        stage.decide(gate, deny(None), "ana", None);
    }
    let gate = stage.gate();
    let third = stage.decide(gate, deny(None), "ana", None).0;
    assert_eq!(
        third,
        [
            "gate resolved denied",
            "policy constrained",
            "run denied 3",
            "session entry tool_result",
            "call ended denied",
            "gate resolved withdrawn",
            "session entry tool_result",
            "call ended denied",
            "run turn_closed",
            "run turn_opened",
            "run asked",
        ]
    );
    let next = stage.want([wanted("write", "e")]).0;
    assert_eq!(next[3..5], ["session entry tool_result", "call ended denied"], "nothing is asked any more");
}

#[test]
fn a_rule_that_came_since_wins_when_a_call_starts() {
    let mut stage = Stage::new(open());
    stage.prompt(countersign_core::session::WhenBusy::Refuse);
    stage.want([wanted("write", "a"), wanted("write", "b")]);
    stage.tell(Command::UseRules(Box::new(asking())));
    assert_eq!(
        stage.end(0).0,
        [
            "session entry tool_result",
            "call ended done",
            "call gated",
            "gate opened approval [\"once\",\"session\",\"always\"]"
        ]
    );
}
