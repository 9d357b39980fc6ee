//! Reasons that a message did not reach its server, by what may have left this machine.

/// Failure to send one message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SendError {
    /// No byte of the message left.
    #[error("{0}")]
    NotSent(String),
    /// The message left, or may have, and no answer came back.
    #[error("{0}")]
    Lost(String),
    /// The server answered with a status that is an error, or with something that is no message.
    #[error("{0}")]
    Rejected(String),
    /// The server did not accept the credentials, and so did nothing.
    #[error("{0}")]
    Unauthorized(String),
}
