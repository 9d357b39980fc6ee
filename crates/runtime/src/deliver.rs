//! What leaves an owner: committed facts and live frames, in one order, for any number of followers.

mod contents;
mod fact_follower;
mod frame_ring;
mod live;
mod ring;

pub use contents::Contents;
pub use fact_follower::FactFollower;
pub use frame_ring::{FrameRing, RingFrame, RingGap, RingHead, RingLimit, RingReader};
pub use live::{Live, LiveKind, Part};
pub use ring::{Released, Subscriber};

pub(crate) use ring::Ring;
