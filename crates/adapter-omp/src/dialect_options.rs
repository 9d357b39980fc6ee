//! Fixed properties of a dialect.

use std::time::Duration;

use countersign_core::session::AnswerFormat;

use crate::{follower::StartFollower, session_file::UnansweredPolicy};

/// Properties of a dialect that hold for a whole process. The default is omp's own.
#[derive(Clone, Copy, Debug, Default)]
pub struct DialectOptions {
    /// Form of the ids of new sessions.
    pub session_ids: SessionIdForm,
    /// Fate of a session in which no model answers.
    pub unanswered: UnansweredPolicy,
    /// Starts the work that follows the log of each session beside the door.
    pub follower: Option<StartFollower>,
    /// Folders below the working folder whose files people's tools read as records: no tool of the agent writes there.
    pub record_folders: &'static [&'static str],
    /// Tools that ask where no rule says anything.
    pub asking_tools: &'static [&'static str],
    /// Whether runs have the tools of workflows.
    pub workflow_tools: bool,
    /// Whether hosts keep the list of tasks themselves, and a person's settings do not change the reminders of it.
    pub hosts_keep_tasks: bool,
    /// Result of a call that asks a person, where the host shows no questions.
    pub nobody: Option<&'static str>,
    /// Form in which a model gets the answers to its questions.
    pub answers: AnswerFormat,
    /// Whether the host gets the title of its session.
    pub titles: bool,
    /// Whether the host gets notices of a run that waits, and reminders of open gates.
    pub reminders: bool,
    /// Whether clients come and go, and keep account of the dialogs that wait.
    pub changing_clients: bool,
    /// Whether numbers of events go on across processes, so that clients can ask for what they missed.
    pub lasting_numbers: bool,
    /// Whether a line that is not UTF-8 is read as well as it can be.
    pub lossy_lines: bool,
    /// Whether commands that read a session are done at once, although a switch to another one is asked for.
    pub reads_at_once: bool,
    /// Whether a session file that is not whole is reported to the host at the end.
    pub unwritten_reported: bool,
    /// How long commands that have come are still done when the host has closed its input.
    pub drain: Duration,
}

/// Form of the ids of new sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionIdForm {
    /// 16 hex digits.
    #[default]
    Hex,
    /// A UUID of version 7.
    Uuid,
}
