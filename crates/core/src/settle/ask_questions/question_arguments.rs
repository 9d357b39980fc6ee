//! Questions of a call to a person, as the arguments of its tool have them: `questions`, a `plan`, or an `execution`.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    call::CallDetails,
    gate::{self, GateChoice, GateStage, Kind, sign_off},
};

/// Maximum number of choices of one question.
const MOST_CHOICES: usize = 512;
/// Maximum length of all choices together, in bytes as JSON. Adapters describe valid answers in schemas of bounded size, in which each
/// choice occurs several times.
const LONGEST_CHOICES: usize = 20_000;

/// One question to a person.
pub(super) struct PersonQuestion {
    pub(super) kind: Kind,
    pub(super) id: String,
    pub(super) text: String,
    pub(super) choices: Vec<GateChoice>,
    pub(super) multi: bool,
    pub(super) recommended: Option<usize>,
    /// Stage in which it is counted.
    pub(super) stage: GateStage,
    about: Map<String, Value>,
}

/// One question, as the tool's arguments have it.
#[derive(Deserialize)]
struct QuestionArguments {
    #[serde(default)]
    id: String,
    question: String,
    #[serde(default)]
    options: Vec<GateChoice>,
    #[serde(default)]
    multi: bool,
    #[serde(default)]
    recommended: Option<usize>,
    /// True if only its options answer it. Counts for requests, whose adapter sets it.
    #[serde(default)]
    closed: bool,
    /// Its position in an interview.
    #[serde(default)]
    round: Option<Map<String, Value>>,
    /// Its position in an interview, in the form of the original's skills.
    #[serde(default, rename = "deepInterview")]
    deep_interview: Option<Map<String, Value>>,
    /// The stage and the kind of its gate.
    #[serde(default, rename = "workflowGate")]
    workflow_gate: Option<WorkflowGateArguments>,
}

/// The stage and the kind that a question gives for its gate.
#[derive(Deserialize)]
struct WorkflowGateArguments {
    stage: GateStageName,
    kind: String,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum GateStageName {
    DeepInterview,
    Ralplan,
    Ultragoal,
}

impl From<GateStageName> for GateStage {
    fn from(named: GateStageName) -> Self {
        match named {
            GateStageName::DeepInterview => Self::Interview,
            GateStageName::Ralplan => Self::Plan,
            GateStageName::Ultragoal => Self::Execution,
        }
    }
}

/// Additional arguments of a plan or an execution.
#[derive(Deserialize)]
struct SignOffArguments {
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    summary: Option<String>,
    #[serde(default)]
    artifacts: Vec<String>,
}

/// Parses the questions of the call, in order. None if they cannot be read.
pub(super) fn parse_questions(content: &CallDetails) -> Option<Vec<PersonQuestion>> {
    let arguments = &content.arguments;
    for (name, kind) in [("plan", Kind::Plan), ("execution", Kind::Execution)] {
        if let Some(text) = arguments.get(name) {
            return Some(vec![sign_off(kind, text.as_str()?, arguments)?]);
        }
    }
    let questions: Vec<QuestionArguments> = serde_json::from_value(arguments.get("questions")?.clone()).ok()?;
    let is_request = content.request.is_some();
    let limited = questions.into_iter().map(|one| QuestionArguments { closed: one.closed && is_request, ..one });
    Some(limited.map(PersonQuestion::from).collect())
}

fn sign_off(kind: Kind, text: &str, arguments: &Map<String, Value>) -> Option<PersonQuestion> {
    let about: Map<String, Value> = ["title", "summary", "artifacts", "language"]
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), arguments.get(name).filter(|value| !value.is_null())?.clone())))
        .collect();
    let SignOffArguments { title, summary, artifacts } = serde_json::from_value(Value::Object(about.clone())).ok()?;
    let files = (!artifacts.is_empty()).then(|| format!("Files:\n{}", artifacts.join("\n")));
    let parts = [title, summary, Some(text.to_owned()), files];
    let parts: Vec<String> = parts.into_iter().flatten().filter(|part| !part.trim().is_empty()).collect();
    Some(PersonQuestion {
        kind,
        stage: kind.stage(),
        id: String::new(),
        text: if text.trim().is_empty() { String::new() } else { parts.join("\n\n") },
        choices: sign_off::choice_labels(kind).iter().map(|label| GateChoice { label: (*label).to_owned() }).collect(),
        multi: false,
        recommended: None,
        about,
    })
}

impl From<QuestionArguments> for PersonQuestion {
    fn from(question: QuestionArguments) -> Self {
        let mut about = Map::new();
        if let Some(round) = question.round.or_else(|| question.deep_interview.map(interview_round)) {
            about.insert("round".to_owned(), Value::Object(round));
        }
        // The choices of a question with several answers are checked by its requester.
        if question.closed && !question.multi {
            about.insert(gate::CLOSED.to_owned(), true.into());
        }
        if let Some(named) = &question.workflow_gate {
            about.insert(gate::NAMED.to_owned(), json!({ "kind": named.kind }));
        }
        Self {
            kind: Kind::Question,
            id: question.id,
            text: question.question,
            choices: question.options,
            multi: question.multi,
            recommended: question.recommended,
            stage: question.workflow_gate.map_or(Kind::Question.stage(), |named| named.stage.into()),
            about,
        }
    }
}

/// Converts a round from the form of the original's skills to that of `workflow_interview`.
fn interview_round(mut given: Map<String, Value>) -> Map<String, Value> {
    let names = [
        ("round_id", "id"),
        ("round", "number"),
        ("component", "component"),
        ("dimension", "dimension"),
        ("ambiguity", "ambiguity"),
    ];
    names.into_iter().filter_map(|(theirs, ours)| Some((ours.to_owned(), given.remove(theirs)?))).collect()
}

impl PersonQuestion {
    /// Returns the content that people are shown.
    pub(super) fn gate_content(&self) -> gate::GateContent {
        gate::GateContent::Question {
            id: self.id.clone(),
            question: self.text.clone(),
            choices: self.choices.clone(),
            multi: self.multi,
            recommended: self.recommended,
            about: self.about.clone(),
        }
    }

    /// Returns the choice that counts without an answer, if there is one.
    pub(super) fn default_choice(&self) -> Option<usize> {
        match self.kind {
            // The last one lets no work continue.
            Kind::Plan | Kind::Execution => self.choices.len().checked_sub(1),
            // A missing answer approves nothing, even if the agent recommends it.
            Kind::Question if self.gate_content().sign_off(self.kind).is_some() => None,
            Kind::Question | Kind::Approval | Kind::Pairing | Kind::Budget => self.recommended,
        }
    }
}

/// Returns the problem of readable questions: answers to them would be ambiguous, or there is nothing to answer.
pub(super) fn find_problem(questions: &[PersonQuestion]) -> Option<String> {
    if questions.is_empty() {
        return Some("questions must hold at least one question".to_owned());
    }
    questions.iter().enumerate().find_map(|(at, one)| match one.kind {
        Kind::Plan if one.text.is_empty() => Some("plan must say something".to_owned()),
        Kind::Execution if one.text.is_empty() => Some("execution must say something".to_owned()),
        Kind::Plan | Kind::Execution => None,
        Kind::Question | Kind::Approval | Kind::Pairing | Kind::Budget => of_question(questions, at, one),
    })
}

fn of_question(all: &[PersonQuestion], at: usize, question: &PersonQuestion) -> Option<String> {
    if !question.id.is_empty() && all[..at].iter().any(|other| other.id == question.id) {
        return Some(format!("questions[{at}].id is the id of another question"));
    }
    let labels = &question.choices;
    let length: usize = labels.iter().map(|choice| Value::from(choice.label.as_str()).to_string().len()).sum();
    if labels.len() > MOST_CHOICES || length > LONGEST_CHOICES {
        let most = format!("{MOST_CHOICES} options or {LONGEST_CHOICES} bytes of labels");
        return Some(format!("questions[{at}].options are more than {most}"));
    }
    if let Some(blank) = labels.iter().position(|choice| choice.label.trim().is_empty()) {
        return Some(format!("questions[{at}].options[{blank}].label is blank"));
    }
    if let Some((twice, _)) = labels.iter().enumerate().find(|(at, label)| labels[..*at].contains(label)) {
        return Some(format!("questions[{at}].options[{twice}].label is the label of another option"));
    }
    let is_there = question.recommended.is_none_or(|index| index < labels.len());
    (!is_there).then(|| format!("questions[{at}].recommended is not the index of an option"))
}
