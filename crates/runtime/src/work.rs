//! Executes owed work: requests to models, calls, summaries of contexts. Each result is a command.

mod call;
mod compact;
mod conversation;
mod live_questions;
mod peer;
mod reconciler;
mod resolve_calls;
mod run_environment;
mod silent_retries;
mod spent;
mod summary;
mod turn;
mod wait;

pub use compact::note_down;
pub(crate) use reconciler::{CloseScope, Reconciler, ReconcilerOptions};
pub use run_environment::{
    DueFiring, EnvironmentFor, MemoryRequest, ResolvedModel, RunEnvironment, ServiceOutcome, model_ref,
};
pub use silent_retries::SilentRetries;
pub use summary::{NoSummaries, SummaryPrompts, SummaryRequests};

use countersign_core::{
    call::{CallProgress, Command as CallCommand},
    engine::Command,
    message::StopReason,
    run::{Command as RunCommand, ProviderFailure},
    schedule::{Command as JobCommand, FiringOutcome, FiringResult, FiringStatus},
    session::{Command as SessionCommand, CompactionOutcome, Settings},
};

/// Returns the command that reports that the work of `command` broke off, if it is one that brings a result.
pub(crate) fn failure_command(command: &Command) -> Option<Command> {
    match command {
        Command::Run(RunCommand::Answered { run, epoch, .. }) => {
            let failure = ProviderFailure { retryable: false, overflow: false, after: None };
            let message = "internal error: the answer could not be recorded";
            let answer = conversation::failed_answer(&Settings::default(), message, failure, StopReason::Error);
            Some(Command::Run(RunCommand::Answered { run: *run, epoch: *epoch, answer: Box::new(answer) }))
        }
        Command::Call(CallCommand::Ended { call, .. }) => {
            Some(Command::Call(CallCommand::Ended { call: *call, progress: CallProgress::Broke }))
        }
        Command::Session(session, SessionCommand::Compacted { epoch, .. }) => {
            let outcome =
                CompactionOutcome::Failed { message: "internal error: the summary could not be recorded".into() };
            Some(Command::Session(session.clone(), SessionCommand::Compacted { epoch: *epoch, outcome }))
        }
        Command::Schedule(JobCommand::Say { firing, .. } | JobCommand::End { firing, .. }) => {
            let error = "internal error: what came of it could not be recorded".to_owned();
            let outcome = FiringOutcome { error: Some(error), summary: None };
            let ending = FiringResult { status: FiringStatus::Failed, reported: false, outcome };
            Some(Command::Schedule(JobCommand::End { firing: firing.clone(), ending }))
        }
        _ => None,
    }
}
