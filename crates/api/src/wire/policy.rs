//! Explanation of the verdict on a request.

use countersign_policy_admin::explained::Explanation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{ApiError, body::RequestBody};

/// Asks what would become of an agent's request, or of a tool of a run.
#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Explain")]
pub(crate) struct ExplainRequest {
    /// The name of a tool.
    pub(crate) tool: String,
    /// What it would be called with; nothing if absent.
    pub(crate) arguments: Option<Map<String, Value>>,
    /// The agent that would ask; default if absent.
    pub(crate) agent: Option<String>,
}

impl RequestBody for ExplainRequest {
    fn invalid_member(_: &str) -> ApiError {
        ApiError::bad_request("tool is missing: the name of a tool")
    }
}

/// What would become of it.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Explained")]
pub(crate) enum ExplainReply {
    /// Policy was asked.
    Decided(Box<Explanation>),
    /// It is refused before policy is asked.
    Refused {
        verdict: RefusedVerdict,
        /// Why, in one line.
        why: String,
    },
}

/// The verdict of what is refused before policy is asked.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum RefusedVerdict {
    Refused,
}
