//! An agent that is denied repeatedly: one question whether it may continue, and nothing else meanwhile.

use countersign_core::{
    engine::{Command, EngineReply, ResumeMode},
    gate::{ApprovalScope, GateReply, GateResolution, Kind},
    id::{GateId, PrincipalId, SessionId},
    session::BreakerPhase,
    time::Millis,
};

use crate::{
    agent_requests::{agents, request, results},
    engine_fixture::{EngineFixture, asking_rules},
    states::deny,
};

const MINUTE: u64 = 60_000;

/// Returns a fixture with three requests that Ana denied.
fn tripped() -> (EngineFixture, GateId) {
    let mut stage = agents(asking_rules(), 10);
    for (wire, path) in [("1", "a"), ("2", "b"), ("3", "c")] {
        request(&mut stage, wire, path);
        let gate = stage.oldest_gate();
        stage.answer_gate(gate, deny(None), "ana", None);
    }
    let gate = stage.oldest_gate();
    (stage, gate)
}

fn phase(stage: &EngineFixture) -> BreakerPhase {
    let session = stage.engine.state().session(&SessionId::new("agent:pi")).expect("it is open");
    session.agent_requests().expect("it has asked").breaker().phase()
}

fn pending(stage: &EngineFixture) -> Vec<Kind> {
    stage.engine.state().pending_gates().map(|gate| gate.kind()).collect()
}

#[test]
fn three_denials_ask_one_question_and_refuse_the_rest_meanwhile() {
    let (mut stage, gate) = tripped();
    assert_eq!(pending(&stage), [Kind::Budget]);
    request(&mut stage, "4", "d");
    request(&mut stage, "5", "e");
    assert_eq!(pending(&stage), [Kind::Budget], "nothing else is asked");
    assert_eq!(results(&stage).iter().filter(|end| *end == "Denied").count(), 2, "{:?}", results(&stage));
    let outcome = stage.answer_gate(gate, GateReply::Allow(ApprovalScope::Once), "ben", None);
    assert_eq!(outcome.1, Ok(EngineReply::Resolved(GateResolution::Allowed { scope: ApprovalScope::Once })));
    request(&mut stage, "6", "f");
    assert_eq!(pending(&stage), [Kind::Approval], "people are asked again");
}

#[test]
fn it_is_one_and_the_same_after_a_restart() {
    let (mut stage, gate) = tripped();
    stage.restart(asking_rules(), ResumeMode::Wait);
    assert_eq!((pending(&stage), phase(&stage)), (vec![Kind::Budget], BreakerPhase::Pending(gate)));
}

#[test]
fn a_no_holds_for_a_while_and_then_the_next_request_asks() {
    let (mut stage, gate) = tripped();
    stage.answer_gate(gate, deny(None), "ana", None);
    let until = stage.now + std::time::Duration::from_millis(15 * MINUTE);
    assert_eq!((pending(&stage), phase(&stage)), (vec![], BreakerPhase::Held(until)));
    request(&mut stage, "4", "d");
    assert_eq!(pending(&stage), []);
    stage.now = until;
    stage.send_command(Command::Tick);
    assert_eq!(pending(&stage), [], "nobody wants anything");
    request(&mut stage, "5", "e");
    assert_eq!(pending(&stage), [Kind::Budget]);
}

#[test]
fn where_nobody_answers_the_next_request_asks_again() {
    let (mut stage, gate) = tripped();
    let deadline = stage.engine.state().gate(gate).and_then(|gate| gate.deadline()).expect("it has one");
    stage.now = deadline;
    stage.send_command(Command::Tick);
    assert_eq!((pending(&stage), phase(&stage)), (vec![], BreakerPhase::Lapsed));
    request(&mut stage, "4", "d");
    assert_eq!(pending(&stage), [Kind::Budget]);
}

#[test]
fn an_approver_who_denied_resets_the_row_by_allowing_something() {
    for (by, want) in [("ana", vec![Kind::Approval]), ("ben", vec![Kind::Budget])] {
        let mut stage = agents(asking_rules(), 10);
        request(&mut stage, "0", "z");
        let first = stage.oldest_gate();
        for (wire, path) in [("1", "a"), ("2", "b"), ("3", "c")] {
            request(&mut stage, wire, path);
            let gate = stage.engine.state().pending_gates().last().expect("it waits").id();
            stage.answer_gate(gate, deny(None), "ana", None);
        }
        stage.answer_gate(first, GateReply::Allow(ApprovalScope::Once), by, None);
        request(&mut stage, "4", "d");
        assert_eq!(pending(&stage), want, "{by}: the question is withdrawn with its reason");
    }
}

#[test]
fn taking_a_denial_back_closes_it() {
    let (mut stage, _) = tripped();
    let key = stage.engine.state().policy().constraints().iter().next().expect("three bind").key;
    let lift =
        Command::Lift { principal: PrincipalId::new("agent:pi"), key, session: None, by: PrincipalId::new("ben") };
    stage.send_command(lift).1.expect("a person's");
    assert_eq!((pending(&stage), phase(&stage)), (vec![], BreakerPhase::Closed));
}

#[test]
fn requests_before_the_first_denial_count_once() {
    let mut stage = agents(asking_rules(), 10);
    for (wire, path) in [("1", "a"), ("2", "b"), ("3", "c"), ("4", "d")] {
        request(&mut stage, wire, path);
    }
    while stage.engine.state().pending_gates().next().is_some() {
        let gate = stage.oldest_gate();
        stage.answer_gate(gate, deny(None), "ana", None);
    }
    request(&mut stage, "5", "e");
    assert_eq!(pending(&stage), [Kind::Approval], "it could not know, and there is room again");
}

#[test]
fn a_row_of_denials_ends_with_an_approval_and_with_time() {
    for (case, between) in [("allowed", Some("ben")), ("later", None)] {
        let mut stage = agents(asking_rules(), 10);
        for (wire, path) in [("1", "a"), ("2", "b"), ("4", "d"), ("5", "e")] {
            if wire == "4" {
                match between {
                    Some(by) => {
                        request(&mut stage, "3", "c");
                        let gate = stage.oldest_gate();
                        stage.answer_gate(gate, GateReply::Allow(ApprovalScope::Once), by, None);
                    }
                    None => stage.now = Millis(stage.now.0 + 16 * MINUTE),
                }
            }
            request(&mut stage, wire, path);
            let gate = stage.oldest_gate();
            stage.answer_gate(gate, deny(None), "ana", None);
        }
        assert_eq!((pending(&stage), phase(&stage)), (vec![], BreakerPhase::Closed), "{case}");
    }
}

#[test]
fn two_denials_and_what_rules_or_time_refuse_do_not_trip_it() {
    let mut stage = agents(asking_rules(), 10);
    for (wire, path) in [("1", "a"), ("2", "b")] {
        request(&mut stage, wire, path);
        let gate = stage.oldest_gate();
        stage.answer_gate(gate, deny(None), "ana", None);
    }
    for (wire, path) in [("3", "a"), ("4", "b"), ("5", "a")] {
        request(&mut stage, wire, path);
    }
    request(&mut stage, "6", "f");
    stage.now = Millis(stage.now.0 + 16 * MINUTE);
    stage.send_command(Command::Tick);
    assert_eq!((pending(&stage), phase(&stage)), (vec![], BreakerPhase::Closed));
}
