//! Table of settings: paths, kinds of values, and defaults.

use serde_json::Value;

use crate::gsv::session::MOST_IDLE_MINUTES;

/// Kind of a setting's value.
#[derive(Clone, Copy, Debug)]
pub(super) enum SettingKind {
    Text,
    /// A part of session keys.
    Name,
    /// A text that is kept apart and never shown.
    Secret,
    /// Key with which both ends sign.
    Signing,
    Texts,
    Flag,
    /// A whole number within bounds.
    Count(u64, u64),
    OneOf(&'static [&'static str]),
    /// URL of a server.
    Address,
    /// `HH:MM`.
    Clock,
    /// `30m`, `1h30m`, or 0.
    Span,
    /// An object of lists of texts.
    TextsByName,
    /// A list of objects, which the rows below it look at; each has this member, and no two the same where it is a name.
    Items(&'static str),
}

impl SettingKind {
    pub(super) fn accepts_value(self, value: &Value) -> bool {
        let text = |value: &Value| value.as_str().is_some_and(|text| !text.trim().is_empty());
        let texts = |value: &Value| value.as_array().is_some_and(|items| items.iter().all(text));
        match self {
            Self::Text => text(value),
            Self::Name => value.as_str().is_some_and(is_name),
            Self::Secret => value.as_str().is_some_and(is_secret),
            Self::Signing => value.as_str().is_some_and(|text| is_secret(text) && is_signing(text)),
            Self::Texts => texts(value),
            Self::Flag => value.is_boolean(),
            Self::Count(least, most) => value.as_u64().is_some_and(|count| (least..=most).contains(&count)),
            Self::OneOf(words) => value.as_str().is_some_and(|text| words.contains(&text)),
            Self::Address => value.as_str().is_some_and(is_address),
            Self::Clock => value.as_str().is_some_and(is_clock),
            Self::Span => value.as_u64() == Some(0) || value.as_str().is_some_and(is_span),
            Self::TextsByName => value.as_object().is_some_and(|members| members.values().all(texts)),
            Self::Items(_) => value.as_array().is_some_and(|items| items.iter().all(Value::is_object)),
        }
    }

    pub(super) fn expected_form(self) -> String {
        match self {
            Self::Text => "a text that is not empty".to_owned(),
            Self::Name => "a name of 1 to 64 letters, digits, `_`, `-` and `.`".to_owned(),
            Self::Secret => {
                "a text of 1 to 4096 bytes without control characters or white space at its ends".to_owned()
            }
            Self::Signing => {
                "whsec_ and base64 of at least 16 bytes, or another text of at least 16 characters,".to_owned()
            }
            Self::Texts => "an array of strings that are not empty".to_owned(),
            Self::Flag => "true or false".to_owned(),
            Self::Count(least, most) => format!("a whole number from {least} to {most}"),
            Self::OneOf(words) => format!("one of {}", words.join(", ")),
            Self::Address => "an address such as https://example.org/path, without a password,".to_owned(),
            Self::Clock => "a time such as 08:00".to_owned(),
            Self::Span => "a span such as 30m or 1h30m, or 0 for never".to_owned(),
            Self::TextsByName => "an object of arrays of strings that are not empty".to_owned(),
            Self::Items(_) => "an array of objects".to_owned(),
        }
    }
}

/// Returns true if it is one part of a key, with any parts next to it.
fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (1..=64).contains(&text.len()) && text.bytes().all(is_plain)
}

/// Returns true if any client can write the text unchanged as a secret.
fn is_secret(text: &str) -> bool {
    !text.is_empty() && text.len() <= 4096 && text.trim() == text && !text.chars().any(char::is_control)
}

/// Returns true for a text that cannot be guessed and that signatures can be made with.
fn is_signing(text: &str) -> bool {
    let Some(encoded) = text.strip_prefix("whsec_") else { return text.len() >= 16 };
    let bare = encoded.trim_end_matches('=');
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    encoded.len() % 4 == 0 && encoded.len() - bare.len() <= 2 && bare.len() * 3 / 4 >= 16 && bare.bytes().all(is_base64)
}

/// Returns true for an address without a user name and a password: everyone who may read settings sees it.
fn is_address(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let is_bare = |rest: &str| !rest.split(['/', '?', '#']).next().unwrap_or_default().contains('@');
    let is_there = |rest: &&str| !rest.is_empty() && !rest.starts_with('/') && !text.contains(char::is_whitespace);
    rest.filter(is_there).is_some_and(is_bare)
}

fn is_clock(text: &str) -> bool {
    let is_two = |part: &str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
    let two = |part: &str| is_two(part).then(|| part.parse::<u32>().ok()).flatten();
    let Some((hour, minute)) = text.split_once(':') else { return false };
    match (two(hour), two(minute)) {
        (Some(hour), Some(minute)) => minute < 60 && hour * 60 + minute <= 24 * 60,
        _ => false,
    }
}

fn is_span(text: &str) -> bool {
    let mut rest = text.trim();
    if rest == "0" {
        return true;
    }
    let mut parts = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 || digits > 6 {
            return false;
        }
        let Some(behind) = rest[digits..].strip_prefix(['s', 'm', 'h', 'd']) else { return false };
        rest = behind.trim_start();
        parts += 1;
    }
    parts > 0
}

const POLICIES: SettingKind = SettingKind::OneOf(&["open", "allowlist", "pairing"]);
const SCOPES: SettingKind = SettingKind::OneOf(&["main", "per-peer", "per-channel-peer", "per-account-channel-peer"]);
const RESETS: SettingKind = SettingKind::OneOf(&["manual", "daily", "idle"]);
const LEVELS: SettingKind = SettingKind::OneOf(&["none", "off", "minimal", "low", "medium", "high", "xhigh"]);

/// Every setting by its path; `*` is any name. More exact paths come first.
pub(super) const TABLE: &[(&str, SettingKind)] = &[
    ("model.provider", SettingKind::Text),
    ("model.id", SettingKind::Text),
    ("model.thinkingLevel", LEVELS),
    ("apiKeys.*", SettingKind::Secret),
    ("timeouts.llmMs", SettingKind::Count(1_000, 3_600_000)),
    ("timeouts.toolMs", SettingKind::Count(1_000, 3_600_000)),
    ("timeouts.skillProbeMaxAgeMs", SettingKind::Count(1_000, 86_400_000)),
    ("auth.token", SettingKind::Secret),
    ("transcription.provider", SettingKind::OneOf(&["workers-ai", "openai"])),
    ("channels.*.dmPolicy", POLICIES),
    ("channels.*.allowFrom", SettingKind::Texts),
    ("channels.webhook.url", SettingKind::Address),
    ("channels.webhook.secret", SettingKind::Signing),
    ("channels.webhook.accounts.*.url", SettingKind::Address),
    ("channels.webhook.accounts.*.secret", SettingKind::Signing),
    ("systemPrompt", SettingKind::Text),
    ("session.defaultResetPolicy.mode", RESETS),
    ("session.defaultResetPolicy.atHour", SettingKind::Count(0, 23)),
    ("session.defaultResetPolicy.idleMinutes", SettingKind::Count(0, MOST_IDLE_MINUTES)),
    ("session.mainKey", SettingKind::Name),
    ("session.dmScope", SCOPES),
    ("session.identityLinks", SettingKind::TextsByName),
    ("session.identityLinks.*", SettingKind::Texts),
    ("skills.entries.*.enabled", SettingKind::Flag),
    ("skills.entries.*.always", SettingKind::Flag),
    ("skills.entries.*.requires.bins", SettingKind::Texts),
    ("skills.entries.*.requires.anyBins", SettingKind::Texts),
    ("skills.entries.*.requires.env", SettingKind::Texts),
    ("skills.entries.*.requires.config", SettingKind::Texts),
    ("skills.entries.*.requires.os", SettingKind::Texts),
    ("skills.entries.*.requires.hostRoles", SettingKind::Texts),
    ("skills.entries.*.requires.capabilities", SettingKind::Texts),
    ("skills.entries.*.requires.anyCapabilities", SettingKind::Texts),
    ("agents.list", SettingKind::Items("id")),
    ("agents.list.*.id", SettingKind::Text),
    ("agents.list.*.default", SettingKind::Flag),
    ("agents.list.*.model.provider", SettingKind::Text),
    ("agents.list.*.model.id", SettingKind::Text),
    ("agents.list.*.systemPrompt", SettingKind::Text),
    ("agents.list.*.mcp", SettingKind::Flag),
    ("agents.list.*.heartbeat.every", SettingKind::Span),
    ("agents.list.*.heartbeat.prompt", SettingKind::Text),
    ("agents.list.*.heartbeat.target", SettingKind::Text),
    ("agents.list.*.heartbeat.activeHours.start", SettingKind::Clock),
    ("agents.list.*.heartbeat.activeHours.end", SettingKind::Clock),
    ("agents.list.*.heartbeat.activeHours.timezone", SettingKind::Text),
    ("agents.bindings", SettingKind::Items("agentId")),
    ("agents.bindings.*.agentId", SettingKind::Text),
    ("agents.bindings.*.match.channel", SettingKind::Text),
    ("agents.bindings.*.match.accountId", SettingKind::Text),
    ("agents.bindings.*.match.peer.kind", SettingKind::OneOf(&["dm", "group", "channel", "thread"])),
    ("agents.bindings.*.match.peer.id", SettingKind::Text),
    ("agents.defaultHeartbeat.every", SettingKind::Span),
    ("agents.defaultHeartbeat.prompt", SettingKind::Text),
    ("agents.defaultHeartbeat.target", SettingKind::Text),
    ("agents.defaultHeartbeat.activeHours.start", SettingKind::Clock),
    ("agents.defaultHeartbeat.activeHours.end", SettingKind::Clock),
    ("agents.defaultHeartbeat.activeHours.timezone", SettingKind::Text),
    ("compaction.enabled", SettingKind::Flag),
    ("compaction.reserveTokens", SettingKind::Count(0, 10_000_000)),
    ("compaction.keepRecentTokens", SettingKind::Count(0, 10_000_000)),
    ("compaction.extractMemories", SettingKind::Flag),
    ("cron.enabled", SettingKind::Flag),
    ("cron.maxJobs", SettingKind::Count(0, 100_000)),
    ("cron.maxRunsPerJobHistory", SettingKind::Count(1, 10_000)),
    ("cron.maxConcurrentRuns", SettingKind::Count(1, 64)),
    ("userTimezone", SettingKind::Text),
];

/// Defaults of unset settings.
pub const DEFAULTS: &str = r#"{
  "model": {"provider": "anthropic", "id": "claude-sonnet-4-20250514"},
  "apiKeys": {},
  "timeouts": {"llmMs": 300000, "toolMs": 60000, "skillProbeMaxAgeMs": 600000},
  "auth": {},
  "transcription": {"provider": "workers-ai"},
  "channels": {
    "whatsapp": {"dmPolicy": "pairing", "allowFrom": []},
    "discord": {"dmPolicy": "open", "allowFrom": []}
  },
  "session": {
    "defaultResetPolicy": {"mode": "daily", "atHour": 4},
    "mainKey": "main",
    "dmScope": "main",
    "identityLinks": {}
  },
  "skills": {"entries": {}},
  "agents": {
    "list": [],
    "bindings": [],
    "defaultHeartbeat": {
      "every": "30m",
      "target": "last",
      "activeHours": {"start": "08:00", "end": "23:00"}
    }
  },
  "compaction": {"enabled": true, "reserveTokens": 20000, "keepRecentTokens": 20000, "extractMemories": true},
  "cron": {"enabled": true, "maxJobs": 200, "maxRunsPerJobHistory": 200, "maxConcurrentRuns": 4},
  "userTimezone": "UTC"
}"#;

/// Returns [`DEFAULTS`] as a tree.
pub fn default_settings() -> Value {
    serde_json::from_str(DEFAULTS).expect("a test reads them")
}
