//! What a session's person has set. Values come in by command and are recorded; nothing here reads a file.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{profile::SessionProfile, question_settings::QuestionSettings};
use crate::run::InterruptMode;

pub use crate::model_ref::{ModelPrice, ModelRef};

/// How many queued messages one poll takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TakeMode {
    /// The oldest.
    #[default]
    One,
    /// The whole queue.
    All,
}

/// How queues are polled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueModes {
    /// Of the steering queue.
    pub steering: TakeMode,
    /// Of the queue of follow-ups.
    pub follow_up: TakeMode,
    /// When steering is looked at.
    pub interrupt: InterruptMode,
}

/// What happens after a provider failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// Whether it is tried again at all.
    pub enabled: bool,
    /// How often at most.
    pub max: u32,
    /// The first delay; each further one is twice the last.
    pub base: Duration,
    /// The longest wait: a run whose provider asks for a longer one ends.
    #[serde(default = "longest_wait", skip_serializing_if = "is_longest_wait")]
    pub longest: Duration,
    /// The shortest wait that people are asked about, where they can be asked.
    #[serde(default = "ask_after", skip_serializing_if = "is_ask_after")]
    pub ask_after: Duration,
    /// Whether people are asked about a wait that is longer than the longest. Where nobody may be reading, the run ends.
    #[serde(default = "yes", skip_serializing_if = "std::clone::Clone::clone")]
    pub ask_beyond: bool,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            enabled: true,
            max: 3,
            base: Duration::from_secs(2),
            longest: longest_wait(),
            ask_after: ask_after(),
            ask_beyond: true,
        }
    }
}

fn longest_wait() -> Duration {
    Duration::from_secs(30 * 60)
}

impl RetryPolicy {
    /// Returns whether people are asked about a wait of this length, where they can be asked.
    pub fn asks_about(&self, wait: Duration) -> bool {
        wait >= self.ask_after && (self.ask_beyond || wait <= self.longest)
    }
}

const fn yes() -> bool {
    true
}

fn ask_after() -> Duration {
    Duration::from_secs(3 * 60)
}

fn is_ask_after(wait: &Duration) -> bool {
    *wait == ask_after()
}

fn is_longest_wait(wait: &Duration) -> bool {
    *wait == longest_wait()
}

/// When and how far a context is compacted. Tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionThresholds {
    /// Whether it happens by itself.
    pub auto: bool,
    /// Kept free for the answer, unless 15 % of the window is more.
    pub reserve: u64,
    /// The newest part that is kept as it is.
    pub keep_recent: u64,
    /// An absolute limit in the place of the window's.
    pub at_tokens: Option<u64>,
    /// A limit in per cent of the window, 1 to 99.
    pub at_percent: Option<u8>,
}

impl CompactionThresholds {
    /// The number of tokens above which a context of `window` tokens is compacted.
    pub fn token_limit(&self, window: u64) -> u64 {
        if let Some(tokens) = self.at_tokens {
            return tokens.min(window.saturating_sub(1));
        }
        if let Some(percent) = self.at_percent {
            return window / 100 * u64::from(percent.clamp(1, 99));
        }
        window.saturating_sub((window / 100 * 15).max(self.reserve))
    }
}

/// What the model is shown afterwards of a run that somebody stopped before it called anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoppedRun {
    /// All of it.
    #[default]
    Stays,
    /// Nothing, neither the message nor the beginning of an answer. People are shown both.
    IsForgotten,
}

impl StoppedRun {
    /// Whether it is what is usual.
    const fn stays(&self) -> bool {
        matches!(self, Self::Stays)
    }
}

/// Which sessions a person's denial of a call binds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DenialReach {
    /// All of the principal that wanted the call.
    #[default]
    Principal,
    /// The session of the call alone.
    Session,
}

impl DenialReach {
    /// Whether it is what is usual.
    const fn is_usual(&self) -> bool {
        matches!(self, Self::Principal)
    }
}

/// What a person set for a session in lists of sessions. Its conversation is as it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListingFlags {
    /// Whether it stands before the others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// Whether it is put away.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub archived: bool,
    /// Whether it is deleted: only the record knows it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
}

impl ListingFlags {
    /// Whether nothing was set.
    fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}

/// When a context that has grown too long is summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionTiming {
    /// When a run has ended, and a run that goes on follows it.
    #[default]
    AfterRuns,
    /// Before the next message is answered.
    BeforeRuns,
}

/// Everything that is set for one session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The model of the next request; absent until one is chosen.
    pub model: Option<ModelRef>,
    /// How much it is asked to think, in the words of the settings; absent where the model cannot or nothing is set.
    pub thinking: Option<String>,
    /// How queues are polled.
    pub modes: QueueModes,
    /// After a failure.
    pub retry: RetryPolicy,
    /// Of compaction.
    pub thresholds: CompactionThresholds,
    /// How long an approval waits for its person.
    pub approval_timeout: Duration,
    /// How many requests of an agent may wait for people at once.
    #[serde(default = "most_pending")]
    pub max_pending: u32,
    /// How long a question waits for its person.
    pub clarify_timeout: Duration,
    /// How long a call waits for its peer to come, and how long a peer may say nothing of a call that it has.
    #[serde(default = "peer_timeout")]
    pub peer_timeout: Duration,
    /// How often a run that ended with open tasks is reminded of them.
    pub todo_reminders: u32,
    /// What is left of a run that was stopped.
    #[serde(default, skip_serializing_if = "StoppedRun::stays")]
    pub stopped: StoppedRun,
    /// Which sessions a denial in it binds.
    #[serde(default, skip_serializing_if = "DenialReach::is_usual")]
    pub denials: DenialReach,
    /// How lists show it.
    #[serde(default, skip_serializing_if = "ListingFlags::is_plain")]
    pub listing: ListingFlags,
    /// How runs ask people.
    #[serde(default)]
    pub asking: QuestionSettings,
    /// What people say it is to be like.
    #[serde(default)]
    pub profile: SessionProfile,
    /// When a context that has grown too long is summed up.
    #[serde(default)]
    pub sums: CompactionTiming,
    /// How many tokens a request has beside the conversation: an estimate of what the model is told first, and of its tools.
    #[serde(default)]
    pub preamble: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            model: None,
            thinking: None,
            modes: QueueModes::default(),
            retry: RetryPolicy::default(),
            thresholds: CompactionThresholds {
                auto: true,
                reserve: 16_384,
                keep_recent: 20_000,
                at_tokens: None,
                at_percent: None,
            },
            approval_timeout: Duration::from_secs(900),
            max_pending: most_pending(),
            clarify_timeout: Duration::from_secs(3600),
            peer_timeout: peer_timeout(),
            todo_reminders: 0,
            stopped: StoppedRun::Stays,
            denials: DenialReach::Principal,
            listing: ListingFlags::default(),
            asking: QuestionSettings::default(),
            profile: SessionProfile::default(),
            sums: CompactionTiming::default(),
            preamble: 0,
        }
    }
}

/// One change of the settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionSetting {
    /// The model of the requests to come.
    Model(ModelRef),
    /// The thinking level of the requests to come.
    Thinking(Option<String>),
    /// How queues are polled.
    Modes(QueueModes),
    /// Whether compaction happens by itself.
    AutoCompaction(bool),
    /// Whether failures are retried.
    AutoRetry(bool),
    /// What a call that asks is told where nobody can be asked.
    Nobody(Option<String>),
    /// What people say it is to be like.
    Profile(Box<SessionProfile>),
    /// How many tokens requests have beside the conversation.
    Preamble(u64),
    /// When a context that has grown too long is summed up.
    Sums(CompactionTiming),
    /// Which sessions a denial in it binds.
    Denials(DenialReach),
    /// How lists show it.
    Listing(ListingFlags),
    /// Everything at once, as files and flags have it when the session opens.
    All(Box<Settings>),
}

impl Settings {
    pub(super) fn apply_setting(&mut self, setting: &SessionSetting) {
        match setting {
            SessionSetting::Model(model) => self.model = Some(model.clone()),
            SessionSetting::Thinking(level) => self.thinking.clone_from(level),
            SessionSetting::Modes(modes) => self.modes = *modes,
            SessionSetting::AutoCompaction(auto) => self.thresholds.auto = *auto,
            SessionSetting::AutoRetry(enabled) => self.retry.enabled = *enabled,
            SessionSetting::Nobody(nobody) => self.asking.nobody.clone_from(nobody),
            SessionSetting::Profile(profile) => self.profile = (**profile).clone(),
            SessionSetting::Preamble(tokens) => self.preamble = *tokens,
            SessionSetting::Sums(sums) => self.sums = *sums,
            SessionSetting::Denials(reach) => self.denials = *reach,
            SessionSetting::Listing(listing) => self.listing = *listing,
            SessionSetting::All(all) => *self = (**all).clone(),
        }
    }
}

fn most_pending() -> u32 {
    10
}

fn peer_timeout() -> Duration {
    Duration::from_secs(3600)
}

#[cfg(test)]
mod tests {
    use super::{CompactionThresholds, Settings};

    #[test]
    fn the_limit_of_a_context_follows_its_window_unless_one_is_set() {
        let plain = Settings::default().thresholds;
        for (case, thresholds, window, want) in [
            ("reserve is more than 15 %", plain, 64_000, 64_000 - 16_384),
            ("15 % is more than the reserve", plain, 200_000, 170_000),
            ("absolute", CompactionThresholds { at_tokens: Some(5_000), ..plain }, 200_000, 5_000),
            ("absolute above the window", CompactionThresholds { at_tokens: Some(9_000), ..plain }, 8_000, 7_999),
            ("per cent", CompactionThresholds { at_percent: Some(50), ..plain }, 64_000, 32_000),
            ("a window below the reserve", plain, 8_000, 0),
        ] {
            assert_eq!(thresholds.token_limit(window), want, "{case}");
        }
    }
}
