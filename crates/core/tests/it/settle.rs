//! The settle rules: for each the smallest state in which it has something to say, and the nearest in which it has not.

mod abort_ends;
mod backoff_over;
mod breaker_trips;
mod call_starts;
mod gate_expires;
mod gate_settles;
mod grant_covers;
mod judge;
mod model_asked;
mod question_asked;
mod queue_goes_on;
mod run_continues;
mod steer_skips;
mod turn_closes;

use countersign_core::{
    call,
    engine::{Command, Context, Event, Recorded},
    id::Fresh,
    message::StopReason,
    run::{self, Answer, Wanted},
};

use crate::{
    stage::{Told, open, text, wanted},
    states::thinking,
};

/// The facts behind the one that begins with `first`, that one included; nothing where there is none.
fn from(told: &Told, first: &str) -> String {
    let at = told.0.iter().position(|fact| fact.starts_with(first)).unwrap_or(told.0.len());
    told.0[at..].join(", ")
}

/// The facts that begin with `word`.
fn only(told: &Told, word: &str) -> String {
    told.0.iter().filter(|fact| fact.starts_with(word)).cloned().collect::<Vec<_>>().join(", ")
}

#[test]
fn what_does_not_fit_into_one_batch_goes_on_in_the_next() {
    let stage = thinking(open());
    let broken = Wanted { problem: Some("no such tool".into()), ..wanted("write", "a") };
    let answer = Answer {
        said: text(1),
        stop: StopReason::ToolUse,
        total_tokens: 0,
        wanted: vec![broken; 1_000],
        failure: None,
    };
    let mut engine = stage.engine.clone();
    let mut context = Context { now: stage.now, fresh: Fresh::new([77; 16]) };
    let answered = run::Command::Answered { run: stage.run(), epoch: 1, answer: Box::new(answer) };
    let (mut facts, _) = engine.handle(Command::Run(answered), &mut context).unwrap();
    assert!(engine.is_unsettled(), "a thousand calls and their results are too many");
    while engine.is_unsettled() {
        facts.extend(engine.settle(&mut context));
    }
    let ended = |recorded: &&Recorded| matches!(recorded.fact.event, Event::Call(call::Event::Ended { .. }));
    assert_eq!(facts.iter().filter(ended).count(), 1_000);
    assert!(matches!(facts.last().unwrap().fact.event, Event::Run(run::Event::Asked { .. })));
    let places: Vec<u64> = facts.iter().map(|recorded| recorded.meta.lsn.0).collect();
    assert!(places.windows(2).all(|pair| pair[0] + 1 == pair[1]), "one behind the other");
}
