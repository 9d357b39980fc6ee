//! Gates and the answers to them.

use countersign_core::{
    gate::{ApprovalScope, GateResolution, Kind},
    id::PrincipalId,
};
use countersign_view::gate_summary::Approvals;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::{Map, Value};

use crate::{ApiError, body::RequestBody, cursor::RecordCursor};

/// Longest lifetime of a grant, in seconds: a hundred years.
const LONGEST_GRANT: u64 = 100 * 365 * 86_400;

/// All pending gates.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Gates")]
pub(crate) struct GateList {
    /// Oldest first.
    pub(crate) gates: Vec<GateBody>,
    pub(crate) cursor: RecordCursor,
}

/// One gate.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Gate")]
pub(crate) struct GateBody {
    pub(crate) id: String,
    pub(crate) state: GateState,
    pub(crate) kind: GateKind,
    pub(crate) door: Option<String>,
    /// Session of the gate; the session of an agent is agent:ID.
    pub(crate) session: Option<String>,
    /// Principal that makes the call, if it is not the session itself, for example a subagent.
    pub(crate) requester: Option<String>,
    pub(crate) call: Option<String>,
    pub(crate) tool: Option<String>,
    /// The tool, or the question.
    pub(crate) title: Option<String>,
    /// Text that rules were matched against, or the question.
    pub(crate) subject: Option<String>,
    /// Exact arguments that would be used.
    pub(crate) arguments: Option<Map<String, Value>>,
    /// Reason why approval is required.
    pub(crate) reason: Option<String>,
    /// Folder on this machine in which it would run.
    pub(crate) folder: Option<String>,
    /// Purpose that the requester states.
    pub(crate) intent: Option<String>,
    pub(crate) question: Option<GateQuestion>,
    /// Scopes that an approval may have.
    pub(crate) scopes: Vec<GrantScope>,
    /// Patterns that may be allowed instead of exactly this call.
    pub(crate) proposals: Vec<String>,
    pub(crate) approvals: Option<Approvals>,
    #[schemars(extend("format" = "date-time"))]
    pub(crate) opened_at: String,
    #[schemars(extend("format" = "date-time"))]
    pub(crate) deadline: Option<String>,
    /// Resolution of the gate.
    #[serde(flatten)]
    pub(crate) outcome: Option<GateOutcome>,
    /// Files on disk that the call would run, one per line.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>")]
    pub(crate) runs: Option<Vec<String>>,
    /// Requester that asks to continue.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) asker: Option<String>,
    /// Reason of a denial, or answers to a question; null if it was removed from the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<AnswerWords>")]
    #[serde(rename = "said")]
    pub(crate) answer: Option<Option<AnswerWords>>,
}

/// Resolution of a gate, and who resolved it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct GateOutcome {
    pub(crate) resolution: ResolutionWord,
    /// Scope of an approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "GrantScope")]
    pub(crate) scope: Option<GrantScope>,
    /// Approver or program that resolved the gate; null if none did.
    #[schemars(with = "Option<String>")]
    pub(crate) by: Option<PrincipalId>,
}

/// Reason or answers given to a gate.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum AnswerWords {
    /// The reason of a denial.
    Reason(String),
    /// The answers to a question.
    Answers(Vec<String>),
}

/// State of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GateState {
    Pending,
    Resolved,
}

/// Kind of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GateKind {
    Approval,
    Question,
    Plan,
    Execution,
    Pairing,
    Budget,
}

impl GateKind {
    /// Returns the word for it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Approval => "approval",
            Self::Question => "question",
            Self::Plan => "plan",
            Self::Execution => "execution",
            Self::Pairing => "pairing",
            Self::Budget => "budget",
        }
    }
}

impl From<Kind> for GateKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Approval => Self::Approval,
            Kind::Question => Self::Question,
            Kind::Plan => Self::Plan,
            Kind::Execution => Self::Execution,
            Kind::Pairing => Self::Pairing,
            Kind::Budget => Self::Budget,
        }
    }
}

/// Answers that a question offers.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Question")]
pub(crate) struct GateQuestion {
    /// Offered answers.
    pub(crate) choices: Vec<String>,
    /// True if several choices may be given.
    pub(crate) multi: bool,
    /// Index of the choice that the requester recommends, from 0.
    pub(crate) recommended: Option<usize>,
}

/// Scope of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Scope")]
pub(crate) enum GrantScope {
    Once,
    Session,
    Always,
}

impl From<ApprovalScope> for GrantScope {
    fn from(scope: ApprovalScope) -> Self {
        match scope {
            ApprovalScope::Once => Self::Once,
            ApprovalScope::Session => Self::Session,
            ApprovalScope::Always => Self::Always,
        }
    }
}

impl From<GrantScope> for ApprovalScope {
    fn from(scope: GrantScope) -> Self {
        match scope {
            GrantScope::Once => Self::Once,
            GrantScope::Session => Self::Session,
            GrantScope::Always => Self::Always,
        }
    }
}

/// Resolution of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Resolution")]
pub(crate) enum ResolutionWord {
    Allowed,
    Denied,
    Answered,
    Declined,
    Granted,
    Expired,
    Withdrawn,
}

impl ResolutionWord {
    /// Returns the word for it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Answered => "answered",
            Self::Declined => "declined",
            Self::Granted => "granted",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
        }
    }

    /// Returns the word for `resolution`, and how far its approval reaches.
    pub(crate) fn with_scope(resolution: &GateResolution) -> (Self, Option<GrantScope>) {
        match resolution {
            GateResolution::Allowed { scope } => (Self::Allowed, Some((*scope).into())),
            GateResolution::Denied => (Self::Denied, None),
            GateResolution::Answered => (Self::Answered, None),
            GateResolution::Declined => (Self::Declined, None),
            GateResolution::Granted => (Self::Granted, None),
            GateResolution::Expired => (Self::Expired, None),
            GateResolution::Withdrawn => (Self::Withdrawn, None),
        }
    }
}

/// Resolution of a gate by an answer, or the first result of a repeated answer.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Resolved")]
pub(crate) struct ResolvedGate {
    pub(crate) id: String,
    #[schemars(extend("const" = "resolved"))]
    pub(crate) state: GateState,
    pub(crate) resolution: ResolutionWord,
    /// Scope of an approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "GrantScope")]
    pub(crate) scope: Option<GrantScope>,
}

/// The approval was recorded, and further approvals are required.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Voted")]
pub(crate) struct GateVote {
    pub(crate) id: String,
    #[schemars(extend("const" = "pending"))]
    pub(crate) state: GateState,
    /// Number of approvals so far.
    pub(crate) have: u32,
    /// Number of required approvals.
    pub(crate) need: u32,
}

/// Allows what a gate asks for.
#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Allow")]
pub(crate) struct AllowRequest {
    /// Scope of the approval; once if absent.
    pub(crate) scope: Option<GrantScope>,
    /// One of the proposals, instead of exactly this call.
    pub(crate) rule: Option<String>,
    /// Lifetime of the grant in seconds; no expiry if absent.
    pub(crate) lasts: Option<GrantSeconds>,
}

impl RequestBody for AllowRequest {
    fn invalid_member(_: &str) -> ApiError {
        ApiError::bad_request("lasts must be a number of seconds, at least 1")
    }
}

/// A number of seconds that a grant may last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(inline)]
pub(crate) struct GrantSeconds(#[schemars(range(min = 1, max = LONGEST_GRANT))] pub(crate) u64);

impl<'de> Deserialize<'de> for GrantSeconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = Value::deserialize(deserializer)?.as_u64().filter(|found| (1..=LONGEST_GRANT).contains(found));
        seconds.map(Self).ok_or_else(|| D::Error::custom("no number of seconds, or too many"))
    }
}

/// Denies what a gate asks for, or declines a question.
#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Deny")]
pub(crate) struct DenyRequest {
    /// Reason for the agent.
    pub(crate) reason: Option<String>,
}

impl RequestBody for DenyRequest {}

/// Answers a question.
#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Answer")]
pub(crate) struct AnswerRequest {
    /// One of the choices, several if multi is true, or a text of your own.
    pub(crate) answers: AnswerTexts,
}

impl RequestBody for AnswerRequest {
    fn invalid_member(_: &str) -> ApiError {
        ApiError::bad_request("answers must be a list of texts, none of them empty")
    }
}

/// Texts that answer a question, as they were sent.
#[derive(Debug, PartialEq, JsonSchema)]
#[schemars(inline)]
pub(crate) struct AnswerTexts(#[schemars(length(min = 1), inner(pattern(r"\S")))] pub(crate) Vec<String>);

impl<'de> Deserialize<'de> for AnswerTexts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let texts: Option<Vec<String>> = match Value::deserialize(deserializer)? {
            Value::Array(answers) => answers.iter().map(|one| one.as_str().map(str::to_owned)).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => None,
        };
        let texts = texts.filter(|texts| !texts.is_empty() && texts.iter().all(|one| !one.trim().is_empty()));
        texts.map(Self).ok_or_else(|| D::Error::custom("no list of texts"))
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::gate::{ApprovalScope, GateResolution, Kind};
    use serde_json::json;

    use super::{GateKind, ResolutionWord};

    #[test]
    fn words_are_those_of_the_record() {
        for kind in Kind::ALL {
            assert_eq!(json!(GateKind::from(kind)), json!(kind));
            assert_eq!(json!(GateKind::from(kind).as_str()), json!(kind));
        }
        for resolution in [
            GateResolution::Allowed { scope: ApprovalScope::Once },
            GateResolution::Denied,
            GateResolution::Answered,
            GateResolution::Declined,
            GateResolution::Granted,
            GateResolution::Expired,
            GateResolution::Withdrawn,
        ] {
            let (word, _) = ResolutionWord::with_scope(&resolution);
            assert_eq!(json!(word), json!(word.as_str()));
        }
    }
}
