//! A gate: the one durable form of every wait for a decision.

mod command;
mod event;
pub(crate) mod sign_off;
mod state;
mod step;
pub(crate) mod text_answers;

pub use command::{AnswerError, AnswerForm, Command, GateReply, GrantTerms};
pub(crate) use event::CLOSED;
pub use event::{ApprovalScope, Event, Fallback, GateChoice, GateContent, GateResolution, GateStage, Kind};
pub use sign_off::{APPROVE, CHANGE, DECLINE, NAMED, REJECT, SignOffDecision, parse_decision};
pub use state::{Gate, GatePhase, GateSurface};
pub use step::{ApprovalStep, IdentityMap, OnExpiry, Vote};
pub use text_answers::{parse_form, parse_words};
