//! Settings of the front end: names, types, and those that are fixed because they would show missing features.
//!
//! This module must not know where they are stored.

use serde_json::{Map, Value, json};

/// Type of a setting.
enum ValueKind {
    /// True or false; with its default.
    Flag(bool),
    /// One of these words; the first is the default.
    Word(&'static [&'static str]),
    /// Text of at most so many characters; with its default.
    Text(&'static str, usize),
    /// Number from one to another; the last value is the default.
    Number(f64, f64, f64),
    /// List of texts.
    Texts,
    /// Fixed value, which cannot be set here.
    Fixed(fn() -> Value),
}

use ValueKind::{Fixed, Flag, Number, Text, Texts, Word};

/// Tabs of missing features, which the front end does not show.
const ABSENT_TABS: [&str; 9] =
    ["tasks", "kanban", "skills", "memory", "workspaces", "profiles", "todos", "insights", "logs"];
/// Most texts in a list, and longest text in it.
const MOST_TEXTS: usize = 100;
const LONGEST_TEXT: usize = 100;

const OFF: ValueKind = Fixed(|| Value::Bool(false));
const ON: ValueKind = Fixed(|| Value::Bool(true));

/// All settings.
const TABLE: &[(&str, ValueKind)] = &[
    ("send_key", Word(&["enter", "ctrl+enter", "shift+enter"])),
    ("theme", Word(&["dark", "light", "system"])),
    ("skin", Text("default", 80)),
    ("font_size", Word(&["default", "small", "large", "xlarge"])),
    ("language", Text("en", 35)),
    ("bot_name", Text("Countersign", 80)),
    ("sidebar_density", Word(&["compact", "detailed"])),
    ("default_message_mode", Word(&["steer", "queue", "interrupt"])),
    ("chat_activity_display_mode", Word(&["compact_worklog", "transparent_stream", "hide_all_activity"])),
    ("structured_code_default_view", Word(&["auto", "on", "off"])),
    ("structured_code_auto_tree_lines", Number(1.0, 1000.0, 10.0)),
    ("pinned_sessions_limit", Number(1.0, 99.0, 3.0)),
    ("inflight_state_max_sessions", Number(1.0, 25.0, 8.0)),
    ("inflight_state_max_messages", Number(1.0, 100.0, 24.0)),
    ("inflight_state_max_tool_calls", Number(1.0, 200.0, 48.0)),
    ("inflight_state_max_string_chars", Number(1000.0, 500_000.0, 60_000.0)),
    ("inflight_state_max_json_chars", Number(100_000.0, 4_000_000.0, 1_500_000.0)),
    ("show_token_usage", Flag(false)),
    ("show_conversation_outline", Flag(false)),
    ("show_busy_placeholder_hint", Flag(false)),
    ("hide_empty_state_suggestions", Flag(false)),
    ("hide_empty_state_panel", Flag(false)),
    ("new_chat_on_workspace_switch", Flag(false)),
    ("virtualize_transcript", Flag(false)),
    ("virtualize_transcript_optin", Flag(false)),
    ("show_tps", Flag(false)),
    ("fade_text_effect", Flag(false)),
    ("session_jump_buttons", Flag(false)),
    ("render_user_markdown", Flag(false)),
    ("session_endless_scroll", Flag(false)),
    ("transparent_stream_event_timestamps", Flag(true)),
    ("auto_scroll_follow", Flag(true)),
    ("worklog_details_expanded_default", Flag(false)),
    ("activity_feed_expanded_default", Flag(false)),
    ("hide_composer_yolo", Flag(false)),
    ("hide_composer_workspace", Flag(false)),
    ("hide_composer_mobile_config", Flag(false)),
    ("hide_composer_model", Flag(false)),
    ("hide_composer_reasoning", Flag(false)),
    ("hide_composer_status", Flag(false)),
    ("hide_composer_context", Flag(false)),
    ("sound_enabled", Flag(false)),
    ("rtl", Flag(false)),
    ("notifications_enabled", Flag(false)),
    ("show_thinking", Flag(true)),
    ("simplified_tool_calling", Flag(true)),
    ("tab_order", Texts),
    ("hidden_tabs", Texts),
    ("composer_control_order", Texts),
    // Settings of missing features, or settings that are made elsewhere.
    ("onboarding_completed", ON),
    ("auth_disabled_acknowledged", ON),
    ("show_cli_sessions", OFF),
    ("show_claude_code_sessions", OFF),
    ("show_cron_sessions", OFF),
    ("show_webhook_sessions", OFF),
    ("show_kanban_sessions", OFF),
    ("show_previous_messaging_sessions", OFF),
    ("show_quota_chip", OFF),
    ("show_titlebar_profile", OFF),
    ("sync_to_insights", OFF),
    ("check_for_updates", OFF),
    ("ignore_agent_updates", ON),
    ("whats_new_summary_enabled", OFF),
    ("large_text_paste_as_attachment", OFF),
    ("project_quick_create_buttons", OFF),
    ("terminal_auto_expand_on_output", OFF),
    ("workspace_todos_tab", OFF),
    ("voice_mode_button", OFF),
    ("voice_continuous", OFF),
    ("raw_audio_mode", OFF),
    ("tts_enabled", OFF),
    ("tts_auto_read", OFF),
    ("api_redact_enabled", OFF),
    ("hide_composer_attach", ON),
    ("hide_composer_saved_prompts", ON),
    ("hide_composer_mic", ON),
    ("hide_composer_voice_mode", ON),
    ("hide_composer_profile", ON),
    ("hide_composer_quota_chip", ON),
    ("hide_composer_toolsets", ON),
    ("hide_composer_bg_badge", ON),
    ("update_channel", Fixed(|| json!("stable"))),
    ("auto_title_refresh_every", Fixed(|| json!("0"))),
    ("tts_engine", Fixed(|| json!("browser"))),
    ("tts_voice", Fixed(|| json!(""))),
    ("tts_rate", Fixed(|| json!(1.0))),
    ("tts_pitch", Fixed(|| json!(1.0))),
    ("voice_silence_ms", Fixed(|| json!(1800))),
    ("dashboard_plugins", Fixed(|| json!({}))),
    ("provider_cost_budget", Fixed(|| Value::Null)),
    ("max_tokens", Fixed(|| Value::Null)),
    ("default_model", Fixed(|| Value::Null)),
    ("default_model_provider", Fixed(|| Value::Null)),
];

/// Returns every setting, from `set` or with its default.
pub(super) fn all_settings(set: &Map<String, Value>) -> Map<String, Value> {
    TABLE.iter().map(|(name, takes)| ((*name).to_owned(), setting_value(name, takes, set))).collect()
}

fn setting_value(name: &str, takes: &ValueKind, set: &Map<String, Value>) -> Value {
    let set = set.get(name).filter(|value| matches!(takes.check_value(name, value), Ok(Some(_))));
    if name == "hidden_tabs" {
        let own = set.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let mut tabs: Vec<&str> = ABSENT_TABS.into_iter().chain(own).collect();
        tabs.sort_unstable();
        tabs.dedup();
        return json!(tabs);
    }
    match (set, takes) {
        (Some(value), _) => value.clone(),
        (None, Flag(usual)) => (*usual).into(),
        (None, Word(words)) => words.first().copied().into(),
        (None, Text(usual, _)) => (*usual).into(),
        (None, Number(_, _, usual)) => whole_number(*usual),
        (None, Texts) => json!([]),
        (None, Fixed(usual)) => usual(),
    }
}

/// Returns a whole number without a fraction, as clients read it.
fn whole_number(value: f64) -> Value {
    #[expect(clippy::cast_possible_truncation, reason = "the table's bounds are whole and small")]
    let whole = value as i64;
    whole.into()
}

/// Returns the value to store for a setting; `None` for a fixed one.
///
/// # Errors
/// The reason why it is refused, with its name and its type.
pub(super) fn read_setting(name: &str, value: &Value) -> Result<Option<Value>, String> {
    match TABLE.iter().find(|(known, _)| *known == name) {
        Some((_, takes)) => takes.check_value(name, value),
        None if name.contains("password") => {
            Err(format!("{name} cannot be set here: logins are web.password and web.users of the configuration"))
        }
        None => Err(format!("unknown setting: {name}")),
    }
}

impl ValueKind {
    fn check_value(&self, name: &str, value: &Value) -> Result<Option<Value>, String> {
        let kept = match self {
            Fixed(_) => return Ok(None),
            Flag(_) => value.is_boolean().then(|| value.clone()),
            Word(words) => value.as_str().filter(|word| words.contains(word)).map(Value::from),
            Text(_, most) => value.as_str().filter(|text| text.chars().count() <= *most).map(Value::from),
            Number(least, most, _) => value
                .as_f64()
                .filter(|number| (*least..=*most).contains(number) && number.fract() == 0.0)
                .map(whole_number),
            Texts => value
                .as_array()
                .filter(|list| list.len() <= MOST_TEXTS && list.iter().all(is_short))
                .map(|_| value.clone()),
        };
        match kept {
            Some(kept) => Ok(Some(kept)),
            None => Err(format!("{name} must be {}", self.describe_values())),
        }
    }

    fn describe_values(&self) -> String {
        match self {
            Flag(_) => "true or false".to_owned(),
            Word(words) => format!("one of {}", words.join(", ")),
            Text(_, most) => format!("a text of at most {most} characters"),
            Number(least, most, _) => format!("a whole number from {least} to {most}"),
            Texts => format!("a list of at most {MOST_TEXTS} texts of at most {LONGEST_TEXT} characters"),
            Fixed(_) => "as it is".to_owned(),
        }
    }
}

fn is_short(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.chars().count() <= LONGEST_TEXT)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Map, Value, json};

    use super::{TABLE, all_settings, read_setting};

    #[test]
    fn a_setting_is_taken_or_refused_by_its_name_with_what_it_takes() {
        for (name, value, want) in [
            ("send_key", json!("ctrl+enter"), Ok(Some(json!("ctrl+enter")))),
            ("send_key", json!("tab"), Err("send_key must be one of enter, ctrl+enter, shift+enter")),
            ("send_key", json!(""), Err("send_key must be one of enter, ctrl+enter, shift+enter")),
            ("theme", json!("system"), Ok(Some(json!("system")))),
            ("theme", json!("bogus"), Err("theme must be one of dark, light, system")),
            ("rtl", json!(true), Ok(Some(json!(true)))),
            ("rtl", json!("true"), Err("rtl must be true or false")),
            ("rtl", json!(null), Err("rtl must be true or false")),
            ("pinned_sessions_limit", json!(5.0), Ok(Some(json!(5)))),
            ("pinned_sessions_limit", json!(1.5), Err("pinned_sessions_limit must be a whole number from 1 to 99")),
            ("pinned_sessions_limit", json!(0), Err("pinned_sessions_limit must be a whole number from 1 to 99")),
            ("bot_name", json!("x".repeat(81)), Err("bot_name must be a text of at most 80 characters")),
            (
                "hidden_tabs",
                json!([1]),
                Err("hidden_tabs must be a list of at most 100 texts of at most 100 characters"),
            ),
            ("show_cli_sessions", json!(true), Ok(None)),
            ("colour", json!("red"), Err("unknown setting: colour")),
            (
                "_set_password",
                json!("x"),
                Err("_set_password cannot be set here: logins are web.password and web.users of the configuration"),
            ),
        ] {
            assert_eq!(read_setting(name, &value), want.map_err(str::to_owned), "{name} {value}");
        }
    }

    #[test]
    fn what_is_not_here_stays_hidden_whatever_was_set() {
        let set: Map<String, Value> = [
            ("hidden_tabs".to_owned(), json!(["chat2"])),
            ("hide_composer_attach".to_owned(), json!(false)),
            ("rtl".to_owned(), json!("a file that somebody wrote by hand")),
        ]
        .into_iter()
        .collect();
        let settings = all_settings(&set);
        let tabs = settings["hidden_tabs"].as_array().unwrap();
        assert!(tabs.contains(&json!("kanban")) && tabs.contains(&json!("chat2")));
        assert_eq!((&settings["hide_composer_attach"], &settings["rtl"]), (&json!(true), &json!(false)));
        let names: BTreeSet<&str> = TABLE.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), TABLE.len(), "each stands once");
    }
}
