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
    /// The server refused it with a status, or its answer is larger than a message may be.
    #[error("{0}")]
    Rejected(String),
    /// An answer came, of the server or of a proxy before it, from which it cannot be known what the server did: a status that
    /// proxies use as well, or a body that is no message.
    #[error("{0}")]
    Doubtful(String),
    /// The server did not accept the credentials. It may have done something all the same.
    #[error("{0}")]
    Unauthorized(String),
}
