use countersign_core::{
    engine::{Command, EngineReply},
    message::StopReason,
    run::ProviderFailure,
    session::{self, MessageQueue, ModelRef, SessionSetting, WhenBusy},
};

use crate::engine_fixture::{EngineFixture, EngineOutcome, open_rules, sample_message, seconds, session_id, tool_call};

const RETRYABLE: ProviderFailure = ProviderFailure { retryable: true, overflow: false, after: None };

fn thinking(rules: countersign_core::engine::ActiveRules) -> EngineFixture {
    let mut stage = EngineFixture::new(rules);
    stage.send_prompt(WhenBusy::Refuse);
    stage
}

#[test]
fn a_provider_is_tried_again_with_growing_pauses_and_as_late_as_it_asks() {
    let mut stage = thinking(open_rules());
    for (after, want) in [(None, "1 2 s"), (Some(seconds(30)), "2 30 s"), (Some(seconds(1)), "3 8 s")] {
        let facts = stage.fail_request(ProviderFailure { after, ..RETRYABLE }).0;
        assert_eq!(facts.last().unwrap(), &format!("run backed_off {want}"));
        stage.now = stage.engine.state().next_deadline().unwrap();
        assert_eq!(stage.send_command(Command::Tick).0, ["run resumed", "run turn_opened", "run asked"]);
    }
    assert_eq!(stage.fail_request(RETRYABLE).0.last().unwrap(), "run ended failed");
}

#[test]
fn another_model_ends_the_wait_for_the_one_before() {
    let again = ["run resumed", "run turn_opened", "run asked"];
    let mut stage = thinking(open_rules());
    stage.fail_request(ProviderFailure { after: Some(seconds(900)), ..RETRYABLE });
    let model = stage.current_session().settings().model.clone().unwrap();
    let set = |stage: &mut EngineFixture, model| {
        stage.session_command(session::Command::Set { setting: SessionSetting::Model(model), entry: None }).0
    };
    let same = set(&mut stage, ModelRef { max_tokens: 1, ..model.clone() });
    assert!(!same.contains(&"run resumed".to_owned()), "{same:?}");
    let other = set(&mut stage, ModelRef { id: "other".into(), ..model });
    assert!(other.ends_with(&again.map(str::to_owned)), "{other:?}");
}

#[test]
fn a_steering_message_skips_what_has_not_begun_once_a_call_has_ended() {
    let mut stage = thinking(open_rules());
    stage.request_calls([tool_call("write", "a"), tool_call("write", "b")]);
    assert_eq!(
        stage.send_prompt(WhenBusy::Steer),
        EngineOutcome(vec!["session queued user steering".to_owned()], Ok(EngineReply::Queued))
    );
    assert_eq!(
        stage.end_call(0).0,
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
fn a_context_that_does_not_fit_is_compacted_once_and_sent_again() {
    let mut stage = thinking(open_rules());
    stage.answer(StopReason::Stop, Vec::new(), None);
    let queue = session::Command::Queue { queue: MessageQueue::Steering, message: sample_message(60) };
    stage.send_command(Command::Session(session_id(), queue));
    stage.send_prompt(WhenBusy::Refuse);
    let overflow = ProviderFailure { retryable: false, overflow: true, after: None };
    let facts = stage.fail_request(overflow).0;
    assert_eq!(
        facts[2..],
        ["run turn_closed", "session dropped", "run ended overflowed", "session compaction_started again"]
    );
    let done = session::Command::Compacted {
        epoch: 1,
        outcome: session::CompactionOutcome::Done { summary: sample_message(1), spent: None },
    };
    let facts = stage.send_command(Command::Session(session_id(), done)).0;
    assert_eq!(
        facts,
        [
            "session entry compaction",
            "session compaction_ended again",
            "run started overflow",
            "run turn_opened",
            "run asked"
        ]
    );
    assert_eq!(stage.fail_request(overflow).0.last().unwrap(), "run ended failed");
}
