//! Calls of programs that others run, such as Claude Code or a host of MCP: the gateway decides them, and the program acts.
//!
//! A call becomes a request of the engine. The same call repeated joins it, also after a restart, and its outcome is delivered once.
//! It must not know any wire: adapters decode calls and encode outcomes.

mod call_limits;
mod calls;
mod decisions;
mod delivery;
mod foreign_calls;
mod outcome_router;
mod program_tools;
mod requester;
mod session;
mod shared_tools;

pub use call_limits::CallLimits;
pub use calls::{CallProblem, ForeignCall, ProgressSink, open_session_for};
pub use decisions::{
    LARGEST_ARGUMENTS, check_size, is_decision_only, key_prefix, new_decision, new_request, own_call_id, run_prefix,
};
pub use delivery::{Delivery, OutcomeSharing};
pub use foreign_calls::ForeignCalls;
pub use outcome_router::CallOutcome;
pub use program_tools::build_program_request;
pub use requester::Requester;
pub use session::open_session;
