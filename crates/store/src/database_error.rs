//! Errors of a database server: what is wrong with it, and the cause of a failed statement.
//!
//! Nothing here knows the log.

use std::{error::Error, fmt, path::PathBuf};

use tokio_postgres::error::{DbError, Severity, SqlState};

/// Why a database cannot hold the log, or cannot be reached. Nothing in it was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each message names its fields")]
pub enum DatabaseError {
    /// The address is not one of PostgreSQL.
    #[error(
        "invalid address of a PostgreSQL database: {problem}; expected e.g. postgres://USER:PASSWORD@HOST:5432/DATABASE"
    )]
    Address { problem: String },
    /// The file of trusted certificates cannot be used.
    #[error("cannot read trusted certificates from {}: {problem}", .path.display())]
    CaFile { path: PathBuf, problem: String },
    /// The trusted certificates of the machine cannot be used.
    #[error("cannot read the trusted certificates of this machine: {problem}")]
    Trust { problem: String },
    /// No server answers.
    #[error("PostgreSQL at {server} is not reachable: {problem}")]
    Unreachable { server: String, problem: String },
    /// The server offers no TLS, or its certificate is not trusted.
    #[error("no TLS to PostgreSQL at {server}: {problem}")]
    Tls { server: String, problem: String },
    /// The server refuses the role, or its password.
    #[error("PostgreSQL at {server} refuses the login: {problem}")]
    Login { server: String, problem: String },
    /// The server has no such database.
    #[error("PostgreSQL at {server} has no such database: {problem}")]
    NoDatabase { server: String, problem: String },
    /// The role lacks a privilege.
    #[error("the role of PostgreSQL at {server} lacks a privilege: {problem}")]
    Privilege { server: String, problem: String },
    /// The server's version is too old.
    #[error("PostgreSQL at {server} has version {found}, {needed} or newer is needed")]
    OldServer { server: String, found: String, needed: u32 },
    /// The server cannot be written.
    #[error("PostgreSQL at {server} is a standby: use the address of the primary")]
    Standby { server: String },
    /// The server loses commits.
    #[error("PostgreSQL at {server} would lose commits: {setting} is {value}, on is needed")]
    NotDurable { server: String, setting: &'static str, value: String },
    /// The database has another encoding.
    #[error("the database at {server} has the encoding {found}, UTF8 is needed")]
    Encoding { server: String, found: String },
    /// A later version of the program laid out its tables.
    #[error("the database at {server} has schema version {found}, this program knows {known} and older")]
    NewerSchema { server: String, found: i64, known: i64 },
    /// A later version of the program wrote its events.
    #[error("the database at {server} has event format {found}, this program knows {known} and older")]
    NewerEvents { server: String, found: i64, known: u32 },
    /// No log to read.
    #[error("the database at {server} has no log")]
    NoLog { server: String },
    /// Another gateway writes the log.
    #[error("the log in the database at {server} is owned by {owner}")]
    Owned { server: String, owner: String },
    /// The process does not hold the lease of the realm.
    #[error("the lease of the realm {realm} in the database at {server} has ended")]
    NoLease { server: String, realm: String },
    /// Another process has the name of the node.
    #[error(
        "another process is node {node} of the cluster in the database at {server}: stop it, or choose another cluster.name"
    )]
    NodeExists { server: String, node: String },
    /// A statement failed.
    #[error("PostgreSQL at {server} failed: {problem}")]
    Failed { server: String, problem: String, full: bool },
}

impl DatabaseError {
    /// Reports whether only space was missing.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Failed { full: true, .. })
    }

    /// Names a failed connection to `server`.
    pub(crate) fn of_connect(server: &str, error: &tokio_postgres::Error) -> Self {
        let (server, problem) = (server.to_owned(), describe(error));
        let code = error.code();
        if code == Some(&SqlState::INVALID_PASSWORD) || code == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION) {
            return Self::Login { server, problem };
        }
        if code == Some(&SqlState::INVALID_CATALOG_NAME) {
            return Self::NoDatabase { server, problem };
        }
        if code.is_some() {
            return Self::of_statement(&server, error);
        }
        // The library tells these apart by their text only.
        let text = error.to_string();
        if text.starts_with("error performing TLS handshake") {
            return Self::Tls { server, problem };
        }
        if problem.contains("does not allow writes") {
            return Self::Standby { server };
        }
        if text.starts_with("authentication error") || text.starts_with("invalid configuration") {
            return Self::Login { server, problem };
        }
        Self::Unreachable { server, problem }
    }

    /// Names a failed statement at `server`.
    pub(crate) fn of_statement(server: &str, error: &tokio_postgres::Error) -> Self {
        let (server, problem) = (server.to_owned(), describe(error));
        match error.code() {
            Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => Self::Privilege { server, problem },
            Some(code) if *code == SqlState::READ_ONLY_SQL_TRANSACTION => Self::Standby { server },
            Some(code) => Self::Failed { server, problem, full: is_full(code) },
            None if error.is_closed() => Self::Unreachable { server, problem },
            None => Self::Failed { server, problem, full: false },
        }
    }
}

fn is_full(code: &SqlState) -> bool {
    *code == SqlState::DISK_FULL
}

/// Returns the text of an error with its causes, or with the server's own words.
fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(error) = error.as_db_error() {
        return server_words(error);
    }
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

fn server_words(error: &DbError) -> String {
    match error.detail() {
        Some(detail) => format!("{} ({detail})", error.message()),
        None => error.message().to_owned(),
    }
}

/// How a statement ended that did not succeed.
#[derive(Clone, Debug)]
pub(crate) enum StatementError {
    /// The server refused it: its transaction wrote nothing.
    Refused(ServerError),
    /// The connection broke, or the server was silent for too long: it may have written all of it.
    Lost(ServerError),
}

/// A server's words, or the failure of the connection to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerError {
    text: String,
    pub(crate) full: bool,
}

impl ServerError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), full: false }
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for ServerError {}

impl From<tokio_postgres::Error> for StatementError {
    fn from(error: tokio_postgres::Error) -> Self {
        let text = describe(&error);
        match error.as_db_error() {
            // The end of a session can come after its commit.
            Some(server) if !ends_session(server) => Self::Refused(ServerError { text, full: is_full(server.code()) }),
            Some(_) | None => Self::Lost(ServerError::new(text)),
        }
    }
}

fn ends_session(error: &DbError) -> bool {
    matches!(error.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
        || error.code().code().starts_with("08")
        || *error.code() == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN
}

impl From<StatementError> for ServerError {
    fn from(error: StatementError) -> Self {
        match error {
            StatementError::Refused(error) | StatementError::Lost(error) => error,
        }
    }
}
