//! Kinds of commands, as the order in which they are done needs them.

use countersign_protocol::{
    gjc,
    omp::{AdoptedCommand, OmpCommand},
};

/// Reports whether it runs a user's command.
pub(crate) const fn is_bash(command: &gjc::GjcCommand) -> bool {
    matches!(command, gjc::GjcCommand::Shared(OmpCommand::Bash { .. }))
}

/// Reports whether a command is done while a user's command, or a compaction, still works. A plain prompt waits for a compaction: it would
/// be refused as one that comes during a run.
pub(crate) const fn goes_beside(command: &gjc::GjcCommand, is_compacting: bool) -> bool {
    let command = match command {
        gjc::GjcCommand::Shared(command) => command,
        gjc::GjcCommand::Adopted(AdoptedCommand::Handoff { .. }) => return false,
        _ => return true,
    };
    match command {
        OmpCommand::Bash { .. }
        | OmpCommand::Compact { .. }
        | OmpCommand::NewSession { .. }
        | OmpCommand::SwitchSession { .. }
        | OmpCommand::Branch { .. }
        | OmpCommand::Fork { .. }
        | OmpCommand::Clone => false,
        OmpCommand::Prompt { streaming_behavior: None, .. } => !is_compacting,
        _ => true,
    }
}

/// Reports whether a command opens another session.
pub(crate) const fn leaves_session(command: &gjc::GjcCommand) -> bool {
    matches!(
        command,
        gjc::GjcCommand::Shared(
            OmpCommand::NewSession { .. }
                | OmpCommand::SwitchSession { .. }
                | OmpCommand::Branch { .. }
                | OmpCommand::Fork { .. }
                | OmpCommand::Clone
        )
    )
}

/// Reports whether a command replaces the current run by another.
pub(crate) const fn replaces_run(command: &gjc::GjcCommand) -> bool {
    matches!(command, gjc::GjcCommand::Shared(OmpCommand::AbortAndPrompt { .. }))
}

/// Reports whether a command reads the state of the open session.
pub(crate) const fn reads_session(command: &gjc::GjcCommand) -> bool {
    matches!(
        command,
        gjc::GjcCommand::Shared(
            OmpCommand::GetState
                | OmpCommand::GetMessages
                | OmpCommand::GetMessagesPage { .. }
                | OmpCommand::GetBranchMessages
                | OmpCommand::GetForkMessages
                | OmpCommand::GetLastAssistantText
                | OmpCommand::GetSessionStats
        )
    )
}
