//! Explanation of the verdict on a request.

use countersign_policy_admin::explained::Explanation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{ApiError, body::RequestBody};

/// Dry run of a request of an agent, or of a tool of a run.
#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Explain")]
pub(crate) struct ExplainRequest {
    /// The name of a tool.
    pub(crate) tool: String,
    /// Arguments of the call; none if absent.
    pub(crate) arguments: Option<Map<String, Value>>,
    /// Agent that would make the request; default if absent.
    pub(crate) agent: Option<String>,
}

impl RequestBody for ExplainRequest {
    fn invalid_member(_: &str) -> ApiError {
        ApiError::bad_request("tool is missing: give the name of a tool")
    }
}

/// Result of a dry run.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Explained")]
pub(crate) enum ExplainReply {
    /// Verdict of policy.
    Decided(Box<Explanation>),
    /// The request is refused before policy evaluates it.
    Refused {
        verdict: RefusedVerdict,
        /// Reason in one line.
        why: String,
    },
}

/// Verdict on a request that is refused before policy evaluates it.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum RefusedVerdict {
    Refused,
}
