//! A copy of a log that somebody may be writing.
//!
//! It must not know what is made of the copy.

use std::path::Path;

use super::file::{open_error, open_to_read};
use crate::error::LogOpenError;

/// Writes what the log at `path` holds now into a new file at `to`, packed: nothing that was redacted or left over is in it. Who
/// writes the log goes on meanwhile. The copy is not synced.
///
/// # Errors
/// [`OpenError`]; [`OpenError::Missing`] if there is no log. Something may lie at `to` then.
pub fn copy_log(path: impl AsRef<Path>, to: impl AsRef<Path>, event_format: u32) -> Result<(), LogOpenError> {
    let (path, to) = (path.as_ref(), to.as_ref());
    let missing = || LogOpenError::Missing { path: path.to_owned() };
    if !path.exists() {
        return Err(missing());
    }
    let connection = open_to_read(path, event_format)?.ok_or_else(missing)?;
    connection.execute("VACUUM INTO ?1", [to.to_string_lossy()]).map(drop).map_err(|error| open_error(path, error))
}
