//! How soon a run looks at steering messages.

use serde::{Deserialize, Serialize};

/// When a steering message is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InterruptMode {
    /// After each finished call; the calls behind it are skipped.
    #[default]
    Immediate,
    /// After the turn.
    Wait,
}
