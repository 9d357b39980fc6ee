//! Limits of a client of the adapter.

use std::time::Duration;

/// Largest message of a client, in bytes.
pub(super) const LARGEST_MESSAGE: usize = 4 << 20;
/// Largest arguments of a call, in bytes of JSON. Approvers are shown all of them.
pub(super) const LARGEST_ARGUMENTS: usize = 1 << 20;

/// Limits of a principal.
#[derive(Clone, Copy, Debug)]
pub struct McpLimits {
    /// Most calls in any 60 seconds.
    pub per_minute: u32,
    /// Most calls that wait for approval at once.
    pub pending: u32,
    /// Lifetime of an approval.
    pub approval_timeout: Duration,
    /// Lifetime of a question.
    pub question_timeout: Duration,
}
