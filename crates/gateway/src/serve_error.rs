//! Errors of starting a gateway, and of one that ends by itself.

use std::path::PathBuf;

use countersign_config::BindError;
use countersign_http::listen::TlsError;
use countersign_policy_admin::rules_error::RulesLoadError;
use countersign_runtime::{OwnerError, services::BadService, store};
use countersign_telegram::BadAddress;

use crate::error_hints::log_open_error;

/// Error of starting or running a gateway.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address may not be bound.
    #[error(transparent)]
    Binding(#[from] BindError),
    /// The folder of a front end contains none.
    #[error("{0}")]
    FrontEnd(String),
    /// The rules cannot be used.
    #[error(transparent)]
    Rules(#[from] RulesLoadError),
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A service cannot be used.
    #[error(transparent)]
    Service(#[from] BadService),
    /// An MCP server cannot be used.
    #[error(transparent)]
    McpServer(#[from] countersign_mcp_client::BadDefinition),
    /// The record cannot be opened.
    #[error("{}", log_open_error(path, problem))]
    Log {
        /// File.
        path: PathBuf,
        /// Reason. It is part of the message already, and no further source.
        problem: store::LogOpenError,
    },
    /// The record cannot be worked with.
    #[error(transparent)]
    Owner(#[from] countersign_runtime::OwnerOpenError),
    /// The messenger's address is invalid.
    #[error("messenger.telegram.api_url: {0}")]
    Messenger(#[from] BadAddress),
    /// An adapter could not be opened.
    #[error(transparent)]
    Refused(#[from] OwnerError),
    /// A variable for traces is invalid.
    #[cfg(feature = "otlp")]
    #[error(transparent)]
    Traces(#[from] countersign_otlp::OtlpConfigError),
    /// Secrets that were set over the gsv adapter cannot be read.
    #[error("{0}")]
    Secrets(String),
    /// A gateway that serves one program and ends with it is no node.
    #[error(
        "a gateway for one program cannot be a node of a cluster: remove the section `cluster`, or run `countersign serve`"
    )]
    Standalone,
    /// A gateway that serves one program and ends with it has one realm.
    #[error("a gateway for one program serves one realm: name its configuration with --config")]
    SeveralRealms,
    /// A node of a cluster needs a database.
    #[error("cluster needs the record in a database: set storage.type to 'postgres'")]
    NoDatabase,
    /// One of several realms.
    #[error("realm {name}: {problem}")]
    Realm {
        /// Name of the realm.
        name: String,
        /// Reason. It is part of the message already, and no further source.
        problem: Box<ServeError>,
    },
    /// The owner of the record ended by itself; the log of the program has the reason.
    #[error("the record can no longer be used; see the log for the cause")]
    Lost,
    /// A file or a port failed.
    #[error("{what}: {problem}")]
    Io {
        /// Port, or failed action with its file.
        what: String,
        /// Error of the system. It is part of the message already, and no further source.
        problem: std::io::Error,
    },
}

impl ServeError {
    pub(crate) fn of_io(what: &str, problem: std::io::Error) -> Self {
        Self::Io { what: what.to_owned(), problem }
    }
}
