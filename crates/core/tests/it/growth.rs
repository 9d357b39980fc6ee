//! Ended work leaves the state: it holds active work and a bounded tail, and the log has the rest.

use std::time::Duration;

use countersign_core::{
    engine::Command,
    gate::{ApprovalScope, GateReply},
    message::StopReason,
    session::WhenBusy,
};

use crate::{
    agent_requests::{agents, done, receive, request},
    engine_fixture::{EngineFixture, asking_rules, tool_call},
    states::deny,
};

/// Tolerated growth of the text of a state by numbers in it that have more digits.
const DIGITS: usize = 256;

/// Time after which no ended work is in force or loaded, and no resting session is.
const REST: Duration = Duration::from_secs(3600);

/// Returns the length of the state as text once everything has rested.
fn rested(stage: &mut EngineFixture) -> usize {
    stage.now = stage.now + REST;
    stage.send_command(Command::Tick);
    stage.engine.evict_idle(stage.now, Some(Duration::from_secs(600)));
    stage.engine.to_snapshot().len()
}

/// Makes so many more requests of an agent under counted ids; people allow most and deny some.
fn ask(stage: &mut EngineFixture, wires: std::ops::Range<u32>) {
    for wire in wires {
        let (_, call) = request(stage, &wire.to_string(), &format!("file {wire}"));
        let gate = stage.oldest_gate();
        let answer = if wire % 5 == 0 { deny(Some("not this one")) } else { GateReply::Allow(ApprovalScope::Once) };
        stage.answer_gate(gate, answer, "ana", Some(&format!("key {wire}"))).1.expect("it is offered");
        done(stage, call);
        receive(stage, call);
    }
}

/// Makes so many more runs in one session, each with an approved call.
fn talk(stage: &mut EngineFixture, turns: u32) {
    for turn in 0..turns {
        stage.send_prompt(WhenBusy::Refuse).1.expect("nothing works");
        stage.request_calls([tool_call("write", &format!("file {turn}"))]);
        let gate = stage.oldest_gate();
        stage.answer_gate(gate, GateReply::Allow(ApprovalScope::Once), "ana", None).1.expect("it is offered");
        stage.end_call(0).1.expect("it was started");
        stage.answer(StopReason::Stop, Vec::new(), None).1.expect("it is asked");
    }
}

#[test]
fn an_agent_that_asks_for_years_costs_as_much_as_one_that_began_today() {
    let mut stage = agents(asking_rules(), 10);
    ask(&mut stage, 1..50);
    let young = rested(&mut stage);
    ask(&mut stage, 50..600);
    assert!(stage.engine.to_snapshot().len() > young + 100_000, "it holds nothing of what was just decided");
    let old = rested(&mut stage);
    assert!(old <= young + DIGITS, "{young} bytes behind 50 requests, {old} behind 600");
}

#[test]
fn sessions_at_rest_leave_nothing_in_memory() {
    let mut stage = agents(asking_rules(), 10);
    let bare = rested(&mut agents(asking_rules(), 10));
    talk(&mut stage, 3);
    assert!(stage.engine.to_snapshot().len() > bare + 1_000, "it holds nothing of what was just said");
    let rests = rested(&mut stage);
    assert!(rests <= bare + DIGITS, "{bare} bytes before anything was said, {rests} behind it");
}
