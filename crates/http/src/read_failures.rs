//! Log lines about a record that cannot be read: all requests fail then, so one line a minute names the cause for all of them.
//!
//! It must not know the requests.

use std::{error::Error, sync::LazyLock};

use parking_lot::Mutex;

use crate::log_throttle::LogThrottle;

/// Failures of all readers.
static FAILURES: LazyLock<Mutex<LogThrottle>> = LazyLock::new(Mutex::default);

/// Logs why the record cannot be read, at most once a minute. `effect` is what the caller does because of it.
pub fn log_read_failure(error: &dyn Error, effect: &'static str) {
    if let Some(before) = FAILURES.lock().try_log() {
        tracing::warn!(error = cause_text(error), before, effect, "failed to read the record");
    }
}

/// Returns the text of an error with its causes.
pub fn cause_text(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use countersign_runtime::store::{ErrorCause, LogReadError};

    use super::cause_text;

    #[test]
    fn a_failure_to_read_is_logged_with_its_cause() {
        let error = LogReadError::Io(ErrorCause::new(std::io::Error::other("connection refused")));
        assert_eq!(cause_text(&error), "the log could not be read: connection refused");
        assert!(!error.is_of_silent_database());
    }
}
