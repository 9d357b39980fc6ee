//! The cost of an answer.
//!
//! It must not know budgets: it multiplies.

use crate::{
    ModelUsage,
    entry::{ModelEntry, TokenPrice},
};

/// Dollars, by kind of token.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CostBreakdown {
    /// Uncached input.
    pub input: f64,
    /// Output.
    pub output: f64,
    /// Cached input.
    pub cache_read: f64,
    /// Input written to the cache.
    pub cache_write: f64,
    /// The sum.
    pub total: f64,
}

/// Says what `usage` costs at the prices of `entry`.
pub fn usage_cost(entry: &ModelEntry, usage: &ModelUsage) -> CostBreakdown {
    let TokenPrice { input, output, cache_read, cache_write } = entry.cost;
    let dollars = |tokens: u64, price: f64| tokens as f64 * price / 1_000_000.0;
    let (input, output) = (dollars(usage.input, input), dollars(usage.output, output));
    let (cache_read, cache_write) = (dollars(usage.cache_read, cache_read), dollars(usage.cache_write, cache_write));
    CostBreakdown { input, output, cache_read, cache_write, total: input + output + cache_read + cache_write }
}
