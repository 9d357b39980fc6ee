//! Settings that a host can change permanently, and the key under which each is kept.
//!
//! It must not know who makes the change.

use countersign_config::yaml::edit::{EditError, set_key};
use countersign_runtime::models::entry::ThinkingLevel;
use serde_json::Value;

use super::AgentDir;

/// A setting that outlives the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingChange<'a> {
    /// The model of new sessions, as `provider/id`.
    Model(&'a str),
    /// Thinking level of new sessions.
    ThinkingLevel(ThinkingLevel),
    /// Mode in which steering messages are taken from their queue. Any text.
    SteeringMode(&'a str),
    /// Mode in which follow-ups are taken from their queue. Any text.
    FollowUpMode(&'a str),
    /// When steering interrupts. Any text.
    InterruptMode(&'a str),
    /// True if the context is shortened by itself.
    AutoCompaction(bool),
    /// True if failed requests are repeated.
    AutoRetry(bool),
}

/// Writes `change` into the user's settings; everything else there stays.
///
/// # Errors
/// [`EditError`], with the file untouched.
pub fn persist_change(folder: &AgentDir, change: SettingChange<'_>) -> Result<(), EditError> {
    let (key, value): (&[&str], Value) = match change {
        SettingChange::Model(model) => (&["modelRoles", "default"], model.into()),
        SettingChange::ThinkingLevel(level) => (&["defaultThinkingLevel"], level.as_str().into()),
        SettingChange::SteeringMode(mode) => (&["steeringMode"], mode.into()),
        SettingChange::FollowUpMode(mode) => (&["followUpMode"], mode.into()),
        SettingChange::InterruptMode(mode) => (&["interruptMode"], mode.into()),
        SettingChange::AutoCompaction(enabled) => (&["compaction", "enabled"], enabled.into()),
        SettingChange::AutoRetry(enabled) => (&["retry", "enabled"], enabled.into()),
    };
    set_key(&folder.config_path(), key, &value)
}

#[cfg(test)]
mod tests {
    use countersign_runtime::models::entry::ThinkingLevel;

    use super::{AgentDir, SettingChange, persist_change};
    use crate::{AgentProduct, AgentSettings, ProcessEnvironment};

    #[test]
    fn what_is_persisted_is_read_again() {
        let home = tempfile::tempdir().unwrap();
        let environment: ProcessEnvironment = [("HOME", home.path().to_str().unwrap())].into_iter().collect();
        let folder = AgentDir::resolve(AgentProduct::Omp, &environment, home.path(), |_| false).unwrap();
        let odd = "odd: \"text\"\n# no comment";
        for change in [
            SettingChange::Model("openrouter/qwen/qwen3:free"),
            SettingChange::ThinkingLevel(ThinkingLevel::Off),
            SettingChange::SteeringMode("all"),
            SettingChange::FollowUpMode(odd),
            SettingChange::InterruptMode("wait"),
            SettingChange::AutoCompaction(false),
            SettingChange::AutoRetry(false),
            SettingChange::Model("local/small-1"),
        ] {
            persist_change(&folder, change).unwrap();
        }
        let mut want = AgentSettings::default();
        want.model_roles.insert("default".to_owned(), "local/small-1".to_owned());
        want.thinking_level = ThinkingLevel::Off;
        want.steering_mode = "all".to_owned();
        want.follow_up_mode = odd.to_owned();
        want.interrupt_mode = "wait".to_owned();
        want.compaction.enabled = false;
        want.retry.enabled = false;
        assert_eq!(AgentSettings::load(&folder, home.path()).unwrap(), want);
    }
}
