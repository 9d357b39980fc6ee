//! Limits of the calls of a principal.

use std::time::Duration;

/// Limits of a principal.
#[derive(Clone, Copy, Debug)]
pub struct CallLimits {
    /// Most calls in any 60 seconds.
    pub per_minute: u32,
    /// Most calls that wait for approval at once.
    pub pending: u32,
    /// Lifetime of an approval.
    pub approval_timeout: Duration,
    /// Lifetime of a question.
    pub question_timeout: Duration,
}
