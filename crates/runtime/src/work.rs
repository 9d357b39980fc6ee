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
    run::Command as RunCommand,
    session::Command as SessionCommand,
};

/// About how many bytes a command brings, so that a batch stays within its size.
pub(crate) fn size_of(command: &Command) -> usize {
    let content = match command {
        Command::Run(RunCommand::Answered { answer, .. }) => answer.said.content.len(),
        Command::Call(CallCommand::Ended { progress: Progress::Returned(returned), .. }) => returned.said.content.len(),
        Command::Session(_, SessionCommand::Import { entries, .. }) => {
            entries.iter().map(|entry| entry.said.content.len()).sum()
        }
        Command::Session(_, SessionCommand::Prompt { said, .. } | SessionCommand::Queue { said, .. }) => {
            said.content.len()
        }
        _ => 0,
    };
    256 + content
}
