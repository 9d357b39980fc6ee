//! Profile of a session: settings by people in addition to its model.

use serde::{Deserialize, Serialize};

use crate::schedule::ResetRule;

/// Settings of a session by its owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionProfile {
    /// Its label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The model that was chosen for it: provider and id. Absent: the default model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<(String, String)>,
    /// System prompt of its model, before everything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// Maximum number of tokens of an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Settings of its automatic restart, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewal: Option<RenewalSettings>,
}

/// Rule for the restart of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RenewalMode {
    /// None.
    #[default]
    Manual,
    /// An hour of the day.
    Daily,
    /// A while without events.
    Idle,
}

/// Settings of the automatic restart of a session. Values of an inactive rule are kept for later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewalSettings {
    /// The active rule.
    pub mode: RenewalMode,
    /// The hour of a daily restart, 0 to 23; 4 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hour: Option<u8>,
    /// The minutes of an idle restart; 60 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minutes: Option<u32>,
}

impl RenewalSettings {
    /// Returns the active rule.
    pub fn reset_rule(self) -> ResetRule {
        match self.mode {
            RenewalMode::Manual => ResetRule::Manual,
            RenewalMode::Daily => ResetRule::Daily { hour: self.hour.unwrap_or(4) },
            RenewalMode::Idle => ResetRule::Idle { minutes: self.minutes.unwrap_or(60) },
        }
    }
}
