//! Output of an owner: committed facts and live frames, in one order, for any number of followers.

mod contents;
mod fact_follower;
mod frame_ring;
mod live;
mod ring;

pub use contents::ContentCache;
pub use fact_follower::FactFollower;
pub use frame_ring::{FrameRing, RingFrame, RingGap, RingHead, RingLimit, RingReader};
pub use live::{LiveKind, LivePartKind, LiveUpdate};
pub use ring::{ReleasedItem, Subscriber};

pub(crate) use ring::ReleaseRing;
