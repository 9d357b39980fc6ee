//! Notices to users, each with its severity.
//!
//! It must not know where they are written.

use std::sync::Arc;

/// Severity of a notice to users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeLevel {
    /// As it should be.
    Info,
    /// Something that a user should look at.
    Warning,
}

/// Callback for notices to users.
pub type NoticeFn = Arc<dyn Fn(NoticeLevel, &str) + Send + Sync>;
