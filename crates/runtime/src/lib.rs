//! Runs the engine: one owner a log, delivery to surfaces, reconciling of owed work, timers.
//!
//! It is mechanism only and knows no provider and no file format by name.

mod clock;
mod deliver;
mod inbox;
mod message_content;
pub mod metrics;
mod owner;
mod peers;
pub mod services;
mod work;

pub use clock::Clock;
pub use countersign_models as models;
pub use countersign_store as store;
pub use countersign_tools as tools;
pub use deliver::{
    ContentCache, FactFollower, FrameRing, LiveKind, LivePartKind, LiveUpdate, ReleasedItem, RingFrame, RingGap,
    RingHead, RingLimit, RingReader, Subscriber,
};
pub use inbox::{CommandSource, InboxLane, NotRecorded, OwnerError, OwnerReply};
pub use message_content::estimate_message_tokens;
pub use owner::{Entropy, OwnerHandle, OwnerOpenError, OwnerOptions, encode_record, inspect_log, system_entropy};
pub use peers::{LateResult, PeerCall, PeerExchange, PeerLink, PeerOrder, PeerRegistry, PeerTexts, ResultTiming};
pub use work::{
    DueFiring, EnvironmentFor, MemoryRequest, NoSummaries, ResolvedModel, RunEnvironment, ServiceOutcome,
    SilentRetries, SummaryPrompts, SummaryRequests, model_ref, note_down,
};
