//! A gate: the one durable form of every wait for a decision.

mod command;
mod event;
pub(crate) mod sign_off;
mod state;
mod step;
pub(crate) mod words;

pub use command::{Answer, AnswerRefusal, Command, Form, Grant};
pub use event::{Choice, Content, Event, Fallback, Kind, Resolution, Scope, Stage};
pub use sign_off::{APPROVE, CHANGE, DECLINE, Decision, NAMED, REJECT, decision};
pub use state::{Gate, Phase, Showing};
pub use step::{OnExpiry, People, Step, Vote};
pub use words::{form, said};
