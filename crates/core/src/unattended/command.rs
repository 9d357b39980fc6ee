//! Commands to a contract, and their results.

use super::terms::{ContractTerms, TermsWidening};
use crate::{
    id::{GateId, SessionId},
    ledger::{BudgetAmount, BudgetBreach},
    policy::{ContractGap, ContractScope},
    time::Millis,
};

/// Meters that continue in another session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContractCarryover {
    /// The session that the contract was first declared in.
    pub under: SessionId,
    /// Amount that was spent there.
    pub spent: BudgetAmount,
    /// Time at which the clock began there.
    pub began: Millis,
    /// The last declaration there, if a person has granted more since.
    pub declared: Option<Box<ContractTerms>>,
}

/// Requirements of a host's command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCommandNeeds {
    /// The command's name, for the record.
    pub command: String,
    /// Its scope.
    pub scope: ContractScope,
    /// True if it uses one of the calls of the budget.
    pub takes_a_call: bool,
    /// The line of a command that runs in the shell: its classes are needed in place of that of the scope.
    pub line: Option<String>,
}

/// A command to the contract of a session.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Puts a contract in force, or replaces its terms. The meters continue.
    Declare {
        /// The session.
        session: SessionId,
        /// The declared terms.
        terms: Box<ContractTerms>,
        /// The meters of another session, if this one continues them.
        carried: Option<ContractCarryover>,
    },
    /// Checks a host's command before it is executed. If the result is [`ContractOutcome::Admitted`], a call that it uses is counted.
    Admit {
        /// The session.
        session: SessionId,
        /// Its requirements.
        need: HostCommandNeeds,
    },
}

impl Command {
    /// Returns the session that it is about.
    pub const fn session(&self) -> &SessionId {
        match self {
            Self::Declare { session, .. } | Self::Admit { session, .. } => session,
        }
    }
}

/// Result of a command to a contract.
#[derive(Clone, Debug, PartialEq)]
pub enum ContractOutcome {
    /// The terms are in force.
    InForce,
    /// A person is asked whether they may be in force.
    Asking(GateId),
    /// The host's command may be executed.
    Admitted,
    /// The contract does not cover it. Nothing was executed.
    Lacks(ContractGap),
    /// A budget is used up.
    Exceeded(BudgetBreach),
    /// The contract was ended by a breach.
    Over(BudgetBreach),
}

/// Reason for which terms are not put in force.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeclareError {
    /// The terms allow more than those in force, which may not be widened.
    #[error("the terms widen what was declared")]
    Widens(Vec<TermsWidening>),
    /// A pending gate is about other terms already.
    #[error("a person is asked about other terms")]
    ProposalPending(GateId),
    /// The contract was ended by a breach.
    #[error("the contract was ended: {0}")]
    Over(BudgetBreach),
    /// The contract does not fit into the rest of a budget.
    #[error("{0}")]
    Exceeds(BudgetBreach),
    /// Its meters are of another contract than the one in force.
    #[error("another contract is in force")]
    Another,
}
