//! Surfaces of a gate, and whether they are up to date.

use std::time::Duration;

use countersign_core::{
    engine::{Command, CommandError, EngineReply, ResumeMode},
    gate::{self, AnswerError, ApprovalScope, GateReply, GateSurface},
    id::{GateId, IdGenerator},
    session::WhenBusy,
};

use crate::engine_fixture::{EngineFixture, EngineOutcome, asking_rules, tool_call};

fn gated() -> (EngineFixture, GateId) {
    let mut stage = EngineFixture::new(asking_rules());
    stage.send_prompt(WhenBusy::Refuse);
    stage.request_calls([tool_call("write", "a")]);
    let gate = stage.oldest_gate();
    (stage, gate)
}

fn shown(stage: &mut EngineFixture, gate: GateId, reference: &str) -> EngineOutcome {
    let (surface, reference) = ("chat".to_owned(), reference.to_owned());
    stage.send_command(Command::Gate(gate::Command::Shown { gate, surface, reference }))
}

fn updated(stage: &mut EngineFixture, gate: GateId, reference: &str) -> EngineOutcome {
    let (surface, reference) = ("chat".to_owned(), reference.to_owned());
    stage.send_command(Command::Gate(gate::Command::Updated { gate, surface, reference }))
}

fn done_outcome(facts: &[&str]) -> EngineOutcome {
    EngineOutcome(facts.iter().map(|fact| (*fact).to_owned()).collect(), Ok(EngineReply::Done))
}

#[test]
fn what_a_surface_shows_is_recorded_once_and_survives() {
    let (mut stage, gate) = gated();
    assert_eq!(shown(&mut stage, gate, "7"), done_outcome(&["gate shown"]));
    assert_eq!(shown(&mut stage, gate, "7"), done_outcome(&[]));
    assert_eq!(updated(&mut stage, gate, "7"), done_outcome(&[]), "it waits: there is no end to show");
    stage.restart(asking_rules(), ResumeMode::Go);
    stage.answer_gate(gate, GateReply::Allow(ApprovalScope::Once), "ana", None);
    assert_eq!(shown(&mut stage, gate, "8"), done_outcome(&["gate shown"]), "sent while somebody answered");
    assert_eq!(updated(&mut stage, gate, "7"), done_outcome(&["gate updated"]));
    assert_eq!(updated(&mut stage, gate, "7"), done_outcome(&[]));
    assert_eq!(updated(&mut stage, gate, "9"), done_outcome(&[]), "nothing was shown there");
    let showing = |reference: &str, is_final, revision| GateSurface {
        surface: "chat".to_owned(),
        reference: reference.to_owned(),
        is_final,
        round: 0,
        revision,
    };
    let kept = stage.engine.state().gate(gate).expect("it was resolved just now");
    assert_eq!(
        (kept.shown_surfaces(), kept.owes_update()),
        (&[showing("7", true, 0), showing("8", false, 0)][..], true)
    );
}

#[test]
fn nothing_is_shown_of_a_gate_that_nobody_opened() {
    let (mut stage, _) = gated();
    let unknown = GateId::new(IdGenerator::new([9; 16]).next_uuid(stage.now));
    let refusal = CommandError::Answer(AnswerError::Unknown(unknown));
    assert_eq!(shown(&mut stage, unknown, "7"), EngineOutcome(Vec::new(), Err(refusal)));
}

#[test]
fn a_gate_whose_end_is_not_shown_stays_a_day() {
    for (case, references, after, want) in [
        ("never shown", &[][..], 601, false),
        ("shown and up to date", &["7"], 601, false),
        ("not up to date", &["7", "8"], 601, true),
        ("not up to date", &["7", "8"], 86_401, false),
    ] {
        let (mut stage, gate) = gated();
        for reference in references {
            shown(&mut stage, gate, reference);
        }
        stage.answer_gate(gate, GateReply::Allow(ApprovalScope::Once), "ana", None);
        stage.end_call(0);
        updated(&mut stage, gate, "7");
        let now = stage.now + Duration::from_secs(after);
        stage.engine.evict_idle(now, None);
        assert_eq!(stage.engine.state().gate(gate).is_some(), want, "{case} after {after} s");
    }
}
