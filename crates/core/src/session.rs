//! A session: one conversation as a tree of entries, its settings and its queues.
//!
//! State holds the index of the tree, never its text: content is fetched by position outside the owner.

mod asking;
mod begun;
mod breaker;
mod command;
mod compaction;
mod context;
mod cut;
mod event;
mod gathering;
mod keys;
mod profile;
mod renewal;
mod requester;
mod run_settings;
mod settings;
mod stages;
mod state;
mod used;
mod withheld;

pub use crate::run::Interrupt;
pub use asking::{Asking, Otherwise, Patience, Told};
pub(crate) use breaker::Answered;
pub use breaker::{Breaker, Phase as BreakerPhase, TRIPS_AT};
pub use command::{Command, CompactRefusal, Compacted, Gathered, Imported, Key, Part, PromptRefusal, Said, WhenBusy};
pub use compaction::Compaction;
pub use context::Piece;
pub use cut::Cut;
pub use event::{CameTo, Event, Kind, Reason, Then, model_change};
pub use keys::{Done, Keys};
pub use profile::{Profile, Renewal, RenewalMode};
pub use requester::{Asked, Counts, Keyed, Outcome, Requester, counted};
pub use settings::{
    DenialReach, Listing, ModelRef, Modes, Price, Retry, Setting, Settings, Stopped, Sums, Take, Thresholds,
};
pub use state::{Entry, Hosted, Queue, Queued, Session};
pub use withheld::Withheld;
