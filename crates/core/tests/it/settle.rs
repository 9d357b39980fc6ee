//! The settle rules: for each the smallest state in which it returns facts, and the nearest in which it does not.

mod abort_ends;
mod ask_model;
mod ask_questions;
mod backoff_over;
mod breaker_trips;
mod call_starts;
mod gate_expires;
mod gate_settles;
mod grant_covers;
mod judge;
mod question_settings;
mod queue_goes_on;
mod run_continues;
mod steer_skips;
mod turn_closes;
mod withheld_calls;

use countersign_core::{
    call,
    engine::{Command, DecisionContext, Event, RecordedFact},
    gate,
    id::{IdGenerator, PrincipalId},
    message::StopReason,
    run::{self, ModelAnswer, ResolvedCall},
    session::{self, MessageQueue, QueueModes, TakeMode, WhenBusy},
};

use crate::{
    engine_fixture::{EngineFixture, EngineOutcome, asking_rules, open_rules, sample_message, session_id, tool_call},
    states::{deny, idle, thinking},
};

/// Returns the facts from the one that begins with `first`; nothing if there is none.
fn facts_from(outcome: &EngineOutcome, first: &str) -> String {
    let at = outcome.0.iter().position(|fact| fact.starts_with(first)).unwrap_or(outcome.0.len());
    outcome.0[at..].join(", ")
}

/// Returns the facts that begin with `word`.
fn facts_with(outcome: &EngineOutcome, word: &str) -> String {
    outcome.0.iter().filter(|fact| fact.starts_with(word)).cloned().collect::<Vec<_>>().join(", ")
}

/// Returns every fact of a command and of the batches after it, none of which holds more than `most`.
fn batches(stage: &EngineFixture, command: Command, most: usize) -> Vec<RecordedFact> {
    let mut engine = stage.engine.clone().with_bound(most);
    let mut context = DecisionContext { now: stage.now, fresh: IdGenerator::new([77; 16]) };
    let (mut facts, _) = engine.handle_command(command, &mut context).expect("it is no refusal");
    assert!(facts.len() <= most, "{} facts with the command", facts.len());
    assert!(engine.is_unsettled(), "that is too much for one batch");
    while engine.is_unsettled() {
        let more = engine.settle(&mut context);
        assert!(more.len() <= most, "{} facts behind it", more.len());
        facts.extend(more);
    }
    let places: Vec<u64> = facts.iter().map(|recorded| recorded.meta.lsn.0).collect();
    assert!(places.windows(2).all(|pair| pair[0] + 1 == pair[1]), "one behind the other");
    facts
}

fn ended(facts: &[RecordedFact]) -> usize {
    facts.iter().filter(|recorded| matches!(recorded.fact.event, Event::Call(call::Event::Ended { .. }))).count()
}

#[test]
fn what_does_not_fit_into_one_batch_goes_on_in_the_next() {
    let stage = thinking(open_rules());
    let broken = ResolvedCall { problem: Some("no such tool".into()), ..tool_call("write", "a") };
    let answer = ModelAnswer {
        message: sample_message(1),
        stop: StopReason::ToolUse,
        total_tokens: 0,
        calls: vec![broken; 1_000],
        failure: None,
        others: Vec::new(),
        spent: None,
    };
    let answered = run::Command::Answered { run: stage.current_run(), epoch: 1, answer: Box::new(answer) };
    let facts = batches(&stage, Command::Run(answered), 1_024);
    assert_eq!(ended(&facts), 1_000);
    assert!(matches!(facts.last().unwrap().fact.event, Event::Run(run::Event::ModelRequested { .. })));
}

#[test]
fn a_rule_that_has_much_to_say_is_cut() {
    let paths: Vec<String> = (0..100).map(|at| at.to_string()).collect();
    let all = |tool: &str| paths.iter().map(|path| tool_call(tool, path)).collect::<Vec<_>>();
    let mut gated = thinking(asking_rules());
    gated.answer(StopReason::ToolUse, all("write"), None);
    let mut works = thinking(open_rules());
    works.answer(StopReason::ToolUse, all("look"), None);
    let abort = || Command::Run(run::Command::Abort { session: session_id() });
    assert_eq!(ended(&batches(&gated, abort(), 10)), 100);
    assert_eq!(batches(&works, abort(), 10).len(), 101, "each is told to stop");
    let mut expired = gated.clone();
    expired.now = expired.engine.state().next_deadline().unwrap();
    assert_eq!(ended(&batches(&expired, Command::Tick, 10)), 100);
    let mut tripped = gated;
    for _ in 0..2 {
        let gate = tripped.oldest_gate();
        tripped.answer_gate(gate, deny(None), "ana", None);
    }
    let (gate, by) = (tripped.oldest_gate(), PrincipalId::new("ana"));
    let third = gate::Command::Answer { gate, answer: deny(None), by, key: None };
    assert_eq!(ended(&batches(&tripped, Command::Gate(third), 10)), 98);
}

#[test]
fn a_long_queue_is_taken_in_parts() {
    let mut stage = idle();
    stage.change_setting(session::SessionSetting::Modes(QueueModes {
        steering: TakeMode::All,
        ..QueueModes::default()
    }));
    for _ in 0..300 {
        stage.session_command(session::Command::Queue { queue: MessageQueue::Steering, message: sample_message(0) });
    }
    let dequeued =
        |outcome: &EngineOutcome| outcome.0.iter().filter(|fact| *fact == "session dequeued steering").count();
    assert_eq!(dequeued(&stage.send_prompt(WhenBusy::Refuse)), 256);
    assert_eq!(dequeued(&stage.answer(StopReason::Stop, Vec::new(), None)), 44);
}
