//! Keeps an unattended run within its budget: what starts reserves, what ends settles at what it took.
//!
//! It must not know what a call or a model request is, only what it may cost. Money is whole micro-dollars.

mod budget;
mod state;

pub use self::{
    budget::{BudgetAmount, BudgetBreach, BudgetLimits, LedgerMetric},
    state::{Event, ReservationId, SettleError, State},
};
