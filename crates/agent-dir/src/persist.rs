//! Which settings a host can change for good, and under which key each is kept.
//!
//! It must not know who changes them.

use countersign_config::yaml::edit::{EditError, set};
use countersign_runtime::models::entry::ThinkingLevel;
use serde_json::Value;

use super::AgentDir;

/// A setting that outlives the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// The model of new sessions, as `provider/id`.
    Model(&'a str),
    /// How much new sessions think.
    ThinkingLevel(ThinkingLevel),
    /// How steering messages are taken from their queue. Any text.
    SteeringMode(&'a str),
    /// How follow-ups are taken from their queue. Any text.
    FollowUpMode(&'a str),
    /// When steering interrupts. Any text.
    InterruptMode(&'a str),
    /// Whether the context is shortened by itself.
    AutoCompaction(bool),
    /// Whether failed requests are repeated.
    AutoRetry(bool),
}

/// Writes `change` into the user's settings; everything else there stays.
///
/// # Errors
/// [`EditError`], with the file untouched.
pub fn persist(folder: &AgentDir, change: Change<'_>) -> Result<(), EditError> {
    let (key, value): (&[&str], Value) = match change {
        Change::Model(model) => (&["modelRoles", "default"], model.into()),
        Change::ThinkingLevel(level) => (&["defaultThinkingLevel"], level.as_str().into()),
        Change::SteeringMode(mode) => (&["steeringMode"], mode.into()),
        Change::FollowUpMode(mode) => (&["followUpMode"], mode.into()),
        Change::InterruptMode(mode) => (&["interruptMode"], mode.into()),
        Change::AutoCompaction(enabled) => (&["compaction", "enabled"], enabled.into()),
        Change::AutoRetry(enabled) => (&["retry", "enabled"], enabled.into()),
    };
    set(&folder.config(), key, &value)
}

#[cfg(test)]
mod tests {
    use countersign_runtime::models::entry::ThinkingLevel;

    use super::{AgentDir, Change, persist};
    use crate::{Environment, Product, Settings};

    #[test]
    fn what_is_persisted_is_read_again() {
        let home = tempfile::tempdir().unwrap();
        let environment: Environment = [("HOME", home.path().to_str().unwrap())].into_iter().collect();
        let folder = AgentDir::resolve(Product::Omp, &environment, home.path(), |_| false).unwrap();
        let odd = "odd: \"text\"\n# no comment";
        for change in [
            Change::Model("openrouter/qwen/qwen3:free"),
            Change::ThinkingLevel(ThinkingLevel::Off),
            Change::SteeringMode("all"),
            Change::FollowUpMode(odd),
            Change::InterruptMode("wait"),
            Change::AutoCompaction(false),
            Change::AutoRetry(false),
            Change::Model("local/small-1"),
        ] {
            persist(&folder, change).unwrap();
        }
        let mut want = Settings::default();
        want.model_roles.insert("default".to_owned(), "local/small-1".to_owned());
        want.thinking_level = ThinkingLevel::Off;
        want.steering_mode = "all".to_owned();
        want.follow_up_mode = odd.to_owned();
        want.interrupt_mode = "wait".to_owned();
        want.compaction.enabled = false;
        want.retry.enabled = false;
        assert_eq!(Settings::load(&folder, home.path()).unwrap(), want);
    }
}
