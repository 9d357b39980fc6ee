//! `ask`: questions to the person. Here are its arguments and its result.
//!
//! It must not ask: the engine opens one gate a question and never runs this tool.

use countersign_core::tool::{Effect, Lane, Repeat, Spec};
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    arguments,
    tool::{Context, Failure, Output, Tool},
};

const NAME: &str = "ask";

/// A question to the person.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Question {
    /// The model's name for it; unique among the questions of a call.
    pub id: String,
    /// The text.
    pub question: String,
    /// What can be chosen; may be empty, for an answer in words.
    #[serde(default)]
    pub options: Vec<Choice>,
    /// Whether more than one may be chosen.
    #[serde(default)]
    pub multi: bool,
    /// The option that the model would take, from 0.
    pub recommended: Option<usize>,
}

/// One thing that can be chosen.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Choice {
    /// What is shown and handed back.
    pub label: String,
}

/// What the person said to one question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The labels that were chosen.
    pub selected: Vec<String>,
    /// What was said in words.
    pub custom: Option<String>,
}

/// The tool `ask`, for its spec.
pub struct Ask {
    spec: Spec,
}

impl Default for Ask {
    fn default() -> Self {
        let option = json!({"type": "object", "required": ["label"], "properties": {"label": {"type": "string", "description": "Short text"}}});
        let question = json!({"type": "object", "required": ["id", "question", "options"], "properties": {
            "id": {"type": "string", "description": "Your name for the question"},
            "question": {"type": "string", "description": "Text"},
            "options": {"type": "array", "items": option, "description": "What can be chosen; empty for an answer in words"},
            "multi": {"type": "boolean", "description": "More than one may be chosen"},
            "recommended": {"type": "integer", "minimum": 0, "description": "Index of the option that you recommend, from 0"},
        }});
        Self {
            spec: Spec {
                name: NAME.to_owned(),
                description: "Asks the person one or more questions and waits for the answers. Ask only what you cannot find out yourself.".to_owned(),
                schema: json!({"type": "object", "required": ["questions"], "properties": {
                    "questions": {"type": "array", "items": question, "description": "At least one"},
                }}),
                lane: Lane::Exclusive,
                repeat: Repeat::Once,
                effect: Effect::Reads,
                signature: &[],
            },
        }
    }
}

impl Tool for Ask {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn run<'a>(&'a self, arguments: Map<String, Value>, _: &'a Context) -> BoxFuture<'a, Result<Output, Failure>> {
        Box::pin(async move {
            questions(&arguments)?;
            Err(Failure::Failed("there is nobody to ask here".to_owned()))
        })
    }
}

#[derive(Deserialize)]
struct Arguments {
    questions: Vec<Question>,
}

/// Reads the questions of a call.
///
/// # Errors
/// [`Failure::Invalid`] if there is none, if two have the same id or labels, or if what is recommended is not there.
pub fn questions(arguments: &Map<String, Value>) -> Result<Vec<Question>, Failure> {
    let Arguments { questions } = arguments::parse(NAME, arguments.clone())?;
    let invalid = |problem: String| Err(Failure::Invalid(format!("Invalid arguments for {NAME}:\n- {problem}")));
    if questions.is_empty() {
        return invalid("questions must hold at least one question".to_owned());
    }
    for (at, question) in questions.iter().enumerate() {
        if questions[..at].iter().any(|other| other.id == question.id) {
            return invalid(format!("questions[{at}].id is the id of another question"));
        }
        let labels: Vec<&str> = question.options.iter().map(|option| option.label.as_str()).collect();
        if let Some(twice) = labels.iter().enumerate().find(|(at, label)| labels[..*at].contains(label)) {
            return invalid(format!("questions[{at}].options[{}].label is the label of another option", twice.0));
        }
        if question.recommended.is_some_and(|index| index >= labels.len()) {
            return invalid(format!("questions[{at}].recommended is not the index of an option"));
        }
    }
    Ok(questions)
}

/// Puts answers, in the order of the questions, into a result. A question without an answer was not answered.
///
/// *Shape* of the details: `{"results":[{id, question, options: [label], multi, selectedOptions: [label], customInput?}]}`.
pub fn result(questions: &[Question], answers: &[Answer]) -> Output {
    let none = Answer::default();
    let answered = || questions.iter().zip(answers.iter().chain(std::iter::repeat(&none)));
    let texts: Vec<String> = answered()
        .map(|(question, Answer { selected, custom })| {
            let mut said = Vec::new();
            if !selected.is_empty() {
                said.push(format!("selected: {}", selected.join(", ")));
            }
            said.extend(custom.as_ref().map(|custom| format!("said: {custom}")));
            let said = if said.is_empty() { "(no answer)".to_owned() } else { said.join("; ") };
            format!("{}: {said}", question.id)
        })
        .collect();
    let results: Vec<Value> = answered()
        .map(|(question, Answer { selected, custom })| {
            let labels: Vec<&str> = question.options.iter().map(|option| option.label.as_str()).collect();
            let mut result = json!({
                "id": question.id, "question": question.question, "options": labels, "multi": question.multi, "selectedOptions": selected,
            });
            if let Some(custom) = custom {
                result["customInput"] = custom.as_str().into();
            }
            result
        })
        .collect();
    Output::text(format!("User answers:\n{}", texts.join("\n"))).with_details(json!({"results": results}))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Answer, questions, result};

    fn parsed(given: Value) -> Result<usize, String> {
        let arguments = json!({"questions": given});
        questions(arguments.as_object().unwrap()).map(|found| found.len()).map_err(|failure| failure.to_string())
    }

    #[test]
    fn questions_are_read_or_refused() {
        let labels = json!([{"label": "a"}, {"label": "b"}]);
        for (given, want) in [
            (json!([{"id": "q", "question": "?", "options": []}]), Ok(1)),
            (
                json!([{"id": "q", "question": "?", "options": labels, "multi": true, "recommended": 1}, {"id": "r", "question": "?", "options": []}]),
                Ok(2),
            ),
            (json!([]), Err("questions must hold at least one question")),
            (
                json!([{"id": "q", "question": "?", "options": labels, "recommended": 2}]),
                Err("questions[0].recommended is not the index of an option"),
            ),
            (
                json!([{"id": "q", "question": "?"}, {"id": "q", "question": "?"}]),
                Err("questions[1].id is the id of another question"),
            ),
            (
                json!([{"id": "q", "question": "?", "options": [{"label": "a"}, {"label": "a"}]}]),
                Err("questions[0].options[1].label is the label of another option"),
            ),
        ] {
            let want = want.map_err(|problem| format!("Invalid arguments for ask:\n- {problem}"));
            assert_eq!(parsed(given.clone()), want, "{given}");
        }
    }

    #[test]
    fn answers_become_a_result_in_the_order_of_the_questions() {
        let arguments = json!({"questions": [
            {"id": "colour", "question": "Which?", "options": [{"label": "red"}, {"label": "blue"}], "multi": true},
            {"id": "why", "question": "Why?", "options": []},
            {"id": "when", "question": "When?", "options": []},
        ]});
        let asked = questions(arguments.as_object().unwrap()).unwrap();
        let answers = [
            Answer { selected: vec!["red".to_owned(), "blue".to_owned()], custom: None },
            Answer { selected: vec![], custom: Some("because".to_owned()) },
        ];
        let got = result(&asked, &answers);
        let text = "User answers:\ncolour: selected: red, blue\nwhy: said: because\nwhen: (no answer)";
        assert_eq!(got.content[0].as_text(), Some(text));
        assert_eq!(
            got.details.unwrap()["results"][1],
            json!({
                "id": "why", "question": "Why?", "options": [], "multi": false, "selectedOptions": [], "customInput": "because",
            })
        );
    }
}
