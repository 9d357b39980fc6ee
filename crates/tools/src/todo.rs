//! The session's list of tasks, in phases.
//!
//! It must not know which tool changes it.

use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A step of the work with its tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskPhase {
    /// Such as `phase-1`; unique in the list.
    pub id: String,
    /// For people.
    pub name: String,
    /// In the order of the work.
    pub tasks: Vec<PhaseTask>,
}

/// One thing to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseTask {
    /// Such as `task-1`; unique in the list.
    pub id: String,
    /// One line.
    pub content: String,
    /// How far it is.
    pub status: TaskStatus,
    /// What came up on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// More than the one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<String>,
}

/// How far a task is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// Not begun.
    #[default]
    Pending,
    /// Begun.
    InProgress,
    /// Done.
    Completed,
    /// Given up.
    Abandoned,
}

impl TaskStatus {
    /// Whether there is still something to do.
    pub const fn is_open(self) -> bool {
        match self {
            Self::Pending | Self::InProgress => true,
            Self::Completed | Self::Abandoned => false,
        }
    }
}

/// Where the list outlives the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TodoStorage {
    /// With the session.
    #[default]
    Session,
    /// Nowhere.
    Memory,
}

/// A handle on a session's list. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct TodoList {
    pub(crate) storage: TodoStorage,
    phases: Arc<Mutex<Vec<TaskPhase>>>,
}

impl TodoList {
    /// A list as it was left.
    pub fn new(storage: TodoStorage, phases: Vec<TaskPhase>) -> Self {
        Self { storage, phases: Arc::new(Mutex::new(phases)) }
    }

    /// The list as it is.
    pub fn get(&self) -> Vec<TaskPhase> {
        self.phases.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts another list in its place.
    pub fn set(&self, phases: Vec<TaskPhase>) {
        *self.phases.lock().unwrap_or_else(PoisonError::into_inner) = phases;
    }

    /// The tasks that are not completed or given up, in order.
    pub fn open_tasks(&self) -> Vec<PhaseTask> {
        let phases = self.get();
        phases.into_iter().flat_map(|phase| phase.tasks).filter(|task| task.status.is_open()).collect()
    }

    /// Counts [`Todos::open`].
    pub fn open_count(&self) -> usize {
        self.open_tasks().len()
    }

    /// Reads a list from the details of a result of `todo_write`.
    pub fn phases_of(details: &Value) -> Option<Vec<TaskPhase>> {
        serde_json::from_value(details.get("phases")?.clone()).ok()
    }
}
