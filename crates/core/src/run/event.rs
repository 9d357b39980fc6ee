//! What happened to a run.

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

/// What a run began with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunTrigger {
    /// Somebody's message.
    Prompt,
    /// The continuation after a compaction.
    Continuation,
    /// The request that did not fit, once more after a compaction.
    Overflow,
    /// A reminder of open tasks.
    Reminder,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// The model had no more to do.
    Completed,
    /// Somebody stopped it.
    Aborted,
    /// Somebody stopped the retries.
    RetryCancelled,
    /// The provider failed for good.
    Failed,
    /// The context was too long for the model.
    Overflowed,
    /// The process ended while the model answered or calls ran.
    Interrupted,
}

/// A fact about one run. None of them has content: what is said stands in the session's entries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// It began.
    Started {
        /// Which.
        run: RunId,
        /// With what.
        trigger: RunTrigger,
    },
    /// A door noted something of it, in place of what it noted before.
    Marked {
        /// Which run.
        run: RunId,
        /// What.
        marks: Box<RunMetadata>,
    },
    /// A turn began: what is said next is part of it.
    TurnOpened {
        /// Which run.
        run: RunId,
        /// Counts from 1.
        turn: u32,
    },
    /// The model is asked.
    #[serde(rename = "asked")]
    ModelRequested {
        /// Which run.
        run: RunId,
        /// The attempt that a result must name.
        epoch: u32,
        /// The process that asks.
        boot: u32,
        /// The model.
        model: ModelRef,
        /// How much it is to think.
        thinking: Option<String>,
        /// The last entry that it is shown.
        leaf: Option<EntryId>,
        /// What the request may take of its session's budget, where there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reserved: Option<BudgetAmount>,
        /// How many tokens it may give out, where the budget leaves fewer than the model can.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cap: Option<u64>,
    },
    /// The model answered, failed or was stopped. Its message is the entry in the record before.
    Answered {
        /// Which run.
        run: RunId,
        /// The attempt.
        epoch: u32,
        /// The message's entry.
        entry: EntryId,
        /// Why it ended.
        stop: StopReason,
        /// How many calls it wants. They follow in the next records.
        calls: u32,
        /// After a failure: whether it is worth another attempt, and since when.
        failure: Option<super::command::ProviderFailure>,
        /// After a failure: the models that people may choose in the place of the one that failed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        others: Vec<ModelRef>,
        /// What it took of its session's budget; absent where there is none, or nobody knows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        spent: Option<BudgetAmount>,
    },
    /// All calls of the turn have ended.
    TurnClosed {
        /// Which run.
        run: RunId,
    },
    /// The provider failed; it is asked again later.
    BackedOff {
        /// Which run.
        run: RunId,
        /// Counts from 1.
        attempt: u32,
        /// How many there are.
        max: u32,
        /// How long it waits.
        delay: Duration,
        /// When it goes on.
        until: Millis,
        /// The question to people about a long wait, which opens in the same batch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gate: Option<GateId>,
    },
    /// It goes on after a wait.
    Resumed {
        /// Which run.
        run: RunId,
    },
    /// The process ended while the model was asked, or the session file took away what it was asked about; what it said
    /// is not known.
    Interrupted {
        /// Which run.
        run: RunId,
    },
    /// A person denied one of its calls.
    Denied {
        /// Which run.
        run: RunId,
        /// How many in a row.
        in_a_row: u32,
        /// Who; absent in what earlier versions wrote.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<PrincipalId>,
    },
    /// A person who had denied its calls allowed one, or somebody took denials back.
    DenialsForgiven {
        /// Which run.
        run: RunId,
        /// Whose denials count no longer; absent means everybody's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<PrincipalId>,
        /// Who took them back; absent in what earlier versions wrote.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<PrincipalId>,
    },
    /// It is to stop as soon as what is in flight has ended.
    Aborting {
        /// Which run.
        run: RunId,
    },
    /// A result came that nobody waits for any more.
    ResultDropped {
        /// Which run.
        run: RunId,
        /// The attempt that it belongs to.
        epoch: u32,
    },
    /// It is over.
    Ended {
        /// Which run.
        run: RunId,
        /// How.
        end: RunOutcome,
        /// How many retries it had behind it.
        attempts: u32,
    },
}

impl Event {
    /// The run that it is about.
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
