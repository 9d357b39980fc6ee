//! Settings of the questions of runs, and the results of those.

use countersign_core::{
    engine::Command,
    gate::{ApprovalScope, Fallback, GateReply, GateResolution},
    run::ResolvedCall,
    session::{AnswerFormat as Words, AskTimeouts, NoAnswerRule, QuestionSettings, SessionSetting, Settings},
};
use serde_json::{Value, json};

use super::{facts_from, facts_with};
use crate::{
    engine_fixture::{EngineFixture, EngineOutcome, open_rules, seconds, tool_call},
    states::{deny, thinking},
};

fn asks(asking: QuestionSettings, arguments: Value) -> (EngineFixture, EngineOutcome) {
    let mut stage = thinking(open_rules());
    let settings = Settings { asking, ..stage.current_session().settings().clone() };
    stage.change_setting(SessionSetting::All(Box::new(settings)));
    let arguments = arguments.as_object().cloned().expect("the table has objects");
    let outcome = stage.request_calls([ResolvedCall { arguments, ..tool_call("ask", "") }]);
    (stage, outcome)
}

fn selected() -> QuestionSettings {
    QuestionSettings { answer_format: Words::Selected, ..QuestionSettings::default() }
}

fn says(labels: &[&str]) -> GateReply {
    GateReply::Say(labels.iter().map(|label| (*label).to_owned()).collect())
}

fn answered(asking: QuestionSettings, arguments: Value, answers: &[GateReply]) -> EngineFixture {
    let (mut stage, _) = asks(asking, arguments);
    for answer in answers {
        let gate = stage.oldest_gate();
        stage.answer_gate(gate, answer.clone(), "ana", None).1.expect("it is offered");
    }
    stage
}

#[test]
fn a_selection_is_reported_in_the_configured_words() {
    let one = |multi| {
        json!({"questions": [{"id": "q", "question": "Which?", "multi": multi,
            "options": [{"label": "left"}, {"label": "right"}]}]})
    };
    let two =
        json!({"questions": [{"id": "q", "question": "Which?", "options": [{"label": "left"}]}, {"question": "Why?"}]});
    for (arguments, answers, want) in [
        (one(false), vec![says(&["left"])], "User selected: left"),
        (one(false), vec![says(&["up"])], "User provided custom input: up"),
        (one(true), vec![says(&["left", "right"])], "User selected: left, right"),
        (one(true), vec![says(&["left", "up"])], "User selected: left\nUser provided custom input: up"),
        (one(false), vec![GateReply::Decline], "(the person did not want to answer)"),
        (two.clone(), vec![says(&["left"]), says(&["so"])], "User answers:\n- q: left\n- Why?: so"),
        (
            two,
            vec![says(&["left"]), GateReply::Decline],
            "User answers:\n- q: left\n- Why?: (the person did not want to answer)",
        ),
    ] {
        assert_eq!(answered(selected(), arguments, &answers).last_result(), want);
    }
}

#[test]
fn plans_and_executions_are_reported_as_decisions() {
    let plan =
        json!({"plan": "Move it.", "title": "The move", "summary": "Short", "artifacts": ["a.md"], "language": "en"});
    let execution = json!({"execution": "It was moved."});
    for (arguments, answer, text, details) in [
        (&plan, says(&["approve"]), "The plan is approved.", json!({"decision": "approve"})),
        (&plan, GateReply::Allow(ApprovalScope::Once), "The plan is approved.", json!({"decision": "approve"})),
        (
            &plan,
            says(&["approve", "well done"]),
            "The plan is approved.\nwell done",
            json!({"decision": "approve", "comments": "well done"}),
        ),
        (
            &plan,
            says(&["request-changes", "smaller"]),
            "The plan is not approved: changes are requested.\nsmaller",
            json!({"decision": "request-changes", "comments": "smaller"}),
        ),
        (
            &plan,
            says(&["approve of it? no"]),
            "The plan is not approved: changes are requested.\napprove of it? no",
            json!({"decision": "request-changes", "comments": "approve of it? no"}),
        ),
        (&plan, deny(None), "The plan is rejected. Do not carry it out.", json!({"decision": "reject"})),
        (
            &plan,
            GateReply::Decline,
            "The person did not want to decide about the plan. Do not go on with it.",
            json!({"decision": null}),
        ),
        (&execution, says(&["approve"]), "The execution is approved.", json!({"decision": "approve"})),
        (
            &execution,
            says(&["not yet"]),
            "The execution is declined. Do not go on with it.\nnot yet",
            json!({"decision": "decline", "comments": "not yet"}),
        ),
        (
            &execution,
            deny(Some("no")),
            "The execution is declined. Do not go on with it.\nno",
            json!({"decision": "decline", "comments": "no"}),
        ),
    ] {
        let stage = answered(QuestionSettings::default(), arguments.clone(), &[answer]);
        assert_eq!((stage.last_result().as_str(), stage.last_details()), (text, details));
    }
}

#[test]
fn all_that_belongs_to_a_plan_is_shown_in_one_text() {
    let arguments = json!({"plan": "Move it.", "title": "The move", "summary": "Short", "artifacts": ["a.md", "b.md"]});
    let (stage, _) = asks(QuestionSettings::default(), arguments);
    let shown = json!(&**stage.engine.admitted().gate_content(stage.oldest_gate()).expect("it waits"));
    let about = json!({"title": "The move", "summary": "Short", "artifacts": ["a.md", "b.md"]});
    assert_eq!(
        (&shown["question"], &shown["about"], &shown["choices"]),
        (
            &json!("The move\n\nShort\n\nMove it.\n\nFiles:\na.md\nb.md"),
            &about,
            &json!([{"label": "approve"}, {"label": "request-changes"}, {"label": "reject"}])
        )
    );
}

#[test]
fn a_call_that_cannot_ask_says_why() {
    let failed = "session entry tool_result, call ended failed, run turn_closed, run turn_opened, run asked";
    let many: Vec<Value> = (0..513).map(|at| json!({"label": at.to_string()})).collect();
    for (arguments, want) in [
        (json!({"plan": 1}), "Not asked: the questions cannot be read."),
        (json!({"plan": "x", "artifacts": "a"}), "Not asked: the questions cannot be read."),
        (json!({"plan": " "}), "Invalid arguments for ask:\n- plan must say something"),
        (json!({"execution": ""}), "Invalid arguments for ask:\n- execution must say something"),
        (
            json!({"questions": [{"question": "?", "options": many}]}),
            "Invalid arguments for ask:\n- questions[0].options are more than 512 options or 20000 bytes of labels",
        ),
        (
            json!({"questions": [{"question": "?", "options": [{"label": "\u{1}".repeat(4_000)}]}]}),
            "Invalid arguments for ask:\n- questions[0].options are more than 512 options or 20000 bytes of labels",
        ),
    ] {
        let (stage, outcome) = asks(QuestionSettings::default(), arguments.clone());
        assert_eq!(
            (facts_from(&outcome, "session entry tool_result").as_str(), stage.last_result().as_str()),
            (failed, want)
        );
    }
}

#[test]
fn without_an_approver_the_call_fails_and_its_run_is_stopped() {
    let nobody = QuestionSettings {
        nobody: Some("Ask tool requires interactive mode".to_owned()),
        ..QuestionSettings::default()
    };
    let (stage, outcome) = asks(nobody, json!({"questions": [{"question": "?"}]}));
    let want = "session entry tool_result, call ended failed, run aborting, run turn_closed, run ended aborted";
    assert_eq!(facts_from(&outcome, "session entry tool_result"), want);
    assert_eq!(stage.last_result(), "Ask tool requires interactive mode");
    assert_eq!(stage.engine.state().pending_gates().count(), 0);
}

#[test]
fn an_open_question_is_answered_even_if_no_approver_can_be_asked_now() {
    let arguments = json!({"questions": [{"question": "Which?"}, {"question": "Why?"}]});
    let (mut stage, _) = asks(selected(), arguments);
    stage.change_setting(SessionSetting::Nobody(Some("Nobody is here".to_owned())));
    let gate = stage.oldest_gate();
    let outcome = stage.answer_gate(gate, says(&["left"]), "ana", None);
    assert_eq!(outcome.0[0], "gate resolved answered");
    assert_eq!(stage.last_result(), "Nobody is here", "the second cannot be asked");
}

#[test]
fn patience_ends_in_a_reminder_and_then_in_what_is_the_default() {
    let patience = |otherwise| AskTimeouts { within: Some(seconds(60)), remind: Some(seconds(20)), otherwise };
    let question = json!({"questions": [{"question": "Which?", "recommended": 1,
        "options": [{"label": "left"}, {"label": "right"}]}]});
    let late = "User selected: right (nobody answered in time; this is the default)";
    let off = "The plan is rejected. Do not carry it out. (nobody answered in time; this is the default)";
    let not = "The execution is declined. Do not go on with it. (nobody answered in time; this is the default)";
    let undecided = "Nobody decided about the plan in time. Do not go on with it.";
    for (arguments, otherwise, fallback, want) in [
        (&question, NoAnswerRule::Default, Fallback::Choice(1), late),
        (&question, NoAnswerRule::Nothing, Fallback::NoAnswer, "(nobody answered in time)"),
        (
            &json!({"questions": [{"question": "Why?"}]}),
            NoAnswerRule::Default,
            Fallback::NoAnswer,
            "(nobody answered in time)",
        ),
        (&json!({"plan": "Move it."}), NoAnswerRule::Default, Fallback::Choice(2), off),
        (&json!({"plan": "Move it."}), NoAnswerRule::Nothing, Fallback::NoAnswer, undecided),
        (&json!({"execution": "Done."}), NoAnswerRule::Default, Fallback::Choice(1), not),
    ] {
        let waits = patience(otherwise);
        let asking = QuestionSettings { question: waits, plan: waits, execution: waits, ..selected() };
        let (mut stage, _) = asks(asking, arguments.clone());
        let gate = stage.engine.state().gate(stage.oldest_gate()).expect("it waits").clone();
        assert_eq!(gate.fallback(), fallback);
        assert_eq!(gate.deadline(), Some(gate.opened_at() + seconds(60)));
        stage.now = stage.engine.state().next_deadline().expect("it waits");
        assert_eq!(stage.now, gate.opened_at() + seconds(20));
        assert_eq!(facts_with(&stage.send_command(Command::Tick), "gate"), "gate reminded");
        assert_eq!(facts_with(&stage.send_command(Command::Tick), "gate"), "", "once");
        stage.now = stage.engine.state().next_deadline().expect("it waits");
        assert_eq!(facts_with(&stage.send_command(Command::Tick), "gate"), "gate resolved expired");
        assert_eq!(
            stage.engine.state().gate(gate.id()).and_then(|gate| gate.resolution()),
            Some(&GateResolution::Expired)
        );
        assert_eq!(stage.last_result(), want);
    }
}

#[test]
fn gates_are_counted_by_stage() {
    let mut stage = thinking(open_rules());
    stage.request_calls([
        tool_call("ask", ""),
        tool_call("plan", ""),
        tool_call("execution", ""),
        tool_call("plan", ""),
    ]);
    let mut seen = Vec::new();
    while let Some(gate) = stage.first_gate() {
        let number = gate.number();
        assert_eq!(stage.current_session().gate_at(gate.stage(), number), Some(gate.id()));
        seen.push((format!("{:?}", gate.kind()), gate.ordinal(), number));
        stage.answer_gate(gate.id(), says(&["approve"]), "ana", None).1.expect("it is offered");
    }
    let want = [("Question", 1, 1), ("Question", 2, 2), ("Plan", 3, 1), ("Execution", 4, 1), ("Plan", 5, 2)];
    assert_eq!(seen, want.map(|(kind, ordinal, number)| (kind.to_owned(), ordinal, number)));
    assert_eq!(stage.current_session().gate_at(countersign_core::gate::GateStage::Plan, 0), None);
}
