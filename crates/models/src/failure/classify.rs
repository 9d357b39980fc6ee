//! Which kind of failure a status and a provider's words mean.
//!
//! It must not know a wire: the same words mean the same on all of them. Source: docs/protocol/omp.md, Configuration
//! (retries and overflow).

use crate::FailureKind;

const OVERFLOW: [&str; 15] = [
    "prompt is too long",
    "exceeds the context window",
    "exceed context limit",
    "maximum context length",
    "context_length_exceeded",
    "context length exceeded",
    "context window exceeded",
    "too many tokens",
    "exceeds the maximum number of tokens",
    "maximum prompt length",
    "reduce the length of the messages",
    "exceeds the available context size",
    "greater than the context length",
    "request_too_large",
    "input is too long",
];
const SPENT: [&str; 4] = ["usage limit", "usage_limit", "quota exceeded", "quota_exceeded"];
const CREDIT: [&str; 5] =
    ["insufficient_quota", "credit balance", "insufficient credits", "insufficient balance", "billing"];
const QUOTA: &str = "exceeded your current quota";
const RATE: [&str; 5] = ["rate limit", "rate_limit", "ratelimit", "too many requests", "tokens per m"];
const CAPACITY: [&str; 5] =
    ["overloaded", "no capacity", "service unavailable", "service_unavailable", "\"unavailable\""];
const KEY: [&str; 7] = [
    "authentication_error",
    "permission_error",
    "invalid_api_key",
    "incorrect api key",
    "api key not valid",
    "invalid x-api-key",
    "permission_denied",
];
const FAULT: [&str; 6] =
    ["server_error", "server error", "api_error", "internal error", "internal_error", "provider returned error"];
const INVALID: [&str; 4] = ["invalid_request", "invalid_argument", "not_found", "invalid_prompt"];

/// Reads the kind from the status, if there is one, and from the words: the message and the provider's names of the
/// error.
pub(super) fn kind(status: Option<u16>, words: &str) -> FailureKind {
    let words = words.to_lowercase();
    let has = |any: &[&str]| any.iter().any(|word| words.contains(word));
    // Some providers say of a quota that is filled again where its bills are paid.
    let of_account = || match () {
        () if has(&SPENT) => Some(FailureKind::Usage),
        () if has(&CREDIT) => Some(FailureKind::Unpaid),
        () if has(&[QUOTA]) => Some(FailureKind::Usage),
        () => None,
    };
    match status {
        Some(401) => FailureKind::Auth,
        Some(402) => FailureKind::Unpaid,
        Some(413) => FailureKind::Overflow,
        Some(429) => of_account().unwrap_or(FailureKind::RateLimit),
        Some(503 | 529) => FailureKind::Overloaded,
        Some(500..) if has(&CAPACITY) => FailureKind::Overloaded,
        Some(500..) if has(&OVERFLOW) => FailureKind::Overflow,
        Some(408 | 500..) => FailureKind::Server,
        Some(_) | None if has(&RATE) => FailureKind::RateLimit,
        Some(_) | None if has(&OVERFLOW) => FailureKind::Overflow,
        Some(400) if words.trim().is_empty() => FailureKind::Overflow,
        Some(_) | None if let Some(kind) = of_account() => kind,
        Some(_) | None if has(&["resource exhausted", "resource_exhausted"]) => FailureKind::RateLimit,
        Some(403) => FailureKind::Auth,
        Some(_) | None if has(&KEY) => FailureKind::Auth,
        Some(_) => FailureKind::Refused,
        None if has(&CAPACITY) => FailureKind::Overloaded,
        None if has(&FAULT) => FailureKind::Server,
        None if has(&INVALID) => FailureKind::Refused,
        None => FailureKind::Server,
    }
}

/// The words that clients look for in a message of this kind, put there if the provider did not say them.
pub(super) const fn label(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Auth => "authentication failed",
        FailureKind::Overflow => "context too long",
        FailureKind::RateLimit => "rate limit",
        FailureKind::Overloaded => "overloaded",
        FailureKind::Server => "server error",
        FailureKind::Network => "connection error",
        FailureKind::Silence => "timeout",
        FailureKind::Broken => "terminated",
        FailureKind::Empty | FailureKind::Refused => "",
        FailureKind::Usage => "usage limit",
        FailureKind::Unpaid => "payment required",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_follows_from_the_status_and_the_words() {
        for (case, status, words, want) in [
            ("key", Some(401), "invalid x-api-key", FailureKind::Auth),
            ("forbidden", Some(403), "not your model", FailureKind::Auth),
            ("google's key", Some(400), "API key not valid. Please pass a valid API key.", FailureKind::Auth),
            ("unpaid", Some(402), "", FailureKind::Unpaid),
            ("unpaid, with other words", Some(402), "usage limit", FailureKind::Unpaid),
            (
                "anthropic window",
                Some(400),
                "prompt is too long: 210000 tokens > 200000 maximum",
                FailureKind::Overflow,
            ),
            ("openai window", Some(400), "This model's maximum context length is 8192 tokens", FailureKind::Overflow),
            ("openai code", None, "context_length_exceeded", FailureKind::Overflow),
            ("empty 400", Some(400), "", FailureKind::Overflow),
            ("empty 413", Some(413), "", FailureKind::Overflow),
            ("plain 400", Some(400), "tools.0.name: bad", FailureKind::Refused),
            ("unknown model", Some(404), "not_found_error model: x", FailureKind::Refused),
            ("rate", Some(429), "slow down", FailureKind::RateLimit),
            ("rate by tokens", Some(429), "too many tokens per minute", FailureKind::RateLimit),
            ("rate in the stream", None, "rate_limit_error Number of requests", FailureKind::RateLimit),
            ("limit reached", Some(429), "Rate limit reached for gpt-5", FailureKind::RateLimit),
            ("quota", Some(429), "You exceeded your current quota, please check your plan", FailureKind::Usage),
            ("no credit", Some(429), "You exceeded your current quota. insufficient_quota", FailureKind::Unpaid),
            ("a quota and its bills", Some(429), "Quota exceeded for requests; see billing", FailureKind::Usage),
            ("usage limit", None, "The usage limit has been reached", FailureKind::Usage),
            ("credit", Some(400), "Your credit balance is too low", FailureKind::Unpaid),
            ("529", Some(529), "", FailureKind::Overloaded),
            ("503", Some(503), "", FailureKind::Overloaded),
            ("overloaded in the stream", None, "overloaded_error Overloaded", FailureKind::Overloaded),
            ("500", Some(500), "internal server error", FailureKind::Server),
            ("502", Some(502), "<html>", FailureKind::Server),
            ("server in the stream", None, "server_error boom", FailureKind::Server),
            ("anything in the stream", None, "boom", FailureKind::Server),
            ("invalid in the stream", None, "invalid_request_error bad", FailureKind::Refused),
            ("redirect", Some(302), "", FailureKind::Refused),
        ] {
            assert_eq!(kind(status, words), want, "{case}");
        }
    }
}
