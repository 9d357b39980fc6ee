//! What people say a session is to be like, beside its model.

use serde::{Deserialize, Serialize};

use crate::schedule::ResetRule;

/// What is set for a session by whoever looks after it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionProfile {
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The model that was chosen for it: provider and id. Absent: it has the usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<(String, String)>,
    /// What its model is told it is, before everything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// How many tokens an answer may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// When it begins anew by itself, if that was ever said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewal: Option<RenewalSettings>,
}

/// Which rule says when a session begins anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RenewalMode {
    /// None.
    #[default]
    Manual,
    /// An hour of the day.
    Daily,
    /// Nothing happened for a while.
    Idle,
}

/// When a session begins anew by itself. What belongs to a rule that does not count is kept for when it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewalSettings {
    /// Which rule counts.
    pub mode: RenewalMode,
    /// The hour of a daily one, 0 to 23; 4 if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hour: Option<u8>,
    /// The minutes of an idle one; 60 if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minutes: Option<u32>,
}

impl RenewalSettings {
    /// The rule that counts.
    pub fn reset_rule(self) -> ResetRule {
        match self.mode {
            RenewalMode::Manual => ResetRule::Manual,
            RenewalMode::Daily => ResetRule::Daily { hour: self.hour.unwrap_or(4) },
            RenewalMode::Idle => ResetRule::Idle { minutes: self.minutes.unwrap_or(60) },
        }
    }
}
