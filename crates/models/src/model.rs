//! The one thing that every model can do.
//!
//! It must not know how a model does it.

use futures_util::stream::BoxStream;

use crate::{ModelEvent, ModelFailure, ModelRequest};

/// Answers requests with streams of events.
///
/// # Example
///
/// ```
/// # use std::{sync::Arc, time::Duration};
/// # use countersign_models::{ModelFailure, demo};
/// use countersign_models::scripted::{ScriptedModel, ScriptedReply};
/// use countersign_models::{LanguageModel, MessagePart, ModelEvent, ModelRequest, RequestMessage};
/// use futures_util::StreamExt;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ModelFailure> {
/// let question = MessagePart::Text { text: "What is on?".to_owned(), signature: None };
/// let request = ModelRequest {
///     messages: vec![RequestMessage::User(vec![question])],
///     // The entry of the model, its tools and limits follow.
/// #     entry: Arc::new(demo::model_entry()),
/// #     key: None,
/// #     system: None,
/// #     tools: Vec::new(),
/// #     max_tokens: None,
/// #     level: None,
/// #     session: None,
/// #     silence: Duration::from_secs(120),
/// };
/// let model = ScriptedModel::new([ScriptedReply::new().add_text(["The lamp", " is on."]).end()]);
///
/// let mut events = model.stream(request);
/// let mut answer = String::new();
/// while let Some(event) = events.next().await {
///     if let ModelEvent::Delta { text, .. } = event? {
///         answer.push_str(&text);
///     }
/// }
/// assert_eq!(answer, "The lamp is on.");
/// # Ok(())
/// # }
/// ```
pub trait LanguageModel: Send + Sync {
    /// Sends a request to the model. Nothing happens before the stream is polled.
    ///
    /// Shape: as [`ModelEvent`] says, or any prefix of that and then one failure, which is the last item. Nothing is
    /// retried.
    ///
    /// Cancellation: dropping the stream closes the connection at once.
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<ModelEvent, ModelFailure>>;
}
