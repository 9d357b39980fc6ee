//! Settings of a session. Values come in by command and are recorded; nothing here reads a file.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{profile::SessionProfile, question_settings::QuestionSettings};
use crate::{policy::ApprovalMode, run::InterruptMode};

pub use crate::model_ref::{ModelPrice, ModelRef};

/// Number of queued messages that one poll takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TakeMode {
    /// The oldest.
    #[default]
    One,
    /// The whole queue.
    All,
}

/// Modes of polling the queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueModes {
    /// Mode of the steering queue.
    pub steering: TakeMode,
    /// Mode of the queue of follow-ups.
    pub follow_up: TakeMode,
    /// Time at which steering messages are read.
    pub interrupt: InterruptMode,
}

/// Policy after a failure of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// True if failed requests are repeated at all.
    pub enabled: bool,
    /// Maximum number of attempts.
    pub max: u32,
    /// The first delay; each further one is twice the last.
    pub base: Duration,
    /// The longest wait: a run whose provider asks for a longer one ends.
    #[serde(default = "longest_wait", skip_serializing_if = "is_longest_wait")]
    pub longest: Duration,
    /// The shortest wait that approvers are asked about, if they can be asked.
    #[serde(default = "ask_after", skip_serializing_if = "is_ask_after")]
    pub ask_after: Duration,
    /// True if approvers are asked about a wait that is longer than the longest. If no person may be reading, the run ends.
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
    /// Returns whether approvers are asked about a wait of this length, if they can be asked.
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

/// Limits of the compaction of a context, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionThresholds {
    /// True if it happens automatically.
    pub auto: bool,
    /// Kept free for the answer, unless 15 % of the window is more.
    pub reserve: u64,
    /// The newest part that is kept as it is.
    pub keep_recent: u64,
    /// An absolute limit in place of the window's.
    pub at_tokens: Option<u64>,
    /// A limit in per cent of the window, 1 to 99.
    pub at_percent: Option<u8>,
}

impl CompactionThresholds {
    /// Returns the number of tokens above which a context of `window` tokens is compacted.
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

/// Context that a run leaves if it was stopped before it called a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoppedRun {
    /// All of it.
    #[default]
    Stays,
    /// Nothing, neither the message nor the beginning of an answer. People see both.
    IsForgotten,
}

impl StoppedRun {
    /// Reports whether it is the default.
    const fn stays(&self) -> bool {
        matches!(self, Self::Stays)
    }
}

/// Sessions that a person's denial of a call binds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DenialReach {
    /// All of the principal that requested the call.
    #[default]
    Principal,
    /// The session of the call alone.
    Session,
}

impl DenialReach {
    /// Reports whether it is the default.
    const fn is_usual(&self) -> bool {
        matches!(self, Self::Principal)
    }
}

/// Flags of a session in lists of sessions. They do not change its conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListingFlags {
    /// True if it is listed before the others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// True if it is archived.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub archived: bool,
    /// True if it is deleted: only the record has it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
}

impl ListingFlags {
    /// Reports whether no flag is set.
    fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}

/// Time of the compaction of a context that has grown too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionTiming {
    /// When a run has ended, and a continuation run follows it.
    #[default]
    AfterRuns,
    /// Before the next message is answered.
    BeforeRuns,
}

/// All settings of one session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The model of the next request; absent until one is chosen.
    pub model: Option<ModelRef>,
    /// Thinking level, in the form of the settings; absent if the model has none or nothing is set.
    pub thinking: Option<String>,
    /// Modes of polling the queues.
    pub modes: QueueModes,
    /// Policy after a failure.
    pub retry: RetryPolicy,
    /// Limits of compaction.
    pub thresholds: CompactionThresholds,
    /// Time that an approval waits for its approver.
    pub approval_timeout: Duration,
    /// Maximum number of pending requests of an agent.
    #[serde(default = "most_pending")]
    pub max_pending: u32,
    /// Time that a question waits for its person.
    pub clarify_timeout: Duration,
    /// Time that a call waits for its peer to connect, and that a peer may not report on a call that it has.
    #[serde(default = "peer_timeout")]
    pub peer_timeout: Duration,
    /// Maximum number of reminders of a run that ended with open tasks.
    pub todo_reminders: u32,
    /// Context that a stopped run leaves.
    #[serde(default, skip_serializing_if = "StoppedRun::stays")]
    pub stopped: StoppedRun,
    /// Sessions that a denial in it binds.
    #[serde(default, skip_serializing_if = "DenialReach::is_usual")]
    pub denials: DenialReach,
    /// Flags in lists.
    #[serde(default, skip_serializing_if = "ListingFlags::is_plain")]
    pub listing: ListingFlags,
    /// Settings of the questions of runs.
    #[serde(default)]
    pub asking: QuestionSettings,
    /// Profile by people.
    #[serde(default)]
    pub profile: SessionProfile,
    /// Calls that a person approves each time, in addition to those that the rules of the session's realm ask for.
    #[serde(default, skip_serializing_if = "ApprovalMode::is_default")]
    pub approval: ApprovalMode,
    /// Time of the compaction of a context that has grown too long.
    #[serde(default)]
    pub sums: CompactionTiming,
    /// Number of tokens of a request in addition to the conversation: an estimate of the system prompt and of the tools.
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
            approval: ApprovalMode::default(),
            sums: CompactionTiming::default(),
            preamble: 0,
        }
    }
}

/// One change of the settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionSetting {
    /// The model of later requests.
    Model(ModelRef),
    /// The thinking level of later requests.
    Thinking(Option<String>),
    /// Modes of polling the queues.
    Modes(QueueModes),
    /// Automatic compaction on or off.
    AutoCompaction(bool),
    /// Retries of failures on or off.
    AutoRetry(bool),
    /// Result of a call that asks if no person can be asked.
    Nobody(Option<String>),
    /// Profile by people.
    Profile(Box<SessionProfile>),
    /// Number of tokens of requests in addition to the conversation.
    Preamble(u64),
    /// Time of the compaction of a context that has grown too long.
    Sums(CompactionTiming),
    /// Sessions that a denial in it binds.
    Denials(DenialReach),
    /// Flags in lists.
    Listing(ListingFlags),
    /// Calls that a person approves each time.
    Approval(ApprovalMode),
    /// All settings at once, from files and flags when the session opens.
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
            SessionSetting::Approval(mode) => self.approval = *mode,
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
