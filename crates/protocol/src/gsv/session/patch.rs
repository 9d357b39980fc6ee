//! Parameters of `session.patch`.

use super::{ResetMode, ResetPolicy, session_key};
use crate::gsv::{
    GsvError,
    directive::{ThinkLevel, WORDS},
    fields::ParamFields,
};

/// Change of a patch to a member that may be unset: absent leaves it, null unsets it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FieldPatch<T> {
    /// Keep the value.
    #[default]
    Keep,
    /// Unset the value.
    Unset,
    /// Set this value.
    Set(T),
}

/// Parameters of `session.patch`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionPatchParams {
    /// The session.
    pub session_key: String,
    /// The model's provider.
    pub provider: Option<String>,
    /// The model's id. Either half may be given alone; see `unset_model`.
    pub model: Option<String>,
    /// True if the session's own model goes.
    pub unset_model: bool,
    /// Thinking level of the model.
    pub thinking_level: FieldPatch<ThinkLevel>,
    /// System prompt.
    pub system_prompt: FieldPatch<String>,
    /// Most tokens of an answer.
    pub max_tokens: FieldPatch<u64>,
    /// Display name.
    pub label: FieldPatch<String>,
    /// Mode of the rule by which it resets itself.
    pub reset_mode: Option<ResetMode>,
    /// The hour of a daily one.
    pub at_hour: Option<u8>,
    /// The rest of an idle one.
    pub idle_minutes: Option<u32>,
}

/// Longest name in a session's settings, in bytes of JSON.
const LONGEST_NAME: usize = 1024;
/// The longest time, in minutes, after which an idle session resets itself: a year, as in the settings of the gateway.
pub(in crate::gsv) const MOST_IDLE_MINUTES: u64 = 525_600;
/// Longest system prompt of a session, in bytes of JSON.
const LONGEST_PROMPT: usize = 48 << 10;

impl SessionPatchParams {
    pub(in crate::gsv) fn from_fields(mut fields: ParamFields) -> Result<Self, GsvError> {
        let mut patch = Self { session_key: session_key(&mut fields)?, ..Self::default() };
        let label_named = fields.has_member("label");
        let label = fields.take_text_within("label", LONGEST_NAME)?;
        patch.label = field_patch(label_named, non_empty(label, "label must not be empty; null unsets it")?);
        if let Some(mut settings) = fields.take_fields("settings")? {
            let model_named = settings.has_member("model");
            match settings.take_fields("model")? {
                Some(mut model) => {
                    patch.provider = non_empty(
                        model.take_text_within("provider", LONGEST_NAME)?,
                        "settings.model.provider must not be empty",
                    )?;
                    patch.model =
                        non_empty(model.take_text_within("id", LONGEST_NAME)?, "settings.model.id must not be empty")?;
                    model.reject_unknown_and_null(&["provider", "id"])?;
                    if patch.provider.is_none() && patch.model.is_none() {
                        let why = "settings.model must name provider, id or both; null unsets it";
                        return Err(GsvError::bad_request(why));
                    }
                }
                None => patch.unset_model = model_named,
            }
            let named = settings.has_member("thinkingLevel");
            patch.thinking_level = field_patch(named, settings.take_choice("thinkingLevel", &WORDS)?);
            let named = settings.has_member("systemPrompt");
            let prompt = settings.take_text_within("systemPrompt", LONGEST_PROMPT)?;
            patch.system_prompt =
                field_patch(named, non_empty(prompt, "settings.systemPrompt must not be empty; null unsets it")?);
            let named = settings.has_member("maxTokens");
            let tokens = settings.take_count("maxTokens")?;
            if tokens == Some(0) {
                return Err(GsvError::bad_request("settings.maxTokens must be at least 1"));
            }
            patch.max_tokens = field_patch(named, tokens);
            settings.reject_unknown_and_null(&["model", "thinkingLevel", "systemPrompt", "maxTokens"])?;
        }
        if let Some(mut policy) = fields.take_fields("resetPolicy")? {
            let modes = [("manual", ResetMode::Manual), ("daily", ResetMode::Daily), ("idle", ResetMode::Idle)];
            patch.reset_mode = policy.take_choice("mode", &modes)?;
            let hour = policy.take_count("atHour")?.map(|hour| u8::try_from(hour).ok().filter(|hour| *hour < 24));
            patch.at_hour = hour
                .map(|hour| hour.ok_or_else(|| GsvError::bad_request("resetPolicy.atHour must be from 0 to 23")))
                .transpose()?;
            patch.idle_minutes = policy
                .take_count("idleMinutes")?
                .map(|minutes| {
                    let within = u32::try_from(minutes).ok().filter(|_| minutes <= MOST_IDLE_MINUTES);
                    let why =
                        || format!("resetPolicy.idleMinutes must be from 0 to {MOST_IDLE_MINUTES}, not {minutes}");
                    within.ok_or_else(|| GsvError::bad_request(why()))
                })
                .transpose()?;
            policy.reject_unknown_and_null(&["mode", "atHour", "idleMinutes"])?;
            if patch.reset_mode.is_none() && patch.at_hour.is_none() && patch.idle_minutes.is_none() {
                return Err(GsvError::bad_request("resetPolicy must name mode, atHour or idleMinutes"));
            }
        }
        fields.reject_unknown_and_null(&["sessionKey", "settings", "label", "resetPolicy"])?;
        Ok(patch)
    }

    /// Returns the policy after the patch: fields that it does not name stay, a policy that there was not is a manual one.
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

fn field_patch<T>(is_named: bool, value: Option<T>) -> FieldPatch<T> {
    match value {
        Some(value) => FieldPatch::Set(value),
        None if is_named => FieldPatch::Unset,
        None => FieldPatch::Keep,
    }
}

fn non_empty(text: Option<String>, empty: &str) -> Result<Option<String>, GsvError> {
    match text {
        Some(text) if text.trim().is_empty() => Err(GsvError::bad_request(empty)),
        text => Ok(text),
    }
}
