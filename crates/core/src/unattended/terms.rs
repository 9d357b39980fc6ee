//! What a contract says.

use serde::{Deserialize, Serialize};

use crate::{
    ledger::{BudgetLimits, LedgerMetric},
    policy::{Contract, ContractGap},
};

/// What becomes of a session that needs more than its budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreachResponse {
    /// It ends, and what runs is cancelled.
    #[default]
    End,
    /// Nothing new begins until a person decides whether there is more. What runs may end.
    Ask,
}

/// What was declared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContractTerms {
    /// Who answers for what is done.
    pub actor: String,
    /// What may be done.
    pub may: Contract,
    /// What may be used up.
    pub budget: BudgetLimits,
    /// What a breach of the budget does.
    pub on_breach: BreachResponse,
    /// Whether a later declaration may widen it, if a person agrees.
    pub renegotiable: bool,
}

/// One thing in which a declaration allows more than the one before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TermsWidening {
    /// A tool, a scope or a class of actions.
    May(ContractGap),
    /// A limit.
    Limit(LedgerMetric),
    /// It asks where the other ends.
    OnBreach,
    /// It may be widened where the other may not.
    Renegotiable,
}

impl ContractTerms {
    /// Names everything in which `self` allows more than `before`; nothing if it only narrows.
    pub fn widenings_over(&self, before: &Self) -> Vec<TermsWidening> {
        let may = self.may.gaps_beyond(&before.may).into_iter().map(TermsWidening::May);
        let limits = self.budget.wider_metrics(&before.budget).into_iter().map(TermsWidening::Limit);
        let asks = self.on_breach == BreachResponse::Ask && before.on_breach == BreachResponse::End;
        let again = self.renegotiable && !before.renegotiable;
        let rest = [(asks, TermsWidening::OnBreach), (again, TermsWidening::Renegotiable)];
        may.chain(limits).chain(rest.into_iter().filter_map(|(more, widening)| more.then_some(widening))).collect()
    }
}
