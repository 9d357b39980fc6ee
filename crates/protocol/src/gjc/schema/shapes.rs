//! Builds the gates that a workflow opens: a question, a plan to approve, an execution to sign off.
//!
//! It must not know when one is opened. Every word of these schemas is part of the hash that clients compare, the
//! descriptions too.

use serde_json::{Map, Value, json};

use super::{AnswerSchema, SchemaError};
use crate::gjc::workflow::{GateDraft, GateOption, WorkflowContext, WorkflowGateKind, WorkflowStage};
use crate::json::JsNumber;

/// Label of the option for an answer in the person's own words.
pub const OTHER: &str = "Other (type your own)";

/// The decisions on a plan.
pub const APPROVAL: [&str; 3] = ["approve", "request-changes", "reject"];

/// The decisions on an execution.
pub const EXECUTION: [&str; 2] = ["approve", "decline"];

/// A question of the agent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentQuestion {
    /// Names it among the questions of one call.
    pub id: String,
    /// Text of the question.
    pub text: String,
    /// The labels that can be chosen; no two alike.
    pub options: Vec<String>,
    /// True if several options can be chosen.
    pub multi: bool,
    /// Index of the option that the agent recommends.
    pub recommended: Option<usize>,
    /// Round of an interview. If none, it is read from the first line of the text.
    pub round: Option<InterviewRound>,
}

/// Position of a question in a deep interview.
#[derive(Clone, Debug, PartialEq)]
pub struct InterviewRound {
    /// Names the round.
    pub id: Option<String>,
    /// Counts them.
    pub number: u64,
    /// Component that the question is about.
    pub component: String,
    /// Dimension of that component.
    pub dimension: String,
    /// Remaining ambiguity.
    pub ambiguity: JsNumber,
}

/// Builds the gate for a question.
///
/// # Errors
/// If it has so many or so long options that no schema takes them.
pub fn question_gate(question: &AgentQuestion) -> Result<GateDraft, SchemaError> {
    let options = question.options.iter().enumerate().map(|(at, label)| GateOption {
        value: label.as_str().into(),
        label: label.clone(),
        description: (question.recommended == Some(at)).then(|| "recommended".to_owned()),
    });
    let mut state = Map::from_iter([
        ("question_id".to_owned(), json!(question.id)),
        ("multi".to_owned(), json!(question.multi)),
        ("options".to_owned(), json!(question.options)),
        ("other_option".to_owned(), json!(OTHER)),
    ]);
    state.extend(question.round.as_ref().map_or_else(|| parse_round(&question.text), round_state));
    Ok(GateDraft {
        stage: WorkflowStage::DeepInterview,
        kind: WorkflowGateKind::Question,
        schema: AnswerSchema::new(question_schema(&question.options, question.multi))?,
        options: Some(options.collect()),
        context: WorkflowContext {
            title: Some(question.text.clone()),
            prompt: Some(question.text.clone()),
            stage_state: Some(Value::Object(state)),
            ..WorkflowContext::default()
        },
    })
}

/// Builds the gate for a plan that waits for approval. Without a title it gets one.
pub fn approval_gate(context: WorkflowContext) -> GateDraft {
    decision_gate(
        WorkflowStage::Ralplan,
        WorkflowGateKind::Approval,
        "Approve the plan?",
        &APPROVAL,
        ("comments", "required when requesting changes"),
        context,
    )
}

/// Builds the gate for an execution that waits for a sign-off. Without a title it gets one.
pub fn execution_gate(context: WorkflowContext) -> GateDraft {
    decision_gate(
        WorkflowStage::Ultragoal,
        WorkflowGateKind::Execution,
        "Approve execution?",
        &EXECUTION,
        ("reason", "optional rationale; required when declining"),
        context,
    )
}

fn decision_gate(
    stage: WorkflowStage,
    kind: WorkflowGateKind,
    title: &str,
    decisions: &[&str],
    (why, description): (&str, &str),
    mut context: WorkflowContext,
) -> GateDraft {
    let schema = json!({
        "type": "object",
        "properties": {
            "decision": { "type": "string", "enum": decisions },
            why: { "type": "string", "description": description },
        },
        "required": ["decision"],
        "additionalProperties": false,
    });
    let option = |decision: &&str| GateOption {
        value: Value::from(*decision),
        label: (*decision).to_owned(),
        description: None,
    };
    context.title.get_or_insert_with(|| title.to_owned());
    GateDraft {
        stage,
        kind,
        schema: AnswerSchema::new(schema).expect("the schema has supported keywords only"),
        options: Some(decisions.iter().map(option).collect()),
        context,
    }
}

fn question_schema(labels: &[String], multi: bool) -> Value {
    let selected = json!({ "type": "array", "items": { "type": "string", "enum": labels }, "uniqueItems": true });
    let (mut chosen, mut beside_other) = (selected.clone(), selected.clone());
    chosen["minItems"] = 1.into();
    if !multi {
        chosen["maxItems"] = 1.into();
        beside_other["maxItems"] = 0.into();
    }
    json!({
        "type": "object",
        "properties": {
            "selected": selected,
            "other": { "type": "boolean", "description": "set true to provide a free-text answer in `custom`" },
            "custom": {
                "type": "string",
                "minLength": 1,
                "description": "free-text answer; required when `other` is true",
            },
        },
        "required": ["selected"],
        "additionalProperties": false,
        "anyOf": [
            {
                "type": "object",
                "properties": { "selected": chosen, "other": { "const": false } },
                "required": ["selected"],
                "additionalProperties": false,
            },
            {
                "type": "object",
                "properties": {
                    "selected": beside_other,
                    "other": { "const": true },
                    "custom": { "type": "string", "minLength": 1 },
                },
                "required": ["selected", "other", "custom"],
                "additionalProperties": false,
            },
        ],
    })
}

fn round_state(round: &InterviewRound) -> Map<String, Value> {
    let mut state = Map::from_iter([
        ("deep_interview_metadata".to_owned(), json!(true)),
        ("round".to_owned(), json!(round.number)),
        ("component".to_owned(), json!(round.component)),
        ("dimension".to_owned(), json!(round.dimension)),
        ("ambiguity".to_owned(), json!(round.ambiguity)),
    ]);
    state.extend(round.id.as_ref().map(|id| ("round_id".to_owned(), json!(id))));
    state
}

/// Reads `Round N | Mode | Ambiguity: X` from the first line of that form.
fn parse_round(text: &str) -> Map<String, Value> {
    let parts = |line: &str| -> Option<(u64, String, Option<String>)> {
        let mut parts = line.split('|').map(str::trim);
        let number = parts.next()?.strip_prefix("Round ")?.trim().parse().ok()?;
        let mode = parts.next().filter(|mode| !mode.is_empty())?.to_owned();
        let ambiguity =
            parts.next().and_then(|part| part.strip_prefix("Ambiguity:")).map(|part| part.trim().to_owned());
        Some((number, mode, ambiguity.filter(|text| !text.is_empty())))
    };
    let is_round = |(_, mode, ambiguity): &(u64, String, Option<String>)| {
        ambiguity.is_some() || mode.eq_ignore_ascii_case("topology confirmation")
    };
    let Some((number, mode, ambiguity)) = text.lines().filter_map(parts).find(is_round) else { return Map::new() };
    let mut state = Map::from_iter([("round".to_owned(), json!(number)), ("mode".to_owned(), json!(mode))]);
    let lower = mode.to_lowercase();
    if lower.contains("topology") {
        state.insert("topology_gate".to_owned(), json!(true));
    }
    if ["contrarian", "simplifier", "ontologist"].iter().any(|mode| lower.contains(mode)) {
        state.insert("challenge_mode".to_owned(), json!(lower));
    }
    state.extend(ambiguity.map(|text| ("ambiguity".to_owned(), json!(text))));
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_question(options: &[&str], multi: bool) -> AgentQuestion {
        AgentQuestion {
            options: options.iter().map(|&label| label.to_owned()).collect(),
            multi,
            ..AgentQuestion::default()
        }
    }

    #[test]
    fn the_hashes_of_the_worked_examples_come_out() {
        for (opening, want) in [
            (
                approval_gate(WorkflowContext::default()),
                "635e071647243e3738dc796bfc85d0d595ed9caa14e3c75a3d01cbc81cf620cb",
            ),
            (
                execution_gate(WorkflowContext::default()),
                "7a129003bd8f1c42bdde27ef6ad8a94d272885601b701793659a93d0b5134c8f",
            ),
            (
                question_gate(&sample_question(&["A", "B"], false)).unwrap(),
                "8425c69035c0ed820dfc39a3ad89b093db58ea6ba37d7bf3c2ff25679596eb28",
            ),
            (
                question_gate(&sample_question(&["A", "B"], true)).unwrap(),
                "2a87c074d409ebeeb211082ec3044b24e2436e9f2087cbe427a7d8882c4e0c04",
            ),
            (
                question_gate(&sample_question(&[], false)).unwrap(),
                "278f843adbfaf5b21d5aab1d68b475a85050969b2ee54641a73d2afa6ba19d02",
            ),
        ] {
            assert_eq!(opening.schema.hash(), want, "{:?}", opening.schema.as_json());
        }
    }

    #[test]
    fn a_question_says_where_in_an_interview_it_stands() {
        let round = InterviewRound {
            id: Some("r".to_owned()),
            number: 2,
            component: "api".to_owned(),
            dimension: "scope".to_owned(),
            ambiguity: JsNumber(0.25),
        };
        for (text, round, want) in [
            ("Which?", None, json!({})),
            (
                "Round 3 | Contrarian | Ambiguity: 40%\nWhich?",
                None,
                json!({"round": 3, "mode": "Contrarian", "challenge_mode": "contrarian", "ambiguity": "40%"}),
            ),
            (
                "Round 0 | Topology confirmation\nIs it so?",
                None,
                json!({"round": 0, "mode": "Topology confirmation", "topology_gate": true}),
            ),
            (
                "Round 3 | x | Ambiguity: 1",
                Some(round),
                json!({"deep_interview_metadata": true, "round": 2, "component": "api", "dimension": "scope",
                    "ambiguity": 0.25, "round_id": "r"}),
            ),
        ] {
            let opening = question_gate(&AgentQuestion {
                id: "q".to_owned(),
                text: text.to_owned(),
                round,
                ..sample_question(&["A"], true)
            });
            let mut expected =
                json!({"question_id": "q", "multi": true, "options": ["A"], "other_option": "Other (type your own)"});
            expected.as_object_mut().unwrap().extend(want.as_object().unwrap().clone());
            assert_eq!(opening.unwrap().context.stage_state, Some(expected), "{text}");
        }
    }

    #[test]
    fn more_options_than_a_schema_takes_are_refused() {
        let labels: Vec<String> = (0..600).map(|at| at.to_string()).collect();
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        assert!(question_gate(&sample_question(&labels, false)).is_err());
    }
}
