//! Thinking levels in the words and numbers of the providers.
//!
//! It must not decide the level, which comes with the request. Source: docs/protocol/omp.md, Configuration (thinking
//! levels).

use crate::ThinkingLevel;

/// Tokens to think with, for Anthropic.
pub(crate) const fn anthropic_budget(level: ThinkingLevel) -> Option<u64> {
    match level {
        ThinkingLevel::Off => None,
        ThinkingLevel::Minimal => Some(1024),
        ThinkingLevel::Low => Some(4096),
        ThinkingLevel::Medium => Some(8192),
        ThinkingLevel::High => Some(16384),
        ThinkingLevel::Xhigh => Some(32768),
    }
}

/// Returns the effort of Anthropic's adaptive thinking.
pub(crate) const fn anthropic_effort(level: ThinkingLevel) -> Option<&'static str> {
    match level {
        ThinkingLevel::Off => None,
        ThinkingLevel::Minimal | ThinkingLevel::Low => Some("low"),
        ThinkingLevel::Medium => Some("medium"),
        ThinkingLevel::High => Some("high"),
        ThinkingLevel::Xhigh => Some("max"),
    }
}

/// Tokens to think with, for Google. Zero turns thinking off.
pub(crate) const fn google_budget(level: ThinkingLevel) -> u64 {
    match level {
        ThinkingLevel::Off => 0,
        ThinkingLevel::Minimal => 1024,
        ThinkingLevel::Low => 4096,
        ThinkingLevel::Medium => 8192,
        ThinkingLevel::High => 16384,
        ThinkingLevel::Xhigh => 24575,
    }
}

/// Returns Google's name of the level, for models that know names. They cannot be turned off: the least is used instead.
pub(crate) const fn google_level(level: ThinkingLevel) -> &'static str {
    match level {
        ThinkingLevel::Off | ThinkingLevel::Minimal => "MINIMAL",
        ThinkingLevel::Low => "LOW",
        ThinkingLevel::Medium => "MEDIUM",
        ThinkingLevel::High | ThinkingLevel::Xhigh => "HIGH",
    }
}

/// Returns OpenAI's name of the level. `None` leaves it to the model, which is the only way to request none.
pub(crate) const fn openai_effort(level: ThinkingLevel) -> Option<&'static str> {
    match level {
        ThinkingLevel::Off => None,
        ThinkingLevel::Minimal
        | ThinkingLevel::Low
        | ThinkingLevel::Medium
        | ThinkingLevel::High
        | ThinkingLevel::Xhigh => Some(level.as_str()),
    }
}
