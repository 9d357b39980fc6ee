use countersign_core::{engine::Command, id::GateId};

use crate::{
    engine_fixture::{EngineFixture, asking_rules, open_rules, tool_call},
    states::deny,
};

fn gated(tool: &str, path: &str) -> (EngineFixture, GateId) {
    let mut stage = EngineFixture::new(asking_rules());
    stage.send_prompt(countersign_core::session::WhenBusy::Refuse);
    stage.request_calls([tool_call(tool, path)]);
    let gate = stage.oldest_gate();
    (stage, gate)
}

#[test]
fn a_denial_binds_and_the_same_persons_allow_lifts_it() {
    let (mut stage, gate) = gated("write", "a");
    let denied = stage.answer_gate(gate, deny(None), "ana", None).0;
    assert_eq!(denied[..3], ["gate resolved denied", "policy constrained", "run denied 1"]);
    let again = stage.request_calls([tool_call("write", "a")]).0;
    assert_eq!(again[3..5], ["session entry tool_result", "call ended denied"]);
}

#[test]
fn three_denials_in_a_row_end_the_asking_of_a_run() {
    let mut stage = EngineFixture::new(asking_rules());
    stage.send_prompt(countersign_core::session::WhenBusy::Refuse);
    stage.request_calls(["a", "b", "c", "d"].map(|path| tool_call("write", path)));
    for _ in 0..2 {
        let gate = stage.oldest_gate();
        stage.answer_gate(gate, deny(None), "ana", None);
    }
    let gate = stage.oldest_gate();
    let third = stage.answer_gate(gate, deny(None), "ana", None).0;
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
    let next = stage.request_calls([tool_call("write", "e")]).0;
    assert_eq!(next[3..5], ["session entry tool_result", "call ended denied"], "nothing is asked any more");
}

#[test]
fn a_rule_that_came_since_wins_when_a_call_starts() {
    let mut stage = EngineFixture::new(open_rules());
    stage.send_prompt(countersign_core::session::WhenBusy::Refuse);
    stage.request_calls([tool_call("write", "a"), tool_call("write", "b")]);
    stage.send_command(Command::UseRules(Box::new(asking_rules())));
    assert_eq!(
        stage.end_call(0).0,
        [
            "session entry tool_result",
            "call ended done",
            "call gated",
            "gate opened approval [\"once\",\"session\",\"always\"]"
        ]
    );
}
