//! Input and output of a decision: the whole state, the commands, and the facts and replies that result from them.
//!
//! It must not contain decisions: deciders and settle rules depend on it, and the engine on these.

mod admitted;
mod branch_builder;
mod command;
mod compaction;
mod contracts;
mod event;
mod gate_index;
mod meters;
mod residency;
mod rules;
mod snapshot;
mod state;
pub(crate) mod texts;
mod view;

pub use admitted::{AdmittedContent, ParsedContents, WantedContents};
pub use command::{Command, CommandError, EngineReply, ResumeMode};
pub use event::{Event, EventDecodeError, Fact, FactMeta};
pub use residency::ResidencyScope;
pub use rules::ActiveRules;
pub use snapshot::SNAPSHOT_VERSION;
pub use state::State;
pub use view::DecisionContext;

pub(crate) use branch_builder::BranchBuilder;
pub(crate) use compaction::{
    check_compaction_budget, compaction_started, compaction_started_again, compaction_started_for, prune_entries,
};
pub(crate) use residency::{FetchTimes, scope_of};
pub(crate) use rules::HostedRules;
pub(crate) use view::{DecisionResult, DecisionView};
