//! A copy of a log that may have a writer.
//!
//! It must not know the use of the copy.

use std::path::Path;

use super::file::{io_error, open_error, open_to_read};
use crate::error::LogOpenError;

/// Writes the current log at `path` into a new file at `to`, packed: nothing that was redacted or left over is in it. The writer of
/// the log continues meanwhile. The copy is not synced.
///
/// # Errors
/// [`LogOpenError`]; [`LogOpenError::Missing`] if there is no log. A partial file may remain at `to` then.
pub fn copy_log(path: impl AsRef<Path>, to: impl AsRef<Path>, event_format: u32) -> Result<(), LogOpenError> {
    let (path, to) = (path.as_ref(), to.as_ref());
    let missing = || LogOpenError::Missing { path: path.to_owned() };
    if !path.exists() {
        return Err(missing());
    }
    let reader = open_to_read(path, event_format)?.ok_or_else(missing)?;
    let copied = reader.connection.execute("VACUUM INTO ?1", [to.to_string_lossy()]);
    reader.check_unchanged(path).map_err(|error| io_error(path, error))?;
    copied.map(drop).map_err(|error| open_error(path, error))
}
