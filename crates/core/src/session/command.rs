//! What can be asked of a session, and why it may be refused.

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

/// A name under which something happens once, however often it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The name. Whoever asks is part of it, so that nobody has another's answers.
    pub name: String,
    /// Of what is asked for: the same name for something else is a mistake.
    pub asks: Digest,
}

/// What becomes of a prompt while a run works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenBusy {
    /// It is refused.
    Refuse,
    /// It steers the run.
    Steer,
    /// It follows the run.
    FollowUp,
}

/// An entry that comes from elsewhere. It never counts as a decision and no call in it is ever run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedEntry {
    /// Its name.
    pub id: EntryId,
    /// The entry before it.
    pub parent: Option<EntryId>,
    /// What it is.
    pub kind: SessionEntryKind,
    /// Its content.
    pub message: MessageContent,
    /// When it was made.
    pub made_at: Option<Millis>,
}

/// An entry of a session's file, as the log stands to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StagedEntry {
    /// The tree has it just so.
    Known(EntryId),
    /// The tree has it not, or has something else under its name.
    Foreign(ImportedEntry),
}

/// Which part of a file is gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilePart {
    /// The first: what was gathered before, and never used, is forgotten.
    First,
    /// What follows the part before.
    Next,
}

/// How a compaction ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompactionOutcome {
    /// There is a summary.
    Done {
        /// The content of its entry.
        summary: MessageContent,
        /// What asking for it took, where that is known.
        spent: Option<BudgetAmount>,
    },
    /// It failed.
    Failed {
        /// Why, for people.
        message: Arc<str>,
    },
    /// It was stopped.
    Aborted,
}

/// A command to one session.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Makes it. Refused if it is there.
    Open {
        /// The folder that its tools work in.
        cwd: String,
        /// Its name for people.
        name: Option<String>,
        /// The session that it came from.
        parent: Option<String>,
        /// The door that it is opened through, by which rules may tell it.
        door: Option<String>,
        /// What is set from the start.
        settings: Box<Settings>,
    },
    /// Puts entries from elsewhere into the tree and makes `leaf` the leaf.
    Import {
        /// In order, parents first.
        entries: Vec<ImportedEntry>,
        /// The entry that the next one follows.
        leaf: Option<EntryId>,
    },
    /// Gathers entries of the session's file beside the tree, which stays as it is. A file that is too large for one batch
    /// comes in parts.
    Gather {
        /// Which part it is.
        part: FilePart,
        /// In the order of the file.
        entries: Vec<StagedEntry>,
    },
    /// Puts what was gathered in the place of the tree. A run whose message is no longer on the way to `leaf` ends, and what
    /// it waits for is withdrawn.
    Replace {
        /// The entry that the next one follows.
        leaf: Option<EntryId>,
    },
    /// Starts a run with a message, or does with it what `when_busy` says.
    Prompt {
        /// The message.
        message: MessageContent,
        /// Messages right behind it, such as files that it mentions.
        with: Vec<(SessionEntryKind, MessageContent)>,
        /// What becomes of it while a run works.
        when_busy: WhenBusy,
    },
    /// Starts a run with the last message of a conversation: nothing follows it by itself. Refused while a run works.
    HandOff {
        /// The message.
        message: MessageContent,
    },
    /// Starts a run of its own with a message: at once, or when what works and what was said before it is done.
    Say {
        /// The message.
        message: MessageContent,
        /// What it says of its run.
        marks: Box<RunMetadata>,
    },
    /// Begins the conversation anew. Refused while something works in it; what is queued goes, and so do grants for this
    /// session.
    Renew {
        /// On whose word.
        by: PrincipalId,
        /// What is to be done with what was said, in words of whoever does it; it stands beside the fact. Nothing if absent.
        owed: Option<Arc<str>>,
    },
    /// What was owed when the conversation began anew is done.
    Remembered {
        /// The record that says what.
        renewed: Lsn,
    },
    /// Takes what was said before an entry out of the conversation.
    Trim {
        /// The oldest entry that stays. Nothing that a run works on is before it.
        first_kept: EntryId,
    },
    /// Puts a message into a queue. It starts nothing.
    Queue {
        /// Which: steering or follow-ups.
        queue: MessageQueue,
        /// The message.
        message: MessageContent,
    },
    /// Tells the run that works, or waits for a compaction to begin, something on its way. Where none does nothing happens.
    Steer {
        /// The message.
        message: MessageContent,
    },
    /// Does what it holds, unless the session has done it under this key: then it answers as it did the first time. What
    /// was refused was not done.
    Once {
        /// The key.
        key: IdempotencyKey,
        /// What is to be done: opening, or something to say.
        command: Box<Self>,
    },
    /// Empties all queues.
    Clear,
    /// Changes a setting. An entry is put into the tree where `entry` has its content.
    Set {
        /// The change.
        setting: SessionSetting,
        /// The entry that tells of it.
        entry: Option<(SessionEntryKind, MessageContent)>,
    },
    /// A person puts another list of tasks in the place of the one that is there.
    SetTasks {
        /// The content of the entry that keeps the list.
        entry: MessageContent,
        /// How many of its tasks are not done.
        open: u32,
    },
    /// Says how many tasks are open on a list that came with what was imported.
    CountTasks {
        /// How many are not done.
        open: u32,
    },
    /// Gives it a name.
    Name {
        /// Not empty after trimming.
        name: String,
    },
    /// Has the session work in another folder. Refused while something works in it.
    Relocate {
        /// Absolute.
        cwd: String,
    },
    /// The session goes on in another log. Refused while something works in it.
    LeaveFor {
        /// Which, as it is told to whoever looks for the session here.
        home: String,
    },
    /// The session went on from another log.
    ComeFrom {
        /// Which.
        home: String,
    },
    /// Moves the leaf.
    Move {
        /// The new leaf; absent means before the first entry.
        leaf: Option<EntryId>,
    },
    /// Summarises what is old. A run that works is stopped first by whoever asks.
    Compact {
        /// What the summary should pay attention to.
        instructions: Option<Arc<str>>,
    },
    /// Stops the compaction that is under way.
    AbortCompaction,
    /// A compaction ended.
    Compacted {
        /// Which.
        epoch: u32,
        /// How.
        outcome: CompactionOutcome,
    },
    /// A door that numbers what it tells has come to `number`.
    RecordSequence {
        /// The number.
        number: u64,
        /// Everything up to this record was told; absent if that is everything before now.
        upto: Option<Lsn>,
    },
    /// The session's file was brought up to the log.
    FileWritten {
        /// Its path.
        path: String,
        /// Its length in bytes.
        length: u64,
        /// SHA-256 of its bytes, in hex.
        digest: String,
    },
}

/// Why a prompt was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PromptError {
    /// A run works and nothing was said of queueing.
    #[error("a run is under way in {0}")]
    Busy(SessionId),
    /// No model was chosen.
    #[error("no model is selected in {0}")]
    NoModel(SessionId),
}

/// Why a compaction was not begun.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompactError {
    /// There is nothing before the part that is kept.
    #[error("nothing to compact (session too small)")]
    Nothing,
    /// The newest entry is a compaction.
    #[error("already compacted")]
    Already,
    /// One is under way.
    #[error("a compaction is under way")]
    UnderWay,
    /// A run works.
    #[error("a run is under way")]
    Busy,
    /// No model was chosen.
    #[error("no model is selected")]
    NoModel,
}
