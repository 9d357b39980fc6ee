//! Why an adapter did not open.

use std::path::{Path, PathBuf};

use crate::open_session_error::OpenSessionError;

/// Why the adapter did not open. The text is for a person.
#[derive(Debug, thiserror::Error)]
#[error("{problem}")]
pub struct StartError {
    problem: String,
    /// The gateway that the session lives in, by its data directory.
    home: Option<PathBuf>,
}

impl StartError {
    pub fn new(problem: impl ToString) -> Self {
        Self { problem: problem.to_string(), home: None }
    }

    /// Returns the data directory of the gateway that the session lives in, where that is why it did not open.
    pub fn gateway_home(&self) -> Option<&Path> {
        self.home.as_deref()
    }
}

impl From<OpenSessionError> for StartError {
    fn from(error: OpenSessionError) -> Self {
        let home = match &error {
            OpenSessionError::Elsewhere { gateway, .. } => Some(gateway.clone()),
            _ => None,
        };
        Self { home, ..Self::new(error) }
    }
}
