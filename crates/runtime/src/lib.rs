//! Runs the engine: one owner a log, delivery to surfaces, reconciling of owed work, timers.
//!
//! It is mechanism only and knows no provider and no file format by name.

mod clock;
mod deliver;
mod inbox;
mod message_content;
pub mod meters;
mod owner;
mod peers;
pub mod services;
mod work;

pub use clock::Clock;
pub use countersign_models as models;
pub use countersign_store as store;
pub use countersign_tools as tools;
pub use deliver::{
    Contents, FactFollower, FrameRing, Live, LiveKind, Part, Released, RingFrame, RingGap, RingHead, RingLimit,
    RingReader, Subscriber,
};
pub use inbox::{Lane, NotRecorded, Refused, Reply, Source};
pub use message_content::estimated;
pub use owner::{Dice, Handle, OpenError, Options, inspect, record, system_dice};
pub use peers::{Errand, Exchange, Heard, Late, Link, Order, Peers, Words};
pub use work::{
    Chosen, Fired, Host, Memories, NoSummaries, Served, SilentRetries, SummaryPrompts, SummaryRequests, Wing,
    note_down, reference,
};
