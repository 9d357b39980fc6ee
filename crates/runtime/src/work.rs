//! What is owed is worked off here: models are asked, calls are run, contexts are summarised. What comes back is a command.

mod call;
mod compact;
mod conversation;
mod desk;
mod host;
mod turn;

pub(crate) use desk::Desk;
pub use host::{Chosen, Host, Summaries};

use countersign_core::{
    call::{Command as CallCommand, Progress},
    engine::Command,
    message::StopReason,
    run::{Command as RunCommand, Failure},
    session::{Command as SessionCommand, Compacted, Gathered, Settings},
};

/// The command that says that the work behind `command` broke off, if it is one that brings a result.
pub(crate) fn broken(command: &Command) -> Option<Command> {
    match command {
        Command::Run(RunCommand::Answered { run, epoch, .. }) => {
            let failure = Failure { retryable: false, overflow: false, after: None };
            let message = "internal error: the answer could not be recorded";
            let answer = conversation::failed_answer(&Settings::default(), message, failure, StopReason::Error);
            Some(Command::Run(RunCommand::Answered { run: *run, epoch: *epoch, answer: Box::new(answer) }))
        }
        Command::Call(CallCommand::Ended { call, .. }) => {
            Some(Command::Call(CallCommand::Ended { call: *call, progress: Progress::Broke }))
        }
        Command::Session(session, SessionCommand::Compacted { epoch, .. }) => {
            let outcome = Compacted::Failed { message: "internal error: the summary could not be recorded".into() };
            Some(Command::Session(session.clone(), SessionCommand::Compacted { epoch: *epoch, outcome }))
        }
        _ => None,
    }
}

/// About how many bytes a command brings, so that a batch stays within its size.
pub(crate) fn size_of(command: &Command) -> usize {
    let content = match command {
        Command::Run(RunCommand::Answered { answer, .. }) => answer.said.content.len(),
        Command::Call(CallCommand::Ended { progress: Progress::Returned(returned), .. }) => returned.said.content.len(),
        Command::Session(_, SessionCommand::Import { entries, .. }) => {
            entries.iter().map(|entry| entry.said.content.len()).sum()
        }
        Command::Session(_, SessionCommand::Gather { entries, .. }) => entries
            .iter()
            .map(|entry| match entry {
                Gathered::Known(id) => id.as_str().len(),
                Gathered::Foreign(entry) => entry.said.content.len(),
            })
            .sum(),
        Command::Session(_, SessionCommand::Prompt { said, .. } | SessionCommand::Queue { said, .. }) => {
            said.content.len()
        }
        _ => 0,
    };
    256 + content
}
