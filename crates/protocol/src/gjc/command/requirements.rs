//! Name, order and scope of each command.
//!
//! It must not know how a command is read or done.

use super::GjcCommand;
use crate::gjc::unattended::CommandScope;
use crate::omp::{AdoptedCommand as Adopted, OmpCommand as Shared};

/// Order of a command relative to those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandOrder {
    /// Done at once.
    Fast,
    /// Done after the commands before it.
    Ordered,
}

impl GjcCommand {
    /// Returns the `type` of the command, which its response repeats.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Shared(command) => command.name(),
            Self::GetState { .. } => "get_state",
            Self::Adopted(command) => command.name(),
            Self::NegotiateUnattended { .. } => "negotiate_unattended",
            Self::WorkflowGateResponse { .. } => "workflow_gate_response",
            Self::GetPendingWorkflowGates => "get_pending_workflow_gates",
            Self::SetCapabilities { .. } => "set_capabilities",
            Self::SetDefaultModelSelection { .. } => "set_default_model_selection",
        }
    }

    /// Returns the order. Commands that stop, read, or answer a gate do not wait; setters wait on purpose.
    pub fn order(&self) -> CommandOrder {
        match self {
            Self::GetState { .. }
            | Self::Adopted(Adopted::GetLoginProviders)
            | Self::GetPendingWorkflowGates
            | Self::WorkflowGateResponse { .. }
            | Self::Shared(
                Shared::Abort
                | Shared::AbortBash
                | Shared::AbortRetry
                | Shared::GetState
                | Shared::GetSessionStats
                | Shared::GetAvailableModels
                | Shared::GetBranchMessages
                | Shared::GetLastAssistantText
                | Shared::GetMessages
                | Shared::GetMessagesPage { .. }
                | Shared::GetForkMessages
                | Shared::GetAvailableCommands
                | Shared::GetCommands
                | Shared::GetAvailableThinkingLevels
                | Shared::GetSubagents
                | Shared::GetSubagentMessages { .. }
                | Shared::NegotiateProtocol { .. }
                | Shared::NotServed { .. },
            ) => CommandOrder::Fast,
            Self::Shared(_)
            | Self::Adopted(
                Adopted::SetTodos { .. }
                | Adopted::SetHostTools { .. }
                | Adopted::SetHostUriSchemes { .. }
                | Adopted::Handoff { .. }
                | Adopted::Login { .. },
            )
            | Self::NegotiateUnattended { .. }
            | Self::SetCapabilities { .. }
            | Self::SetDefaultModelSelection { .. } => CommandOrder::Ordered,
        }
    }

    /// Returns the scope that it needs. An unknown command needs [`CommandScope::Admin`].
    pub fn required_scope(&self) -> CommandScope {
        match self {
            Self::Shared(command) => shared_scope(command),
            Self::WorkflowGateResponse { .. } => CommandScope::Prompt,
            Self::GetState { .. } | Self::GetPendingWorkflowGates => CommandScope::MessageRead,
            Self::NegotiateUnattended { .. } | Self::SetCapabilities { .. } => CommandScope::Control,
            Self::SetDefaultModelSelection { .. } => CommandScope::Model,
            Self::Adopted(command) => adopted_scope(command),
        }
    }

    /// Returns true if it takes one of the tool calls of a declaration's budget before it is done.
    pub fn takes_a_call(&self) -> bool {
        matches!(
            self,
            Self::Shared(
                Shared::Bash { .. }
                    | Shared::Prompt { .. }
                    | Shared::Steer { .. }
                    | Shared::FollowUp { .. }
                    | Shared::AbortAndPrompt { .. }
            )
        )
    }
}

fn adopted_scope(command: &Adopted) -> CommandScope {
    match command {
        Adopted::SetTodos { .. } => CommandScope::Control,
        Adopted::SetHostTools { .. } => CommandScope::HostTools,
        Adopted::SetHostUriSchemes { .. } => CommandScope::HostUri,
        Adopted::Handoff { .. } | Adopted::GetLoginProviders | Adopted::Login { .. } => CommandScope::Admin,
    }
}

fn shared_scope(command: &Shared) -> CommandScope {
    match command {
        Shared::Prompt { .. }
        | Shared::Steer { .. }
        | Shared::FollowUp { .. }
        | Shared::Abort
        | Shared::AbortAndPrompt { .. } => CommandScope::Prompt,
        Shared::NewSession { .. }
        | Shared::SwitchSession { .. }
        | Shared::Branch { .. }
        | Shared::Fork { .. }
        | Shared::Clone
        | Shared::GetBranchMessages
        | Shared::GetForkMessages
        | Shared::SetSessionName { .. } => CommandScope::Session,
        Shared::GetState
        | Shared::GetSessionStats
        | Shared::GetLastAssistantText
        | Shared::GetMessages
        | Shared::GetMessagesPage { .. }
        | Shared::GetSubagents
        | Shared::GetSubagentMessages { .. } => CommandScope::MessageRead,
        Shared::SetSteeringMode { .. }
        | Shared::SetFollowUpMode { .. }
        | Shared::SetInterruptMode { .. }
        | Shared::Compact { .. }
        | Shared::SetAutoCompaction { .. }
        | Shared::SetAutoRetry { .. }
        | Shared::AbortRetry
        | Shared::NegotiateProtocol { .. }
        | Shared::SetSubagentSubscription { .. } => CommandScope::Control,
        Shared::SetModel { .. }
        | Shared::CycleModel
        | Shared::GetAvailableModels
        | Shared::SetThinkingLevel { .. }
        | Shared::CycleThinkingLevel
        | Shared::GetAvailableThinkingLevels
        | Shared::SetFastMode { .. } => CommandScope::Model,
        Shared::Bash { .. } | Shared::AbortBash => CommandScope::Bash,
        Shared::ExportHtml { .. } => CommandScope::Export,
        Shared::GetAvailableCommands | Shared::GetCommands | Shared::NotServed { .. } => CommandScope::Admin,
    }
}
