//! Commands to a session, and the reasons for which they are refused.

use std::sync::Arc;

use super::{
    event::SessionEntryKind,
    settings::{SessionSetting, Settings},
    state::MessageQueue,
};
use crate::{
    digest::Digest,
    id::{EntryId, Lsn, PrincipalId, SessionId},
    ledger::BudgetAmount,
    run::RunMetadata,
    time::Millis,
};

pub use crate::message_content::MessageContent;

/// Key of a command that is executed once, however often it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The name. It includes the requester, so that no client gets another's answers.
    pub name: String,
    /// Digest of the command: the same name for another command is an error.
    pub asks: Digest,
}

/// Handling of a prompt while a run works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenBusy {
    /// The prompt is refused.
    Refuse,
    /// The prompt steers the run.
    Steer,
    /// The prompt follows the run.
    FollowUp,
}

/// An entry that comes from elsewhere. It never counts as a decision and no call in it is ever run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedEntry {
    /// Its name.
    pub id: EntryId,
    /// The entry before it.
    pub parent: Option<EntryId>,
    /// Its kind.
    pub kind: SessionEntryKind,
    /// Its content.
    pub message: MessageContent,
    /// Time of its creation.
    pub made_at: Option<Millis>,
}

/// An entry of a session's file, compared with the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StagedEntry {
    /// The tree has it unchanged.
    Known(EntryId),
    /// The tree does not have it, or has another entry under its name.
    Foreign(ImportedEntry),
}

/// Position of a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilePart {
    /// The first: staged entries that were never used are dropped.
    First,
    /// A part after the one before.
    Next,
}

/// Outcome of a compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompactionOutcome {
    /// There is a summary.
    Done {
        /// The content of its entry.
        summary: MessageContent,
        /// Its use of a budget, if known.
        spent: Option<BudgetAmount>,
    },
    /// The compaction failed.
    Failed {
        /// Reason, for people.
        message: Arc<str>,
    },
    /// The compaction was stopped.
    Aborted,
}

/// A command to one session.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Creates the session. Refused if it exists.
    Open {
        /// The folder that its tools work in.
        cwd: String,
        /// Its display name.
        name: Option<String>,
        /// The session that it came from.
        parent: Option<String>,
        /// The adapter that it is opened through, which rules may match.
        door: Option<String>,
        /// Initial settings.
        settings: Box<Settings>,
    },
    /// Puts entries from elsewhere into the tree and makes `leaf` the leaf.
    Import {
        /// Entries in order, parents first.
        entries: Vec<ImportedEntry>,
        /// The entry that the next one follows.
        leaf: Option<EntryId>,
    },
    /// Stages entries of the session's file next to the tree, which is not changed. A file that is too large for one batch
    /// comes in parts.
    Gather {
        /// Position of the part.
        part: FilePart,
        /// Entries in the order of the file.
        entries: Vec<StagedEntry>,
    },
    /// Replaces the tree by the staged entries. A run whose message is no longer on the way to `leaf` ends, and its
    /// pending gates are withdrawn.
    Replace {
        /// The entry that the next one follows.
        leaf: Option<EntryId>,
    },
    /// Starts a run with a message, or handles it according to `when_busy`.
    Prompt {
        /// The message.
        message: MessageContent,
        /// Messages right after it, such as files that it mentions.
        with: Vec<(SessionEntryKind, MessageContent)>,
        /// Handling of it while a run works.
        when_busy: WhenBusy,
    },
    /// Starts a run with the last message of a conversation: nothing follows it automatically. Refused while a run works.
    HandOff {
        /// The message.
        message: MessageContent,
    },
    /// Starts a run of its own with a message: at once, or after current work and earlier messages.
    Say {
        /// The message.
        message: MessageContent,
        /// Metadata of its run.
        marks: Box<RunMetadata>,
    },
    /// Restarts the conversation. Refused while something works in it; queued messages are dropped, and so are grants for this
    /// session.
    Renew {
        /// The principal that restarts it.
        by: PrincipalId,
        /// Work to do with the old conversation, in the form of its executor; it is stored with the fact. Nothing if absent.
        owed: Option<Arc<str>>,
    },
    /// Reports that the work owed after a restart of the conversation is done.
    Remembered {
        /// The record of that work.
        renewed: Lsn,
    },
    /// Removes the messages before an entry from the conversation.
    Trim {
        /// The oldest entry that stays. No message of a current run is before it.
        first_kept: EntryId,
    },
    /// Puts a message into a queue. It starts nothing.
    Queue {
        /// The queue: steering or follow-ups.
        queue: MessageQueue,
        /// The message.
        message: MessageContent,
    },
    /// Sends a message to the run that works, or waits for a compaction to begin. Without one nothing happens.
    Steer {
        /// The message.
        message: MessageContent,
    },
    /// Executes the command that it holds, unless the session has done so under this key: then the first reply is repeated. A
    /// refused command was not executed.
    Once {
        /// The key.
        key: IdempotencyKey,
        /// The command: opening, or a message.
        command: Box<Self>,
    },
    /// Empties all queues.
    Clear,
    /// Changes a setting. An entry is added to the tree if `entry` has its content.
    Set {
        /// The change.
        setting: SessionSetting,
        /// The entry that records it.
        entry: Option<(SessionEntryKind, MessageContent)>,
    },
    /// Replaces the list of tasks by another of a person.
    SetTasks {
        /// The content of the entry that keeps the list.
        entry: MessageContent,
        /// Number of its open tasks.
        open: u32,
    },
    /// Reports the number of open tasks on an imported list.
    CountTasks {
        /// Number of open tasks.
        open: u32,
    },
    /// Names the session.
    Name {
        /// The name, not empty after trimming.
        name: String,
    },
    /// Moves the session to another folder. Refused while something works in it.
    Relocate {
        /// Absolute.
        cwd: String,
    },
    /// Moves the session to another log. Refused while something works in it.
    LeaveFor {
        /// The other log, as clients that look for the session here get it.
        home: String,
    },
    /// Continues the session from another log.
    ComeFrom {
        /// The other log.
        home: String,
    },
    /// Moves the leaf.
    Move {
        /// The new leaf; absent means before the first entry.
        leaf: Option<EntryId>,
    },
    /// Starts a run that repeats the request of the newest answer, which leaves the conversation. The calls before it stay with their
    /// results. Refused while something works or waits in the session.
    AskAgain {
        /// The entry of that answer.
        answer: EntryId,
    },
    /// Compacts the older part. The caller stops a working run first.
    Compact {
        /// Focus of the summary.
        instructions: Option<Arc<str>>,
    },
    /// Stops the active compaction.
    AbortCompaction,
    /// Ends a compaction.
    Compacted {
        /// The compaction.
        epoch: u32,
        /// The outcome.
        outcome: CompactionOutcome,
    },
    /// Records that an adapter with numbered events has reached `number`.
    RecordSequence {
        /// The number.
        number: u64,
        /// Position of the last sent record; absent if that is everything before now.
        upto: Option<Lsn>,
    },
    /// Records that the session's file was brought up to the log.
    FileWritten {
        /// Its path.
        path: String,
        /// Its length in bytes.
        length: u64,
        /// SHA-256 of its bytes, in hex.
        digest: String,
    },
}

/// Reason for which a prompt was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PromptError {
    /// A run works and no queue was selected.
    #[error("session {0} already has an active run")]
    Busy(SessionId),
    /// No model was chosen.
    #[error("session {0} has no model; select one first")]
    NoModel(SessionId),
}

/// Reason for which a compaction was not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompactError {
    /// There is nothing before the part that is kept.
    #[error("nothing to compact (session too small)")]
    Nothing,
    /// The newest entry is a compaction.
    #[error("already compacted")]
    Already,
    /// One is active.
    #[error("a compaction is under way")]
    UnderWay,
    /// A run works.
    #[error("a run is under way")]
    Busy,
    /// No model was chosen.
    #[error("no model is selected")]
    NoModel,
}
