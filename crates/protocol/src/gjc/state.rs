//! Writes what commands of this dialect answer, and reads the values that they take.
//!
//! It must not know where the values come from. Source: the RPC reference of gjc, Response Schema; docs/protocol/gjc.md,
//! Commands.

use serde::Serialize;

use crate::json::{RawJson, WireValue};
use crate::omp::state::RpcSessionState;
pub use crate::omp::state::{ContextUsage, UsageSource};
pub use crate::omp::todo::{TodoPhase, TodoTask};

/// Data of `get_state`: what omp has, and more.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GjcSessionState {
    /// What omp has too.
    #[serde(flatten)]
    pub shared: RpcSessionState,
    /// The tasks.
    pub todo_phases: Vec<TodoPhase>,
    /// Absent without a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_usage: Option<ContextUsage>,
    /// Only if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<Vec<String>>,
    /// Only if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dump_tools: Option<Vec<DumpedTool>>,
}

/// What `get_state` gives beside what it always gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateIncludes {
    /// Asked for as `tools` or `dumpTools`.
    pub tools: bool,
    /// Asked for as `systemPrompt`.
    pub system_prompt: bool,
}

impl StateIncludes {
    /// Reads the names; the first that is unknown comes back beside it.
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
    /// How it is called.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub parameters: RawJson,
}

/// Data of `set_todos`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SetTodosResult {
    /// As they are now.
    pub todo_phases: Vec<TodoPhase>,
}

/// Data of `handoff`; null instead if nothing came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HandoffResult {
    /// Where it was written.
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
    /// For people.
    pub name: String,
    /// Whether one can log in here and now.
    pub available: bool,
    /// Whether one is logged in.
    pub authenticated: bool,
}

/// Data of `login`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoginResult {
    /// Where.
    pub provider_id: String,
}

/// The capability that makes updates of messages small.
pub const COMPACT_MESSAGE_UPDATE: &str = "compact_message_update";

/// Data of `set_capabilities`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AcceptedCapabilities {
    /// What we do from now on.
    pub accepted_capabilities: Vec<String>,
    /// What we do not know.
    pub unsupported: Vec<String>,
}

impl AcceptedCapabilities {
    /// Accepts what we know of `wanted`.
    pub fn for_requested(requested: Vec<String>) -> Self {
        let (accepted_capabilities, unsupported) =
            requested.into_iter().partition(|name| name == COMPACT_MESSAGE_UPDATE);
        Self { accepted_capabilities, unsupported }
    }

    /// True if updates of messages are to be small.
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

impl WireValue for GjcSessionState {}
impl WireValue for SetTodosResult {}
impl WireValue for HandoffResult {}
impl WireValue for LoginProviders {}
impl WireValue for LoginResult {}
impl WireValue for AcceptedCapabilities {}
impl WireValue for DefaultModel {}
