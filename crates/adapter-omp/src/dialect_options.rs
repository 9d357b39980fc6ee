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
    /// Function that starts the work that follows the log of each session in addition to the adapter.
    pub follower: Option<StartFollower>,
    /// Folders below the working folder whose files people's tools read as records: no tool of the agent writes there.
    pub record_folders: &'static [&'static str],
    /// Tools that ask where no rule says anything.
    pub asking_tools: &'static [&'static str],
    /// True if runs have the tools of workflows.
    pub workflow_tools: bool,
    /// True if hosts keep the list of tasks themselves, and a user's settings do not change the reminders of it.
    pub hosts_keep_tasks: bool,
    /// Result of a call that asks a person, where the host shows no questions.
    pub nobody: Option<&'static str>,
    /// Form in which a model gets the answers to its questions.
    pub answers: AnswerFormat,
    /// True if the host gets the title of its session.
    pub titles: bool,
    /// True if the host gets notices of a run that waits, and reminders of open gates.
    pub reminders: bool,
    /// True if clients come and go, and keep account of the dialogs that wait.
    pub changing_clients: bool,
    /// True if numbers of events continue across processes, so that clients can request events that they missed.
    pub lasting_numbers: bool,
    /// True if a line that is not UTF-8 is read as well as it can be.
    pub lossy_lines: bool,
    /// True if commands that read a session are done at once, although a switch to another one is requested.
    pub reads_at_once: bool,
    /// True if a session file that is not whole is reported to the host at the end.
    pub unwritten_reported: bool,
    /// Time for commands that arrived before the host closed its input to complete.
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
