use countersign_core::{
    engine::{Command, Event, ResumeMode},
    gate::{ApprovalScope, GateReply},
    id::{IdGenerator, PrincipalId, RunId},
    run,
    session::WhenBusy,
    time::Millis,
};

use super::facts_with;
use crate::{
    engine_fixture::{EngineFixture, EngineOutcome, asking_rules, tool_call},
    states::{deny, thinking},
};

fn asked_about<const N: usize>(paths: [&str; N]) -> EngineFixture {
    let mut stage = thinking(asking_rules());
    stage.request_calls(paths.map(|path| tool_call("write", path)));
    stage
}

fn answer(stage: &mut EngineFixture, answer: GateReply) -> EngineOutcome {
    let gate = stage.oldest_gate();
    stage.answer_gate(gate, answer, "ana", None)
}

fn denied(times: usize) -> EngineFixture {
    let mut stage = asked_about(["a", "b", "c", "d", "e"]);
    for _ in 0..times {
        answer(&mut stage, deny(None));
    }
    stage
}

#[test]
fn the_third_denial_in_a_row_denies_all_pending_gates() {
    for (times, waiting) in [(0, 5), (1, 4), (2, 3), (3, 0)] {
        assert_eq!(denied(times).engine.state().pending_gates().count(), waiting, "{times}");
    }
    assert!(denied(3).last_result().starts_with("Denied: three denials in a row."));
}

#[test]
fn an_allow_between_denials_resets_the_count() {
    let mut stage = denied(2);
    let gate = stage.oldest_gate();
    stage.answer_gate(gate, GateReply::Allow(ApprovalScope::Once), "ana", None);
    assert_eq!(facts_with(&answer(&mut stage, deny(None)), "run denied"), "run denied 1");
    assert_eq!(stage.engine.state().pending_gates().count(), 1);
}

#[test]
fn an_allow_forgives_the_same_persons_denials_and_nobody_elses() {
    for (case, denials, by, want) in [
        ("the same person's", ["ana", "ana"], "ana", 1),
        ("somebody else's", ["ana", "ana"], "bo", 3),
        ("one of two", ["ana", "bo"], "bo", 2),
    ] {
        let mut stage = denied(0);
        for person in denials {
            let gate = stage.oldest_gate();
            stage.answer_gate(gate, deny(None), person, None);
        }
        let gate = stage.oldest_gate();
        stage.answer_gate(gate, GateReply::Allow(ApprovalScope::Once), by, None);
        let summary = facts_with(&answer(&mut stage, deny(None)), "run denied");
        assert_eq!(summary, format!("run denied {want}"), "{case}");
        assert_eq!(stage.engine.state().pending_gates().count(), usize::from(want < 3), "{case}");
        stage.restart(asking_rules(), ResumeMode::Go);
    }
}

#[test]
fn forgiving_denials_lets_a_run_request_again_except_by_the_agent() {
    let forgive = |stage: &mut EngineFixture, by: &str| {
        let forgive = run::Command::Forgive { run: stage.current_run(), by: PrincipalId::new(by) };
        stage.send_command(Command::Run(forgive)).table_cell()
    };
    for (case, times, by, want, asks) in [
        ("a person", 3, "bo", "Done: run denials_forgiven", true),
        ("the agent", 3, "agent", "refused: an agent takes no denial back", false),
        ("nothing was denied", 0, "bo", "Idle", true),
    ] {
        let mut stage = denied(times);
        if times == 0 {
            stage = thinking(asking_rules());
        }
        assert_eq!(forgive(&mut stage, by), want, "{case}");
        assert_eq!(
            !facts_with(&stage.request_calls([tool_call("write", "f")]), "gate opened").is_empty(),
            asks,
            "{case}"
        );
    }
}

#[test]
fn a_denial_that_is_taken_back_binds_no_longer() {
    for (case, by, want, asks) in [
        ("a person", "bo", "Done: policy lifted", true),
        ("the agent", "agent", "refused: an agent takes no denial back", false),
    ] {
        let mut stage = asked_about(["a"]);
        answer(&mut stage, deny(None));
        let one = stage.engine.state().policy().constraints().iter().next().unwrap().clone();
        let lift = || Command::Lift {
            principal: one.principal.clone(),
            key: one.key,
            session: one.session.clone(),
            by: PrincipalId::new(by),
        };
        assert_eq!(stage.send_command(lift()).table_cell(), want, "{case}");
        assert_eq!(
            !facts_with(&stage.request_calls([tool_call("write", "a")]), "gate opened").is_empty(),
            asks,
            "{case}"
        );
        if asks {
            assert_eq!(stage.send_command(lift()).table_cell(), "Idle", "{case}: it is gone");
        }
    }
}

#[test]
fn a_gate_that_nobody_answered_is_no_denial() {
    let mut stage = denied(2);
    stage.now = stage.engine.state().next_deadline().unwrap();
    stage.send_command(Command::Tick);
    assert_eq!(facts_with(&stage.request_calls([tool_call("write", "f")]), "gate opened").len(), OPENED.len());
}

const OPENED: &str = "gate opened approval [\"once\",\"session\",\"always\"]";

#[test]
fn a_tripped_run_asks_for_nothing_and_does_what_needs_no_asking() {
    for (case, tool, want) in [
        ("what would be asked about", "write", "call wanted, call ended denied"),
        ("what only reads", "look", "call wanted, call allowed, call started"),
        ("a question to the person", "ask", "call wanted, call allowed, call started"),
    ] {
        assert_eq!(facts_with(&denied(3).request_calls([tool_call(tool, "f")]), "call"), want, "{case}");
    }
}

#[test]
fn the_next_run_asks_again() {
    let mut stage = denied(3);
    stage.answer(countersign_core::message::StopReason::Stop, Vec::new(), None);
    stage.send_prompt(WhenBusy::Refuse);
    assert_eq!(facts_with(&stage.request_calls([tool_call("write", "f")]), "call"), "call wanted, call gated");
}

#[test]
fn denials_of_earlier_versions_can_still_be_read() {
    let run = RunId::new(IdGenerator::new([9; 16]).next_uuid(Millis(1)));
    for (text, event) in [
        (r#"{"denied":{"run":"ID","in_a_row":2}}"#, run::Event::Denied { run, in_a_row: 2, by: None }),
        (r#"{"denials_forgiven":{"run":"ID"}}"#, run::Event::DenialsForgiven { run, of: None, by: None }),
    ] {
        let id = serde_json::to_value(run).unwrap();
        let text = text.replace("ID", id.as_str().unwrap());
        assert_eq!(Event::decode("run", 1, &text).unwrap(), Event::Run(event));
    }
}
