//! A process that dies after any batch of a run that asks people: nothing that was recorded is lost, and nothing happens twice.
//!
//! The run asks two questions, then has a plan approved, then an execution signed off: open, show, answer, accept, advance, four times. The
//! client that answers does not know the recorded state, and answers again under the same key.

use countersign_core::{
    digest::Digest,
    engine::{CommandError, ResumeMode},
    gate::{AnswerError, AnswerForm, Gate, GateReply, Kind},
    message::StopReason,
    run::RunPhase,
    session::WhenBusy,
};
use serde_json::json;

use crate::{
    engine_fixture::{EngineFixture, open_rules, tool_call},
    states::idle,
};

/// Returns the answer of a host to a gate, at any time.
fn answer(gate: &Gate) -> (GateReply, String) {
    let labels = match (gate.kind(), gate.number()) {
        (Kind::Question, 1) => vec!["left"],
        (Kind::Question, _) => vec!["because"],
        _ => vec!["approve"],
    };
    let form = json!({ "said": labels });
    let reply = GateReply::Say(labels.into_iter().map(str::to_owned).collect());
    let digest = Digest::hash_bytes(form.to_string().as_bytes());
    (
        GateReply::Form(Box::new(AnswerForm { answer: reply, form, digest })),
        format!("key {:?} {}", gate.kind(), gate.number()),
    )
}

/// Executes the next step of the host or the model. False once there is nothing left.
fn go_on(stage: &mut EngineFixture) -> bool {
    if let Some(gate) = stage.first_gate() {
        let (answer, key) = answer(&gate);
        stage.answer_gate(gate.id(), answer, "host", Some(&key)).1.expect("it is offered");
        return true;
    }
    let done = stage.call_results().len();
    let Some(run) = stage.current_session().run() else {
        let is_over = done == 3;
        if !is_over {
            stage.send_prompt(WhenBusy::Refuse);
        }
        return !is_over;
    };
    assert!(matches!(stage.engine.state().run(run).map(|run| run.phase()), Some(RunPhase::Thinking { .. })));
    match done {
        0 => stage.request_calls([tool_call("ask", "")]),
        1 => stage.request_calls([tool_call("plan", "")]),
        2 => stage.request_calls([tool_call("execution", "")]),
        _ => stage.answer(StopReason::Stop, Vec::new(), None),
    };
    true
}

fn whole() -> EngineFixture {
    let mut stage = idle();
    while go_on(&mut stage) {}
    stage
}

#[test]
fn a_death_behind_any_batch_loses_nothing_and_doubles_nothing() {
    let whole = whole();
    let results = whole.call_results();
    assert_eq!(results.len(), 3, "{results:?}");
    let opened_at = idle().batches();
    for resume in [ResumeMode::Go, ResumeMode::Wait] {
        for dies_after in opened_at..=whole.batches() {
            let mut stage = whole.clone();
            // Answers from before the process died, recorded or not.
            let answered: Vec<Gate> = whole.engine.state().all_gates().cloned().collect();
            stage.die_after(dies_after, open_rules(), resume);
            for gate in answered {
                let (given, key) = answer(&gate);
                let is_known = stage.engine.state().gate(gate.id()).is_some();
                match stage.answer_gate(gate.id(), given, "host", Some(&key)).1 {
                    Ok(_) => assert!(is_known, "{dies_after}"),
                    Err(CommandError::Answer(AnswerError::Unknown(_))) => assert!(!is_known, "{dies_after}"),
                    Err(other) => panic!("{dies_after}: {other}"),
                }
            }
            while go_on(&mut stage) {}
            assert_eq!(stage.call_results(), results, "{resume:?}, behind batch {dies_after}");
            let counts = stage.resolutions();
            assert_eq!(counts.len(), 4, "{resume:?}, behind batch {dies_after}: each was opened once");
            assert!(counts.iter().all(|(_, resolved)| *resolved == 1), "{dies_after}: {counts:?}");
            let numbers: Vec<_> = stage.current_session().gates_by_stage().map(|(_, gates)| gates).collect();
            assert_eq!(numbers, [2, 1, 1], "{dies_after}");
        }
    }
}
