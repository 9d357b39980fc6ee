//! What happened to a session.

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

/// What an entry of the tree is. Text lies in its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionEntryKind {
    /// A message of a person.
    User,
    /// A message of the system in a person's place.
    Developer,
    /// A message of the model.
    Assistant {
        /// Why it ended.
        stop: StopReason,
        /// What the provider counted for the request and its answer; 0 if it did not say.
        total_tokens: u64,
    },
    /// The result of a call.
    ToolResult {
        /// Whether its text may be replaced by a notice when the context grows too long.
        prunable: bool,
    },
    /// A command that a person ran.
    Bash {
        /// False if the model is not to see it.
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
    /// Something that a session file holds and that is no message.
    Other,
}

impl SessionEntryKind {
    /// Whether it is a whole message of the model: no failure, and not broken off.
    pub(crate) const fn is_answer(&self) -> bool {
        matches!(self, Self::Assistant { stop, .. } if !matches!(stop, StopReason::Error | StopReason::Aborted))
    }

    /// Whether the model may see it.
    pub const fn is_message(&self) -> bool {
        match self {
            Self::User
            | Self::Developer
            | Self::Assistant { .. }
            | Self::ToolResult { .. }
            | Self::BranchSummary
            | Self::Custom => true,
            Self::Bash { in_context } => *in_context,
            Self::Compaction { .. } | Self::ModelChange | Self::ThinkingChange | Self::Other => false,
        }
    }
}

/// Builds the content of a [`Kind::ModelChange`]: from there on the session asks this model.
pub fn model_change(provider: &str, id: &str) -> MessageContent {
    let content = serde_json::json!({ "model": format!("{provider}/{id}"), "role": "default" });
    MessageContent { content: content.to_string().into(), tokens: 0 }
}

/// Why a context is compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionCause {
    /// Somebody asked for it.
    Manual,
    /// It grew past its limit.
    Threshold,
    /// The provider said that it is too long.
    Overflow,
}

/// What goes on after a compaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterCompaction {
    /// Nothing.
    Rest,
    /// A run that is told to continue.
    Continue,
    /// A run that asks again what did not fit.
    Again,
    /// The prompt that waits in the queue of prompts.
    Prompt,
}

/// What something that was asked for under a key came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyedOutcome {
    /// The session was opened.
    Opened,
    /// This run began with it.
    Started(RunId),
    /// It was put into a queue.
    Queued,
    /// It waits for a compaction; then this run begins with it.
    Behind(RunId),
    /// This run is told of it.
    Steering(RunId),
}

/// A fact about one session. Content, where there is some, is the entry's or the queued message's JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The session exists.
    Opened {
        /// The folder that its tools work in.
        cwd: String,
        /// Its name for people.
        name: Option<String>,
        /// The session that it came from, in the words of whoever opened it.
        parent: Option<String>,
        /// The door that it was opened through; absent in what earlier versions wrote.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        door: Option<String>,
    },
    /// Its rules come from its host, and are those of this digest from now on.
    Hosted {
        /// Which grants for good it shares with other sessions, such as those of one agent directory.
        realm: String,
        /// Of all that the host handed over.
        rules: Digest,
    },
    /// It goes on in another log; this one has its past.
    LeftFor {
        /// Which, in the words of whoever moved it.
        home: String,
    },
    /// It went on from another log, with its conversation and without what was decided there.
    CameFrom {
        /// Which.
        home: String,
    },
    /// A setting changed.
    Set(SessionSetting),
    /// It was given a name.
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
        /// What it is.
        kind: SessionEntryKind,
        /// An estimate of its length.
        tokens: u64,
        /// When it was made, where that is not the record's own time (imports, queued messages).
        made_at: Option<Millis>,
        /// Where its content lies; absent means in this record.
        content_at: Option<Lsn>,
    },
    /// Entries of the session's file are gathered beside the tree, from none.
    Gathering,
    /// Entries of the tree that the file holds unchanged were gathered.
    Kept {
        /// In the order of the file.
        entries: Vec<EntryId>,
    },
    /// An entry of the file that the tree has not, or has otherwise, was gathered. Its content lies in this record.
    Gathered {
        /// Its name. Another entry of the tree may have it.
        id: EntryId,
        /// The entry before it.
        parent: Option<EntryId>,
        /// What it is.
        kind: SessionEntryKind,
        /// An estimate of its length.
        tokens: u64,
        /// When it was made, where that is known.
        made_at: Option<Millis>,
    },
    /// What was gathered is the tree from now on. The entries that were in it before stay in the log and nowhere else.
    Replaced {
        /// The new leaf.
        leaf: Option<EntryId>,
    },
    /// The leaf was moved: what comes next follows it.
    Moved {
        /// The new leaf; absent means before the first entry.
        leaf: Option<EntryId>,
        /// The number of messages of people and of the model on the way to it; absent in what earlier versions wrote and
        /// where the entries on the way are in the same decision.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        messages: Option<u64>,
    },
    /// A message waits in a queue.
    Queued {
        /// Which.
        queue: MessageQueue,
        /// An estimate of its length.
        tokens: u64,
        /// What it will be as an entry.
        kind: SessionEntryKind,
        /// What it says of its run, if it gets one of its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        marks: Option<Box<RunMetadata>>,
        /// Where the message lies that it stays behind also if it goes before others: what a summary is made for has as good as
        /// begun.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        behind: Option<Lsn>,
    },
    /// The oldest message of a queue left it. Its entry stands in the next record.
    Dequeued {
        /// Which.
        queue: MessageQueue,
    },
    /// All queues were emptied.
    Cleared,
    /// The conversation begins anew: what was said before stays in the log and nowhere else. The content, where there is one,
    /// says what is to be done with that.
    Renewed,
    /// What was owed when the conversation began anew is done.
    Remembered {
        /// The record that says what.
        renewed: Lsn,
    },
    /// What was said before an entry is no part of the conversation any more.
    Trimmed {
        /// The oldest entry that stays.
        first_kept: EntryId,
    },
    /// An entry is no longer shown to the model.
    Dropped {
        /// Which.
        entry: EntryId,
    },
    /// Old results are shown to the model as a notice from now on.
    Pruned {
        /// Which.
        entries: Vec<EntryId>,
    },
    /// A compaction began.
    CompactionStarted {
        /// Counts compactions of this session.
        epoch: u32,
        /// Why.
        reason: CompactionCause,
        /// The oldest entry that is kept.
        first_kept: EntryId,
        /// The first entry of a turn that the cut goes through.
        split_from: Option<EntryId>,
        /// Tokens of the context before.
        tokens_before: u64,
        /// What goes on afterwards.
        then: AfterCompaction,
        /// The run that the prompt which waits begins, where one waits; absent in what earlier versions wrote.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<RunId>,
        /// What was noted of the run that asks again afterwards, where one does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        marks: Option<Box<RunMetadata>>,
    },
    /// A compaction is to stop.
    CompactionAborting,
    /// A compaction ended. If it succeeded, its entry stands in the record before.
    CompactionEnded {
        /// Which.
        epoch: u32,
        /// Whether there is a summary.
        ok: bool,
        /// Whether somebody stopped it.
        aborted: bool,
        /// What goes on now.
        then: AfterCompaction,
        /// What it took of a budget, where that is known; else all that it might have taken.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        spent: Option<BudgetAmount>,
    },
    /// The outcome of a compaction came that nobody waits for any more. It is kept as content and changes nothing.
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
    /// A door that numbers what it tells had come to a number, and nothing worked. It changes nothing: it says to what clients
    /// ask for who saw that number last.
    #[serde(rename = "told")]
    SequenceRecorded {
        /// The number.
        number: u64,
        /// Everything up to this record was told; absent if that is everything before this one.
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
        /// Tasks that are not done.
        open: u32,
    },
    /// The model was reminded of open tasks.
    Reminded {
        /// How often since a person last spoke.
        attempt: u32,
    },
    /// What stands in the records before was asked for under a key: asked for again, it has happened already.
    Keyed {
        /// The key.
        name: String,
        /// Of what was asked for.
        asks: Digest,
        /// What it came to.
        came_to: KeyedOutcome,
    },
}
