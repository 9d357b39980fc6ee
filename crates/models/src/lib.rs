//! Speaks the wires of model providers behind one stream of events.
//!
//! It knows nothing of sessions, gates or doors: a request goes in, events with part indices come out.

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

pub use cost::{Dollars, cost};
pub use entry::{Api, Entry, Level, Modality, Price, Thinking, ThinkingMode};
pub use event::{Event, PartKind, Stop, Usage};
pub use failure::{EMPTY_ANSWER, Failure, FailureKind};
pub use futures_util::stream::BoxStream;
#[cfg(feature = "fuzzing")]
pub use fuzz::{decode, fuzz};
pub use model::Model;
pub use providers::Providers;
pub use request::{AssistantMessage, Message, Part, Request, Tool};
pub use secrecy::SecretString;
