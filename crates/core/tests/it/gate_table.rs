//! Every answer to every kind of gate in every state of it.

use std::time::Duration;

use countersign_core::{
    engine::{Command, CommandError, EngineReply},
    gate::{
        AnswerError,
        ApprovalScope::{Always, Once, Session},
        GateReply::{self, Allow, Decline, Say},
        GateResolution,
    },
    id::{GateId, PrincipalId},
    run::ResolvedCall,
};

use crate::{
    engine_fixture::{EngineFixture, EngineOutcome, asking_rules, open_rules, tool_call},
    states::{deny, idle, thinking, under},
};

/// A gate in a state of its life.
type GateFixture = (EngineFixture, GateId);
/// A state's name, its setup, its outcome and its resolver.
type ResolvedGateCase = (&'static str, fn() -> GateFixture, GateResolution, Option<PrincipalId>);

fn asked_about(wants: ResolvedCall) -> GateFixture {
    let mut stage = thinking(asking_rules());
    stage.request_calls([wants]);
    let gate = stage.oldest_gate();
    (stage, gate)
}

fn approval() -> GateFixture {
    asked_about(tool_call("write", "a"))
}

fn question() -> GateFixture {
    asked_about(tool_call("ask", ""))
}

/// Returns a gate that only a single approval may let through.
fn floor() -> GateFixture {
    asked_about(tool_call("bash", "rm -rf /"))
}

fn answered(scene: GateFixture, answer: GateReply) -> GateFixture {
    let (mut stage, gate) = scene;
    stage.answer_gate(gate, answer, "ana", Some("k")).1.expect("it is offered");
    (stage, gate)
}

fn granted() -> GateFixture {
    let mut stage = thinking(asking_rules());
    stage.request_calls([tool_call("write", "a"), tool_call("write", "a")]);
    let mut gates: Vec<_> = stage.engine.state().pending_gates().collect();
    gates.sort_unstable_by_key(|gate| gate.content_lsn());
    let (first, second) = (gates[0].id(), gates[1].id());
    stage.answer_gate(first, Allow(Session), "ana", None).1.expect("it is offered");
    (stage, second)
}

fn expired(scene: GateFixture) -> GateFixture {
    let (mut stage, gate) = scene;
    stage.now = stage.engine.state().gate(gate).expect("it was opened").deadline().expect("each has one");
    stage.send_command(Command::Tick);
    (stage, gate)
}

fn withdrawn(scene: GateFixture) -> GateFixture {
    let (mut stage, gate) = scene;
    stage.abort();
    (stage, gate)
}

/// Lets time pass after a resolution, by the clock that evicts gates.
fn after(scene: GateFixture, span: Duration) -> GateFixture {
    let (mut stage, gate) = scene;
    stage.now = stage.now + span;
    let now = stage.now;
    stage.engine.evict_idle(now, None);
    (stage, gate)
}

fn says(labels: &[&str]) -> GateReply {
    Say(labels.iter().map(|label| (*label).to_owned()).collect())
}

fn every_answer() -> [GateReply; 9] {
    let say = says(&["left"]);
    [
        Allow(Once),
        Allow(Session),
        Allow(Always),
        deny(None),
        deny(Some("no")),
        say,
        says(&[]),
        says(&["a", "b"]),
        Decline,
    ]
}

/// Returns the reply, or the refusal without the gate's name.
fn reply(scene: GateFixture, answer: GateReply, by: &str, key: Option<&str>) -> String {
    let (mut stage, gate) = scene;
    let before = stage.engine.state().clone();
    let outcome = stage.answer_gate(gate, answer, by, key);
    if outcome.1.is_err() {
        assert_eq!(*stage.engine.state(), before, "a refusal changes nothing");
    }
    EngineOutcome(Vec::new(), outcome.1).table_cell().replace(&gate.to_string(), "it")
}

#[test]
fn a_pending_gate_takes_every_answer_that_its_kind_offers_and_no_other() {
    let reach = "refused: it does not offer this answer: this reach is not offered";
    let approve = "refused: it does not offer this answer: an approval is allowed or denied";
    let question_only = "refused: it does not offer this answer: a question is not allowed or denied";
    let empty = "refused: it does not offer this answer: an answer is empty";
    let one = "refused: it does not offer this answer: the question takes one answer";
    let (allowed, denied, declined) = ("Resolved allowed", "Resolved denied", "Resolved declined");
    for (answer, of_approval, of_floor, of_question) in [
        (Allow(Once), allowed, allowed, question_only),
        (Allow(Session), allowed, reach, question_only),
        (Allow(Always), allowed, reach, question_only),
        (deny(None), denied, denied, declined),
        (deny(Some("no")), denied, denied, declined),
        (says(&["left"]), approve, approve, "Resolved answered"),
        (says(&[]), approve, approve, empty),
        (says(&[""]), approve, approve, empty),
        (says(&["left", " "]), approve, approve, empty),
        (says(&["left", "right"]), approve, approve, one),
        (says(&["in my own words"]), approve, approve, "Resolved answered"),
        (Decline, denied, denied, declined),
    ] {
        assert_eq!(reply(approval(), answer.clone(), "ana", None), of_approval, "approval, {answer:?}");
        assert_eq!(reply(floor(), answer.clone(), "ana", None), of_floor, "floor, {answer:?}");
        assert_eq!(reply(question(), answer.clone(), "ana", None), of_question, "question, {answer:?}");
    }
}

#[test]
fn each_reach_of_an_allow_is_the_one_that_is_recorded() {
    for scope in [Once, Session, Always] {
        let (mut stage, gate) = approval();
        let outcome = stage.answer_gate(gate, Allow(scope), "ana", None);
        assert_eq!(outcome.1, Ok(EngineReply::Resolved(GateResolution::Allowed { scope })));
        assert_eq!(stage.engine.state().gate(gate).unwrap().resolution(), Some(&GateResolution::Allowed { scope }));
    }
}

#[test]
fn what_an_answer_comes_to_is_recorded_with_it() {
    let goes_on = "session entry tool_result, call ended denied, run turn_closed, run turn_opened, run asked";
    let starts = "call allowed, call started";
    let binds = format!("policy constrained, run denied 1, {goes_on}");
    for (case, scene, answer, want) in [
        ("once", approval(), Allow(Once), format!("Resolved allowed: gate resolved allowed, {starts}")),
        (
            "session",
            approval(),
            Allow(Session),
            format!("Resolved allowed: gate resolved allowed, policy granted, {starts}"),
        ),
        (
            "always",
            approval(),
            Allow(Always),
            format!("Resolved allowed: gate resolved allowed, policy granted, {starts}"),
        ),
        ("deny", approval(), deny(None), format!("Resolved denied: gate resolved denied, {binds}")),
        ("deny, why", approval(), deny(Some("no")), format!("Resolved denied: gate resolved denied, {binds}")),
        ("decline", approval(), Decline, format!("Resolved denied: gate resolved denied, {binds}")),
        ("floor, once", floor(), Allow(Once), format!("Resolved allowed: gate resolved allowed, {starts}")),
        ("floor, deny", floor(), deny(None), format!("Resolved denied: gate resolved denied, {binds}")),
        (
            "say",
            question(),
            says(&["left"]),
            "Resolved answered: gate resolved answered, gate opened question []".to_owned(),
        ),
        (
            "say no",
            question(),
            Decline,
            "Resolved declined: gate resolved declined, gate opened question []".to_owned(),
        ),
    ] {
        let (mut stage, gate) = scene;
        assert_eq!(stage.answer_gate(gate, answer, "ana", None).table_cell(), want, "{case}");
    }
}

#[test]
fn a_late_answer_gets_the_resolution_and_its_approver() {
    let ana = || Some(PrincipalId::new("ana"));
    let allow = |scope| GateResolution::Allowed { scope };
    let scenes: [ResolvedGateCase; 11] = [
        ("allowed once", || answered(approval(), Allow(Once)), allow(Once), ana()),
        ("allowed for the session", || answered(approval(), Allow(Session)), allow(Session), ana()),
        ("allowed for good", || answered(approval(), Allow(Always)), allow(Always), ana()),
        ("denied", || answered(approval(), deny(None)), GateResolution::Denied, ana()),
        ("answered", || answered(question(), says(&["left"])), GateResolution::Answered, ana()),
        ("declined", || answered(question(), Decline), GateResolution::Declined, ana()),
        ("granted", granted, GateResolution::Granted, None),
        ("expired", || expired(approval()), GateResolution::Expired, None),
        ("a question expired", || expired(question()), GateResolution::Expired, None),
        ("withdrawn", || withdrawn(approval()), GateResolution::Withdrawn, None),
        ("a question withdrawn", || withdrawn(question()), GateResolution::Withdrawn, None),
    ];
    for (case, scene, resolution, by) in scenes {
        for answer in every_answer() {
            for key in [None, Some("l")] {
                let (mut stage, gate) = scene();
                let before = stage.engine.state().clone();
                let late = AnswerError::AlreadyResolved { gate, resolution: resolution.clone(), by: by.clone() };
                let outcome = stage.answer_gate(gate, answer.clone(), "bo", key);
                assert_eq!(
                    outcome,
                    EngineOutcome(Vec::new(), Err(CommandError::Answer(late))),
                    "{case}, {answer:?}, {key:?}"
                );
                assert_eq!(*stage.engine.state(), before, "{case}, {answer:?}");
            }
        }
    }
}

#[test]
fn the_key_of_the_answer_that_counted_gets_its_result_again() {
    for (case, scene, want) in [
        ("allowed", answered(approval(), Allow(Once)), "Resolved allowed"),
        ("denied", answered(approval(), deny(None)), "Resolved denied"),
        ("answered", answered(question(), says(&["left"])), "Resolved answered"),
        ("declined", answered(question(), Decline), "Resolved declined"),
    ] {
        for answer in every_answer() {
            let (stage, gate) = &scene;
            let mut stage = stage.clone();
            assert_eq!(
                stage.answer_gate(*gate, answer.clone(), "bo", Some("k")).table_cell(),
                want,
                "{case}, {answer:?}"
            );
        }
    }
}

#[test]
fn an_answer_that_is_not_offered_uses_up_no_key() {
    let (mut stage, gate) = approval();
    stage.answer_gate(gate, says(&["left"]), "ana", Some("k")).1.unwrap_err();
    assert_eq!(reply((stage, gate), Allow(Once), "ana", Some("k")), "Resolved allowed");
}

#[test]
fn the_agent_that_asks_never_answers() {
    for scene in [approval, floor, question] {
        for answer in every_answer() {
            let want = "refused: agent may not answer it";
            assert_eq!(reply(scene(), answer.clone(), "agent", Some("k")), want, "{answer:?}");
        }
    }
}

#[test]
fn a_gate_that_is_not_there_is_unknown_to_every_answer() {
    let nowhere = || (idle(), GateId::parse("00000000000000000000000000000001").expect("it is one"));
    let long_ago = || after(answered(approval(), deny(None)), Duration::from_secs(600));
    for answer in every_answer() {
        for key in [None, Some("k")] {
            let unknown = "refused: it does not exist";
            assert_eq!(reply(nowhere(), answer.clone(), "ana", key), unknown, "never there, {answer:?}");
            assert_eq!(reply(long_ago(), answer.clone(), "ana", key), unknown, "resolved long ago, {answer:?}");
        }
    }
}

#[test]
fn a_resolved_gate_stays_at_hand_for_ten_minutes_and_while_its_call_lasts() {
    let resolved = "refused: it is already resolved";
    let nearly = Duration::from_secs(600) - Duration::from_millis(1);
    let hour = Duration::from_secs(3600);
    for (case, scene, want) in [
        ("nearly ten minutes", after(answered(approval(), deny(None)), nearly), resolved),
        ("its call works", after(answered(approval(), Allow(Once)), hour), resolved),
        ("its call asks on", after(answered(question(), Decline), hour), resolved),
    ] {
        assert_eq!(reply(scene, deny(None), "bo", None), want, "{case}");
    }
    let (stage, gate) = after(approval(), hour);
    assert!(stage.engine.state().gate(gate).unwrap().is_pending(), "one that waits is never forgotten");
}

#[test]
fn gates_wait_in_the_order_in_which_they_were_opened() {
    let stage = under(asking_rules(), ["write", "look", "write", "write"]);
    let mut opened: Vec<_> =
        stage.engine.state().pending_gates().map(|gate| (gate.content_lsn(), gate.ordinal())).collect();
    opened.sort_unstable();
    assert_eq!(opened.iter().map(|(_, ordinal)| *ordinal).collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn a_question_that_somebody_declines_to_answer_leaves_the_run_to_go_on() {
    let mut stage = under(open_rules(), ["ask"]);
    for (answer, want) in [
        (says(&["left"]), "gate resolved answered, gate opened question []"),
        (
            Decline,
            "gate resolved declined, session entry tool_result, call ended done, run turn_closed, run turn_opened, \
             run asked",
        ),
    ] {
        let gate = stage.oldest_gate();
        assert_eq!(stage.answer_gate(gate, answer, "ana", None).0.join(", "), want);
    }
    let expected = "Which?\n  left\nWhy?\n  (the person did not want to answer)";
    assert_eq!(stage.last_result(), expected);
}
