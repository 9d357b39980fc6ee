//! Why there are no settings.

use std::path::PathBuf;

use countersign_config::yaml::{ReadError, WrongType};

/// Why there are no settings.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file cannot be read as YAML.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A setting is of another type than it must be.
    #[error(transparent)]
    WrongType(#[from] WrongType),
    /// A file that the host names is not there.
    #[error("--config {path}: there is no such file", path = .0.display())]
    Absent(PathBuf),
    /// A file that the host names cannot be used.
    #[error("--config {0}")]
    Named(ReadError),
    /// A setting would restrict, and does not here.
    #[error("{0}")]
    Refused(String),
}
