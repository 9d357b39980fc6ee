//! A gate as hosts of this dialect are shown it, and what an answer in its form says to the engine.
//!
//! Everything here is a function of the gate and what it shows: nothing is kept, and a gate that is shown again is identical.
//! Source: docs/protocol/gjc.md, Workflow gates.

use countersign_core::{
    gate::{self, AnswerForm, ApprovalScope, Gate, GatePhase, GateReply, GateStage, Kind},
    id::SessionId,
};
use countersign_protocol::{
    JsNumber, RawJson,
    gjc::{
        gate_id::gate_id,
        schema::{
            SchemaError, SchemaMismatch, canonical_hash,
            meaning::{self, AnswerMeaningError, ExecutionDecision, PlanDecision, QuestionChoice},
            shapes::{self, AgentQuestion, InterviewRound},
        },
        workflow::{self, AnswerResolution, GateDraft, WorkflowContext, WorkflowGate},
    },
};
use countersign_view::{
    GateCard, GateRequest, LineMode, escape, gate_card,
    gate_request::{QuestionRequest, RequestKind},
    time::format_iso,
};
use serde_json::{Map, Value, json};

/// Selects whether hosts are shown the choices of a gate in addition to its schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum GateOptions {
    /// As objects.
    #[default]
    Objects,
    /// Not at all: the oldest client cannot read them.
    None,
}

/// Returns the name of a gate on the wire; none for one that is not counted.
pub(crate) fn gate_name(gate: &Gate) -> Option<String> {
    let session = gate.session().filter(|_| gate.number() > 0)?;
    Some(gate_id(session.as_str(), wire_stage(gate.stage()), gate.number()))
}

/// Returns where in `session` the gate of this name is counted, if the name can be one of its.
pub(crate) fn stage_and_number(session: &SessionId, name: &str) -> Option<(GateStage, u32)> {
    let number: u32 = name.rsplit_once('_')?.1.parse().ok()?;
    let stages = [GateStage::Interview, GateStage::Plan, GateStage::Execution];
    let named = |of: &GateStage| gate_id(session.as_str(), wire_stage(*of), number) == name;
    stages.into_iter().find(named).map(|stage| (stage, number))
}

pub(crate) const fn wire_stage(of: GateStage) -> workflow::WorkflowStage {
    match of {
        GateStage::Interview => workflow::WorkflowStage::DeepInterview,
        GateStage::Plan => workflow::WorkflowStage::Ralplan,
        GateStage::Execution => workflow::WorkflowStage::Ultragoal,
    }
}

/// Returns the kind, which goes with the stage: programs know the form of an answer by it.
pub(crate) const fn wire_kind(of: GateStage) -> workflow::WorkflowGateKind {
    match of {
        GateStage::Interview => workflow::WorkflowGateKind::Question,
        GateStage::Plan => workflow::WorkflowGateKind::Approval,
        GateStage::Execution => workflow::WorkflowGateKind::Execution,
    }
}

/// Makes the gate as it is sent.
///
/// # Errors
/// If no schema takes what it offers. None for a gate without a name.
pub(crate) fn to_wire(
    gate: &Gate,
    request: &GateRequest,
    options: GateOptions,
) -> Option<Result<WorkflowGate, SchemaError>> {
    let name = gate_name(gate)?;
    Some(gate_opening(gate, request).map(|opening| {
        let made = opening.into_gate(name, format_iso(gate.opened_at()));
        match options {
            GateOptions::Objects => made,
            GateOptions::None => WorkflowGate { options: None, ..made },
        }
    }))
}

fn gate_opening(gate: &Gate, request: &GateRequest) -> Result<GateDraft, SchemaError> {
    match request.kind() {
        RequestKind::Question(question) if gate.kind() == Kind::Question => {
            let opening = shapes::question_gate(&to_question(question))?;
            let kind = question.about.get(gate::NAMED).and_then(named_kind).unwrap_or(opening.kind);
            Ok(GateDraft { stage: wire_stage(gate.stage()), kind, ..opening })
        }
        RequestKind::Question(question) => Ok(sign_off(gate, question_context(question.text, question.about))),
        RequestKind::Call(call) => {
            let choices: &[&str] = if gate.stage() == GateStage::Plan { &shapes::APPROVAL } else { &shapes::EXECUTION };
            let card = GateCard::new(&gate_card::GateCardInput::new(call, "The agent", None, choices));
            Ok(sign_off(gate, card_context(card.title.clone(), card.text())))
        }
        RequestKind::GoOn(go_on) => {
            let title = escape(go_on.text, LineMode::Many).into_owned();
            Ok(sign_off(gate, card_context(title, go_on.prompt_text())))
        }
    }
}

/// Builds the draft of a gate that is decided by a word, with optional other fields.
fn sign_off(gate: &Gate, context: WorkflowContext) -> GateDraft {
    if gate.stage() == GateStage::Plan { shapes::approval_gate(context) } else { shapes::execution_gate(context) }
}

fn card_context(title: String, prompt: String) -> WorkflowContext {
    WorkflowContext { title: Some(title), prompt: Some(prompt), ..WorkflowContext::default() }
}

fn question_context(text: &str, about: &Map<String, Value>) -> WorkflowContext {
    let word = |name: &str| about.get(name).and_then(Value::as_str).map(str::to_owned);
    WorkflowContext {
        title: word("title"),
        prompt: Some(text.to_owned()),
        summary: word("summary"),
        artifact_refs: about.get("artifacts").cloned(),
        language: word("language"),
        ..WorkflowContext::default()
    }
}

fn to_question(request: QuestionRequest<'_>) -> AgentQuestion {
    AgentQuestion {
        id: request.id.to_owned(),
        text: request.text.to_owned(),
        options: request.choice_labels(),
        multi: request.is_multi,
        recommended: request.recommended,
        round: request.about.get("round").and_then(read_round),
    }
}

/// Returns the kind that a question names for its gate.
fn named_kind(given: &Value) -> Option<workflow::WorkflowGateKind> {
    match given.get("kind")?.as_str()? {
        "approval" => Some(workflow::WorkflowGateKind::Approval),
        "execution" => Some(workflow::WorkflowGateKind::Execution),
        _ => Some(workflow::WorkflowGateKind::Question),
    }
}

fn read_round(given: &Value) -> Option<InterviewRound> {
    let word = |name: &str| given.get(name).and_then(Value::as_str).map(str::to_owned);
    Some(InterviewRound {
        id: word("id"),
        number: given.get("number")?.as_u64()?,
        component: word("component")?,
        dimension: word("dimension")?,
        ambiguity: JsNumber(given.get("ambiguity")?.as_f64()?),
    })
}

/// Reads an answer to a gate that asks `request`.
///
/// # Errors
/// Everything that is wrong with it; at least one thing.
pub(crate) fn read_answer(gate: &Gate, request: &GateRequest, answer: Value) -> Result<GateReply, Vec<SchemaMismatch>> {
    let opening = gate_opening(gate, request).map_err(|error| vec![schema_mismatch(&error)])?;
    let wrong = opening.schema.check_answer(&answer);
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let parsed = parse_answer(gate, request, &answer).map_err(|unmeant| vec![unmeant.to_mismatch()])?;
    let digest = canonical_hash(&answer).parse().expect("a hash is the digits of a digest");
    Ok(GateReply::Form(Box::new(AnswerForm { answer: parsed, form: answer, digest })))
}

/// Builds the reply of an answer that was not validated.
pub(crate) fn unchecked_answer(answer: Value) -> GateReply {
    let digest = canonical_hash(&answer).parse().expect("a hash is the digits of a digest");
    GateReply::Form(Box::new(AnswerForm { answer: GateReply::Decline, form: answer, digest }))
}

/// Returns the hash of the schema that answers to a gate are checked against.
pub(crate) fn schema_hash(gate: &Gate, request: &GateRequest) -> Option<String> {
    gate_opening(gate, request).ok().map(|opening| opening.schema.hash().to_owned())
}

/// Builds the mismatch for an answer that fits the schema but is not accepted by the engine.
pub(crate) fn not_offered(problem: &str) -> SchemaMismatch {
    SchemaMismatch { path: "#".to_owned(), keyword: "not_offered", message: problem.to_owned(), expected: None }
}

fn schema_mismatch(error: &SchemaError) -> SchemaMismatch {
    SchemaMismatch { path: "#".to_owned(), keyword: SchemaError::CODE, message: error.to_string(), expected: None }
}

fn parse_answer(gate: &Gate, request: &GateRequest, answer: &Value) -> Result<GateReply, AnswerMeaningError> {
    let words = |decision: &str, comments: Option<String>| {
        let comments = comments.filter(|comments| !comments.trim().is_empty());
        GateReply::Say([decision.to_owned()].into_iter().chain(comments).collect())
    };
    Ok(match gate.kind() {
        Kind::Question => {
            let QuestionChoice { selected, custom } =
                meaning::question_choice(&request.question().map(to_question).unwrap_or_default(), answer)?;
            GateReply::Say(selected.into_iter().chain(custom).collect())
        }
        Kind::Plan => match meaning::plan_decision(answer)? {
            PlanDecision::Approve { comments } => words(gate::APPROVE, comments),
            PlanDecision::RequestChanges { comments } => words(gate::CHANGE, Some(comments)),
            PlanDecision::Reject { comments } => words(gate::REJECT, comments),
        },
        Kind::Execution => match meaning::execution_decision(answer)? {
            ExecutionDecision::Approve { reason } => words(gate::APPROVE, reason),
            ExecutionDecision::Decline { reason } => words(gate::DECLINE, reason),
        },
        Kind::Approval if gate.stage() == GateStage::Plan => match meaning::plan_decision(answer)? {
            PlanDecision::Approve { .. } => GateReply::Allow(ApprovalScope::Once),
            PlanDecision::RequestChanges { comments } => GateReply::Deny { reason: Some(comments) },
            PlanDecision::Reject { comments } => GateReply::Deny { reason: comments },
        },
        Kind::Approval | Kind::Pairing | Kind::Budget => match meaning::execution_decision(answer)? {
            ExecutionDecision::Approve { .. } => GateReply::Allow(ApprovalScope::Once),
            ExecutionDecision::Decline { reason } => GateReply::Deny { reason },
        },
    })
}

/// Returns the state and answer of a resolved gate: in the form that the answer came in, or in the form that it would have.
/// None while the gate waits, and if there was no answer.
pub(crate) fn resolved_answer(
    gate: &Gate,
    request: &GateRequest,
    text: Option<&str>,
) -> Option<(AnswerResolution, Value)> {
    let GatePhase::Resolved { resolution, at, .. } = gate.phase() else { return None };
    let answer = match text.and_then(gate::parse_form) {
        Some(form) => form,
        None => match resolution {
            gate::GateResolution::Answered => answer_form(gate.kind(), request, &text.and_then(gate::parse_words)?)?,
            gate::GateResolution::Expired => by_default(gate, request)?,
            gate::GateResolution::Allowed { .. } | gate::GateResolution::Granted => {
                json!({ "decision": gate::APPROVE })
            }
            gate::GateResolution::Denied if gate.stage() == GateStage::Plan => {
                decision_form("comments", gate::REJECT, text)
            }
            gate::GateResolution::Denied => decision_form("reason", gate::DECLINE, text),
            gate::GateResolution::Declined | gate::GateResolution::Withdrawn => return None,
        },
    };
    Some((AnswerResolution::accepted(gate_name(gate)?, canonical_hash(&answer), format_iso(*at)), answer))
}

/// Returns the answer that counts if there is none.
fn by_default(gate: &Gate, request: &GateRequest) -> Option<Value> {
    let gate::Fallback::Choice(at) = gate.fallback() else { return None };
    let label = &request.question()?.choices.get(at)?.label;
    answer_form(gate.kind(), request, std::slice::from_ref(label))
}

/// Returns the form of an answer that came from another surface.
fn answer_form(kind: Kind, request: &GateRequest, labels: &[String]) -> Option<Value> {
    let choices = request.question()?.choices;
    if kind != Kind::Question {
        let why = if kind == Kind::Plan { "comments" } else { "reason" };
        return Some(decision_form(why, labels.first()?, labels.get(1).map(String::as_str)));
    }
    let is_label = |text: &&String| choices.iter().any(|choice| choice.label == **text);
    let (selected, custom): (Vec<&String>, Vec<&String>) = labels.iter().partition(is_label);
    let custom: Vec<&str> = custom.into_iter().map(String::as_str).collect();
    Some(if custom.is_empty() {
        json!({ "selected": selected })
    } else {
        json!({ "selected": selected, "other": true, "custom": custom.join(", ") })
    })
}

fn decision_form(why: &str, decision: &str, words: Option<&str>) -> Value {
    let mut form = json!({ "decision": decision });
    if let Some(words) = words {
        form[why] = words.into();
    }
    form
}

/// Returns the answer as a value. A text that is no JSON cannot come off the wire.
pub(crate) fn answer_value(answer: &RawJson) -> Value {
    answer.decode_as().unwrap_or(Value::Null)
}
