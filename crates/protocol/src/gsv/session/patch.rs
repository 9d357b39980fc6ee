//! Parameters of `session.patch`.

use super::{ResetMode, ResetPolicy, session_key};
use crate::gsv::{
    Fault,
    directive::{Level, WORDS},
    fields::Fields,
};

/// What a patch says about something that may be unset: absent leaves it, null unsets it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Change<T> {
    /// It stays.
    #[default]
    Keep,
    /// It goes.
    Unset,
    /// It becomes this.
    Set(T),
}

/// Parameters of `session.patch`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// The session.
    pub session_key: String,
    /// The model's provider.
    pub provider: Option<String>,
    /// The model's id. Either half may be given alone; see `unset_model`.
    pub model: Option<String>,
    /// True if the session's own model goes.
    pub unset_model: bool,
    /// How hard the model thinks.
    pub thinking_level: Change<Level>,
    /// What it is told it is.
    pub system_prompt: Change<String>,
    /// How much it may write.
    pub max_tokens: Change<u64>,
    /// What people call it.
    pub label: Change<String>,
    /// Which rule says when it begins anew.
    pub reset_mode: Option<ResetMode>,
    /// The hour of a daily one.
    pub at_hour: Option<u8>,
    /// The rest of an idle one.
    pub idle_minutes: Option<u32>,
}

/// How long a name in a session's settings may be, in bytes of JSON.
const LONGEST_NAME: usize = 1024;
/// The longest time, in minutes, after which an idle session begins anew: a year, as in the settings of the gateway.
pub(in crate::gsv) const MOST_IDLE_MINUTES: u64 = 525_600;
/// The same of a system prompt of its own.
const LONGEST_PROMPT: usize = 48 << 10;

impl Patch {
    pub(in crate::gsv) fn read(mut fields: Fields) -> Result<Self, Fault> {
        let mut patch = Self { session_key: session_key(&mut fields)?, ..Self::default() };
        let label_named = fields.has("label");
        patch.label = change(label_named, fields.text_within("label", LONGEST_NAME)?);
        if let Some(mut settings) = fields.inner("settings")? {
            let model_named = settings.has("model");
            match settings.inner("model")? {
                Some(mut model) => {
                    patch.provider = some(
                        model.text_within("provider", LONGEST_NAME)?,
                        "settings.model.provider must not be empty",
                    )?;
                    patch.model = some(model.text_within("id", LONGEST_NAME)?, "settings.model.id must not be empty")?;
                    model.end_with_null(&["provider", "id"])?;
                    if patch.provider.is_none() && patch.model.is_none() {
                        let why = "settings.model must name provider, id or both; null unsets it";
                        return Err(Fault::invalid(why));
                    }
                }
                None => patch.unset_model = model_named,
            }
            let named = settings.has("thinkingLevel");
            patch.thinking_level = change(named, settings.word("thinkingLevel", &WORDS)?);
            let named = settings.has("systemPrompt");
            let prompt = settings.text_within("systemPrompt", LONGEST_PROMPT)?;
            patch.system_prompt =
                change(named, some(prompt, "settings.systemPrompt must not be empty; null unsets it")?);
            let named = settings.has("maxTokens");
            let tokens = settings.count("maxTokens")?;
            if tokens == Some(0) {
                return Err(Fault::invalid("settings.maxTokens must be at least 1"));
            }
            patch.max_tokens = change(named, tokens);
            settings.end_with_null(&["model", "thinkingLevel", "systemPrompt", "maxTokens"])?;
        }
        if let Some(mut policy) = fields.inner("resetPolicy")? {
            let modes = [("manual", ResetMode::Manual), ("daily", ResetMode::Daily), ("idle", ResetMode::Idle)];
            patch.reset_mode = policy.word("mode", &modes)?;
            let hour = policy.count("atHour")?.map(|hour| u8::try_from(hour).ok().filter(|hour| *hour < 24));
            patch.at_hour = hour
                .map(|hour| hour.ok_or_else(|| Fault::invalid("resetPolicy.atHour must be from 0 to 23")))
                .transpose()?;
            patch.idle_minutes = policy
                .count("idleMinutes")?
                .map(|minutes| {
                    let within = u32::try_from(minutes).ok().filter(|_| minutes <= MOST_IDLE_MINUTES);
                    let why =
                        || format!("resetPolicy.idleMinutes must be from 0 to {MOST_IDLE_MINUTES}, not {minutes}");
                    within.ok_or_else(|| Fault::invalid(why()))
                })
                .transpose()?;
            policy.end_with_null(&["mode", "atHour", "idleMinutes"])?;
            if patch.reset_mode.is_none() && patch.at_hour.is_none() && patch.idle_minutes.is_none() {
                return Err(Fault::invalid("resetPolicy must name mode, atHour or idleMinutes"));
            }
        }
        fields.end_with_null(&["sessionKey", "settings", "label", "resetPolicy"])?;
        Ok(patch)
    }

    /// The policy after the patch: fields that it does not name stay, a policy that there was not is a manual one.
    pub fn reset_policy(&self, before: Option<ResetPolicy>) -> Option<ResetPolicy> {
        if self.reset_mode.is_none() && self.at_hour.is_none() && self.idle_minutes.is_none() {
            return before;
        }
        let before = before.unwrap_or(ResetPolicy { mode: ResetMode::Manual, at_hour: None, idle_minutes: None });
        Some(ResetPolicy {
            mode: self.reset_mode.unwrap_or(before.mode),
            at_hour: self.at_hour.or(before.at_hour),
            idle_minutes: self.idle_minutes.or(before.idle_minutes),
        })
    }
}

fn change<T>(is_named: bool, value: Option<T>) -> Change<T> {
    match value {
        Some(value) => Change::Set(value),
        None if is_named => Change::Unset,
        None => Change::Keep,
    }
}

fn some(text: Option<String>, empty: &str) -> Result<Option<String>, Fault> {
    match text {
        Some(text) if text.trim().is_empty() => Err(Fault::invalid(empty)),
        text => Ok(text),
    }
}
