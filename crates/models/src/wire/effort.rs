//! How much to think, in the words and numbers of the providers.
//!
//! It must not decide the level, which comes with the request. Source: docs/protocol/omp.md, Configuration (thinking
//! levels).

use crate::Level;

/// Tokens to think with, for Anthropic.
pub(crate) const fn anthropic_budget(level: Level) -> Option<u64> {
    match level {
        Level::Off => None,
        Level::Minimal => Some(1024),
        Level::Low => Some(4096),
        Level::Medium => Some(8192),
        Level::High => Some(16384),
        Level::Xhigh => Some(32768),
    }
}

/// The effort of Anthropic's adaptive thinking.
pub(crate) const fn anthropic_effort(level: Level) -> Option<&'static str> {
    match level {
        Level::Off => None,
        Level::Minimal | Level::Low => Some("low"),
        Level::Medium => Some("medium"),
        Level::High => Some("high"),
        Level::Xhigh => Some("max"),
    }
}

/// Tokens to think with, for Google. Zero turns thinking off.
pub(crate) const fn google_budget(level: Level) -> u64 {
    match level {
        Level::Off => 0,
        Level::Minimal => 1024,
        Level::Low => 4096,
        Level::Medium => 8192,
        Level::High => 16384,
        Level::Xhigh => 24575,
    }
}

/// Google's name of the level, for models that know names. They cannot be turned off: the least is asked for instead.
pub(crate) const fn google_level(level: Level) -> &'static str {
    match level {
        Level::Off | Level::Minimal => "MINIMAL",
        Level::Low => "LOW",
        Level::Medium => "MEDIUM",
        Level::High | Level::Xhigh => "HIGH",
    }
}

/// OpenAI's name of the level. `None` leaves it to the model, which is the only way to ask for nothing.
pub(crate) const fn openai_effort(level: Level) -> Option<&'static str> {
    match level {
        Level::Off => None,
        Level::Minimal | Level::Low | Level::Medium | Level::High | Level::Xhigh => Some(level.as_str()),
    }
}
