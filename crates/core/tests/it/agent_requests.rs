//! Requests of an agent without a run: judged, approved, started after their decision, ended and received.

use countersign_core::{
    call::{self, AgentRequest, CallProgress, CallResult, RequestExecutor},
    engine::{Command, CommandError, EngineReply, ResumeMode},
    gate::{self, ApprovalScope, GateReply},
    id::{CallId, PrincipalId, SessionId},
    session::{self, MessageContent, Settings},
    tool::{RepeatMode, ToolEffect},
};
use serde_json::{Map, json};

use crate::{
    engine_fixture::{EngineFixture, asking_rules, open_rules, rules_from},
    states::deny,
};

pub(crate) fn agents(rules: countersign_core::engine::ActiveRules, max_pending: u32) -> EngineFixture {
    let mut stage = EngineFixture::new(rules);
    let settings = Box::new(Settings { max_pending, ..Settings::default() });
    let open = session::Command::Open { cwd: String::new(), name: None, parent: None, door: None, settings };
    stage.send_command(Command::Session(SessionId::new("agent:pi"), open)).1.expect("it is new");
    stage
}

fn request_command(wire: &str, key: Option<&str>, path: &str) -> Command {
    let arguments: Map<_, _> = json!({ "path": path }).as_object().cloned().unwrap_or_default();
    Command::Call(call::Command::Request(Box::new(AgentRequest {
        session: SessionId::new("agent:pi"),
        principal: PrincipalId::new("agent:pi"),
        door: "agent-gate".into(),
        wire: wire.into(),
        key: key.map(str::to_owned),
        tool: "write".into(),
        arguments,
        signatures: vec![format!("write({path})")],
        named: vec!["path".to_owned()],
        undeclared: Vec::new(),
        service: Some("house".into()),
        executor: RequestExecutor::Service,
        paths: Vec::new(),
        cwd: String::new(),
        leads_to: None,
        for_principals: Vec::new(),
        effect: ToolEffect::Changes,
        repeat: RepeatMode::Once,
    })))
}

pub(crate) fn request(stage: &mut EngineFixture, wire: &str, path: &str) -> (Vec<String>, CallId) {
    let outcome = stage.send_command(request_command(wire, None, path));
    let Ok(EngineReply::Requested { call, over: None }) = outcome.1 else { panic!("{:?}", outcome.1) };
    (outcome.0.into_iter().map(|fact| fact.to_string()).collect(), call)
}

pub(crate) fn done(stage: &mut EngineFixture, call: CallId) -> Vec<String> {
    let message = MessageContent { content: "{}".into(), tokens: 0 };
    let returned =
        CallResult { message, error: false, open_tasks: None, folder: None, prunable: false, left_behind: None };
    stage
        .send_command(Command::Call(call::Command::Ended {
            call,
            progress: CallProgress::Returned(Box::new(returned)),
        }))
        .0
}

/// Records that the agent has the result of a call.
pub(crate) fn receive(stage: &mut EngineFixture, call: CallId) {
    stage.send_command(Command::Call(call::Command::Received {
        session: SessionId::new("agent:pi"),
        calls: vec![call],
    }));
}

pub(crate) fn results(stage: &EngineFixture) -> Vec<String> {
    let session = stage.engine.state().session(&SessionId::new("agent:pi")).expect("it is open");
    let results = session.agent_requests().map(|requester| requester.results().values().cloned().collect::<Vec<_>>());
    results.unwrap_or_default().iter().map(|result| format!("{:?}", result.end)).collect()
}

#[test]
fn rules_decide_and_people_where_rules_ask() {
    for (case, rules, answer, want) in [
        ("allowed by a rule", open_rules(), None, "Done { error: false }"),
        ("denied by a rule", rules_from(&["deny write(*)"]), None, "Denied"),
        ("allowed by a person", asking_rules(), Some(GateReply::Allow(ApprovalScope::Once)), "Done { error: false }"),
        ("refused by a person", asking_rules(), Some(deny(Some("no"))), "Refused"),
    ] {
        let mut stage = agents(rules, 10);
        let (_, call) = request(&mut stage, "1", "a");
        if let Some(answer) = answer {
            let gate = stage.oldest_gate();
            stage.answer_gate(gate, answer, "ana", None);
        }
        done(&mut stage, call);
        assert_eq!(results(&stage), [want], "{case}");
        receive(&mut stage, call);
        assert!(results(&stage).is_empty(), "{case}: what was received is not kept");
    }
}

#[test]
fn an_agent_answers_for_nobody_not_even_itself() {
    let mut stage = agents(asking_rules(), 10);
    request(&mut stage, "1", "a");
    let gate = stage.oldest_gate();
    assert!(stage.answer_gate(gate, GateReply::Allow(ApprovalScope::Once), "agent:pi", None).1.is_err());
    assert!(stage.engine.state().gate(gate).is_some_and(|gate| gate.is_pending()));
}

fn question_command(wire: &str, question: &str) -> Command {
    let arguments =
        json!({ "questions": [{ "question": question, "options": [{ "label": "red" }, { "label": "blue" }] }] });
    let Command::Call(call::Command::Request(request)) = request_command(wire, None, "a") else { unreachable!() };
    Command::Call(call::Command::Request(Box::new(AgentRequest {
        tool: "ask_human".into(),
        arguments: arguments.as_object().cloned().unwrap_or_default(),
        signatures: vec![format!("ask_human({question})")],
        named: Vec::new(),
        executor: RequestExecutor::Person,
        repeat: RepeatMode::Idempotent,
        ..*request
    })))
}

fn ask(stage: &mut EngineFixture, wire: &str, question: &str) {
    stage.send_command(question_command(wire, question)).1.expect("it is taken");
}

/// Returns the content of the only result that was not received.
fn answer_text(stage: &EngineFixture) -> serde_json::Value {
    let session = stage.engine.state().session(&SessionId::new("agent:pi")).expect("it is open");
    let result = session.agent_requests().and_then(|requests| requests.results().values().next()).expect("it is over");
    let text = stage.content(result.lsn).expect("it has a content");
    serde_json::from_str(&text).expect("it is JSON")
}

#[test]
fn a_question_of_an_agent_needs_no_approval_and_its_answer_is_the_result() {
    for is_restarted in [false, true] {
        let mut stage = agents(asking_rules(), 10);
        ask(&mut stage, "1", "Which colour?");
        if is_restarted {
            stage.restart(asking_rules(), ResumeMode::Go);
        }
        let gate = stage.oldest_gate();
        stage.answer_gate(gate, GateReply::Say(vec!["blue".to_owned()]), "ana", None).1.expect("it counts");
        assert_eq!(results(&stage), ["Done { error: false }"], "{is_restarted}");
        assert_eq!(answer_text(&stage)["results"][0]["selectedOptions"], json!(["blue"]), "{is_restarted}");
    }
}

#[test]
fn the_principals_for_whom_a_question_is_asked_do_not_answer_it() {
    for is_restarted in [false, true] {
        let mut stage = agents(asking_rules(), 10);
        let Command::Call(call::Command::Request(mut request)) = question_command("1", "Which?") else {
            unreachable!()
        };
        request.for_principals = vec![PrincipalId::new("token:ci")];
        stage.send_command(Command::Call(call::Command::Request(request))).1.expect("it is taken");
        if is_restarted {
            stage.restart(asking_rules(), ResumeMode::Go);
        }
        let gate = stage.oldest_gate();
        let say = || GateReply::Say(vec!["blue".to_owned()]);
        let refused = stage.answer_gate(gate, say(), "token:ci", None).1;
        assert!(matches!(refused, Err(CommandError::Answer(gate::AnswerError::NotAllowed { .. }))), "{refused:?}");
        stage.answer_gate(gate, say(), "ana", None).1.expect("it counts");
    }
}

#[test]
fn a_question_that_nobody_answers_in_time_says_so() {
    let mut stage = agents(asking_rules(), 10);
    ask(&mut stage, "1", "Which colour?");
    stage.now = stage.now + Settings::default().clarify_timeout + Settings::default().clarify_timeout;
    stage.send_command(Command::Tick);
    assert_eq!(results(&stage), ["Done { error: false }"]);
    let answer = answer_text(&stage);
    assert_eq!((&answer["results"][0]["selectedOptions"], answer["text"].is_string()), (&json!([]), true), "{answer}");
}

#[test]
fn a_closed_question_takes_its_choices_only() {
    let mut stage = agents(asking_rules(), 10);
    let Command::Call(call::Command::Request(mut request)) = question_command("1", "Which colour?") else {
        unreachable!()
    };
    request.arguments["questions"][0]["closed"] = json!(true);
    stage.send_command(Command::Call(call::Command::Request(request))).1.expect("it is taken");
    let gate = stage.oldest_gate();
    let mut answer = |words: &str| stage.answer_gate(gate, GateReply::Say(vec![words.to_owned()]), "ana", None).1;
    assert!(answer("green").is_err());
    assert!(answer("blue").is_ok());
    assert_eq!(answer_text(&stage)["results"][0]["selectedOptions"], json!(["blue"]));
}

#[test]
fn a_withdrawn_question_was_not_declined_by_a_person() {
    let mut stage = agents(asking_rules(), 10);
    ask(&mut stage, "1", "Which colour?");
    let withdraw = gate::Command::Withdraw { gate: stage.oldest_gate(), by: PrincipalId::new("gateway") };
    stage.send_command(Command::Gate(withdraw)).1.expect("it is pending");
    assert_eq!(answer_text(&stage)["text"], "Which colour?\n  (the question was withdrawn)");
}

#[test]
fn a_rule_that_denies_holds_for_questions_too() {
    let mut stage = agents(rules_from(&["deny ask_human(*)"]), 10);
    ask(&mut stage, "1", "Which colour?");
    assert_eq!((results(&stage), stage.engine.state().pending_gates().count()), (vec!["Denied".to_owned()], 0));
}

#[test]
fn questions_count_among_those_that_wait() {
    let mut stage = agents(asking_rules(), 2);
    request(&mut stage, "1", "a");
    ask(&mut stage, "2", "Which colour?");
    ask(&mut stage, "3", "Which size?");
    assert_eq!((stage.engine.state().pending_gates().count(), results(&stage)), (2, vec!["Limited".to_owned()]));
}

#[test]
fn no_more_wait_than_may() {
    let mut stage = agents(asking_rules(), 2);
    for (wire, path) in [("1", "a"), ("2", "b"), ("3", "c")] {
        request(&mut stage, wire, path);
    }
    assert_eq!((stage.engine.state().pending_gates().count(), results(&stage)), (2, vec!["Limited".to_owned()]));
}

#[test]
fn a_key_names_one_request_and_a_repeated_id_is_a_new_one() {
    let mut stage = agents(open_rules(), 10);
    let first = stage.send_command(request_command("1", Some("k"), "a")).1.expect("it is taken");
    let EngineReply::Requested { call, over: None } = first else { panic!("{first:?}") };
    assert_eq!(
        stage.send_command(request_command("2", Some("k"), "a")).1,
        Ok(EngineReply::Requested { call, over: None }),
        "it is under way"
    );
    done(&mut stage, call);
    let again = stage.send_command(request_command("3", Some("k"), "a")).1;
    assert!(matches!(again, Ok(EngineReply::Requested { call: same, over: Some(_) }) if same == call), "{again:?}");
    let other = stage.send_command(request_command("4", Some("k"), "b")).1;
    assert_eq!(other, Err(CommandError::KeyTaken("k".to_owned())), "it asks for something else");
    let generation = |stage: &EngineFixture| {
        let session = stage.engine.state().session(&SessionId::new("agent:pi")).expect("it is open");
        session.agent_requests().map_or(0, |requester| requester.generation())
    };
    assert_eq!(generation(&stage), 1);
    request(&mut stage, "9", "b");
    assert_eq!(generation(&stage), 1, "ids go on");
    request(&mut stage, "1", "c");
    assert_eq!(generation(&stage), 2, "an id comes again");
}

#[test]
fn a_restarted_program_keeps_no_grants_of_its_sessions() {
    let mut stage = agents(asking_rules(), 10);
    request(&mut stage, "1", "a");
    let gate = stage.oldest_gate();
    stage.answer_gate(gate, GateReply::Allow(ApprovalScope::Session), "ana", None).1.expect("it is offered");
    request(&mut stage, "2", "b");
    let grants = |stage: &EngineFixture| stage.engine.state().policy().grants().iter().count();
    assert_eq!(grants(&stage), 1, "ids go on");
    request(&mut stage, "1", "c");
    assert_eq!(grants(&stage), 0, "an id comes again");
}

#[test]
fn a_restart_leaves_what_was_started_unknown_and_goes_on_with_the_rest() {
    let mut stage = agents(asking_rules(), 10);
    let (_, started) = request(&mut stage, "1", "a");
    let gate = stage.oldest_gate();
    stage.answer_gate(gate, GateReply::Allow(ApprovalScope::Once), "ana", None);
    request(&mut stage, "2", "b");
    stage.restart(asking_rules(), ResumeMode::Go);
    assert_eq!(results(&stage), ["Unknown"]);
    assert!(stage.engine.state().call(started).is_none());
    assert_eq!(stage.engine.state().pending_gates().count(), 1, "what waits for a person waits again");
}
