use countersign_core::{
    engine::ResumeMode,
    gate::{ApprovalScope, GateReply},
    session::{Command, InterruptMode, MessageQueue, QueueModes, SessionSetting, WhenBusy},
};

use super::{from, only};
use crate::{
    stage::{Stage, asking, open, text, wanted},
    states::{calling, deny, idle, thinking, under},
};

const SKIPPED: &str = "session entry tool_result, call ended skipped";

fn queue(stage: &mut Stage, queue: MessageQueue) -> String {
    let told = stage.session(Command::Queue { queue, message: text(1) });
    from(&told, "gate") + &from(&told, "session entry")
}

fn set(stage: &mut Stage, interrupt: InterruptMode) {
    stage.set(SessionSetting::Modes(QueueModes { interrupt, ..QueueModes::default() }));
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
        let told = stage.end(0).cell();
        assert_eq!(told.contains(&skipped), skips, "{case}: {told}");
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
        stage.prompt(WhenBusy::Refuse);
        set(&mut stage, since);
        stage.restart(open(), ResumeMode::Go);
        stage.want([wanted("write", "a"), wanted("write", "b")]);
        queue(&mut stage, MessageQueue::Steering);
        let told = stage.end(0).cell();
        assert_eq!(told.contains(SKIPPED), skips, "{began:?}, then {since:?}: {told}");
    }
}

#[test]
fn a_call_that_works_is_not_skipped() {
    let mut stage = calling(["look", "look", "write"]);
    queue(&mut stage, MessageQueue::Steering);
    assert_eq!(only(&stage.end(0), "call ended"), "call ended done, call ended skipped", "the last has not begun");
    let told = stage.end(1);
    assert_eq!(only(&told, "call ended"), "call ended done");
    assert_eq!(from(&told, "session dequeued"), "session dequeued steering, session entry user, run asked");
}

#[test]
fn a_gate_of_a_skipped_call_is_withdrawn() {
    let mut stage = thinking(asking());
    stage.want([wanted("look", "a"), wanted("write", "b")]);
    assert_eq!(queue(&mut stage, MessageQueue::Steering), "", "no call has ended");
    let told = from(&stage.end(0), "gate");
    assert!(told.starts_with(&format!("gate resolved withdrawn, {SKIPPED}, run turn_closed")), "{told}");
}

#[test]
fn a_call_that_was_refused_has_ended_too() {
    let mut stage = under(asking(), ["write", "write"]);
    queue(&mut stage, MessageQueue::Steering);
    let gate = stage.gate();
    let told = stage.decide(gate, deny(None), "ana", None);
    assert_eq!(only(&told, "call ended"), "call ended denied, call ended skipped");
}

#[test]
fn what_a_person_allowed_and_has_not_begun_is_skipped_as_well() {
    let mut stage = thinking(asking());
    stage.want([wanted("look", "a"), wanted("write", "b")]);
    let gate = stage.gate();
    stage.decide(gate, GateReply::Allow(ApprovalScope::Once), "ana", None);
    queue(&mut stage, MessageQueue::Steering);
    assert_eq!(only(&stage.end(0), "call"), "call ended done, call ended skipped");
}

#[test]
fn the_model_is_told_why_a_call_was_skipped() {
    let mut stage = calling(["write", "write"]);
    queue(&mut stage, MessageQueue::Steering);
    stage.end(0);
    assert_eq!(stage.result(), "Skipped due to queued user message.");
}
