//! The owner: one task that owns the state of one log. Sources bring commands, a batch becomes durable, and only then does anything leave.

mod fact_tracing;
mod handle;
mod open;
mod parking;
mod record;
mod snapshots;
mod step;

use std::sync::Arc;

use countersign_core::engine::{ActiveRules, ResumeMode};

pub use handle::OwnerHandle;
pub use open::{OwnerOpenError, inspect_log};
pub use record::encode_record;

use crate::{Clock, work::RunEnvironment};

/// Options of an owner.
pub struct OwnerOptions {
    /// The rules in force.
    pub rules: ActiveRules,
    /// Mode for work that a restart interrupted: resumed by itself or not.
    pub resume: ResumeMode,
    /// Source of time.
    pub clock: Clock,
    /// Source of randomness: 16 random bytes a call.
    pub entropy: Entropy,
    /// Environment of work: models, tools, prompts.
    pub environment: Arc<dyn RunEnvironment>,
    /// Time for which deltas of one block are gathered before they are released; zero releases each at once.
    pub merge: std::time::Duration,
    /// Time for which a session without work or waits stays in memory; absent: as long as the owner lives.
    pub idle: Option<std::time::Duration>,
}

/// Rolls 16 random bytes.
pub type Entropy = Arc<dyn Fn() -> [u8; 16] + Send + Sync>;

/// Returns the machine's dice.
pub fn system_entropy() -> Entropy {
    Arc::new(|| {
        let mut seed = [0; 16];
        // Without randomness two processes could give the same ids; there is no way to go on.
        getrandom::fill(&mut seed).expect("the operating system has randomness");
        seed
    })
}
