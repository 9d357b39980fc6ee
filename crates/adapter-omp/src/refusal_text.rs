//! Texts that a host reads of what was refused or stopped.

use countersign_core::engine::CommandError;
use countersign_runtime::OwnerError;

/// Answer to a request for a compaction that was stopped.
pub(crate) const CANCELLED: &str = "Compaction cancelled";

/// Answer to a prompt that was stopped before it began.
pub(crate) const ABORTED: &str = "Request was aborted";

/// Answer to a prompt while a run works if the prompt has no queueing mode.
pub(crate) const BUSY: &str =
    "Agent is already processing. Use steer() or followUp() to queue messages, or wait for completion.";

/// Returns the text of a refusal for a host.
pub fn refusal_message(refused: &OwnerError) -> String {
    match refused {
        OwnerError::Refusal(CommandError::EmptyName) => "Session name cannot be empty".to_owned(),
        OwnerError::Refusal(CommandError::Prompt(countersign_core::session::PromptError::Busy(_))) => BUSY.to_owned(),
        OwnerError::Refusal(CommandError::Prompt(countersign_core::session::PromptError::NoModel(_))) => {
            "No model selected. Choose one with set_model.".to_owned()
        }
        OwnerError::Refusal(CommandError::Compact(refusal)) => match refusal {
            countersign_core::session::CompactError::Nothing => "Nothing to compact (session too small)".to_owned(),
            countersign_core::session::CompactError::Already => "Already compacted".to_owned(),
            countersign_core::session::CompactError::NoModel => "No model selected".to_owned(),
            other => other.to_string(),
        },
        other => other.to_string(),
    }
}
