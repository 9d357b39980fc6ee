//! Speaks the wires of model providers and turns each into one stream of events.
//!
//! It knows nothing of sessions, gates or adapters: a request goes in, events with part indices come out.

mod answer;
pub mod catalogue;
mod cost;
pub mod demo;
pub mod entry;
mod event;
mod failure;
#[cfg(feature = "fuzzing")]
mod fuzz;
mod model;
mod providers;
mod request;
pub mod scripted;
mod wire;

pub use cost::{CostBreakdown, usage_cost};
pub use entry::{InputModality, ModelApi, ModelEntry, ThinkingLevel, ThinkingParameter, ThinkingSupport, TokenPrice};
pub use event::{FinishReason, ModelEvent, ModelUsage, PartKind};
pub use failure::{EMPTY_ANSWER, FailureKind, ModelFailure};
pub use futures_util::stream::BoxStream;
#[cfg(feature = "fuzzing")]
pub use fuzz::{decode, fuzz};
pub use model::LanguageModel;
pub use providers::ProviderClient;
pub use request::{AnswerMessage, MessagePart, ModelRequest, ModelTool, RequestMessage};
pub use secrecy::SecretString;
