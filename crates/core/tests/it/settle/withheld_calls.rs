//! A plan that was not approved holds back every call that changes something.

use countersign_core::{
    call::Executor,
    engine::{Command, ResumeMode},
    gate::{GateReply, Kind, SignOffDecision},
    id::PeerId,
    peer::{self, PeerLine, PeerMemory},
    policy::Class,
    run::ResolvedCall,
    session::{self, MessageQueue, SessionSetting, Settings, WhenBusy},
    tool::ToolEffect,
};
use serde_json::{Value, json};

use crate::{
    engine_fixture::{EngineFixture, open_rules, sample_message, seconds, session_id, tool_call},
    states::thinking,
};

fn says(labels: &[&str]) -> GateReply {
    GateReply::Say(labels.iter().map(|label| (*label).to_owned()).collect())
}

fn reads(tool: &str, path: &str) -> ResolvedCall {
    ResolvedCall { effect: ToolEffect::Reads, ..tool_call(tool, path) }
}

/// Returns a run whose call of `tool` got this answer.
fn answered(tool: &str, answer: GateReply) -> EngineFixture {
    let mut stage = thinking(open_rules());
    answers(&mut stage, tool, answer);
    stage
}

fn answers(stage: &mut EngineFixture, tool: &str, answer: GateReply) {
    stage.request_calls([reads(tool, "")]);
    let gate = stage.oldest_gate();
    stage.answer_gate(gate, answer, "ana", None).1.expect("it is offered");
}

/// Returns a call of a host tool, whose host is connected.
fn of_host(stage: &mut EngineFixture) -> ResolvedCall {
    let came = peer::Command::Came { peer: PeerId::new("host"), line: PeerLine(3), memory: PeerMemory::Forgets };
    stage.send_command(Command::Peer(came));
    let executor = Executor::Peer(PeerId::new("host"));
    ResolvedCall { executor, class: Some(Class::HostToolInvoke), ..tool_call("deploy", "a") }
}

/// Reports whether a call starts; the run continues either way.
fn starts(stage: &mut EngineFixture, call: ResolvedCall) -> bool {
    let facts = stage.request_calls([call]).0;
    let starts = facts.iter().any(|fact| fact == "call started");
    if starts {
        stage.end_call(0);
    }
    starts
}

fn is_held(stage: &mut EngineFixture) -> bool {
    let is_held = !starts(stage, tool_call("write", "x"));
    if is_held {
        let end =
            "calls that change something wait until the person approves a plan or sends a message. Reading is allowed";
        assert!(stage.last_result().ends_with(end), "{}", stage.last_result());
    }
    is_held
}

#[test]
fn every_answer_but_an_approval_holds_calls_back() {
    for (answer, held) in [
        (says(&["approve"]), None),
        (says(&["approve", "well done"]), None),
        (GateReply::Allow(countersign_core::gate::ApprovalScope::Once), None),
        (says(&["reject"]), Some(SignOffDecision::Refuse)),
        (says(&["reject", "no"]), Some(SignOffDecision::Refuse)),
        (says(&["request-changes", "smaller"]), Some(SignOffDecision::Change)),
        (says(&["in my own words"]), Some(SignOffDecision::Change)),
        (GateReply::Deny { reason: None }, Some(SignOffDecision::Refuse)),
        (GateReply::Decline, Some(SignOffDecision::Refuse)),
    ] {
        let mut stage = answered("plan", answer.clone());
        assert_eq!(stage.current_session().withheld_calls().map(|withheld| withheld.decision), held, "{answer:?}");
        assert_eq!(is_held(&mut stage), held.is_some(), "{answer:?}");
    }
}

#[test]
fn nobodys_answer_approves_nothing_whatever_counts_by_default() {
    for otherwise in [session::NoAnswerRule::Nothing, session::NoAnswerRule::Default] {
        let patience = session::AskTimeouts { within: Some(seconds(60)), remind: None, otherwise };
        let asking =
            session::QuestionSettings { plan: patience, question: patience, ..session::QuestionSettings::default() };
        for call in [reads("plan", ""), ask(&json!({"stage": "ralplan", "kind": "approval"}))] {
            let mut stage = thinking(open_rules());
            let settings = stage.current_session().settings().clone();
            stage.change_setting(SessionSetting::All(Box::new(Settings { asking: asking.clone(), ..settings })));
            stage.request_calls([call]);
            stage.now = stage.engine.state().next_deadline().expect("it waits");
            stage.send_command(Command::Tick);
            assert!(is_held(&mut stage), "{otherwise:?}");
        }
    }
}

#[test]
fn what_changes_something_is_held_back_and_reading_goes_on() {
    let mut stage = answered("plan", says(&["reject"]));
    let host = of_host(&mut stage);
    let uri = |class, effect| ResolvedCall { class: Some(class), effect, ..host.clone() };
    for (call, want) in [
        (tool_call("look", "a"), true),
        (tool_call("write", "a"), false),
        (tool_call("bash", "touch a"), false),
        (tool_call("bash", "ls -l && cat a | wc -l"), true),
        (tool_call("bash", "ls > a"), false),
        (tool_call("bash", "make"), false),
        (tool_call("bash", "$X"), false),
        (host.clone(), false),
        (
            ResolvedCall {
                arguments: json!({"command": "ls"}).as_object().cloned().unwrap_or_default(),
                ..host.clone()
            },
            false,
        ),
        (uri(Class::HostUriRead, ToolEffect::Reads), true),
        (uri(Class::HostUriWrite, ToolEffect::Changes), false),
    ] {
        let shown = format!("{} {:?}", call.signature, call.class);
        assert_eq!(starts(&mut stage, call), want, "{shown}");
    }
    // The person's own commands are theirs.
    assert!(crate::states::run_command(&mut stage).0.contains(&"call started".to_owned()));
}

#[test]
fn calls_of_the_same_message_behind_the_plan_are_held_back_too() {
    let mut stage = thinking(open_rules());
    stage.request_calls([reads("plan", ""), tool_call("write", "a"), tool_call("look", "b")]);
    let gate = stage.oldest_gate();
    let facts = stage.answer_gate(gate, says(&["reject"]), "ana", None).0;
    let of_calls: Vec<&str> = facts.iter().map(String::as_str).filter(|fact| fact.starts_with("call")).collect();
    assert_eq!(of_calls, ["call ended done", "call ended denied", "call started"]);
}

#[test]
fn the_next_message_of_the_person_or_an_approved_plan_releases_them() {
    let mut steered = answered("plan", says(&["reject"]));
    steered.session_command(session::Command::Queue { queue: MessageQueue::Steering, message: sample_message(1) });
    assert!(steered.current_session().withheld_calls().is_some(), "it has not been said yet");
    steered.request_calls([tool_call("look", "a")]);
    steered.end_call(0);
    assert!(!is_held(&mut steered), "a steering message");

    let mut prompted = answered("plan", says(&["reject"]));
    prompted.answer(countersign_core::message::StopReason::Stop, Vec::new(), None);
    prompted.send_prompt(WhenBusy::Refuse);
    assert!(!is_held(&mut prompted), "a prompt");

    let mut planned = answered("plan", says(&["request-changes", "smaller"]));
    answers(&mut planned, "plan", says(&["approve"]));
    assert!(!is_held(&mut planned), "another plan");
}

#[test]
fn a_message_from_before_the_answer_does_not_release_them() {
    let mut stage = thinking(open_rules());
    stage.session_command(session::Command::Queue { queue: MessageQueue::FollowUp, message: sample_message(1) });
    answers(&mut stage, "plan", says(&["reject"]));
    stage.answer(countersign_core::message::StopReason::Stop, Vec::new(), None);
    assert!(is_held(&mut stage));
}

#[test]
fn an_execution_that_is_declined_holds_them_back_and_one_that_is_approved_releases_no_plan() {
    let mut stage = answered("execution", says(&["decline"]));
    assert!(is_held(&mut stage));
    answers(&mut stage, "execution", says(&["approve"]));
    assert!(!is_held(&mut stage));

    let mut stage = answered("plan", says(&["reject"]));
    for answer in ["approve", "decline", "approve"] {
        answers(&mut stage, "execution", says(&[answer]));
        assert_eq!(
            stage.current_session().withheld_calls().map(|withheld| withheld.kind),
            Some(Kind::Plan),
            "{answer}"
        );
    }
    assert!(is_held(&mut stage));
}

fn ask(named: &Value) -> ResolvedCall {
    let options =
        json!([{"label": "Approve execution via ultragoal"}, {"label": "Refine further"}, {"label": "Approved"}]);
    let question = json!({"question": "Go?", "options": options, "recommended": 0, "workflowGate": named});
    let arguments = json!({"questions": [question]}).as_object().cloned().unwrap_or_default();
    ResolvedCall { arguments, ..reads("ask", "") }
}

#[test]
fn a_question_that_names_itself_an_approval_is_a_plan() {
    for (kind, answer, held) in [
        ("approval", says(&["Approve execution via ultragoal"]), false),
        ("approval", says(&["Refine further"]), true),
        ("approval", says(&["Approved"]), true),
        ("approval", says(&["approve it, but smaller"]), true),
        ("approval", GateReply::Decline, true),
        ("execution", says(&["Refine further"]), true),
        ("question", says(&["Refine further"]), false),
    ] {
        for stage in ["deep-interview", "ralplan", "ultragoal"] {
            let mut run = thinking(open_rules());
            run.request_calls([ask(&json!({"stage": stage, "kind": kind}))]);
            let gate = run.oldest_gate();
            run.answer_gate(gate, answer.clone(), "ana", None).1.expect("it is offered");
            assert_eq!(is_held(&mut run), held, "{stage} {kind} {answer:?}");
        }
    }
}

#[test]
fn a_question_is_counted_in_the_stage_that_it_names() {
    use countersign_core::gate::GateStage as Counted;

    for (named, want) in
        [("deep-interview", Counted::Interview), ("ralplan", Counted::Plan), ("ultragoal", Counted::Execution)]
    {
        let mut run = thinking(open_rules());
        run.request_calls([ask(&json!({"stage": named, "kind": "question"}))]);
        let gate = run.first_gate().expect("it waits");
        assert_eq!((gate.stage(), gate.number(), gate.kind()), (want, 1, Kind::Question), "{named}");
    }
}

#[test]
fn another_process_holds_them_back_too() {
    let mut stage = answered("plan", says(&["reject"]));
    stage.restart(open_rules(), ResumeMode::Go);
    assert!(is_held(&mut stage));
    assert!(stage.engine.state().session(&session_id()).and_then(session::Session::withheld_calls).is_some());
}
