//! A command that runs wants to reach a host beyond its sandbox.

use countersign_core::{
    call,
    engine::{Command, CommandError, EngineReply, ResumeMode},
    gate::{ApprovalScope, GateContent, GateReply, GateResolution, Kind},
    id::GateId,
    message::StopReason,
    session::WhenBusy,
};

use crate::{
    engine_fixture::{EngineFixture, EngineOutcome, open_rules, rules_from, tool_call},
    states::{deny, idle},
};

fn id(number: u8) -> GateId {
    GateId::parse(&format!("{number:032x}")).expect("it is an id")
}

fn reach(stage: &mut EngineFixture, gate: u8, host: &str) -> EngineOutcome {
    let call = stage.calls()[0];
    stage.send_command(Command::Call(call::Command::Reach { call, gate: id(gate), host: host.into() }))
}

/// Returns a fixture in which one command runs.
fn running() -> EngineFixture {
    let mut stage = idle();
    stage.send_prompt(WhenBusy::Refuse);
    stage.request_calls([tool_call("write", "a")]);
    stage
}

fn resolution(stage: &EngineFixture, gate: u8) -> Option<GateResolution> {
    stage.engine.state().gate(id(gate)).and_then(|gate| gate.resolution().cloned())
}

#[test]
fn approvers_are_asked_while_the_command_runs() {
    let mut stage = running();
    let outcome = reach(&mut stage, 1, "example.org:443");
    assert_eq!(outcome, EngineOutcome(vec!["gate opened budget [\"once\"]".to_owned()], Ok(EngineReply::Done)));
    let gate = stage.engine.state().gate(id(1)).unwrap();
    assert_eq!(
        (gate.kind(), gate.call(), gate.scopes()),
        (Kind::Budget, Some(stage.calls()[0]), &[ApprovalScope::Once][..])
    );
    assert!(gate.deadline().is_some());
    let GateContent::GoOn { question, .. } = &**stage.engine.admitted().gate_content(id(1)).unwrap() else {
        panic!("a question")
    };
    assert!(question.contains("example.org:443") && question.contains("write"), "{question}");

    let outcome = stage.answer_gate(id(1), GateReply::Allow(ApprovalScope::Once), "ana", None);
    assert_eq!(outcome.0, ["gate resolved allowed"]);
    assert_eq!(stage.engine.state().policy().grants().iter().count(), 0);
    // It continues as without the request, and may ask again.
    assert_eq!(reach(&mut stage, 2, "b.org:443").0, ["gate opened budget [\"once\"]"]);
    assert_eq!(stage.answer_gate(id(2), deny(Some("no")), "ana", None).0, ["gate resolved denied", "run denied 1"]);
    assert_eq!(stage.engine.state().policy().constraints().iter().count(), 0);
    assert_eq!(stage.end_call(0).0[..2], ["session entry tool_result", "call ended done"]);
}

#[test]
fn who_denies_again_and_again_is_left_alone() {
    let mut stage = running();
    for gate in 1..=3 {
        reach(&mut stage, gate, &format!("{gate}.org:443")).1.unwrap();
        stage.answer_gate(id(gate), deny(None), "ana", None).1.unwrap();
    }
    let EngineOutcome(facts, reply) = reach(&mut stage, 4, "4.org:443");
    assert_eq!(facts, Vec::<String>::new());
    assert!(matches!(reply, Err(CommandError::Denied(why)) if why.contains("several requests in a row")));
}

#[test]
fn who_allows_a_host_takes_back_what_they_denied_themselves() {
    let mut stage = running();
    for (gate, answer, want) in [
        (1, deny(None), "run denied 1"),
        (2, deny(None), "run denied 2"),
        (3, GateReply::Allow(ApprovalScope::Once), "run denials_forgiven"),
        (4, deny(None), "run denied 1"),
    ] {
        reach(&mut stage, gate, &format!("{gate}.org:443")).1.unwrap();
        assert_eq!(stage.answer_gate(id(gate), answer, "ana", None).0[1..], [want], "{gate}");
    }
    // An approval by another person revokes none of them.
    reach(&mut stage, 5, "5.org:443").1.unwrap();
    assert_eq!(
        stage.answer_gate(id(5), GateReply::Allow(ApprovalScope::Once), "ben", None).0,
        ["gate resolved allowed"]
    );
}

#[test]
fn an_address_behind_the_gateway_is_called_one() {
    for (number, (host, want)) in (1..).zip([
        ("127.0.0.1:8443", "runs? That is the machine of the gateway. It"),
        ("0.0.0.0:80", "runs? That is the machine of the gateway. It"),
        ("[::1]:80", "runs? That is the machine of the gateway. It"),
        ("169.254.169.254:80", "runs? That is in a private network. It"),
        ("10.1.2.3:80", "runs? That is in a private network. It"),
        ("[fd00::1]:80", "runs? That is in a private network. It"),
        ("1.1.1.1:80", "runs? It"),
        ("example.org:80", "runs? It"),
    ]) {
        let mut stage = running();
        reach(&mut stage, number, host).1.unwrap();
        let GateContent::GoOn { question, .. } = &**stage.engine.admitted().gate_content(id(number)).unwrap() else {
            panic!("a question")
        };
        assert!(question.contains(want), "{question}");
    }
}

#[test]
fn the_end_of_the_command_withdraws_its_gates() {
    let mut stage = running();
    reach(&mut stage, 1, "a.org:443").1.unwrap();
    let outcome = stage.end_call(0);
    assert_eq!(outcome.0[..3], ["gate resolved withdrawn", "session entry tool_result", "call ended done"]);
    assert_eq!(resolution(&stage, 1), Some(GateResolution::Withdrawn));
}

#[test]
fn nobody_in_time_is_a_no_and_the_command_goes_on() {
    let mut stage = running();
    reach(&mut stage, 1, "a.org:443").1.unwrap();
    stage.now = stage.engine.state().next_deadline().unwrap();
    assert_eq!(stage.send_command(Command::Tick).0, ["gate resolved expired"]);
    assert_eq!(stage.end_call(0).0[..2], ["session entry tool_result", "call ended done"]);
}

#[test]
fn a_process_that_ends_takes_the_question_along() {
    for resume in [ResumeMode::Go, ResumeMode::Wait] {
        let mut stage = running();
        reach(&mut stage, 1, "a.org:443").1.unwrap();
        let outcome = stage.restart(open_rules(), resume);
        assert!(outcome.0.iter().any(|fact| fact == "gate resolved withdrawn"), "{resume:?}: {:?}", outcome.0);
        assert!(outcome.0.iter().any(|fact| fact == "call ended unknown"), "{resume:?}: {:?}", outcome.0);
        assert_eq!(resolution(&stage, 1), Some(GateResolution::Withdrawn), "{resume:?}");
    }
}

#[test]
fn an_invalid_request_for_a_host_is_refused_and_leaves_nothing() {
    let of = |change: fn(&mut EngineFixture)| {
        let mut stage = running();
        change(&mut stage);
        let EngineOutcome(facts, reply) = reach(&mut stage, 9, "a.org:443");
        assert_eq!(facts, Vec::<String>::new());
        reply.unwrap_err().to_string()
    };
    let over = "the command has ended, or is to end";
    assert_eq!(of(|stage| drop(stage.abort())), over);
    let twice: fn(&mut EngineFixture) = |stage| drop(reach(stage, 1, "b.org:443"));
    assert_eq!(of(twice), "the command asks for something else already");

    let mut stage = running();
    let call = stage.calls()[0];
    stage.end_call(0);
    stage.answer(StopReason::Stop, Vec::new(), None);
    let outcome =
        stage.send_command(Command::Call(call::Command::Reach { call, gate: id(1), host: "a.org:443".into() }));
    assert_eq!(outcome.1.unwrap_err().to_string(), over);
    let mut stage = running();
    assert!(reach(&mut stage, 1, &"a".repeat(301)).1.unwrap_err().to_string().contains("longer than 300 bytes"));
}

#[test]
fn a_host_that_rules_deny_opens_no_gate() {
    let mut stage = EngineFixture::new(rules_from(&["allow write(a)"]));
    stage.send_prompt(WhenBusy::Refuse);
    stage.request_calls([tool_call("write", "a")]);
    stage.send_command(Command::UseRules(Box::new(rules_from(&["deny write(a)"])))).1.unwrap();
    let EngineOutcome(facts, reply) = reach(&mut stage, 1, "a.org:443");
    assert_eq!(facts, Vec::<String>::new());
    assert!(matches!(reply, Err(CommandError::Denied(why)) if why.contains("policy denies it")));
}
