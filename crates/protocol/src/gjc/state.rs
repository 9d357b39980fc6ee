//! Writes what commands of this dialect answer, and reads the values that they take.
//!
//! It must not know where the values come from. Source: the RPC reference of gjc, Response Schema; docs/protocol/gjc.md,
//! Commands.

use serde::Serialize;

use crate::json::{RawJson, wire_values};
use crate::omp::state::RpcSessionState;
pub use crate::omp::state::{ContextUsage, UsageSource};
pub use crate::omp::todo::{TodoPhase, TodoTask};

/// Data of `get_state`: what omp has, and more.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GjcSessionState {
    /// Members that omp has too.
    #[serde(flatten)]
    pub shared: RpcSessionState,
    /// The tasks.
    pub todo_phases: Vec<TodoPhase>,
    /// Absent without a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_usage: Option<ContextUsage>,
    /// The system prompt; only on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<Vec<String>>,
    /// The tools; only on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dump_tools: Option<Vec<DumpedTool>>,
}

/// Parts that `get_state` gives in addition to those that it always gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateIncludes {
    /// Requested as `tools` or `dumpTools`.
    pub tools: bool,
    /// Requested as `systemPrompt`.
    pub system_prompt: bool,
}

impl StateIncludes {
    /// Reads the names; also returns the first unknown one.
    pub fn from_names(names: &[String]) -> (Self, Option<&str>) {
        let mut include = Self::default();
        let mut unknown = None;
        for name in names {
            match name.as_str() {
                "tools" | "dumpTools" => include.tools = true,
                "systemPrompt" => include.system_prompt = true,
                other => unknown = unknown.or(Some(other)),
            }
        }
        (include, unknown)
    }
}

/// One tool as the model sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DumpedTool {
    /// Name.
    pub name: String,
    /// Description.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub parameters: RawJson,
}

/// Data of `set_todos`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SetTodosResult {
    /// The phases as they are now.
    pub todo_phases: Vec<TodoPhase>,
}

/// Data of `handoff`; null instead if nothing came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HandoffResult {
    /// Path that it was written to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved_path: Option<String>,
}

/// Data of `get_login_providers`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LoginProviders {
    /// In no order.
    pub providers: Vec<LoginProvider>,
}

/// A provider that one can log in at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LoginProvider {
    /// Names it.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// True if one can log in here and now.
    pub available: bool,
    /// True if one is logged in.
    pub authenticated: bool,
}

/// Data of `login`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoginResult {
    /// Id of the provider.
    pub provider_id: String,
}

/// The capability that makes updates of messages small.
pub const COMPACT_MESSAGE_UPDATE: &str = "compact_message_update";

/// Data of `set_capabilities`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AcceptedCapabilities {
    /// Capabilities that we use from now on.
    pub accepted_capabilities: Vec<String>,
    /// Capabilities that we do not know.
    pub unsupported: Vec<String>,
}

impl AcceptedCapabilities {
    /// Accepts the known ones of `requested`.
    pub fn for_requested(requested: Vec<String>) -> Self {
        let (accepted_capabilities, unsupported) =
            requested.into_iter().partition(|name| name == COMPACT_MESSAGE_UPDATE);
        Self { accepted_capabilities, unsupported }
    }

    /// Returns true if updates of messages are to be small.
    pub fn compact_updates(&self) -> bool {
        !self.accepted_capabilities.is_empty()
    }
}

/// Data of `set_default_model_selection`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DefaultModel {
    /// Id of its provider.
    pub provider: String,
    /// Its id at that provider.
    pub model_id: String,
    /// Absent means the model's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking_level: Option<String>,
}

/// Every thinking level that can be set.
pub const THINKING_LEVELS: [&str; 8] = ["inherit", "off", "minimal", "low", "medium", "high", "xhigh", "max"];

/// Returns the level as `get_state` may show it: older clients end at one that they do not know.
pub fn shown_level(level: &str) -> Option<&str> {
    match level {
        "max" => Some("xhigh"),
        "off" | "minimal" | "low" | "medium" | "high" | "xhigh" => Some(level),
        _ => None,
    }
}

wire_values! {
    GjcSessionState, SetTodosResult, HandoffResult, LoginProviders, LoginResult, AcceptedCapabilities, DefaultModel,
}
