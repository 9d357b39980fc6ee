//! Kinds of commands, as the order in which they are done needs them.

use countersign_protocol::{
    gjc,
    omp::{AdoptedCommand, Command},
};

/// Whether it runs a person's command.
pub(crate) const fn is_bash(command: &gjc::Command) -> bool {
    matches!(command, gjc::Command::Shared(Command::Bash { .. }))
}

/// Whether a command is done while a person's command, or a compaction, still works. A plain prompt waits for a compaction: it would be refused as one
/// that comes during a run.
pub(crate) const fn goes_beside(command: &gjc::Command, is_compacting: bool) -> bool {
    let command = match command {
        gjc::Command::Shared(command) => command,
        gjc::Command::Adopted(AdoptedCommand::Handoff { .. }) => return false,
        _ => return true,
    };
    match command {
        Command::Bash { .. }
        | Command::Compact { .. }
        | Command::NewSession { .. }
        | Command::SwitchSession { .. }
        | Command::Branch { .. }
        | Command::Fork { .. }
        | Command::Clone => false,
        Command::Prompt { streaming_behavior: None, .. } => !is_compacting,
        _ => true,
    }
}

/// Whether a command opens another session.
pub(crate) const fn leaves(command: &gjc::Command) -> bool {
    matches!(
        command,
        gjc::Command::Shared(
            Command::NewSession { .. }
                | Command::SwitchSession { .. }
                | Command::Branch { .. }
                | Command::Fork { .. }
                | Command::Clone
        )
    )
}

/// Whether a command puts a run in the place of the one that works.
pub(crate) const fn replaces(command: &gjc::Command) -> bool {
    matches!(command, gjc::Command::Shared(Command::AbortAndPrompt { .. }))
}

/// Whether a command says what there is in the session that is open.
pub(crate) const fn reads_session(command: &gjc::Command) -> bool {
    matches!(
        command,
        gjc::Command::Shared(
            Command::GetState
                | Command::GetMessages
                | Command::GetMessagesPage { .. }
                | Command::GetBranchMessages
                | Command::GetForkMessages
                | Command::GetLastAssistantText
                | Command::GetSessionStats
        )
    )
}
