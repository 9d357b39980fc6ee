//! Writes workflow gates and what becomes of answers to them.
//!
//! It must not know which gates are open. Source: the RPC reference of gjc, Workflow Gate Sub-Protocol;
//! docs/protocol/gjc.md, Workflow gates.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::schema::{AnswerSchema, SchemaMismatch};
use crate::json::{RawJson, wire_values};

/// The stage of a workflow that opens gates. `team` is reserved: [`GateError::InvalidStage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkflowStage {
    /// Questions before the work.
    DeepInterview,
    /// A plan that waits for approval.
    Ralplan,
    /// An execution that waits for a sign-off.
    Ultragoal,
}

impl WorkflowStage {
    /// Returns the name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DeepInterview => "deep-interview",
            Self::Ralplan => "ralplan",
            Self::Ultragoal => "ultragoal",
        }
    }

    /// Reads the name on the wire.
    ///
    /// # Errors
    /// [`GateError::InvalidStage`] for any other.
    pub fn from_name(name: &str) -> Result<Self, GateError> {
        let all = [Self::DeepInterview, Self::Ralplan, Self::Ultragoal];
        all.into_iter().find(|stage| stage.name() == name).ok_or_else(|| GateError::InvalidStage(name.to_owned()))
    }
}

/// Kind of the required answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkflowGateKind {
    /// A choice, or words.
    Question,
    /// A decision on a plan.
    Approval,
    /// A decision on an execution.
    Execution,
}

/// One of the answers that are offered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateOption {
    /// Value of the answer.
    pub value: Value,
    /// Label for people.
    pub label: String,
    /// More, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// Context of a gate. Always an object, if an empty one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkflowContext {
    /// One line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The whole question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The stage's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage_state: Option<Value>,
    /// Files to look at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_refs: Option<Value>,
    /// Language to answer in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// The plan itself. Of later versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Value>,
    /// Source of the gate. Of later versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Value>,
}

/// A gate that is about to be opened: all of it but its id and time.
#[derive(Clone, Debug)]
pub struct GateDraft {
    /// Stage that opens the gate.
    pub stage: WorkflowStage,
    /// Kind of the required answer.
    pub kind: WorkflowGateKind,
    /// Schema of the answer.
    pub schema: AnswerSchema,
    /// The answers that are offered, if it is about choosing.
    pub options: Option<Vec<GateOption>>,
    /// Context of the gate.
    pub context: WorkflowContext,
}

impl GateDraft {
    /// Makes the gate as it is sent. `created_at` is ISO 8601 with milliseconds and `Z`.
    pub fn into_gate(self, gate_id: String, created_at: String) -> WorkflowGate {
        WorkflowGate {
            gate_id,
            stage: self.stage,
            kind: self.kind,
            schema_hash: self.schema.hash().to_owned(),
            schema: self.schema.as_json().clone().into(),
            options: self.options,
            context: self.context,
            created_at,
            required: AlwaysRequired,
        }
    }
}

/// A gate as it is sent: flat on stdio, the payload of an envelope on the bridge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "workflow_gate")]
pub struct WorkflowGate {
    /// Names it; see [`gate_id`](super::gate_id::gate_id).
    pub gate_id: String,
    /// Stage that opened the gate.
    pub stage: WorkflowStage,
    /// Kind of the required answer.
    pub kind: WorkflowGateKind,
    /// Schema of the answer.
    pub schema: RawJson,
    /// The hash of `schema` alone.
    pub schema_hash: String,
    /// Absent too where the host cannot read objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Vec<GateOption>>,
    /// Context of the gate.
    pub context: WorkflowContext,
    /// ISO 8601 with milliseconds and `Z`.
    pub created_at: String,
    /// Always true.
    pub required: AlwaysRequired,
}

/// The `true` of a gate's `required`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlwaysRequired;

impl Serialize for AlwaysRequired {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bool(true)
    }
}

impl<'de> Deserialize<'de> for AlwaysRequired {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match bool::deserialize(deserializer)? {
            true => Ok(Self),
            false => Err(serde::de::Error::custom("a gate is always required")),
        }
    }
}

/// Data of `get_pending_workflow_gates`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PendingGates {
    /// Oldest first.
    pub gates: Vec<WorkflowGate>,
}

/// Data of `workflow_gate_response`: what became of the answer. Rejecting one is a success of the command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnswerResolution {
    /// Id of the gate.
    pub gate_id: String,
    /// Status of the answer.
    pub status: ResolutionStatus,
    /// The hash of the answer alone.
    pub answer_hash: String,
    /// ISO 8601 with milliseconds and `Z`.
    pub resolved_at: String,
    /// Reason that it does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RawJson>,
}

/// Status of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResolutionStatus {
    /// The answer counts, and the gate is resolved.
    Accepted,
    /// The answer does not count, and the gate stays pending.
    Rejected,
}

/// Errors of an answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "code", rename = "invalid_workflow_gate_answer")]
pub struct InvalidAnswer {
    /// Id of the gate.
    pub gate_id: String,
    /// Hash of its schema.
    pub schema_hash: String,
    /// At least one.
    pub errors: Vec<SchemaMismatch>,
}

impl AnswerResolution {
    /// Creates the resolution of an answer that counts.
    pub fn accepted(gate_id: String, answer_hash: String, resolved_at: String) -> Self {
        Self { gate_id, status: ResolutionStatus::Accepted, answer_hash, resolved_at, error: None }
    }

    /// Creates the resolution of an answer that does not count, with the reason.
    pub fn rejected(answer_hash: String, resolved_at: String, why: InvalidAnswer) -> Self {
        let error = Some(RawJson::from_wire(&why));
        Self { gate_id: why.gate_id, status: ResolutionStatus::Rejected, answer_hash, resolved_at, error }
    }
}

/// Why an answer, or a gate, cannot be taken at all. On stdio it is the `error` of a response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// There is no such gate.
    #[error("unknown workflow gate: {0}")]
    Unknown(String),
    /// Somebody else's answer counted.
    #[error("workflow gate {0} is already resolved")]
    AlreadyResolved(String),
    /// The same key came with another answer.
    #[error("idempotency key was used for another answer to workflow gate {0}")]
    IdempotencyConflict(String),
    /// No gate is opened in such a stage.
    #[error("workflow stage {0:?} opens no gates")]
    InvalidStage(String),
    /// The schema would not be checked.
    #[error("{0}")]
    InvalidSchema(#[from] super::schema::SchemaError),
}

/// Error text for a host that answers a gate before unattended mode was negotiated. A text, not an object.
pub const NOT_AVAILABLE: &str = "workflow gates are not available until unattended mode is negotiated";

impl GateError {
    /// Returns the code on the wire.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "unknown_gate",
            Self::AlreadyResolved(_) => "already_resolved",
            Self::IdempotencyConflict(_) => "idempotency_conflict",
            Self::InvalidStage(_) => "invalid_workflow_stage",
            Self::InvalidSchema(_) => super::schema::SchemaError::CODE,
        }
    }
}

impl Serialize for GateError {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        CodedError { code: self.code(), message: self.to_string() }.serialize(serializer)
    }
}

/// An error as an object: `{code, message}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CodedError {
    /// Code for programs.
    pub code: &'static str,
    /// Text for people.
    pub message: String,
}

wire_values! { WorkflowGate, PendingGates, AnswerResolution, InvalidAnswer, GateError, CodedError }
