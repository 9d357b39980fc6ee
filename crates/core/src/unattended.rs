//! The contract of a session that works without people: what it may do, what it may use up, and what becomes of it.
//!
//! It must not know doors or files. The contract binds everything that works in the session, whoever began it, and goes on
//! across restarts. What starts reserves in its ledger, what ends settles; see [`ledger`](crate::ledger).

mod command;
mod event;
mod state;
mod terms;

pub use self::{
    command::{Command, ContractCarryover, ContractOutcome, DeclareError, HostCommandNeeds},
    event::{BreachPoint, Event},
    state::{ContractStatus, UnattendedContract},
    terms::{BreachResponse, ContractTerms, TermsWidening},
};
