//! `gates` and `grants`.

use std::time::Duration;

use clap::Subcommand;
use countersign_core::gate::ApprovalScope;

use crate::gates::{self, GrantsAction};

#[derive(Subcommand)]
pub(super) enum GatesCommand {
    /// List pending approvals, oldest first
    List,
    /// Show a pending approval: requester, reason, and exactly what would run
    Show {
        /// Id of the approval, or the end of it
        id: String,
    },
    /// Allow a pending approval
    Allow {
        /// Id of the approval, or at least its last 8 characters
        id: String,
        /// Scope of the approval
        #[arg(long, value_enum, default_value = "once")]
        scope: ScopeName,
        /// Allow what matches PATTERN, a rule that `gates show` proposes, instead of exactly this call
        #[arg(long, value_name = "PATTERN", requires = "scope")]
        rule: Option<String>,
        /// Lifetime of the approval, for example 30m, 8h or 7d [default: until it is revoked]
        #[arg(long = "for", value_name = "TIME", value_parser = super::span)]
        lasts: Option<Duration>,
    },
    /// Deny a pending approval
    Deny {
        /// Id of the approval, or at least its last 8 characters
        id: String,
        /// Reason that the agent receives
        #[arg(long)]
        reason: Option<String>,
    },
    /// Answer a question, a plan or an execution
    Answer {
        /// Id of the approval, or at least its last 8 characters
        id: String,
        /// A choice as `gates show` prints it, or free text; several if the question permits several
        #[arg(id = "said", required = true, value_name = "ANSWER")]
        answer: Vec<String>,
    },
    /// Show pending approvals live, answered by keys; without a terminal, print each change
    Watch,
}

#[derive(Subcommand)]
pub(super) enum GrantsCommand {
    /// List standing approvals
    List,
    /// List active denials, which deny the same call again until they end
    Denials,
    /// Revoke a standing approval or a denial
    Revoke {
        /// Id of the standing approval or denial
        id: String,
    },
}

/// How far an approval reaches.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(super) enum ScopeName {
    /// This call only
    Once,
    /// The same call for the rest of the session
    Session,
    /// The same call from now on
    Always,
}

impl GatesCommand {
    /// Returns true for an approval of one call that is to last.
    pub(super) const fn lasts_without_scope(&self) -> bool {
        matches!(self, Self::Allow { scope: ScopeName::Once, lasts: Some(_), .. })
    }
}

impl From<GatesCommand> for gates::GatesAction {
    fn from(what: GatesCommand) -> Self {
        match what {
            GatesCommand::List => Self::List,
            GatesCommand::Show { id } => Self::Show { id },
            GatesCommand::Allow { id, scope, rule, lasts } => {
                let scope = match scope {
                    ScopeName::Once => ApprovalScope::Once,
                    ScopeName::Session => ApprovalScope::Session,
                    ScopeName::Always => ApprovalScope::Always,
                };
                Self::Allow { id, scope, rule, lasts }
            }
            GatesCommand::Deny { id, reason } => Self::Deny { id, reason },
            GatesCommand::Answer { id, answer } => Self::Answer { id, answer },
            GatesCommand::Watch => Self::Watch,
        }
    }
}

impl From<GrantsCommand> for GrantsAction {
    fn from(what: GrantsCommand) -> Self {
        match what {
            GrantsCommand::List => Self::List,
            GrantsCommand::Denials => Self::Denials,
            GrantsCommand::Revoke { id } => Self::Revoke { id },
        }
    }
}
