use countersign_core::{
    message::StopReason,
    session::{Command, CompactionOutcome, MessageQueue, QueueModes, SessionSetting, TakeMode, WhenBusy},
};

use super::facts_from;
use crate::{
    engine_fixture::{EngineFixture, open_rules, returned_result, sample_message},
    states::{behind, compacting, idle, run_command, thinking},
};

type QueueFixtureFn = fn() -> EngineFixture;

fn queue(stage: &mut EngineFixture, queue: MessageQueue, count: usize) {
    for _ in 0..count {
        stage.session_command(Command::Queue { queue, message: sample_message(1) });
    }
}

fn takes(stage: &mut EngineFixture, steering: TakeMode, follow_up: TakeMode) {
    stage.change_setting(SessionSetting::Modes(QueueModes { steering, follow_up, ..QueueModes::default() }));
}

/// Returns the messages at the beginning of a run, by kind and by the queue that they come from.
fn message_kinds(facts: &[String]) -> String {
    let mut kinds = Vec::new();
    let mut from = None;
    for fact in facts {
        if let Some(queue) = fact.strip_prefix("session dequeued ") {
            from = Some(queue);
        } else if let Some(kind) = fact.strip_prefix("session entry ") {
            kinds.push(from.take().unwrap_or(kind));
        }
    }
    kinds.join(", ")
}

#[test]
fn a_run_begins_with_its_message_and_what_steers_it() {
    let (one, all) = (TakeMode::One, TakeMode::All);
    for (case, steering, follow_ups, take, want) in [
        ("nothing waits", 0, 0, one, "user"),
        ("one steers", 1, 0, one, "user, steering"),
        ("one at a time", 2, 0, one, "user, steering"),
        ("all at once", 2, 0, all, "user, steering, steering"),
        ("follow-ups wait for the end", 0, 2, all, "user"),
        ("both", 1, 1, all, "user, steering"),
    ] {
        let mut stage = idle();
        takes(&mut stage, take, take);
        queue(&mut stage, MessageQueue::Steering, steering);
        queue(&mut stage, MessageQueue::FollowUp, follow_ups);
        assert_eq!(message_kinds(&stage.send_prompt(WhenBusy::Refuse).0), want, "{case}");
    }
}

#[test]
fn what_is_queued_goes_behind_what_a_run_that_ended_left_in_the_queue() {
    for (case, steering, follow_ups, take, first, last) in [
        ("nothing waits", 0, 0, TakeMode::One, "user", ""),
        ("one by one", 0, 2, TakeMode::One, "follow_up", "follow_up, follow_up"),
        ("all that waited at once", 0, 2, TakeMode::All, "follow_up, follow_up", "follow_up"),
        ("what steers goes first", 1, 1, TakeMode::One, "steering", "follow_up, follow_up"),
    ] {
        let mut stage = idle();
        takes(&mut stage, take, take);
        queue(&mut stage, MessageQueue::Steering, steering);
        queue(&mut stage, MessageQueue::FollowUp, follow_ups);
        assert_eq!(message_kinds(&stage.send_prompt(WhenBusy::FollowUp).0), first, "{case}");
        let mut rest = Vec::new();
        while stage.current_session().run().is_some() {
            rest.push(message_kinds(&stage.answer(StopReason::Stop, Vec::new(), None).0[1..]));
        }
        rest.retain(|kinds| !kinds.is_empty());
        assert_eq!(rest.join(", "), last, "{case}");
    }
}

#[test]
fn a_turn_goes_on_with_what_was_queued_as_the_modes_say() {
    let (one, all) = (TakeMode::One, TakeMode::All);
    for (case, steering, follow_ups, takes_steering, takes_follow_ups, want) in [
        ("one steers", 2, 0, one, all, "steering"),
        ("all steer", 2, 0, all, one, "steering, steering"),
        ("one follows", 0, 2, all, one, "follow_up"),
        ("all follow", 0, 2, one, all, "follow_up, follow_up"),
        ("steering goes first", 1, 1, all, all, "steering"),
    ] {
        let mut stage = thinking(open_rules());
        takes(&mut stage, takes_steering, takes_follow_ups);
        queue(&mut stage, MessageQueue::Steering, steering);
        queue(&mut stage, MessageQueue::FollowUp, follow_ups);
        let outcome = stage.answer(StopReason::Stop, Vec::new(), None);
        assert_eq!(message_kinds(&outcome.0[1..]), want, "{case}");
        assert_eq!(outcome.0.last().unwrap(), "run asked", "{case}");
    }
}

#[test]
fn a_run_ends_when_every_queue_is_empty() {
    let mut stage = thinking(open_rules());
    queue(&mut stage, MessageQueue::Steering, 2);
    queue(&mut stage, MessageQueue::FollowUp, 2);
    let mut order = Vec::new();
    while stage.current_session().run().is_some() {
        order.push(message_kinds(&stage.answer(StopReason::Stop, Vec::new(), None).0[1..]));
    }
    assert_eq!(order, ["steering", "steering", "follow_up", "follow_up", ""]);
}

#[test]
fn follow_ups_wait_while_calls_have_results() {
    let mut stage = thinking(open_rules());
    queue(&mut stage, MessageQueue::FollowUp, 1);
    stage.request_calls([crate::engine_fixture::tool_call("write", "a")]);
    assert_eq!(facts_from(&stage.end_call(0), "run"), "run turn_closed, run turn_opened, run asked");
    assert_eq!(message_kinds(&stage.answer(StopReason::Stop, Vec::new(), None).0[1..]), "follow_up");
}

#[test]
fn a_persons_commands_stand_before_the_next_prompt_and_that_before_what_steers_it() {
    let mut stage = thinking(open_rules());
    run_command(&mut stage);
    let call = stage.current_session().commands().next().unwrap();
    let progress = returned_result();
    stage.send_command(countersign_core::engine::Command::Call(countersign_core::call::Command::Ended {
        call,
        progress,
    }));
    stage.answer(StopReason::Stop, Vec::new(), None);
    queue(&mut stage, MessageQueue::Steering, 1);
    assert_eq!(message_kinds(&stage.send_prompt(WhenBusy::Refuse).0), "held, user, steering");
}

#[test]
fn messages_during_a_compaction_are_sent_after_it() {
    let done = || CompactionOutcome::Done { summary: sample_message(1), spent: None };
    let failed = || CompactionOutcome::Failed { message: "no".into() };
    let (manual, prompted): (QueueFixtureFn, QueueFixtureFn) = (compacting, behind);
    for (case, state, steering, follow_ups, outcome, want) in [
        ("nothing was said", manual, 0, 0, done(), ""),
        ("it steers", manual, 1, 0, done(), "steering"),
        ("it follows", manual, 0, 1, done(), "follow_up"),
        ("both", manual, 1, 1, done(), "steering"),
        ("after a failure too", manual, 1, 0, failed(), "steering"),
        ("not after an abort", manual, 1, 1, CompactionOutcome::Aborted, ""),
        ("a prompt waited", prompted, 0, 0, done(), "prompt"),
        ("a prompt waited, then steering", prompted, 1, 1, done(), "prompt, steering"),
        ("a prompt is not lost by a failure", prompted, 0, 0, failed(), "prompt"),
    ] {
        let mut stage = state();
        queue(&mut stage, MessageQueue::Steering, steering);
        queue(&mut stage, MessageQueue::FollowUp, follow_ups);
        let response = stage.session_command(Command::Compacted { epoch: 1, outcome });
        let run: Vec<_> = response.0.into_iter().skip_while(|fact| !fact.starts_with("run started")).collect();
        assert_eq!(message_kinds(&run), want, "{case}");
        assert_eq!(stage.current_session().run().is_some(), !want.is_empty(), "{case}");
    }
}

#[test]
fn what_was_queued_before_a_compaction_starts_nothing_after_it() {
    for (case, before, during, want) in [
        ("queued before", MessageQueue::Steering, None, ""),
        ("follows", MessageQueue::FollowUp, None, ""),
        ("one more during it", MessageQueue::Steering, Some(MessageQueue::Steering), "steering"),
        ("another queue", MessageQueue::FollowUp, Some(MessageQueue::Steering), "steering"),
    ] {
        let mut stage = idle();
        queue(&mut stage, before, 1);
        crate::states::compact(&mut stage);
        during.into_iter().for_each(|during| queue(&mut stage, during, 1));
        let outcome = stage.session_command(Command::Compacted {
            epoch: 1,
            outcome: CompactionOutcome::Done { summary: sample_message(1), spent: None },
        });
        let run: Vec<_> = outcome.0.into_iter().skip_while(|fact| !fact.starts_with("run started")).collect();
        assert_eq!(message_kinds(&run), want, "{case}");
    }
}

#[test]
fn a_prompt_that_was_taken_back_is_not_run_after_the_compaction() {
    let mut stage = behind();
    stage.session_command(Command::Clear);
    let outcome = stage.session_command(Command::Compacted {
        epoch: 1,
        outcome: CompactionOutcome::Done { summary: sample_message(1), spent: None },
    });
    assert_eq!(outcome.table_cell(), "Done: session entry compaction, session compaction_ended rest");
}
