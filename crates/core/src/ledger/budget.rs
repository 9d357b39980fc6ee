//! Limits and amounts, metric by metric.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Metric of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LedgerMetric {
    /// Tokens of models, in and out.
    Tokens,
    /// Calls of tools.
    ToolCalls,
    /// Time since the contract began.
    WallTime,
    /// Money.
    Cost,
}

/// Limits of a contract. An absent one does not bind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetLimits {
    /// Tokens of models, in and out.
    pub tokens: Option<u64>,
    /// Calls of tools.
    pub calls: Option<u64>,
    /// Milliseconds since the contract began.
    pub wall_time: Option<u64>,
    /// Micro-dollars.
    pub cost_micros: Option<u64>,
}

/// Amount that work uses or used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetAmount {
    /// Tokens of models, in and out.
    pub tokens: u64,
    /// Calls of tools.
    pub calls: u64,
    /// Micro-dollars.
    pub cost_micros: u64,
}

/// A limit that a reservation does not fit under, or that is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{metric} budget of {limit} exceeded: {observed}")]
pub struct BudgetBreach {
    /// The metric.
    pub metric: LedgerMetric,
    /// Its limit.
    pub limit: u64,
    /// Use that the reservation would reach, or that was reached.
    pub observed: u64,
}

impl fmt::Display for LedgerMetric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tokens => "tokens",
            Self::ToolCalls => "tool_calls",
            Self::WallTime => "wall_time",
            Self::Cost => "cost",
        })
    }
}

impl LedgerMetric {
    /// All of them, in the order in which declarations name them.
    pub const ALL: [Self; 4] = [Self::Tokens, Self::ToolCalls, Self::WallTime, Self::Cost];
}

impl BudgetAmount {
    /// One call of a tool.
    pub const CALL: Self = Self { tokens: 0, calls: 1, cost_micros: 0 };

    /// Returns the sum of both, saturating.
    pub const fn plus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            calls: self.calls.saturating_add(other.calls),
            cost_micros: self.cost_micros.saturating_add(other.cost_micros),
        }
    }

    pub(super) fn at_least(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.max(other.tokens),
            calls: self.calls.max(other.calls),
            cost_micros: self.cost_micros.max(other.cost_micros),
        }
    }

    pub(super) const fn minus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_sub(other.tokens),
            calls: self.calls.saturating_sub(other.calls),
            cost_micros: self.cost_micros.saturating_sub(other.cost_micros),
        }
    }
}

impl BudgetLimits {
    /// Returns the first limit that `total` passes.
    pub(super) fn breached_by(&self, total: BudgetAmount) -> Option<BudgetBreach> {
        let limits = [
            (LedgerMetric::Tokens, self.tokens, total.tokens),
            (LedgerMetric::ToolCalls, self.calls, total.calls),
            (LedgerMetric::Cost, self.cost_micros, total.cost_micros),
        ];
        limits.into_iter().find_map(|(metric, limit, observed)| {
            let limit = limit.filter(|limit| observed > *limit)?;
            Some(BudgetBreach { metric, limit, observed })
        })
    }

    /// Returns the limit of a metric; none if it does not bind.
    pub const fn limit_of(&self, metric: LedgerMetric) -> Option<u64> {
        match metric {
            LedgerMetric::Tokens => self.tokens,
            LedgerMetric::ToolCalls => self.calls,
            LedgerMetric::WallTime => self.wall_time,
            LedgerMetric::Cost => self.cost_micros,
        }
    }

    /// Returns the same with another limit of a metric.
    #[must_use]
    pub const fn with_limit(mut self, metric: LedgerMetric, limit: u64) -> Self {
        let of = match metric {
            LedgerMetric::Tokens => &mut self.tokens,
            LedgerMetric::ToolCalls => &mut self.calls,
            LedgerMetric::WallTime => &mut self.wall_time,
            LedgerMetric::Cost => &mut self.cost_micros,
        };
        *of = Some(limit);
        self
    }

    /// Returns the metrics of which the limit is wider than that of `other`.
    pub fn wider_metrics(&self, other: &Self) -> Vec<LedgerMetric> {
        let wider = |metric: &LedgerMetric| {
            let (mine, theirs) = (self.limit_of(*metric), other.limit_of(*metric));
            theirs.is_some_and(|theirs| mine.is_none_or(|mine| mine > theirs))
        };
        LedgerMetric::ALL.into_iter().filter(wider).collect()
    }

    /// Reports whether no limit of `self` is wider than that of `other`.
    pub fn is_within(&self, other: &Self) -> bool {
        self.wider_metrics(other).is_empty()
    }
}
