use countersign_core::{
    engine::ResumeMode,
    gate::{ApprovalScope, GateReply},
    session::{Command, InterruptMode, MessageQueue, QueueModes, SessionSetting, WhenBusy},
};

use super::{facts_from, facts_with};
use crate::{
    engine_fixture::{EngineFixture, asking_rules, open_rules, sample_message, tool_call},
    states::{calling, deny, idle, thinking, under},
};

const SKIPPED: &str = "session entry tool_result, call ended skipped";

fn queue(stage: &mut EngineFixture, queue: MessageQueue) -> String {
    let outcome = stage.session_command(Command::Queue { queue, message: sample_message(1) });
    facts_from(&outcome, "gate") + &facts_from(&outcome, "session entry")
}

fn set(stage: &mut EngineFixture, interrupt: InterruptMode) {
    stage.change_setting(SessionSetting::Modes(QueueModes { interrupt, ..QueueModes::default() }));
}

#[test]
fn a_steering_message_skips_what_has_not_begun_once_a_call_of_the_turn_has_ended() {
    let skipped = format!("{SKIPPED}, run turn_closed");
    for (case, mut stage, message, skips) in [
        ("steering", calling(["write", "write"]), Some(MessageQueue::Steering), true),
        ("no message", calling(["write", "write"]), None, false),
        ("a follow-up", calling(["write", "write"]), Some(MessageQueue::FollowUp), false),
    ] {
        if let Some(message) = message {
            assert_eq!(queue(&mut stage, message), "", "{case}: no call has ended");
        }
        let summary = stage.end_call(0).table_cell();
        assert_eq!(summary.contains(&skipped), skips, "{case}: {summary}");
    }
}

#[test]
fn the_mode_is_that_of_the_runs_beginning() {
    for (began, since, skips) in [
        (InterruptMode::Immediate, InterruptMode::Immediate, true),
        (InterruptMode::Immediate, InterruptMode::Wait, true),
        (InterruptMode::Wait, InterruptMode::Wait, false),
        (InterruptMode::Wait, InterruptMode::Immediate, false),
    ] {
        let mut stage = idle();
        set(&mut stage, began);
        stage.send_prompt(WhenBusy::Refuse);
        set(&mut stage, since);
        stage.restart(open_rules(), ResumeMode::Go);
        stage.request_calls([tool_call("write", "a"), tool_call("write", "b")]);
        queue(&mut stage, MessageQueue::Steering);
        let summary = stage.end_call(0).table_cell();
        assert_eq!(summary.contains(SKIPPED), skips, "{began:?}, then {since:?}: {summary}");
    }
}

#[test]
fn a_call_that_works_is_not_skipped() {
    let mut stage = calling(["look", "look", "write"]);
    queue(&mut stage, MessageQueue::Steering);
    assert_eq!(
        facts_with(&stage.end_call(0), "call ended"),
        "call ended done, call ended skipped",
        "the last has not begun"
    );
    let outcome = stage.end_call(1);
    assert_eq!(facts_with(&outcome, "call ended"), "call ended done");
    assert_eq!(facts_from(&outcome, "session dequeued"), "session dequeued steering, session entry user, run asked");
}

#[test]
fn a_gate_of_a_skipped_call_is_withdrawn() {
    let mut stage = thinking(asking_rules());
    stage.request_calls([tool_call("look", "a"), tool_call("write", "b")]);
    assert_eq!(queue(&mut stage, MessageQueue::Steering), "", "no call has ended");
    let summary = facts_from(&stage.end_call(0), "gate");
    assert!(summary.starts_with(&format!("gate resolved withdrawn, {SKIPPED}, run turn_closed")), "{summary}");
}

#[test]
fn a_call_that_was_refused_has_ended_too() {
    let mut stage = under(asking_rules(), ["write", "write"]);
    queue(&mut stage, MessageQueue::Steering);
    let gate = stage.oldest_gate();
    let outcome = stage.answer_gate(gate, deny(None), "ana", None);
    assert_eq!(facts_with(&outcome, "call ended"), "call ended denied, call ended skipped");
}

#[test]
fn what_a_person_allowed_and_has_not_begun_is_skipped_as_well() {
    let mut stage = thinking(asking_rules());
    stage.request_calls([tool_call("look", "a"), tool_call("write", "b")]);
    let gate = stage.oldest_gate();
    stage.answer_gate(gate, GateReply::Allow(ApprovalScope::Once), "ana", None);
    queue(&mut stage, MessageQueue::Steering);
    assert_eq!(facts_with(&stage.end_call(0), "call"), "call ended done, call ended skipped");
}

#[test]
fn the_model_reads_why_a_call_was_skipped() {
    let mut stage = calling(["write", "write"]);
    queue(&mut stage, MessageQueue::Steering);
    stage.end_call(0);
    assert_eq!(stage.last_result(), "Skipped due to queued user message.");
}
