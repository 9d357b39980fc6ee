//! The settings that a session begins with.

use countersign_agent_dir as agent_dir;
use countersign_core::session::{CompactionThresholds, InterruptMode, QueueModes, RetryPolicy, Settings, TakeMode};
use countersign_runtime::models::ModelEntry;

use super::models;

/// Builds the settings of a new session: the user's, with the model and the level of thinking that were chosen.
pub(super) fn build_settings(
    settings: &agent_dir::AgentSettings,
    modes: &[String; 3],
    entry: &ModelEntry,
    thinking_level: &str,
    reminders: u32,
) -> Settings {
    let compaction = &settings.compaction;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 1 and 99")]
    let at_percent = compaction.threshold_percent.map(|percent| percent.clamp(1.0, 99.0) as u8);
    Settings {
        model: Some(models::model_ref(entry)),
        thinking: models::clamp_level(entry, Some(thinking_level)).map(|level| level.as_str().to_owned()),
        modes: queue_modes(modes),
        retry: RetryPolicy {
            enabled: settings.retry.enabled,
            max: settings.retry.max_retries,
            base: settings.retry.base_delay,
            longest: settings.retry.max_delay,
            ask_after: settings.ours.retry_ask_after,
            ..RetryPolicy::default()
        },
        thresholds: CompactionThresholds {
            auto: compaction.enabled,
            reserve: compaction.reserve_tokens,
            keep_recent: compaction.keep_recent_tokens,
            at_tokens: compaction.threshold_tokens,
            at_percent,
        },
        approval_timeout: settings.ours.approval_timeout,
        clarify_timeout: settings.ours.clarify_timeout,
        peer_timeout: settings.ours.host_timeout,
        todo_reminders: reminders,
        ..Settings::default()
    }
}

/// Returns the modes of these words. An unknown word means the default.
pub(crate) fn queue_modes([steering, follow_up, interrupt]: &[String; 3]) -> QueueModes {
    let take = |word: &str| if word == "all" { TakeMode::All } else { TakeMode::One };
    let interrupt = if interrupt == "wait" { InterruptMode::Wait } else { InterruptMode::Immediate };
    QueueModes { steering: take(steering), follow_up: take(follow_up), interrupt }
}
