//! Terms of a contract.

use serde::{Deserialize, Serialize};

use crate::{
    ledger::{BudgetLimits, LedgerMetric},
    policy::{Contract, ContractGap},
};

/// Response to a session that needs more than its budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreachResponse {
    /// The session's work ends, and running calls are cancelled.
    #[default]
    End,
    /// Nothing new begins until a person decides whether it is raised. Running work may end.
    Ask,
}

/// Declared terms.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContractTerms {
    /// The person responsible.
    pub actor: String,
    /// Permitted scopes, classes and tools.
    pub may: Contract,
    /// Budget.
    pub budget: BudgetLimits,
    /// Response to a breach of the budget.
    pub on_breach: BreachResponse,
    /// True if a later declaration may widen it, if a person agrees.
    pub renegotiable: bool,
}

/// One point in which a declaration allows more than the one before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TermsWidening {
    /// A tool, a scope or a class of actions.
    May(ContractGap),
    /// A limit.
    Limit(LedgerMetric),
    /// A breach asks a person, and ended the work before.
    OnBreach,
    /// The terms may be widened, and could not be before.
    Renegotiable,
}

impl ContractTerms {
    /// Returns everything in which `self` allows more than `before`; nothing if it only narrows.
    pub fn widenings_over(&self, before: &Self) -> Vec<TermsWidening> {
        let may = self.may.gaps_beyond(&before.may).into_iter().map(TermsWidening::May);
        let limits = self.budget.wider_metrics(&before.budget).into_iter().map(TermsWidening::Limit);
        let asks = self.on_breach == BreachResponse::Ask && before.on_breach == BreachResponse::End;
        let again = self.renegotiable && !before.renegotiable;
        let rest = [(asks, TermsWidening::OnBreach), (again, TermsWidening::Renegotiable)];
        may.chain(limits).chain(rest.into_iter().filter_map(|(more, widening)| more.then_some(widening))).collect()
    }
}
