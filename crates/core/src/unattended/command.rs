//! What can be asked of a contract, and what it answers.

use super::terms::{ContractTerms, TermsWidening};
use crate::{
    id::{GateId, SessionId},
    ledger::{BudgetAmount, BudgetBreach},
    policy::{ContractGap, ContractScope},
    time::Millis,
};

/// Meters that go on in another session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContractCarryover {
    /// The session that the contract was first declared in.
    pub under: SessionId,
    /// What was spent there.
    pub spent: BudgetAmount,
    /// When the clock began there.
    pub began: Millis,
    /// What was declared there last, where a person has given more since.
    pub declared: Option<Box<ContractTerms>>,
}

/// What a host's command needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCommandNeeds {
    /// The command's name, for the record.
    pub command: String,
    /// What it is for.
    pub scope: ContractScope,
    /// Whether it takes one of the calls of the budget.
    pub takes_a_call: bool,
    /// The line of a command that runs in the shell: its classes are needed in place of that of the scope.
    pub line: Option<String>,
}

/// A command to the contract of a session.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Puts a contract in force, or others of its terms in their place. The meters go on.
    Declare {
        /// For which session.
        session: SessionId,
        /// What is declared.
        terms: Box<ContractTerms>,
        /// The meters of another session, where this one goes on with them.
        carried: Option<ContractCarryover>,
    },
    /// Asks before a host's command is done. Where the answer is [`Outcome::Admitted`], a call that it takes is counted.
    Admit {
        /// In which session.
        session: SessionId,
        /// What it needs.
        need: HostCommandNeeds,
    },
}

impl Command {
    /// The session that it is about.
    pub const fn session(&self) -> &SessionId {
        match self {
            Self::Declare { session, .. } | Self::Admit { session, .. } => session,
        }
    }
}

/// What a command to a contract came to.
#[derive(Clone, Debug, PartialEq)]
pub enum ContractOutcome {
    /// The terms are in force.
    InForce,
    /// A person is asked whether they may be.
    Asking(GateId),
    /// The host's command may be done.
    Admitted,
    /// The contract does not cover it. Nothing was done.
    Lacks(ContractGap),
    /// A budget is used up.
    Exceeded(BudgetBreach),
    /// The contract was ended by a breach.
    Over(BudgetBreach),
}

/// Why terms are not put in force.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeclareError {
    /// They allow more than those in force, which may not be widened.
    #[error("the terms widen what was declared")]
    Widens(Vec<TermsWidening>),
    /// A person is asked about others already.
    #[error("a person is asked about other terms")]
    ProposalPending(GateId),
    /// The contract was ended by a breach.
    #[error("the contract was ended: {0}")]
    Over(BudgetBreach),
    /// It does not fit under what is left of a budget.
    #[error("{0}")]
    Exceeds(BudgetBreach),
    /// Its meters are of another contract than those in force.
    #[error("another contract is in force")]
    Another,
}
