use countersign_core::{gate::GateReply, run::ResolvedCall};
use serde_json::{Value, json};

use super::{facts_from, facts_with};
use crate::{
    engine_fixture::{EngineFixture, EngineOutcome, open_rules, tool_call},
    states::{calling, deny, thinking},
};

const NEXT: &str = "gate opened question []";
const DONE: &str = "session entry tool_result, call ended done, run turn_closed, run turn_opened, run asked";

fn asks(arguments: Value) -> (EngineFixture, EngineOutcome) {
    let mut stage = thinking(open_rules());
    let arguments = arguments.as_object().cloned().expect("the table has objects");
    let outcome = stage.request_calls([ResolvedCall { arguments, ..tool_call("ask", "") }]);
    (stage, outcome)
}

fn answer(stage: &mut EngineFixture, answer: GateReply) -> String {
    let gate = stage.oldest_gate();
    let outcome = stage.answer_gate(gate, answer, "ana", None);
    outcome.0[1..].join(", ")
}

fn says(label: &str) -> GateReply {
    GateReply::Say(vec![label.to_owned()])
}

#[test]
fn the_questions_of_a_call_are_opened_one_after_the_other() {
    for (case, first, second) in [
        ("answered", says("left"), says("because")),
        ("declined", GateReply::Decline, GateReply::Decline),
        ("denied", deny(None), says("because")),
    ] {
        let mut stage = calling(["ask"]);
        assert_eq!(stage.engine.state().pending_gates().count(), 1, "{case}: one at a time");
        assert_eq!(answer(&mut stage, first), NEXT, "{case}");
        assert_eq!(stage.engine.state().pending_gates().count(), 1, "{case}: one at a time");
        assert_eq!(answer(&mut stage, second), DONE, "{case}");
    }
}

#[test]
fn the_answers_are_the_result_of_the_call() {
    let other = "(the person did not want to answer)";
    for (first, second, want) in [
        (says("left"), says("because"), "Which?\n  left\nWhy?\n  because".to_owned()),
        (says("left"), GateReply::Decline, format!("Which?\n  left\nWhy?\n  {other}")),
        (GateReply::Decline, says("because"), format!("Which?\n  {other}\nWhy?\n  because")),
    ] {
        let mut stage = calling(["ask"]);
        answer(&mut stage, first);
        answer(&mut stage, second);
        assert_eq!(stage.last_result(), want);
    }
}

#[test]
fn several_labels_are_one_answer_where_several_count() {
    let (mut stage, _) = asks(json!({"questions": [{"question": "Which?", "multi": true}]}));
    answer(&mut stage, GateReply::Say(vec!["left".to_owned(), "right".to_owned()]));
    assert_eq!(stage.last_result(), "Which?\n  left, right");
}

#[test]
fn questions_that_cannot_be_asked_end_their_call() {
    let failed = "session entry tool_result, call ended failed, run turn_closed, run turn_opened, run asked";
    for (arguments, want) in [
        (json!({}), "Not asked: the questions cannot be read."),
        (json!({"questions": "Which?"}), "Not asked: the questions cannot be read."),
        (json!({"questions": [{"id": "q"}]}), "Not asked: the questions cannot be read."),
        (json!({"questions": []}), "Invalid arguments for ask:\n- questions must hold at least one question"),
        (
            json!({"questions": [{"question": "?", "options": [{"label": "a"}, {"label": "b"}, {"label": "a"}]}]}),
            "Invalid arguments for ask:\n- questions[0].options[2].label is the label of another option",
        ),
        (
            json!({"questions": [{"question": "?", "options": [{"label": "a"}, {"label": " "}]}]}),
            "Invalid arguments for ask:\n- questions[0].options[1].label is blank",
        ),
        (
            json!({"questions": [{"question": "?"}, {"question": "?", "options": [{"label": "a"}], "recommended": 1}]}),
            "Invalid arguments for ask:\n- questions[1].recommended is not the index of an option",
        ),
        (
            json!({"questions": [{"id": "q", "question": "?"}, {"id": "q", "question": "?"}]}),
            "Invalid arguments for ask:\n- questions[1].id is the id of another question",
        ),
    ] {
        let (stage, outcome) = asks(arguments.clone());
        assert_eq!(facts_from(&outcome, "session entry tool_result"), failed, "{arguments}");
        assert_eq!(stage.last_result(), want, "{arguments}");
    }
}

#[test]
fn two_calls_ask_one_after_the_other() {
    let mut stage = calling(["ask", "ask"]);
    for _ in 0..3 {
        assert_eq!(stage.engine.state().pending_gates().count(), 1);
        answer(&mut stage, says("left"));
    }
    assert_eq!(answer(&mut stage, says("left")), DONE);
}

#[test]
fn a_question_of_a_run_that_was_stopped_is_not_followed_by_another() {
    let mut stage = calling(["ask"]);
    assert_eq!(facts_with(&stage.abort(), "gate"), "gate resolved withdrawn");
    assert_eq!(stage.engine.state().pending_gates().count(), 0);
}
