//! Time at which a run reads steering messages.

use serde::{Deserialize, Serialize};

/// Time at which a steering message is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InterruptMode {
    /// After each finished call; the calls after it are skipped.
    #[default]
    Immediate,
    /// After the turn.
    Wait,
}
