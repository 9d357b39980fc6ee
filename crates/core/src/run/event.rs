//! Events of a run.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::run_metadata::RunMetadata;
use crate::{
    id::{EntryId, GateId, PrincipalId, RunId},
    ledger::BudgetAmount,
    message::StopReason,
    model_ref::ModelRef,
    time::Millis,
};

/// Trigger of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunTrigger {
    /// A message.
    Prompt,
    /// The continuation after a compaction.
    Continuation,
    /// A request that was too long, repeated after a compaction.
    Overflow,
    /// A reminder of open tasks.
    Reminder,
}

/// Outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// The model had no more to do.
    Completed,
    /// Stopped.
    Aborted,
    /// The retries were stopped.
    RetryCancelled,
    /// The provider failed permanently.
    Failed,
    /// The context was too long for the model.
    Overflowed,
    /// The process ended while the model answered or calls ran.
    Interrupted,
}

/// A fact about one run. None of them has content: messages are in the session's entries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Start of the run.
    Started {
        /// The run.
        run: RunId,
        /// The trigger.
        trigger: RunTrigger,
    },
    /// An adapter recorded metadata of it, replacing earlier metadata.
    Marked {
        /// The run.
        run: RunId,
        /// The metadata.
        marks: Box<RunMetadata>,
    },
    /// A turn began: the next messages are part of it.
    TurnOpened {
        /// The run.
        run: RunId,
        /// Number of the turn, from 1.
        turn: u32,
    },
    /// A request was sent to the model.
    #[serde(rename = "asked")]
    ModelRequested {
        /// The run.
        run: RunId,
        /// The attempt that a result must name.
        epoch: u32,
        /// The process that sends it.
        boot: u32,
        /// The model.
        model: ModelRef,
        /// Thinking level.
        thinking: Option<String>,
        /// The last entry that the model is shown.
        leaf: Option<EntryId>,
        /// Amount that the request may use of its session's budget, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reserved: Option<BudgetAmount>,
        /// Maximum number of output tokens, if the budget leaves fewer than the model can write.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cap: Option<u64>,
    },
    /// The model answered, failed or was stopped. Its message is the entry in the previous record.
    Answered {
        /// The run.
        run: RunId,
        /// The attempt.
        epoch: u32,
        /// The message's entry.
        entry: EntryId,
        /// Reason for which it ended.
        stop: StopReason,
        /// Number of calls that it requests. They follow in the next records.
        calls: u32,
        /// After a failure: its consequences.
        failure: Option<super::command::ProviderFailure>,
        /// After a failure: the models that people may choose to replace the one that failed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        others: Vec<ModelRef>,
        /// Its use of its session's budget; absent if there is none, or the use is unknown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        spent: Option<BudgetAmount>,
    },
    /// All calls of the turn have ended.
    TurnClosed {
        /// The run.
        run: RunId,
    },
    /// The provider failed; the request is repeated later.
    BackedOff {
        /// The run.
        run: RunId,
        /// Number of the attempt, from 1.
        attempt: u32,
        /// Maximum number of attempts.
        max: u32,
        /// Duration of the wait.
        delay: Duration,
        /// Time at which it continues.
        until: Millis,
        /// The question to approvers about a long wait, which opens in the same batch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gate: Option<GateId>,
    },
    /// Continuation after a wait.
    Resumed {
        /// The run.
        run: RunId,
    },
    /// The process ended during a model request, or the session file removed the message of the request; the answer
    /// is not known.
    Interrupted {
        /// The run.
        run: RunId,
    },
    /// A person denied one of its calls.
    Denied {
        /// The run.
        run: RunId,
        /// Number of denials in a row.
        in_a_row: u32,
        /// The person; absent in records of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<PrincipalId>,
    },
    /// A person who had denied its calls allowed one, or denials were revoked.
    DenialsForgiven {
        /// The run.
        run: RunId,
        /// The person whose denials count no longer; absent means all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<PrincipalId>,
        /// The person who revoked them; absent in records of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<PrincipalId>,
    },
    /// Request to stop as soon as the work in flight has ended.
    Aborting {
        /// The run.
        run: RunId,
    },
    /// A result came that the run no longer waits for.
    ResultDropped {
        /// The run.
        run: RunId,
        /// The attempt that it belongs to.
        epoch: u32,
    },
    /// End of the run.
    Ended {
        /// The run.
        run: RunId,
        /// The outcome.
        end: RunOutcome,
        /// Number of retries that it made.
        attempts: u32,
    },
}

impl Event {
    /// Returns the run that it is about.
    pub const fn run(&self) -> RunId {
        match self {
            Self::Started { run, .. }
            | Self::Marked { run, .. }
            | Self::TurnOpened { run, .. }
            | Self::ModelRequested { run, .. }
            | Self::Answered { run, .. }
            | Self::TurnClosed { run }
            | Self::BackedOff { run, .. }
            | Self::Resumed { run }
            | Self::Interrupted { run }
            | Self::Denied { run, .. }
            | Self::DenialsForgiven { run, .. }
            | Self::Aborting { run }
            | Self::ResultDropped { run, .. }
            | Self::Ended { run, .. } => *run,
        }
    }
}
