//! The tasks of a session, in phases. Of omp 18 and of gjc.
//!
//! It must not know who changes them.

use serde::{Deserialize, Serialize};

use super::event::TodoStatus;

/// One phase of the tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodoPhase {
    /// Echoed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Name of the phase.
    pub name: String,
    /// Its tasks in order.
    pub tasks: Vec<TodoTask>,
}

/// One task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodoTask {
    /// Echoed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Description of the task.
    pub content: String,
    /// Status of the task.
    pub status: TodoStatus,
    /// Notes about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<Vec<String>>,
}
