//! What can be asked of a run, and what comes back from the model.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    id::{PrincipalId, RunId, SessionId},
    ledger::BudgetAmount,
    message::StopReason,
    message_content::MessageContent,
    model_ref::ModelRef,
    tool::{Lane, RepeatMode, ToolEffect},
};

/// Whether a failure of a provider is worth another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderFailure {
    /// Whether it is.
    pub retryable: bool,
    /// Whether the context was too long.
    pub overflow: bool,
    /// How long the provider asks to wait.
    pub after: Option<Duration>,
}

/// A call that a model wants, looked up and checked by whoever heard the model.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedCall {
    /// The model's id of it.
    pub tool_call_id: Arc<str>,
    /// The tool's name as the model wrote it.
    pub tool: Arc<str>,
    /// The arguments, without the intent.
    pub arguments: Map<String, Value>,
    /// What the model says it wants with it.
    pub intent: Option<Arc<str>>,
    /// What rules are matched against and a person is shown.
    pub signature: String,
    /// The arguments that the signature names; empty means all.
    pub named: Vec<String>,
    /// How it lines up.
    pub lane: Lane,
    /// Whether it may be repeated.
    pub repeat: RepeatMode,
    /// Whether it changes anything.
    pub effect: ToolEffect,
    /// Who runs it.
    pub executor: crate::call::Executor,
    /// What it is beyond its tool's name, where somebody else than this process does it.
    pub class: Option<crate::policy::Class>,
    /// What of it a shell reads; none is what is known of a tool of our own with this name.
    pub shell: Option<crate::tool::ShellInput>,
    /// Why it cannot be run at all: an unknown tool, arguments that do not fit.
    pub problem: Option<Arc<str>>,
    /// What it would run from disk, as it is now.
    pub pins: Option<Box<crate::call::Pins>>,
    /// Where the path that it names leads, absolute, if links in it lead elsewhere than its text says.
    pub leads_to: Option<Arc<str>>,
}

/// What a model answered.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelAnswer {
    /// The message, as content.
    pub message: MessageContent,
    /// Why it ended.
    pub stop: StopReason,
    /// What the provider counted; 0 if it did not say.
    pub total_tokens: u64,
    /// The calls that it wants, in order.
    pub calls: Vec<ResolvedCall>,
    /// After a failure.
    pub failure: Option<ProviderFailure>,
    /// After a failure: the models that people may choose in the place of the one that failed.
    pub others: Vec<ModelRef>,
    /// What it took in tokens and money; absent where nobody knows, and then all counts that it might have taken.
    pub spent: Option<BudgetAmount>,
}

/// A command to a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// The model answered.
    Answered {
        /// Which run.
        run: RunId,
        /// The attempt that it was asked in.
        epoch: u32,
        /// What.
        answer: Box<ModelAnswer>,
    },
    /// Stops the run of a session. What it says and calls so far is kept.
    Abort {
        /// Whose run.
        session: SessionId,
    },
    /// Stops one run and no other: if it works, or waits for a compaction to begin. What waits for it to begin is taken back.
    Stop {
        /// Whose run.
        session: SessionId,
        /// Which.
        run: RunId,
    },
    /// Takes back the denials in a row after which a run asks for nothing more.
    Forgive {
        /// Which run.
        run: RunId,
        /// Who takes them back. Not the agent.
        by: PrincipalId,
    },
    /// Stops waiting for another attempt.
    AbortRetry {
        /// Whose run.
        session: SessionId,
    },
}
