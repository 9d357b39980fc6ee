//! Why a gateway does not start, or ends by itself.

use std::path::PathBuf;

use countersign_config::BindError;
use countersign_http::listen::TlsError;
use countersign_policy_admin::rules_error::RulesLoadError;
use countersign_runtime::{OwnerError, services::BadService, store};
use countersign_telegram::BadAddress;

use crate::error_hints::log_open_error;

/// Why a gateway did not start, or went down.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It may not listen where it was told to.
    #[error(transparent)]
    Binding(#[from] BindError),
    /// The folder of a front end holds none.
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
    /// The record cannot be opened.
    #[error("{}", log_open_error(path, problem))]
    Log {
        /// The file.
        path: PathBuf,
        /// Why. It stands in the message already, and is no further cause.
        problem: store::LogOpenError,
    },
    /// The record cannot be worked with.
    #[error(transparent)]
    Owner(#[from] countersign_runtime::OwnerOpenError),
    /// The messenger's address is none.
    #[error("messenger.telegram.api_url: {0}")]
    Messenger(#[from] BadAddress),
    /// A door could not be opened.
    #[error(transparent)]
    Refused(#[from] OwnerError),
    /// What the environment says of traces has no meaning.
    #[cfg(feature = "otlp")]
    #[error(transparent)]
    Traces(#[from] countersign_otlp::OtlpConfigError),
    /// Secrets that were set over the gsv door cannot be read.
    #[error("{0}")]
    Secrets(String),
    /// The owner of the record ended by itself; why stands in the log of the program.
    #[error("the record can no longer be worked with")]
    Lost,
    /// A file or a port.
    #[error("{what}: {problem}")]
    Io {
        /// Which.
        what: String,
        /// What the system says. It stands in the message already, and is no further cause.
        problem: std::io::Error,
    },
}

impl ServeError {
    pub(crate) fn of_io(what: &str, problem: std::io::Error) -> Self {
        Self::Io { what: what.to_owned(), problem }
    }
}
