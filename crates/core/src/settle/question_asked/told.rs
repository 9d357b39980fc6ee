//! What a model is told of what people answered.
//!
//! The details of answers to questions are `{"results":[{id, question, options: [label], multi, selectedOptions: [label],
//! customInput?}]}`, of a plan or an execution `{decision, comments?}` with a `decision` that is null where there is none.

use serde_json::{Value, json};

use super::wanted::Wanted;
use crate::{
    gate::{self, Decision, Fallback, Gate, Kind, Resolution},
    session::Told,
};

/// What was answered to one thing.
pub(super) struct Answered {
    said: Vec<String>,
    how: How,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Answered,
    /// Nobody did, and a default counts.
    ByDefault,
    Expired,
    Declined,
}

impl Answered {
    /// What became of a gate, with the text of its answer.
    pub(super) fn of(wanted: &Wanted, gate: Option<&Gate>, text: Option<&str>) -> Self {
        let resolution = gate.and_then(Gate::resolution);
        let by_default = gate.map(Gate::fallback).and_then(|fallback| match fallback {
            Fallback::Choice(at) => wanted.choices.get(at),
            Fallback::Deny | Fallback::NoAnswer => None,
        });
        let (said, how) = match (resolution, by_default) {
            (Some(Resolution::Answered), _) => (text.and_then(gate::said).unwrap_or_default(), How::Answered),
            (Some(Resolution::Expired), Some(choice)) => (vec![choice.label.clone()], How::ByDefault),
            (Some(Resolution::Expired), None) => (Vec::new(), How::Expired),
            _ => (Vec::new(), How::Declined),
        };
        Self { said, how }
    }

    /// The labels and the words among what was said.
    fn split(&self, wanted: &Wanted) -> (Vec<&str>, Vec<&str>) {
        let labels: Vec<&str> = wanted.choices.iter().map(|choice| choice.label.as_str()).collect();
        self.said.iter().map(String::as_str).partition(|said| labels.contains(said))
    }

    /// What there is to say where nothing was said.
    const fn silence(&self) -> &'static str {
        match self.how {
            How::Expired => "(nobody answered in time)",
            How::Answered | How::ByDefault | How::Declined => "(the person did not want to answer)",
        }
    }

    /// What there is to say behind what was said.
    const fn note(&self) -> &'static str {
        match self.how {
            How::ByDefault => " (nobody answered in time; this is the default)",
            How::Answered | How::Expired | How::Declined => "",
        }
    }
}

/// The text and the details of the result of a call that asked all of it.
pub(super) fn result(words: Told, wanted: &[Wanted], answers: &[Answered]) -> (String, Value) {
    if let ([wanted], [answered]) = (wanted, answers)
        && wanted.kind != Kind::Question
    {
        return sign_off(wanted.kind, answered);
    }
    let all = || wanted.iter().zip(answers);
    let results: Vec<Value> = all().map(|(wanted, answered)| details(wanted, answered)).collect();
    let text = match (words, wanted, answers) {
        (Told::Listed, _, _) => listed(all()),
        (Told::Selected, [wanted], [answered]) => selected(wanted, answered),
        (Told::Selected, _, _) => {
            let lines = all().map(|(wanted, answered)| {
                let name = if wanted.id.is_empty() { &wanted.text } else { &wanted.id };
                format!("- {name}: {}", in_a_line(answered))
            });
            format!("User answers:\n{}", lines.collect::<Vec<_>>().join("\n"))
        }
    };
    (text, json!({ "results": results }))
}

fn in_a_line(answered: &Answered) -> String {
    if answered.said.is_empty() {
        return answered.silence().to_owned();
    }
    format!("{}{}", answered.said.join(", "), answered.note())
}

fn listed<'a>(all: impl Iterator<Item = (&'a Wanted, &'a Answered)>) -> String {
    let lines = all.map(|(wanted, answered)| format!("{}\n  {}", wanted.text, in_a_line(answered)));
    lines.collect::<Vec<_>>().join("\n")
}

fn selected(wanted: &Wanted, answered: &Answered) -> String {
    let (labels, words) = answered.split(wanted);
    let labels = (!labels.is_empty()).then(|| format!("User selected: {}{}", labels.join(", "), answered.note()));
    let words = (!words.is_empty()).then(|| format!("User provided custom input: {}", words.join(", ")));
    let lines: Vec<String> = labels.into_iter().chain(words).collect();
    if lines.is_empty() { answered.silence().to_owned() } else { lines.join("\n") }
}

fn details(wanted: &Wanted, answered: &Answered) -> Value {
    let (selected, words) = answered.split(wanted);
    let labels: Vec<&str> = wanted.choices.iter().map(|choice| choice.label.as_str()).collect();
    let mut detail = json!({
        "id": wanted.id,
        "question": wanted.text,
        "options": labels,
        "multi": wanted.multi,
        "selectedOptions": selected,
    });
    if !words.is_empty() {
        detail["customInput"] = words.join(", ").into();
    }
    detail
}

fn sign_off(kind: Kind, answered: &Answered) -> (String, Value) {
    let what = if kind == Kind::Plan { "plan" } else { "execution" };
    let Some((decision, words)) = gate::decision(&answered.said) else {
        let text = match answered.how {
            How::Expired => format!("Nobody decided about the {what} in time. Do not go on with it."),
            _ => format!("The person did not want to decide about the {what}. Do not go on with it."),
        };
        return (text, json!({ "decision": null }));
    };
    let text = match (decision, kind) {
        (Decision::Approve, _) => format!("The {what} is approved."),
        (Decision::Change, _) => format!("The {what} is not approved: changes are requested."),
        (Decision::Refuse, Kind::Plan) => "The plan is rejected. Do not carry it out.".to_owned(),
        (Decision::Refuse, _) => "The execution is declined. Do not go on with it.".to_owned(),
    };
    let mut details = json!({ "decision": answered.said.first() });
    let text = match words {
        Some(words) => {
            details["comments"] = words.into();
            format!("{text}\n{words}")
        }
        None => format!("{text}{}", answered.note()),
    };
    (text, details)
}
