//! Limits and amounts, metric by metric.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
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
pub struct Budget {
    /// Tokens of models, in and out.
    pub tokens: Option<u64>,
    /// Calls of tools.
    pub calls: Option<u64>,
    /// Milliseconds since the contract began.
    pub wall_time: Option<u64>,
    /// Micro-dollars.
    pub cost_micros: Option<u64>,
}

/// What something takes or took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
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
pub struct Breach {
    /// What is counted.
    pub metric: Metric,
    /// Its limit.
    pub limit: u64,
    /// What it would have come to, or has come to.
    pub observed: u64,
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tokens => "tokens",
            Self::ToolCalls => "tool_calls",
            Self::WallTime => "wall_time",
            Self::Cost => "cost",
        })
    }
}

impl Metric {
    /// All of them, in the order in which declarations name them.
    pub const ALL: [Self; 4] = [Self::Tokens, Self::ToolCalls, Self::WallTime, Self::Cost];
}

impl Amount {
    /// One call of a tool.
    pub const CALL: Self = Self { tokens: 0, calls: 1, cost_micros: 0 };

    /// Both together; what is too much to count stays at the most that there is.
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

impl Budget {
    /// The first limit that `total` passes.
    pub(super) fn breached_by(&self, total: Amount) -> Option<Breach> {
        let limits = [
            (Metric::Tokens, self.tokens, total.tokens),
            (Metric::ToolCalls, self.calls, total.calls),
            (Metric::Cost, self.cost_micros, total.cost_micros),
        ];
        limits.into_iter().find_map(|(metric, limit, observed)| {
            let limit = limit.filter(|limit| observed > *limit)?;
            Some(Breach { metric, limit, observed })
        })
    }

    /// The limit of a metric; none where it does not bind.
    pub const fn limit(&self, metric: Metric) -> Option<u64> {
        match metric {
            Metric::Tokens => self.tokens,
            Metric::ToolCalls => self.calls,
            Metric::WallTime => self.wall_time,
            Metric::Cost => self.cost_micros,
        }
    }

    /// The same with another limit of a metric.
    #[must_use]
    pub const fn with(mut self, metric: Metric, limit: u64) -> Self {
        let of = match metric {
            Metric::Tokens => &mut self.tokens,
            Metric::ToolCalls => &mut self.calls,
            Metric::WallTime => &mut self.wall_time,
            Metric::Cost => &mut self.cost_micros,
        };
        *of = Some(limit);
        self
    }

    /// The metrics of which the limit is wider than that of `other`.
    pub fn beyond(&self, other: &Self) -> Vec<Metric> {
        let wider = |metric: &Metric| {
            let (mine, theirs) = (self.limit(*metric), other.limit(*metric));
            theirs.is_some_and(|theirs| mine.is_none_or(|mine| mine > theirs))
        };
        Metric::ALL.into_iter().filter(wider).collect()
    }

    /// True if no limit of `self` is wider than that of `other`.
    pub fn is_within(&self, other: &Self) -> bool {
        self.beyond(other).is_empty()
    }
}
