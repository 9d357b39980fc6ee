//! The contract of a session that works without approvers: its limits, its budget, and its end.
//!
//! It must not know adapters or files. The contract binds everything that works in the session, from any requester, and persists
//! across restarts. A start reserves in its ledger, an end settles; see [`ledger`](crate::ledger).

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
