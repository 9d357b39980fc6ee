use countersign_core::{
    engine::{Command, Reply},
    message::StopReason,
    run::{self, Failure},
    session::{self, Queue, WhenBusy},
};

use crate::stage::{Stage, Told, open, seconds, session, text, wanted};

const RETRYABLE: Failure = Failure { retryable: true, overflow: false, after: None };

fn thinking(rules: countersign_core::engine::Rules) -> Stage {
    let mut stage = Stage::new(rules);
    stage.prompt(WhenBusy::Refuse);
    stage
}

#[test]
fn a_provider_is_tried_again_with_growing_pauses_and_as_late_as_it_asks() {
    let mut stage = thinking(open());
    for (after, want) in [(None, "1 2 s"), (Some(seconds(30)), "2 30 s"), (Some(seconds(1)), "3 8 s")] {
        let told = stage.fail(Failure { after, ..RETRYABLE }).0;
        assert_eq!(told.last().unwrap(), &format!("run backed_off {want}"));
        stage.now = stage.engine.state().next_deadline().unwrap();
        assert_eq!(stage.tell(Command::Tick).0, ["run resumed", "run turn_opened", "run asked"]);
    }
    assert_eq!(stage.fail(RETRYABLE).0.last().unwrap(), "run ended failed");
}

#[test]
fn shared_calls_run_beside_each_other_and_exclusive_ones_alone_and_in_order() {
    for (case, tools, started) in [
        ("shared", ["look", "look", "look"], 3),
        ("exclusive", ["write", "write", "look"], 1),
        ("exclusive last", ["look", "look", "write"], 2),
        ("exclusive between", ["look", "write", "look"], 1),
    ] {
        let mut stage = thinking(open());
        let told = stage.want(tools.map(|tool| wanted(tool, "a"))).0;
        assert_eq!(told.iter().filter(|fact| *fact == "call started").count(), started, "{case}");
    }
}

#[test]
fn a_steering_message_skips_what_has_not_begun_once_a_call_has_ended() {
    let mut stage = thinking(open());
    stage.want([wanted("write", "a"), wanted("write", "b")]);
    assert_eq!(stage.prompt(WhenBusy::Steer), Told(vec!["session queued user steering".to_owned()], Ok(Reply::Queued)));
    assert_eq!(
        stage.end(0).0,
        [
            "session entry tool_result",
            "call ended done",
            "session entry tool_result",
            "call ended skipped",
            "run turn_closed",
            "run turn_opened",
            "session dequeued steering",
            "session entry user",
            "run asked",
        ]
    );
}

#[test]
fn a_follow_up_is_taken_when_a_run_would_end() {
    let mut stage = thinking(open());
    stage.prompt(WhenBusy::FollowUp);
    let told = stage.answer(StopReason::Stop, Vec::new(), None).0;
    assert_eq!(
        told[2..],
        ["run turn_closed", "run turn_opened", "session dequeued follow_up", "session entry user", "run asked"]
    );
}

#[test]
fn a_result_of_another_attempt_is_recorded_and_changes_nothing() {
    let mut stage = thinking(open());
    let run = stage.run();
    for epoch in [0, 2] {
        let answer = Box::new(run::Answer {
            said: text(1),
            stop: StopReason::Stop,
            total_tokens: 0,
            wanted: Vec::new(),
            failure: None,
        });
        let told = stage.tell(Command::Run(run::Command::Answered { run, epoch, answer }));
        assert_eq!(told, Told(vec!["run result_dropped".to_owned()], Ok(Reply::Dropped)), "{epoch}");
    }
}

#[test]
fn a_context_that_does_not_fit_is_compacted_once_and_asked_again() {
    let mut stage = thinking(open());
    stage.answer(StopReason::Stop, Vec::new(), None);
    let queue = session::Command::Queue { queue: Queue::Steering, said: text(60) };
    stage.tell(Command::Session(session(), queue));
    stage.prompt(WhenBusy::Refuse);
    let overflow = Failure { retryable: false, overflow: true, after: None };
    let told = stage.fail(overflow).0;
    assert_eq!(
        told[2..],
        ["run turn_closed", "session dropped", "run ended overflowed", "session compaction_started again"]
    );
    let done = session::Command::Compacted { epoch: 1, outcome: session::Compacted::Done(text(1)) };
    let told = stage.tell(Command::Session(session(), done)).0;
    assert_eq!(
        told,
        [
            "session entry compaction",
            "session compaction_ended again",
            "run started overflow",
            "run turn_opened",
            "run asked"
        ]
    );
    assert_eq!(stage.fail(overflow).0.last().unwrap(), "run ended failed");
}
