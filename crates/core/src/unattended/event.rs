//! Events of a contract.

use serde::{Deserialize, Serialize};

use super::terms::ContractTerms;
use crate::{
    id::{CallId, FiringId, GateId, PrincipalId, SessionId},
    ledger::{BudgetAmount, BudgetBreach, LedgerMetric},
    policy::ContractGap,
    time::Millis,
};

/// Point at which a breach was noticed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreachPoint {
    /// Before a host's command of this name.
    Before(String),
    /// Before a model request.
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
    /// The contract is in force.
    Declared {
        /// The session that it was first declared in, which may be another.
        under: SessionId,
        /// Its terms.
        terms: Box<ContractTerms>,
        /// Time at which its clock began.
        began: Millis,
        /// Amount that was spent before.
        spent: BudgetAmount,
        /// The firing of a job to whose run alone it applies, and with which it ends; absent if it applies to all that works in
        /// the session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        firing: Option<FiringId>,
        /// The declaration in the session that it was carried from, if a person has granted more since.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        declared: Option<Box<ContractTerms>>,
    },
    /// Its terms are narrower from now on.
    Narrowed {
        /// Its terms.
        terms: Box<ContractTerms>,
        /// True if the earlier declaration was repeated: then its terms stay, with those that a person has granted since.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        again: bool,
    },
    /// A person is asked about wider terms. The gate is in the next record.
    Proposed {
        /// The gate.
        gate: GateId,
        /// The proposed terms.
        terms: Box<ContractTerms>,
    },
    /// A person accepted the proposed terms.
    Widened {
        /// The person.
        by: Option<PrincipalId>,
    },
    /// The proposed terms were not accepted.
    Kept,
    /// A host's command used a call of the budget.
    Counted {
        /// The command's name.
        command: String,
    },
    /// A call or command was refused that it does not cover. The content is the line of a shell command of the host.
    Denied {
        /// The missing part.
        lacks: ContractGap,
        /// The call of a run; absent for a host's command.
        call: Option<CallId>,
        /// The host's command.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<String>,
    },
    /// A budget is used up. Nothing new begins.
    Breached {
        /// The limit, with the observed use.
        breach: BudgetBreach,
        /// Point at which the breach was noticed.
        place: BreachPoint,
        /// The gate that asks a person for more, in the next record; absent: it is over.
        gate: Option<GateId>,
    },
    /// A person raised a limit.
    Extended {
        /// The metric.
        metric: LedgerMetric,
        /// The new limit.
        limit: u64,
        /// The person.
        by: Option<PrincipalId>,
    },
    /// No limit was raised: it is over.
    Ended,
    /// The contract is over, and nothing works any more.
    Settled,
}
