//! What happened to a contract.

use serde::{Deserialize, Serialize};

use super::terms::ContractTerms;
use crate::{
    id::{CallId, FiringId, GateId, PrincipalId, SessionId},
    ledger::{BudgetAmount, BudgetBreach, LedgerMetric},
    policy::ContractGap,
    time::Millis,
};

/// Where a breach was noticed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreachPoint {
    /// Before a host's command of this name.
    Before(String),
    /// Before the model was asked.
    Request,
    /// After the model had answered.
    Turn,
    /// Before a call.
    Call,
    /// The clock ran out while something worked.
    Clock,
}

/// A fact about the contract of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// It is in force.
    Declared {
        /// The session that it was first declared in, which may be another.
        under: SessionId,
        /// What it says.
        terms: Box<ContractTerms>,
        /// When its clock began.
        began: Millis,
        /// What was spent before.
        spent: BudgetAmount,
        /// The firing of a job for whose run alone it is, and with which it ends; absent where it is for all that works in
        /// the session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        firing: Option<FiringId>,
        /// What was declared in the session that it was carried from, where a person has given more since.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        declared: Option<Box<ContractTerms>>,
    },
    /// Its terms are narrower from now on.
    Narrowed {
        /// What it says.
        terms: Box<ContractTerms>,
        /// Whether the same was declared as before: then it says what it said, with what a person has given since.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        again: bool,
    },
    /// A person is asked about wider terms. The gate is in the next record.
    Proposed {
        /// Which.
        gate: GateId,
        /// What it would say.
        terms: Box<ContractTerms>,
    },
    /// A person agreed to what was proposed.
    Widened {
        /// Who.
        by: Option<PrincipalId>,
    },
    /// Nobody agreed to what was proposed.
    Kept,
    /// A host's command took a call of the budget.
    Counted {
        /// The command's name.
        command: String,
    },
    /// Something was refused that it does not cover. The content is the line of a shell command of the host.
    Denied {
        /// What it does not have.
        lacks: ContractGap,
        /// The call of a run; absent for a host's command.
        call: Option<CallId>,
        /// The host's command.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<String>,
    },
    /// A budget is used up. Nothing new begins.
    Breached {
        /// Which, and how far.
        breach: BudgetBreach,
        /// Where that was noticed.
        place: BreachPoint,
        /// The gate of the person who is asked for more, in the next record; absent: it is over.
        gate: Option<GateId>,
    },
    /// A person gave more.
    Extended {
        /// Of what.
        metric: LedgerMetric,
        /// The new limit.
        limit: u64,
        /// Who.
        by: Option<PrincipalId>,
    },
    /// Nobody gave more: it is over.
    Ended,
    /// It is over, and nothing works any more.
    Settled,
}
