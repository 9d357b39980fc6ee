//! Commands to a run, and the answers of the model.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    id::{PrincipalId, RunId, SessionId},
    ledger::BudgetAmount,
    message::StopReason,
    message_content::MessageContent,
    model_ref::ModelRef,
    tool::{CallConcurrency, RepeatMode, ToolEffect},
};

/// Consequences of a provider's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderFailure {
    /// True if another attempt may succeed.
    pub retryable: bool,
    /// True if the context was too long.
    pub overflow: bool,
    /// Time that the provider asks to wait.
    pub after: Option<Duration>,
}

/// A call that a model requests, resolved and validated by the model's client.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedCall {
    /// The model's id of it.
    pub tool_call_id: Arc<str>,
    /// The tool's name as the model wrote it.
    pub tool: Arc<str>,
    /// The arguments, without the intent.
    pub arguments: Map<String, Value>,
    /// Intent that the model gave.
    pub intent: Option<Arc<str>>,
    /// Signature that rules match and an approver is shown.
    pub signature: String,
    /// The arguments that the signature names; empty means all.
    pub named: Vec<String>,
    /// Concurrency with other calls.
    pub concurrency: CallConcurrency,
    /// Repeat mode: whether it may be repeated.
    pub repeat: RepeatMode,
    /// Effect of the tool: whether it changes anything.
    pub effect: ToolEffect,
    /// The executor that runs it.
    pub executor: crate::call::Executor,
    /// Its class beyond its tool's name, if another program than this process does it.
    pub class: Option<crate::policy::Class>,
    /// The part of it that a shell reads; none is the known input of an own tool with this name.
    pub shell: Option<crate::tool::ShellInput>,
    /// Reason for which it cannot be run at all: an unknown tool, arguments that do not fit.
    pub problem: Option<Arc<str>>,
    /// Files that it would run from disk, as they are now.
    pub pins: Option<Box<crate::call::Pins>>,
    /// Absolute target of the path that it names, if links in it lead elsewhere than its text.
    pub leads_to: Option<Arc<str>>,
}

/// Answer of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelAnswer {
    /// The message, as content.
    pub message: MessageContent,
    /// Reason for which it ended.
    pub stop: StopReason,
    /// Tokens that the provider counted; 0 if it did not report them.
    pub total_tokens: u64,
    /// The calls that it requests, in order.
    pub calls: Vec<ResolvedCall>,
    /// After a failure.
    pub failure: Option<ProviderFailure>,
    /// After a failure: the models that people may choose to replace the one that failed.
    pub others: Vec<ModelRef>,
    /// Its use of tokens and money; absent if unknown, and then its whole reserve counts.
    pub spent: Option<BudgetAmount>,
}

/// A command to a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// The model answered.
    Answered {
        /// The run.
        run: RunId,
        /// The attempt of the request.
        epoch: u32,
        /// The answer.
        answer: Box<ModelAnswer>,
    },
    /// Stops the run of a session. Its messages and calls so far are kept.
    Abort {
        /// The session of the run.
        session: SessionId,
    },
    /// Stops one run and no other: if it works, or waits for a compaction to begin. Messages for its begin are taken back.
    Stop {
        /// The session of the run.
        session: SessionId,
        /// The run.
        run: RunId,
    },
    /// Revokes the denials in a row after which a run may request nothing more.
    Forgive {
        /// The run.
        run: RunId,
        /// The person who revokes them. Not the agent.
        by: PrincipalId,
    },
    /// Stops waiting for another attempt.
    AbortRetry {
        /// The session of the run.
        session: SessionId,
    },
}
