//! Failures of an answer, as texts for people and clients and as kinds that a caller acts on.
//!
//! It must not know any reaction to a failure: nothing is retried here.

use std::time::Duration;

pub(crate) use cap::smaller_cap;
pub use ending::EMPTY_ANSWER;
pub(crate) use ending::{AnswerEnding, empty_answer, known_ending, read_ending, without_calls};
pub(crate) use provider_error::{in_stream, no_stream, with_status};

mod cap;
mod classify;
mod ending;
pub(crate) mod hint;
mod provider_error;

/// Failure of an answer, or of its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelFailure {
    /// Kind of the failure, for decisions of a caller.
    pub kind: FailureKind,
    /// Text for people and clients. Holds the provider's own text if there is any, never a credential.
    pub message: String,
    /// The HTTP status, where the provider answered with one that is not a success.
    pub status: Option<u16>,
    /// Wait that the provider requested. Nothing that it did not state.
    pub retry_after: Option<Duration>,
}

/// Kind of a failure, as far as a caller can act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// The credential is missing, wrong or not enough.
    Auth,
    /// The conversation does not fit into the model's window.
    Overflow,
    /// Too many requests.
    RateLimit,
    /// The provider has no capacity at the moment.
    Overloaded,
    /// The provider failed.
    Server,
    /// The provider could not be reached, or the connection broke.
    Network,
    /// Nothing arrived for too long.
    Silence,
    /// The answer ended before its end, or was not in the wire's form.
    Broken,
    /// The answer ended as a whole one and has neither text nor calls.
    Empty,
    /// The provider refused the request or the answer.
    Refused,
    /// The account has used up its quota for some time.
    Usage,
    /// The account has no credit, or is not paid for: waiting does not help.
    Unpaid,
}

impl FailureKind {
    /// Reports whether the same request may succeed later.
    pub const fn is_retryable(self) -> bool {
        match self {
            Self::RateLimit
            | Self::Overloaded
            | Self::Server
            | Self::Network
            | Self::Silence
            | Self::Broken
            | Self::Empty
            | Self::Usage => true,
            Self::Auth | Self::Overflow | Self::Refused | Self::Unpaid => false,
        }
    }

    /// Returns the wait before another attempt if the provider asks for none. The time until a quota is filled again is unknown: hosts
    /// of omp expect half an hour.
    const fn usual_wait(self) -> Option<Duration> {
        match self {
            Self::Usage => Some(Duration::from_secs(30 * 60)),
            Self::Auth
            | Self::Overflow
            | Self::RateLimit
            | Self::Overloaded
            | Self::Server
            | Self::Network
            | Self::Silence
            | Self::Broken
            | Self::Empty
            | Self::Refused
            | Self::Unpaid => None,
        }
    }
}

impl ModelFailure {
    /// Makes a failure without a status.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), status: None, retry_after: None }
    }

    /// Returns the wait before another attempt: the one that the provider requested, else the usual one for its kind.
    pub fn retry_delay(&self) -> Option<Duration> {
        self.retry_after.or_else(|| self.kind.usual_wait())
    }
}

/// Returns a short piece of a provider's text, with everything unprintable made visible.
pub(crate) fn excerpt(text: &str) -> String {
    const LONGEST: usize = 300;
    let text = text.trim();
    let mut short: String = text.chars().take(LONGEST).flat_map(escape_invisible).collect();
    if text.chars().nth(LONGEST).is_some() {
        short.push('…');
    }
    short
}

fn escape_invisible(c: char) -> impl Iterator<Item = char> {
    let plain = !c.is_control()
        && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    let escaped = (!plain).then(|| c.escape_unicode());
    escaped.into_iter().flatten().chain(plain.then_some(c))
}
