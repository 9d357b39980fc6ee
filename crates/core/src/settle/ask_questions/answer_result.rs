//! Text for a model about the answers of people.
//!
//! The details of answers to questions are `{"results":[{id, question, options: [label], multi, selectedOptions: [label],
//! customInput?}]}`, of a plan or an execution `{decision, comments?}` with a `decision` that is null if there is none.

use serde_json::{Value, json};

use super::question_arguments::PersonQuestion;
use crate::{
    gate::{self, Fallback, Gate, GateResolution, Kind, SignOffDecision},
    session::AnswerFormat,
};

/// Answer to one question.
pub(super) struct AnsweredQuestion {
    answers: Vec<String>,
    how: AnswerSource,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AnswerSource {
    Answered,
    /// No person answered, and a default counts.
    ByDefault,
    Expired,
    /// The asker does not need an answer any more.
    Withdrawn,
    Declined,
}

impl AnsweredQuestion {
    /// Reads the answer from a gate, with the text of its answer.
    pub(super) fn from_gate(question: &PersonQuestion, gate: Option<&Gate>, text: Option<&str>) -> Self {
        let resolution = gate.and_then(Gate::resolution);
        let by_default = gate.map(Gate::fallback).and_then(|fallback| match fallback {
            Fallback::Choice(at) => question.choices.get(at),
            Fallback::Deny | Fallback::NoAnswer => None,
        });
        let (answers, how) = match (resolution, by_default) {
            (Some(GateResolution::Answered), _) => {
                (text.and_then(gate::parse_words).unwrap_or_default(), AnswerSource::Answered)
            }
            (Some(GateResolution::Expired), Some(choice)) => (vec![choice.label.clone()], AnswerSource::ByDefault),
            (Some(GateResolution::Expired), None) => (Vec::new(), AnswerSource::Expired),
            (Some(GateResolution::Withdrawn), _) => (Vec::new(), AnswerSource::Withdrawn),
            _ => (Vec::new(), AnswerSource::Declined),
        };
        Self { answers, how }
    }

    /// Splits an answer into labels and free text.
    fn split_answers(&self, question: &PersonQuestion) -> (Vec<&str>, Vec<&str>) {
        let labels: Vec<&str> = question.choices.iter().map(|choice| choice.label.as_str()).collect();
        self.answers.iter().map(String::as_str).partition(|answer| labels.contains(answer))
    }

    /// Returns the text for a missing answer.
    const fn silence_text(&self) -> &'static str {
        match self.how {
            AnswerSource::Expired => "(nobody answered in time)",
            AnswerSource::Withdrawn => "(the question was withdrawn)",
            AnswerSource::Answered | AnswerSource::ByDefault | AnswerSource::Declined => {
                "(the person did not want to answer)"
            }
        }
    }

    /// Returns the note after an answer.
    const fn default_note(&self) -> &'static str {
        match self.how {
            AnswerSource::ByDefault => " (nobody answered in time; this is the default)",
            AnswerSource::Answered | AnswerSource::Expired | AnswerSource::Withdrawn | AnswerSource::Declined => "",
        }
    }
}

/// Returns the text and the details of the result of a call with all these questions.
pub(super) fn answers_result(
    words: AnswerFormat,
    questions: &[PersonQuestion],
    answers: &[AnsweredQuestion],
) -> (String, Value) {
    if let ([question], [answered]) = (questions, answers)
        && question.kind != Kind::Question
    {
        return sign_off(question.kind, answered);
    }
    let all = || questions.iter().zip(answers);
    let results: Vec<Value> = all().map(|(question, answered)| answer_details(question, answered)).collect();
    let text = match (words, questions, answers) {
        (AnswerFormat::Listed, _, _) => listed_text(all()),
        (AnswerFormat::Selected, [question], [answered]) => selected_text(question, answered),
        (AnswerFormat::Selected, _, _) => {
            let lines = all().map(|(question, answered)| {
                let name = if question.id.is_empty() { &question.text } else { &question.id };
                format!("- {name}: {}", in_a_line(answered))
            });
            format!("User answers:\n{}", lines.collect::<Vec<_>>().join("\n"))
        }
    };
    (text, json!({ "results": results }))
}

fn in_a_line(answered: &AnsweredQuestion) -> String {
    if answered.answers.is_empty() {
        return answered.silence_text().to_owned();
    }
    format!("{}{}", answered.answers.join(", "), answered.default_note())
}

fn listed_text<'a>(all: impl Iterator<Item = (&'a PersonQuestion, &'a AnsweredQuestion)>) -> String {
    let lines = all.map(|(question, answered)| format!("{}\n  {}", question.text, in_a_line(answered)));
    lines.collect::<Vec<_>>().join("\n")
}

fn selected_text(question: &PersonQuestion, answered: &AnsweredQuestion) -> String {
    let (labels, words) = answered.split_answers(question);
    let labels =
        (!labels.is_empty()).then(|| format!("User selected: {}{}", labels.join(", "), answered.default_note()));
    let words = (!words.is_empty()).then(|| format!("User provided custom input: {}", words.join(", ")));
    let lines: Vec<String> = labels.into_iter().chain(words).collect();
    if lines.is_empty() { answered.silence_text().to_owned() } else { lines.join("\n") }
}

fn answer_details(question: &PersonQuestion, answered: &AnsweredQuestion) -> Value {
    let (selected, words) = answered.split_answers(question);
    let labels: Vec<&str> = question.choices.iter().map(|choice| choice.label.as_str()).collect();
    let mut detail = json!({
        "id": question.id,
        "question": question.text,
        "options": labels,
        "multi": question.multi,
        "selectedOptions": selected,
    });
    if !words.is_empty() {
        detail["customInput"] = words.join(", ").into();
    }
    detail
}

fn sign_off(kind: Kind, answered: &AnsweredQuestion) -> (String, Value) {
    let what = if kind == Kind::Plan { "plan" } else { "execution" };
    let Some((decision, words)) = gate::parse_decision(&answered.answers) else {
        let text = match answered.how {
            AnswerSource::Expired => format!("Nobody decided about the {what} in time. Do not go on with it."),
            _ => format!("The person did not want to decide about the {what}. Do not go on with it."),
        };
        return (text, json!({ "decision": null }));
    };
    let text = match (decision, kind) {
        (SignOffDecision::Approve, _) => format!("The {what} is approved."),
        (SignOffDecision::Change, _) => format!("The {what} is not approved: changes are requested."),
        (SignOffDecision::Refuse, Kind::Plan) => "The plan is rejected. Do not carry it out.".to_owned(),
        (SignOffDecision::Refuse, _) => "The execution is declined. Do not go on with it.".to_owned(),
    };
    let mut details = json!({ "decision": answered.answers.first() });
    let text = match words {
        Some(words) => {
            details["comments"] = words.into();
            format!("{text}\n{words}")
        }
        None => format!("{text}{}", answered.default_note()),
    };
    (text, details)
}
