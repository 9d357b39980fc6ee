//! What a decision reads and what it gives: the whole state, the commands, and the facts and replies that come of them.
//!
//! It must not know how anything is decided: deciders and settle rules stand above it, and the engine above these.

mod admitted;
mod command;
mod compaction;
mod contracts;
mod event;
mod gates;
mod meters;
mod residency;
mod rules;
mod snapshot;
mod state;
pub(crate) mod texts;
mod tree;
mod view;

pub use admitted::Admitted;
pub use command::{Command, Refusal, Reply, Resume};
pub use event::{Decode, Event, Fact, Meta};
pub use residency::Scope;
pub use rules::Rules;
pub use snapshot::SNAPSHOT_VERSION;
pub use state::State;
pub use view::Context;

pub(crate) use compaction::{
    affordable, prune, started as compaction_started, started_again as compaction_started_again,
    started_for as compaction_started_for,
};
pub(crate) use residency::{Fetched, scope_of};
pub(crate) use rules::Guests;
pub(crate) use tree::Branch;
pub(crate) use view::{Decision, View};
