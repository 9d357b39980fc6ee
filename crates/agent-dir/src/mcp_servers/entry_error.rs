//! Reasons why an entry of a file is left out.

use countersign_config::{mcp_checks::McpValueError, yaml::WrongType};

/// Reason why an entry is left out. Every message begins with its place and holds no value of the file.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum McpEntryError {
    /// A value is of another kind.
    #[error(transparent)]
    WrongType(#[from] WrongType),
    /// A value cannot be used.
    #[error("{place}{error}")]
    Value { place: String, error: McpValueError },
    /// There are two transports.
    #[error("{0}command and url exclude each other: expected command for a program, or url for an address")]
    BothTransports(String),
    /// There is no transport, or not that of the type.
    #[error("{place}expected {expected}")]
    NoTransport { place: String, expected: &'static str },
    /// An older transport of the original.
    #[error("{0}sse is not supported here; expected stdio or http, which servers call streamable HTTP")]
    Sse(String),
    /// A header stands there twice.
    #[error("{0}another header of this server has this name; letter case does not distinguish headers")]
    HeaderTwice(String),
    /// A user would have to sign in at the server.
    #[error("{0}signing in with a browser is not supported here; expected a header Authorization")]
    SignIn(String),
    /// The value is a command.
    #[error(
        "{0}a value that starts with ! is a command, which is not run here; expected the value, or the name of an environment variable"
    )]
    Command(String),
    /// A project's file names a variable that may hold a credential.
    #[error(
        "{place}{variable} may hold a credential, and a project's file cannot use it: define the server in mcp.json of the agent directory"
    )]
    Credential { place: String, variable: String },
    /// A member takes rights away.
    #[error(
        "{0}this member restricts and is not enforced here; expected enabled: false, or rules about mcp__SERVER__TOOL"
    )]
    Restricts(String),
}
