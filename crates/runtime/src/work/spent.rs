//! Cost of requests, as providers count it.
//!
//! It must not know whether it counts against a budget.

use countersign_core::{ledger::BudgetAmount, message};
use countersign_models::{self as models, FailureKind, ModelEntry};

/// Returns the cost of an answer that was given to the end, if its provider reported it.
pub(super) fn spent_by_answer(entry: &ModelEntry, used: &models::ModelUsage) -> Option<BudgetAmount> {
    let usage = message_usage(entry, used);
    let cost_micros = (usage.cost.total * 1_000_000.0).ceil() as u64;
    let amount = BudgetAmount { tokens: usage.total_tokens, calls: 0, cost_micros };
    (amount != BudgetAmount::default()).then_some(amount)
}

/// Returns the cost of a request that failed: zero if a provider refused to begin an answer, else unknown.
pub(super) fn spent_by_failure(failed: &models::ModelFailure, is_begun: bool) -> Option<BudgetAmount> {
    match failed.kind {
        FailureKind::Auth
        | FailureKind::Overflow
        | FailureKind::RateLimit
        | FailureKind::Overloaded
        | FailureKind::Refused
        | FailureKind::Usage
        | FailureKind::Unpaid => (!is_begun).then(BudgetAmount::default),
        FailureKind::Server
        | FailureKind::Network
        | FailureKind::Silence
        | FailureKind::Broken
        | FailureKind::Empty => None,
    }
}

/// Returns the usage that a provider counted, with its cost.
pub(super) fn message_usage(entry: &ModelEntry, used: &models::ModelUsage) -> message::RequestUsage {
    let cost = models::usage_cost(entry, used);
    message::RequestUsage {
        input: used.input,
        output: used.output,
        cache_read: used.cache_read,
        cache_write: used.cache_write,
        total_tokens: used.input + used.output + used.cache_read + used.cache_write,
        cost: message::UsageCost {
            input: cost.input,
            output: cost.output,
            cache_read: cost.cache_read,
            cache_write: cost.cache_write,
            total: cost.total,
        },
    }
}
