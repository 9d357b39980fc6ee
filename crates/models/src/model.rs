//! The one thing that every model can do.
//!
//! It must not know how a model does it.

use futures_util::stream::BoxStream;

use crate::{ModelEvent, ModelFailure, ModelRequest};

/// Answers requests with streams of events.
pub trait LanguageModel: Send + Sync {
    /// Sends a request to the model. Nothing happens before the stream is polled.
    ///
    /// Shape: as [`ModelEvent`] says, or any prefix of that and then one failure, which is the last item. Nothing is
    /// retried.
    ///
    /// Cancellation: dropping the stream closes the connection at once.
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<ModelEvent, ModelFailure>>;
}
