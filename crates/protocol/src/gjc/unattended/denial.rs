//! Writes why a command or a call was refused that the declaration does not cover.
//!
//! It must not know how anything is metered.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Action, CommandScope};
use crate::json::{JsNumber, wire_values};

/// The scope of a command was not declared. Nothing was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ScopeDenied {
    code: &'static str,
    scope: CommandScope,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
    run_id: String,
    session_id: String,
    pre_side_effect: bool,
}

/// The class of an action was not declared. Nothing was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ActionDenied {
    code: &'static str,
    action: Action,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
    run_id: String,
    session_id: String,
    pre_side_effect: bool,
}

/// A budget was used up, or would be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BudgetExceeded {
    code: &'static str,
    /// Metric of the budget.
    pub metric: BudgetMetric,
    /// The declared limit.
    pub limit: JsNumber,
    /// The amount that was, or would be, used.
    pub observed: JsNumber,
    /// Phase in which the breach was noticed; see [`phase`].
    pub phase: String,
    run_id: String,
    session_id: String,
    /// Progress of ending the run.
    pub abort_status: AbortStatus,
}

/// Metric of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetMetric {
    /// Tokens.
    Tokens,
    /// Calls.
    ToolCalls,
    /// Time.
    WallTime,
    /// Dollars.
    Cost,
}

/// Progress of ending a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AbortStatus {
    /// The run is being ended.
    Aborting,
    /// The run ended.
    Aborted,
    /// Something did not end.
    AbortFailed,
}

/// Phases in which a breach is noticed.
pub mod phase {
    /// Returns the phase before a command is done.
    pub fn preflight(command: &str) -> String {
        format!("{command} preflight")
    }

    /// Returns the phase after a command was done.
    pub fn post_dispatch(command: &str) -> String {
        format!("{command} post-dispatch")
    }
}

impl ScopeDenied {
    /// Refuses a command. `command` is the text of a shell command and absent for any other.
    pub fn new(scope: CommandScope, command: Option<String>, run_id: String, session_id: String) -> Self {
        Self { code: "scope_denied", scope, command, run_id, session_id, pre_side_effect: true }
    }
}

impl ActionDenied {
    /// Refuses an action. `command` is the text of a shell command and absent for anything else.
    pub fn new(action: Action, command: Option<String>, run_id: String, session_id: String) -> Self {
        Self { code: "action_denied", action, command, run_id, session_id, pre_side_effect: true }
    }
}

impl BudgetExceeded {
    /// Creates the denial for a breach that ends the run.
    pub fn new(
        metric: BudgetMetric,
        (limit, observed): (JsNumber, JsNumber),
        phase: String,
        run_id: String,
        session_id: String,
    ) -> Self {
        let abort_status = AbortStatus::Aborting;
        Self { code: "budget_exceeded", metric, limit, observed, phase, run_id, session_id, abort_status }
    }
}

impl BudgetMetric {
    /// Returns the name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::ToolCalls => "tool_calls",
            Self::WallTime => "wall_time",
            Self::Cost => "cost",
        }
    }
}

impl fmt::Display for ScopeDenied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "scope_denied: {}", self.scope.name())
    }
}

impl fmt::Display for ActionDenied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "action_denied: {}", self.action.name())
    }
}

impl fmt::Display for BudgetExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { metric, limit, observed, phase, .. } = self;
        write!(f, "budget_exceeded: {} {}/{} at {phase}", metric.name(), observed.0, limit.0)
    }
}

wire_values! { ScopeDenied, ActionDenied, BudgetExceeded }
