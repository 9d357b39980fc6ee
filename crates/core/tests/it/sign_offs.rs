//! Answers to plans and executions, and answers in the form of an adapter.

use countersign_core::{
    digest::Digest,
    engine::{CommandError, EngineReply},
    gate::{
        self, AnswerError, AnswerForm,
        ApprovalScope::{Always, Once, Session},
        GatePhase,
        GateReply::{self, Allow, Decline},
        GateResolution,
    },
    id::GateId,
};
use serde_json::{Value, json};

use crate::{
    engine_fixture::{EngineFixture, EngineOutcome, open_rules, tool_call},
    states::{deny, thinking},
};

fn waits(tool: &str) -> (EngineFixture, GateId) {
    let mut stage = thinking(open_rules());
    stage.request_calls([tool_call(tool, "")]);
    let gate = stage.oldest_gate();
    (stage, gate)
}

fn says(labels: &[&str]) -> GateReply {
    GateReply::Say(labels.iter().map(|label| (*label).to_owned()).collect())
}

fn form(labels: &[&str], form: &Value) -> GateReply {
    let digest = Digest::hash_bytes(form.to_string().as_bytes());
    GateReply::Form(Box::new(AnswerForm { answer: says(labels), form: form.clone(), digest }))
}

/// Returns the reply or refusal, and the recorded words.
fn reply_summary(tool: &str, answer: GateReply) -> String {
    let (mut stage, gate) = waits(tool);
    let before = stage.engine.state().clone();
    let outcome = stage.answer_gate(gate, answer, "ana", None);
    if outcome.1.is_err() {
        assert_eq!(*stage.engine.state(), before, "a refusal changes nothing");
    }
    EngineOutcome(Vec::new(), outcome.1).table_cell().replace(&gate.to_string(), "it")
}

#[test]
fn a_sign_off_takes_one_decision_and_a_comment() {
    let (answered, declined) = ("Resolved answered", "Resolved declined");
    let one = "refused: it does not offer this answer: it takes one decision, and words beside it";
    let unnamed = "refused: it does not offer this answer: changes have to be named";
    let empty = "refused: it does not offer this answer: an answer is empty";
    let reach = "refused: it does not offer this answer: this reach is not offered";
    for (answer, of_plan, of_execution) in [
        (says(&["approve"]), answered, answered),
        (says(&["approve", "good"]), answered, answered),
        (says(&["reject"]), answered, answered),
        (says(&["decline", "no"]), one, answered),
        (says(&["request-changes"]), unnamed, answered),
        (says(&["request-changes", "smaller"]), answered, one),
        (says(&["approve", "reject"]), one, answered),
        (says(&["approve", "a", "b"]), one, one),
        (says(&["a", "b"]), one, one),
        (says(&["in my own words"]), answered, answered),
        (says(&[]), empty, empty),
        (says(&["approve", " "]), empty, empty),
        (form(&["approve"], &json!({"decision": "approve"})), answered, answered),
        (Allow(Once), answered, answered),
        (Allow(Session), reach, reach),
        (Allow(Always), reach, reach),
        (deny(None), answered, answered),
        (deny(Some("no")), answered, answered),
        (Decline, declined, declined),
    ] {
        assert_eq!(reply_summary("plan", answer.clone()), of_plan, "plan, {answer:?}");
        assert_eq!(reply_summary("execution", answer.clone()), of_execution, "execution, {answer:?}");
    }
}

#[test]
fn nothing_but_an_exact_approval_lets_a_plan_go_on() {
    for label in ["Approve", "approved", "approve ", "yes", "ok", "reject", "decline"] {
        let (mut stage, gate) = waits("plan");
        stage.answer_gate(gate, says(&[label]), "ana", None).1.expect("it is offered");
        assert!(!stage.last_result().contains("is approved."), "{label}: {}", stage.last_result());
    }
}

#[test]
fn the_form_of_an_answer_is_kept_verbatim_with_its_meaning() {
    let given = json!({"selected": ["left"], "other": false});
    let text = json!({"said": ["left"], "form": given}).to_string();
    assert_eq!(
        (gate::parse_words(&text), gate::parse_form(&text)),
        (Some(vec!["left".to_owned()]), Some(given.clone()))
    );
    let plain = r#"["left","because"]"#;
    assert_eq!(
        (gate::parse_words(plain), gate::parse_form(plain)),
        (Some(vec!["left".to_owned(), "because".to_owned()]), None)
    );
    for text in ["no reason", "{}", "7", r#"{"said":1}"#] {
        assert_eq!((gate::parse_words(text), gate::parse_form(text)), (None, None), "{text}");
    }
    let (mut stage, gate) = waits("ask");
    stage.answer_gate(gate, form(&["left"], &given), "ana", None).1.expect("it is offered");
    let recorded = stage.engine.admitted().answer_text(gate).expect("its call asks on");
    assert_eq!((gate::parse_words(recorded), gate::parse_form(recorded)), (Some(vec!["left".to_owned()]), Some(given)));
}

#[test]
fn a_key_stands_for_one_form_of_an_answer() {
    let (first, other) = (json!({"selected": ["left"]}), json!({"selected": ["right"]}));
    let (mut stage, gate) = waits("ask");
    stage.answer_gate(gate, form(&["left"], &first), "ana", Some("k")).1.expect("it is offered");
    let resolved = Ok(EngineReply::Resolved(GateResolution::Answered));
    let taken = Err(CommandError::Answer(AnswerError::KeyTaken(gate)));
    let late = Err(CommandError::Answer(AnswerError::AlreadyResolved {
        gate,
        resolution: GateResolution::Answered,
        by: Some(countersign_core::id::PrincipalId::new("ana")),
    }));
    for (answer, key, want) in [
        (form(&["left"], &first), Some("k"), &resolved),
        (form(&["right"], &other), Some("k"), &taken),
        (form(&["left"], &first), Some("l"), &late),
        (form(&["left"], &first), None, &late),
        (says(&["left"]), Some("k"), &resolved),
    ] {
        assert_eq!(
            stage.answer_gate(gate, answer.clone(), "bo", key),
            EngineOutcome(Vec::new(), want.clone()),
            "{answer:?}, {key:?}"
        );
    }
    let GatePhase::Resolved { form, .. } = stage.engine.state().gate(gate).expect("it is at hand").phase() else {
        panic!("it is resolved")
    };
    assert_eq!(*form, Some(Digest::hash_bytes(first.to_string().as_bytes())));
}

#[test]
fn a_form_under_the_key_of_an_answer_without_one_is_another_answer() {
    let (mut stage, gate) = waits("ask");
    stage.answer_gate(gate, says(&["left"]), "ana", Some("k")).1.expect("it is offered");
    let outcome = stage.answer_gate(gate, form(&["left"], &json!({"selected": ["left"]})), "ana", Some("k"));
    assert_eq!(outcome.1, Err(CommandError::Answer(AnswerError::KeyTaken(gate))));
}

#[test]
fn an_approval_in_a_form_is_what_it_says() {
    let (approve, decline) = (json!({"decision": "approve"}), json!({"decision": "decline"}));
    let of = |answer, form: &Value| {
        let digest = Digest::hash_bytes(form.to_string().as_bytes());
        GateReply::Form(Box::new(AnswerForm { answer, form: form.clone(), digest }))
    };
    let refusal = "refused: it does not offer this answer: an approval is allowed or denied";
    for (answer, want) in [
        (of(Allow(Once), &approve), "Resolved allowed"),
        (of(deny(Some("no")), &decline), "Resolved denied"),
        (form(&["approve"], &approve), refusal),
    ] {
        let mut stage = thinking(crate::engine_fixture::asking_rules());
        stage.request_calls([tool_call("write", "a")]);
        let gate = stage.oldest_gate();
        let outcome = stage.answer_gate(gate, answer, "ana", Some("k"));
        assert_eq!(EngineOutcome(Vec::new(), outcome.1).table_cell().replace(&gate.to_string(), "it"), want);
    }
}
