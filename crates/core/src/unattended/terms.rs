//! What a contract says.

use serde::{Deserialize, Serialize};

use crate::{
    ledger::{Budget, Metric},
    policy::{Contract, Lack},
};

/// What becomes of a session that needs more than its budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnBreach {
    /// It ends, and what runs is cancelled.
    #[default]
    End,
    /// Nothing new begins until a person decides whether there is more. What runs may end.
    Ask,
}

/// What was declared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Who answers for what is done.
    pub actor: String,
    /// What may be done.
    pub may: Contract,
    /// What may be used up.
    pub budget: Budget,
    /// What a breach of the budget does.
    pub on_breach: OnBreach,
    /// Whether a later declaration may widen it, if a person agrees.
    pub renegotiable: bool,
}

/// One thing in which a declaration allows more than the one before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Widening {
    /// A tool, a scope or a class of actions.
    May(Lack),
    /// A limit.
    Limit(Metric),
    /// It asks where the other ends.
    OnBreach,
    /// It may be widened where the other may not.
    Renegotiable,
}

impl Terms {
    /// Names everything in which `self` allows more than `before`; nothing if it only narrows.
    pub fn beyond(&self, before: &Self) -> Vec<Widening> {
        let may = self.may.beyond(&before.may).into_iter().map(Widening::May);
        let limits = self.budget.beyond(&before.budget).into_iter().map(Widening::Limit);
        let asks = self.on_breach == OnBreach::Ask && before.on_breach == OnBreach::End;
        let again = self.renegotiable && !before.renegotiable;
        let rest = [(asks, Widening::OnBreach), (again, Widening::Renegotiable)];
        may.chain(limits).chain(rest.into_iter().filter_map(|(more, widening)| more.then_some(widening))).collect()
    }
}
