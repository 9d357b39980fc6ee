//! Keeps an unattended run within its budget: a start reserves, an end settles at the actual use.
//!
//! It must not know the content of a call or a model request, only the maximum cost. Money is whole micro-dollars.

mod budget;
mod state;

pub use self::{
    budget::{BudgetAmount, BudgetBreach, BudgetLimits, LedgerMetric},
    state::{Event, ReservationId, SettleError, State},
};
