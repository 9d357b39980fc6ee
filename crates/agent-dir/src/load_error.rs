//! Why there are no settings.

use std::path::PathBuf;

use countersign_config::yaml::{WrongType, YamlReadError};

/// Why there are no settings.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file cannot be read as YAML.
    #[error(transparent)]
    Read(#[from] YamlReadError),
    /// A setting is of another type than it must be.
    #[error(transparent)]
    WrongType(#[from] WrongType),
    /// A file that the host names is not there.
    #[error("--config {path}: there is no such file", path = .0.display())]
    Absent(PathBuf),
    /// A file that the host names cannot be used.
    #[error("--config {0}")]
    Named(YamlReadError),
    /// A setting would restrict, and does not here.
    #[error("{0}")]
    Refused(String),
}
