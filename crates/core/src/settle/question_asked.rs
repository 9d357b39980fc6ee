//! A call that a person runs: its questions are asked one after the other, and the answers are its result.
//!
//! The shape of the result's details is `{"results":[{id, question, options: [label], multi, selectedOptions: [label],
//! customInput?}]}`.

use serde::Deserialize;
use serde_json::json;

use super::Scene;
use crate::{
    call::{Call, Content, End, Executor, Phase},
    digest::Digest,
    engine::{Branch, Context, Event, Fact, texts},
    gate::{self, Choice, Fallback, Kind, Resolution},
    id::GateId,
    message::{Block, Message, ToolResult},
};

/// One question, as the tool's arguments have it.
#[derive(Deserialize)]
struct Question {
    #[serde(default)]
    id: String,
    question: String,
    #[serde(default)]
    options: Vec<Choice>,
    #[serde(default)]
    multi: bool,
    #[serde(default)]
    recommended: Option<usize>,
}

pub(super) fn rule(scene: Scene<'_>, context: &mut Context) -> Option<Vec<Fact>> {
    let call = scene.calls().find(|call| {
        *call.executor() == Executor::Person
            && matches!(call.phase(), Phase::Started { .. })
            && scene.view.state.gate_of(call.id()).is_none_or(|gate| !gate.is_pending())
    })?;
    let mut branch = Branch::new(scene.session);
    let read = scene.view.admitted.call(call.id()).and_then(|content| Some((content, questions(content)?)));
    let Some((content, questions)) = read else {
        scene.end_call(&mut branch, call, End::Failed, "Not asked: the questions cannot be read.", context);
        return Some(branch.finish());
    };
    let asked = asked(scene, call);
    if let Some(problem) = problem(&questions) {
        let text = format!("Invalid arguments for {}:\n- {problem}", content.tool);
        scene.end_call(&mut branch, call, End::Failed, &text, context);
        return Some(branch.finish());
    }
    match questions.get(asked.len()) {
        Some(question) => {
            let gate = GateId::new(context.fresh.uuid(context.now));
            let content = gate::Content::Question {
                id: question.id.clone(),
                question: question.question.clone(),
                choices: question.options.clone(),
                multi: question.multi,
                recommended: question.recommended,
            };
            let content = serde_json::to_string(&content).expect("content is plain data with text keys");
            let opened = gate::Event::Opened {
                gate,
                kind: Kind::Question,
                ordinal: scene.view.state.next_ordinal(scene.session.id()),
                run: Some(scene.run.id()),
                call: Some(call.id()),
                subject: Digest::of(content.as_bytes()),
                scopes: Vec::new(),
                deadline: Some(context.now + scene.session.settings().clarify_timeout),
                fallback: Fallback::NoAnswer,
                steps: Vec::new(),
            };
            branch.push_with(Event::Gate(opened), Some(content.into()));
        }
        None => {
            let said = texts::said(&Message::ToolResult(result(scene, content, &questions, &asked)));
            scene.end_call_with(&mut branch, call, End::Done { error: false }, said, context);
        }
    }
    Some(branch.finish())
}

fn questions(content: &Content) -> Option<Vec<Question>> {
    serde_json::from_value(content.arguments.get("questions")?.clone()).ok()
}

/// What is wrong with questions that can be read: answers to them could not be told apart.
fn problem(questions: &[Question]) -> Option<String> {
    if questions.is_empty() {
        return Some("questions must hold at least one question".to_owned());
    }
    questions.iter().enumerate().find_map(|(at, question)| {
        if !question.id.is_empty() && questions[..at].iter().any(|other| other.id == question.id) {
            return Some(format!("questions[{at}].id is the id of another question"));
        }
        let labels = &question.options;
        if let Some((twice, _)) = labels.iter().enumerate().find(|(at, label)| labels[..*at].contains(label)) {
            return Some(format!("questions[{at}].options[{twice}].label is the label of another option"));
        }
        let is_there = question.recommended.is_none_or(|index| index < labels.len());
        (!is_there).then(|| format!("questions[{at}].recommended is not the index of an option"))
    })
}

/// The questions of the call so far, in order.
fn asked(scene: Scene<'_>, call: &Call) -> Vec<GateId> {
    let gates = scene.view.admitted.gates_of(call.id()).iter().copied();
    gates
        .filter(|gate| {
            scene.view.admitted.gate(*gate).is_some_and(|shown| matches!(**shown, gate::Content::Question { .. }))
        })
        .collect()
}

fn result(scene: Scene<'_>, content: &Content, questions: &[Question], asked: &[GateId]) -> ToolResult {
    let mut text = String::new();
    let mut details = Vec::new();
    for (question, gate) in questions.iter().zip(asked) {
        let resolution = scene.view.state.gate(*gate).and_then(gate::Gate::resolution);
        let said: Vec<String> = match resolution {
            Some(Resolution::Answered) => scene
                .view
                .admitted
                .answer(*gate)
                .and_then(|answer| serde_json::from_str(answer).ok())
                .unwrap_or_default(),
            _ => Vec::new(),
        };
        let answer = match resolution {
            Some(Resolution::Answered) => said.join(", "),
            Some(Resolution::Expired) => "(nobody answered in time)".to_owned(),
            _ => "(the person did not want to answer)".to_owned(),
        };
        text.push_str(&format!("{}\n  {answer}\n", question.question));
        let labels: Vec<&str> = question.options.iter().map(|option| option.label.as_str()).collect();
        let (selected, words): (Vec<&str>, Vec<&str>) =
            said.iter().map(String::as_str).partition(|said| labels.contains(said));
        let mut detail = json!({
            "id": question.id,
            "question": question.question,
            "options": labels,
            "multi": question.multi,
            "selectedOptions": selected,
        });
        if !words.is_empty() {
            detail["customInput"] = words.join(", ").into();
        }
        details.push(detail);
    }
    ToolResult {
        tool_call_id: content.tool_call_id.to_string(),
        tool_name: content.tool.to_string(),
        content: vec![Block::text(text.trim_end())],
        details: Some(json!({ "results": details })),
        is_error: false,
        ..ToolResult::default()
    }
}
