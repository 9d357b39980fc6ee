//! Events of a session.

use serde::{Deserialize, Serialize};

use super::{command::MessageContent, settings::SessionSetting, state::MessageQueue};
use crate::{
    digest::Digest,
    id::{EntryId, Lsn, RunId},
    ledger::BudgetAmount,
    message::StopReason,
    run::RunMetadata,
    time::Millis,
};

/// Kind of an entry of the tree. The text is in its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionEntryKind {
    /// A message of a person.
    User,
    /// A message of the system in a person's place.
    Developer,
    /// A message of the model.
    Assistant {
        /// Reason for which it ended.
        stop: StopReason,
        /// Tokens that the provider counted for the request and its answer; 0 if it did not report them.
        total_tokens: u64,
    },
    /// The result of a call.
    ToolResult {
        /// True if its text may be replaced by a notice when the context grows too long.
        prunable: bool,
    },
    /// A command that a person ran.
    Bash {
        /// False if the model does not see it.
        in_context: bool,
    },
    /// A summary of everything before `first_kept`.
    Compaction {
        /// The oldest entry that is still shown as it is.
        first_kept: EntryId,
        /// Tokens of the context before.
        tokens_before: u64,
    },
    /// A summary of a branch that was left.
    BranchSummary,
    /// A message of an extension, or files that a message mentioned.
    Custom,
    /// The model changed.
    ModelChange,
    /// The thinking level changed.
    ThinkingChange,
    /// The context is empty again: the model is shown nothing of what came before it.
    ContextReset,
    /// An entry of a session file that is no message.
    Other,
}

impl SessionEntryKind {
    /// Reports whether it is a whole message of the model: no failure, and not interrupted.
    pub(crate) const fn is_answer(&self) -> bool {
        matches!(self, Self::Assistant { stop, .. } if !matches!(stop, StopReason::Error | StopReason::Aborted))
    }

    /// Reports whether the model may see it.
    pub const fn is_message(&self) -> bool {
        match self {
            Self::User
            | Self::Developer
            | Self::Assistant { .. }
            | Self::ToolResult { .. }
            | Self::BranchSummary
            | Self::Custom => true,
            Self::Bash { in_context } => *in_context,
            Self::Compaction { .. } | Self::ModelChange | Self::ThinkingChange | Self::ContextReset | Self::Other => {
                false
            }
        }
    }
}

/// Builds the content of a [`SessionEntryKind::ModelChange`]: from there on the session uses this model.
pub fn model_change(provider: &str, id: &str) -> MessageContent {
    let content = serde_json::json!({ "model": format!("{provider}/{id}"), "role": "default" });
    MessageContent { content: content.to_string().into(), tokens: 0 }
}

/// Cause of a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionCause {
    /// A person requested it.
    Manual,
    /// The context grew past its limit.
    Threshold,
    /// The provider reported that it is too long.
    Overflow,
}

/// Work that continues after a compaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterCompaction {
    /// Nothing.
    Rest,
    /// A run that continues its work.
    Continue,
    /// A run that repeats the request that was too long.
    Again,
    /// The prompt that waits in the queue of prompts.
    Prompt,
}

/// Outcome of a command with an idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyedOutcome {
    /// The session was opened.
    Opened,
    /// A run began with it.
    Started(RunId),
    /// The message was put into a queue.
    Queued,
    /// The message waits for a compaction; then this run begins with it.
    Behind(RunId),
    /// A run received it.
    Steering(RunId),
}

/// A fact about one session. Content, if there is any, is the entry's or the queued message's JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The session exists.
    Opened {
        /// The folder that its tools work in.
        cwd: String,
        /// Its display name.
        name: Option<String>,
        /// The session that it came from, in the form of the client that opened it.
        parent: Option<String>,
        /// The adapter that it was opened through; absent in records of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        door: Option<String>,
    },
    /// Its rules come from its host, and are those of this digest from now on.
    Hosted {
        /// Realm of permanent grants that it shares with other sessions, such as those of one agent directory.
        realm: String,
        /// Digest of everything that the host handed over.
        rules: Digest,
    },
    /// The session continues in another log; this one has its past.
    LeftFor {
        /// The other log, in the form of the component that moved it.
        home: String,
    },
    /// The session continues from another log, with its conversation and without the decisions there.
    CameFrom {
        /// The other log.
        home: String,
    },
    /// A setting changed.
    Set(SessionSetting),
    /// The session was named.
    Named {
        /// Trimmed, not empty.
        name: String,
    },
    /// An entry was put into the tree and is its leaf now.
    Entry {
        /// Its name.
        id: EntryId,
        /// The entry before it.
        parent: Option<EntryId>,
        /// Its kind.
        kind: SessionEntryKind,
        /// An estimate of its length.
        tokens: u64,
        /// Time of its creation, if that is not the record's own time (imports, queued messages).
        made_at: Option<Millis>,
        /// Position of its content; absent means in this record.
        content_at: Option<Lsn>,
    },
    /// Staging of entries of the session's file begins, next to the tree, with none.
    Gathering,
    /// Entries that the file holds unchanged were staged.
    Kept {
        /// Entries in the order of the file.
        entries: Vec<EntryId>,
    },
    /// An entry of the file that the tree does not have, or has with other content, was staged. Its content is in this record.
    Gathered {
        /// Its name. Another entry of the tree may have it.
        id: EntryId,
        /// The entry before it.
        parent: Option<EntryId>,
        /// Its kind.
        kind: SessionEntryKind,
        /// An estimate of its length.
        tokens: u64,
        /// Time of its creation, if known.
        made_at: Option<Millis>,
    },
    /// The staged entries are the tree from now on. The entries that were in it before stay only in the log.
    Replaced {
        /// The new leaf.
        leaf: Option<EntryId>,
    },
    /// The leaf was moved: the next entry follows it.
    Moved {
        /// The new leaf; absent means before the first entry.
        leaf: Option<EntryId>,
        /// The number of messages of people and of the model on the way to it; absent in records of earlier versions and
        /// if the entries on the way are in the same decision.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        messages: Option<u64>,
    },
    /// A message waits in a queue.
    Queued {
        /// The queue.
        queue: MessageQueue,
        /// An estimate of its length.
        tokens: u64,
        /// Its kind as an entry.
        kind: SessionEntryKind,
        /// Metadata of its run, if it gets one of its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        marks: Option<Box<RunMetadata>>,
        /// Position of the message after which it stays also if it precedes others: the work for which a summary is made counts as
        /// begun.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        behind: Option<Lsn>,
    },
    /// The oldest message of a queue left it. Its entry is in the next record.
    Dequeued {
        /// The queue.
        queue: MessageQueue,
    },
    /// All queues were emptied.
    Cleared,
    /// The conversation restarts: earlier messages stay only in the log. The content, if there is any,
    /// is the work to do with them.
    Renewed,
    /// The work owed after a restart of the conversation is done.
    Remembered {
        /// The record of that work.
        renewed: Lsn,
    },
    /// The messages before an entry are no part of the conversation any more.
    Trimmed {
        /// The oldest entry that stays.
        first_kept: EntryId,
    },
    /// An entry is no longer shown to the model.
    Dropped {
        /// The entry.
        entry: EntryId,
    },
    /// Old results are shown to the model as a notice from now on.
    Pruned {
        /// The entries.
        entries: Vec<EntryId>,
    },
    /// A compaction began.
    CompactionStarted {
        /// Number of the compaction in this session.
        epoch: u32,
        /// Cause.
        reason: CompactionCause,
        /// The oldest entry that is kept.
        first_kept: EntryId,
        /// The first entry of a turn that the cut goes through.
        split_from: Option<EntryId>,
        /// Tokens of the context before.
        tokens_before: u64,
        /// Work that continues afterwards.
        then: AfterCompaction,
        /// The run that the waiting prompt begins, if one waits; absent in records of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<RunId>,
        /// Metadata of the run that repeats its request afterwards, if one does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        marks: Option<Box<RunMetadata>>,
    },
    /// A compaction is to stop.
    CompactionAborting,
    /// A compaction ended. If it succeeded, its entry is in the previous record.
    CompactionEnded {
        /// Number of the compaction.
        epoch: u32,
        /// True if there is a summary.
        ok: bool,
        /// True if it was stopped.
        aborted: bool,
        /// Work that continues now.
        then: AfterCompaction,
        /// Its use of a budget, if known; else its whole reserve.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        spent: Option<BudgetAmount>,
    },
    /// The outcome of a compaction came that the session no longer waits for. It is kept as content and changes nothing.
    CompactionDropped {
        /// The compaction that it belongs to.
        epoch: u32,
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
    /// An adapter with numbered events had reached a number, and nothing worked. It changes nothing: it serves requests of clients
    /// that saw that number last.
    #[serde(rename = "told")]
    SequenceRecorded {
        /// The number.
        number: u64,
        /// Position of the last sent record; absent if that is everything before this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        upto: Option<Lsn>,
    },
    /// The session works in another folder from now on.
    Relocated {
        /// Absolute.
        cwd: String,
    },
    /// The session's shell went to another folder.
    Folder {
        /// Absolute.
        path: String,
    },
    /// The model's list of tasks changed.
    Tasks {
        /// Number of tasks that are not done.
        open: u32,
    },
    /// The model was reminded of open tasks.
    Reminded {
        /// Number of reminders since the last message of a person.
        attempt: u32,
    },
    /// The previous records are the outcome of a command with a key: a repetition is not executed.
    Keyed {
        /// The key.
        name: String,
        /// Digest of the command.
        asks: Digest,
        /// Its outcome.
        came_to: KeyedOutcome,
    },
}
