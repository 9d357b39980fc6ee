//! Promises that hold without any connection.

use countersign_models::{
    CostBreakdown, FailureKind, ModelApi, ModelFailure, ModelUsage, ThinkingLevel, TokenPrice, usage_cost,
};

use crate::{entry, request};

#[test]
fn a_cost_is_the_sum_of_its_kinds() {
    let mut entry = entry(ModelApi::OpenaiCompletions, "");
    entry.cost = TokenPrice { input: 2.0, output: 10.0, cache_read: 0.5, cache_write: 4.0 };
    let usage = ModelUsage { input: 1_000_000, output: 500_000, cache_read: 2_000_000, cache_write: 250_000 };
    assert_eq!(
        usage_cost(&entry, &usage),
        CostBreakdown { input: 2.0, output: 5.0, cache_read: 1.0, cache_write: 1.0, total: 9.0 }
    );
}

#[test]
fn a_request_prints_neither_its_key_nor_its_headers() {
    let mut entry = entry(ModelApi::OpenaiCompletions, "");
    entry.headers = [("authorization".to_owned(), "Bearer hidden-too".to_owned())].into();
    let request = request(entry);
    let printed = format!("{request:?} {:?} {:?}", request.entry, request.key);
    assert!(!printed.contains("very-secret") && !printed.contains("hidden-too"), "{printed}");
    assert!(printed.contains("authorization"), "{printed}");
}

#[test]
fn a_level_is_sent_only_to_a_model_that_can_think() {
    let mut request = request(entry(ModelApi::OpenaiCompletions, ""));
    request.level = Some(ThinkingLevel::High);
    assert_eq!(request.thinking_level(), Some(ThinkingLevel::High));
    let mut mute = (*request.entry).clone();
    mute.reasoning = false;
    request.entry = mute.into();
    assert_eq!(request.thinking_level(), None);
}

#[test]
fn what_may_succeed_later_is_retryable() {
    let retryable = |kind| ModelFailure::new(kind, "").kind.is_retryable();
    let later = [
        FailureKind::RateLimit,
        FailureKind::Overloaded,
        FailureKind::Server,
        FailureKind::Network,
        FailureKind::Silence,
        FailureKind::Broken,
        FailureKind::Usage,
    ];
    assert!(later.into_iter().all(retryable));
    assert!(![FailureKind::Auth, FailureKind::Overflow, FailureKind::Refused].into_iter().any(retryable));
}
