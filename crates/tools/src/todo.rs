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
    /// Name for people.
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
    /// Status of the task.
    pub status: TaskStatus,
    /// Notes on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// More than the one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<String>,
}

/// Status of a task.
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
    /// Returns true if there is still something to do.
    pub const fn is_open(self) -> bool {
        match self {
            Self::Pending | Self::InProgress => true,
            Self::Completed | Self::Abandoned => false,
        }
    }
}

/// Storage of a list that outlives the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TodoStorage {
    /// Stored with the session.
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
    /// Creates a list as it was left.
    pub fn new(storage: TodoStorage, phases: Vec<TaskPhase>) -> Self {
        Self { storage, phases: Arc::new(Mutex::new(phases)) }
    }

    /// Returns the list as it is.
    pub fn get(&self) -> Vec<TaskPhase> {
        self.phases.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts another list in its place.
    pub fn set(&self, phases: Vec<TaskPhase>) {
        *self.phases.lock().unwrap_or_else(PoisonError::into_inner) = phases;
    }

    /// Returns the tasks that are not completed or given up, in order.
    pub fn open_tasks(&self) -> Vec<PhaseTask> {
        let phases = self.get();
        phases.into_iter().flat_map(|phase| phase.tasks).filter(|task| task.status.is_open()).collect()
    }

    /// Counts [`TodoList::open_tasks`].
    pub fn open_count(&self) -> usize {
        self.open_tasks().len()
    }

    /// Reads a list from the details of a result of `todo_write`.
    pub fn phases_of(details: &Value) -> Option<Vec<TaskPhase>> {
        serde_json::from_value(details.get("phases")?.clone()).ok()
    }
}
