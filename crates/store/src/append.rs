//! Errors of an append, and the answer that it gets once it is durable.
//!
//! Nothing here knows where a log is kept.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use countersign_core::id::Lsn;

use crate::{
    error::AppendError,
    record::{Batch, Epoch, FACTS_LIMIT},
};

/// Future answer to a submitted append: the position of its last record, once the batch is durable.
///
/// Dropping it withdraws nothing: the batch is written all the same, and its outcome is lost.
#[must_use = "the batch may not be durable yet"]
pub struct PendingAppend(Pin<Box<dyn Future<Output = Result<Lsn, AppendError>> + Send>>);

impl PendingAppend {
    /// Wraps the answer of a store. For implementations of [`Log`](crate::Log).
    pub fn new(answer: impl Future<Output = Result<Lsn, AppendError>> + Send + 'static) -> Self {
        Self(Box::pin(answer))
    }
}

impl Future for PendingAppend {
    type Output = Result<Lsn, AppendError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for PendingAppend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingAppend").finish_non_exhaustive()
    }
}

impl Batch {
    /// Refuses facts that are too large, before anything is written.
    fn check_sizes(&self) -> Result<(), AppendError> {
        match self.0.iter().position(|record| record.facts.len() > FACTS_LIMIT) {
            Some(index) => Err(AppendError::TooLarge { index, size: self.0[index].facts.len() }),
            None => Ok(()),
        }
    }

    /// Decides whether the batch may be written in `epoch` after `expected`, when its turn comes: `current` is the epoch of
    /// the partition then, and `found` the position of its last record.
    ///
    /// # Errors
    /// In this order: [`AppendError::Fenced`], [`AppendError::TooLarge`], [`AppendError::Position`].
    pub(crate) fn check_turn(
        &self,
        (epoch, expected): (Epoch, Lsn),
        (current, found): (Epoch, Lsn),
    ) -> Result<(), AppendError> {
        if epoch != current || epoch == Epoch::NONE {
            return Err(AppendError::Fenced { epoch, current });
        }
        self.check_sizes()?;
        if expected != found {
            return Err(AppendError::Position { expected, found });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::id::Lsn;

    use super::{Batch, Epoch, FACTS_LIMIT};
    use crate::{
        error::AppendError,
        record::LogRecord,
        suite::{text_batch, text_record},
    };

    #[test]
    fn an_append_needs_the_epoch_before_the_size_and_the_size_before_the_position() {
        let small = text_batch(&["one"]);
        let large = Batch(vec![LogRecord { facts: "1".repeat(FACTS_LIMIT + 1).into(), ..text_record("large") }]);
        for (case, epoch, batch, expected, current, want) in [
            ("in order", 2, &small, 7, 2, "ok"),
            ("older", 1, &small, 7, 2, "fenced"),
            ("newer", 3, &small, 7, 2, "fenced"),
            ("never taken over", 0, &small, 7, 0, "fenced"),
            ("older and too large", 1, &large, 6, 2, "fenced"),
            ("too large elsewhere", 2, &large, 6, 2, "too large"),
            ("elsewhere", 2, &small, 6, 2, "position"),
        ] {
            let got = match batch.check_turn((Epoch(epoch), Lsn(expected)), (Epoch(current), Lsn(7))) {
                Ok(()) => "ok",
                Err(AppendError::Fenced { .. }) => "fenced",
                Err(AppendError::TooLarge { .. }) => "too large",
                Err(AppendError::Position { .. }) => "position",
                Err(other) => panic!("{case}: {other:?}"),
            };
            assert_eq!(got, want, "{case}");
        }
    }
}
