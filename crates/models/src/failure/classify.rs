//! The kind of failure that a status and a provider's words mean.
//!
//! It must not know a wire: the same words mean the same on all of them. Source: docs/protocol/omp.md, Configuration
//! (retries and overflow).

use super::ending::is_withheld;
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
/// Words of names of errors that come again with each repetition of the request.
const INVALID: [&str; 7] =
    ["invalid", "not_found", "unsupported", "not_supported", "too_large", "too_small", "missing"];
/// The same in messages, which say more and other things.
const IMPOSSIBLE: [&str; 13] = [
    "invalid_request",
    "invalid_argument",
    "invalid_prompt",
    "not_found",
    "not found",
    "does not exist",
    "not supported",
    "unsupported",
    "no such model",
    "unknown model",
    "invalid request",
    "invalid argument",
    "invalid model",
];
/// Words of messages about failures that a gateway met on its way.
const ON_THE_WAY: [&str; 5] = ["upstream", "bad gateway", "timeout", "timed out", "host not found"];
/// Words of messages of a provider that held the answer back.
const HELD_BACK: [&str; 9] = [
    "content_filter",
    "content filter",
    "content policy",
    "content_policy",
    "content management policy",
    "usage polic",
    "moderation",
    "flagged",
    "safety system",
];

/// Reports whether a provider says that it held the answer back, in its names of the error or in its message.
pub(super) fn held_back(message: &str, names: &str) -> bool {
    let message = message.to_lowercase();
    names.split_whitespace().any(is_withheld) || HELD_BACK.iter().any(|word| message.contains(word))
}

/// Reads the kind from the status, if there is one, and from the words: the message and the provider's names of the
/// error.
pub(super) fn classify_failure(status: Option<u16>, message: &str, names: &str) -> FailureKind {
    let words = format!("{message} {names}").to_lowercase();
    let has = |any: &[&str]| any.iter().any(|word| words.contains(word));
    // Some providers say of a quota that is filled again where its bills are paid.
    let of_account = || match () {
        () if has(&SPENT) => Some(FailureKind::Usage),
        () if has(&CREDIT) => Some(FailureKind::Unpaid),
        () if has(&[QUOTA]) => Some(FailureKind::Usage),
        () => None,
    };
    let is_named = |any: &[&str]| any.iter().any(|word| names.to_lowercase().contains(word));
    let held_back = || held_back(message, names);
    match status {
        Some(401) => FailureKind::Auth,
        Some(402) => FailureKind::Unpaid,
        Some(413) => FailureKind::Overflow,
        Some(429) => of_account().unwrap_or(FailureKind::RateLimit),
        // With any status, a name that says so is no failure of the provider.
        Some(500..) if names.split_whitespace().any(is_withheld) => FailureKind::Refused,
        Some(503 | 529) => FailureKind::Overloaded,
        Some(500..) if has(&CAPACITY) => FailureKind::Overloaded,
        Some(500..) if has(&OVERFLOW) => FailureKind::Overflow,
        Some(408 | 500..) => FailureKind::Server,
        Some(_) | None if has(&RATE) => FailureKind::RateLimit,
        Some(_) | None if has(&OVERFLOW) => FailureKind::Overflow,
        Some(400) if words.trim().is_empty() => FailureKind::Overflow,
        Some(_) | None if let Some(kind) = of_account() => kind,
        Some(_) | None if has(&["resource exhausted", "resource_exhausted"]) => FailureKind::RateLimit,
        Some(_) | None if held_back() => FailureKind::Refused,
        Some(403) => FailureKind::Auth,
        Some(_) | None if has(&KEY) => FailureKind::Auth,
        Some(_) => FailureKind::Refused,
        None if has(&CAPACITY) => FailureKind::Overloaded,
        None if has(&FAULT) => FailureKind::Server,
        None if is_named(&INVALID) => FailureKind::Refused,
        None if has(&ON_THE_WAY) => FailureKind::Server,
        None if has(&IMPOSSIBLE) => FailureKind::Refused,
        None => FailureKind::Server,
    }
}

/// Returns the words that clients look for in a message of this kind, put there if the provider did not use them.
pub(super) const fn kind_label(kind: FailureKind) -> &'static str {
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
            assert_eq!(classify_failure(status, words, words), want, "{case}");
        }
    }

    #[test]
    fn what_comes_again_is_refused_by_its_kind() {
        let refused = FailureKind::Refused;
        for (status, message, names, want) in [
            (None, "", "content_filter", refused),
            (None, "no", "content_policy_violation", refused),
            (None, "no", "cyber_policy_violation", refused),
            (None, "no", "ResponsibleAIPolicyViolation", refused),
            (None, "no", "SAFETY", refused),
            (None, "Your input was flagged by our moderation", "", refused),
            (Some(500), "no", "content_filter", refused),
            (Some(403), "Forbidden", "flagged_input", refused),
            (Some(403), "Forbidden", "", FailureKind::Auth),
            (None, "model not found", "", refused),
            (None, "The model x does not exist", "", refused),
            (None, "no", "invalid_image", refused),
            (None, "no", "image_too_large", refused),
            (None, "no", "unsupported_parameter", refused),
            (None, "upstream host not found", "", FailureKind::Server),
            (None, "invalid response", "", FailureKind::Server),
            (None, "The server had an error", "server_error", FailureKind::Server),
            (None, "language model crashed", "", FailureKind::Server),
        ] {
            assert_eq!(classify_failure(status, message, names), want, "{status:?} {message} {names}");
        }
    }
}
