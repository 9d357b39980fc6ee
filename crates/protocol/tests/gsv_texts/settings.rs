//! Values and defaults of settings, and their secrets.

use countersign_protocol::gsv::settings::{
    ConfigGetResult, GsvSettingChange, SettingPath, default_settings, get_masked, get_value, merge_trees, set_value,
};
use serde_json::{Value, json};

use super::text;

#[test]
fn settings_take_what_they_can_be_and_say_what_that_is() {
    let path = |path: &str| SettingPath::from_text(path).unwrap();
    for (at, value, want) in [
        ("timeouts.toolMs", json!(5_000), None),
        (
            "timeouts.toolMs",
            json!("5"),
            Some("Invalid value for timeouts.toolMs: a whole number from 1000 to 3600000 is wanted"),
        ),
        (
            "timeouts.toolMs",
            json!(1),
            Some("Invalid value for timeouts.toolMs: a whole number from 1000 to 3600000 is wanted"),
        ),
        (
            "timeouts",
            json!({"toolMs": 1}),
            Some("Invalid value for timeouts.toolMs: a whole number from 1000 to 3600000 is wanted"),
        ),
        ("timeouts", json!(5), Some("Invalid value for timeouts: an object is wanted")),
        ("timeouts.fly", json!(5), Some("Unknown setting: timeouts.fly")),
        ("wings", json!({}), Some("Unknown setting: wings")),
        (
            "auth.token",
            json!(""),
            Some(
                "Invalid value for auth.token: a text of 1 to 4096 bytes without control characters or white space at its ends is wanted",
            ),
        ),
        ("channels.telegram.dmPolicy", json!("pairing"), None),
        (
            "channels.telegram.dmPolicy",
            json!("closed"),
            Some("Invalid value for channels.telegram.dmPolicy: one of open, allowlist, pairing is wanted"),
        ),
        ("channels.telegram", json!({"allowFrom": ["*"]}), None),
        ("agents.defaultHeartbeat.every", json!("1h30m"), None),
        ("agents.defaultHeartbeat.every", json!(0), None),
        (
            "agents.defaultHeartbeat.every",
            json!("often"),
            Some(
                "Invalid value for agents.defaultHeartbeat.every: a span such as 30m or 1h30m, or 0 for never is wanted",
            ),
        ),
        (
            "agents.defaultHeartbeat.activeHours.start",
            json!("24:01"),
            Some("Invalid value for agents.defaultHeartbeat.activeHours.start: a time such as 08:00 is wanted"),
        ),
        ("session.identityLinks", json!({"ana": ["1"]}), None),
        (
            "session.identityLinks.ana",
            json!(["1", 2]),
            Some("Invalid value for session.identityLinks.ana: an array of strings that are not empty is wanted"),
        ),
        (
            "channels.telegram.allowFrom",
            json!([" "]),
            Some("Invalid value for channels.telegram.allowFrom: an array of strings that are not empty is wanted"),
        ),
        (
            "agents.defaultHeartbeat.activeHours.start",
            json!("+8:00"),
            Some("Invalid value for agents.defaultHeartbeat.activeHours.start: a time such as 08:00 is wanted"),
        ),
        (
            "model",
            json!({}),
            Some(
                "Invalid value for model: an object with at least one of provider, id, thinkingLevel is wanted, not {}; null restores the default",
            ),
        ),
        (
            "session",
            json!({"defaultResetPolicy": {}}),
            Some(
                "Invalid value for session.defaultResetPolicy: an object with at least one of mode, atHour, idleMinutes is wanted, not {}; null restores the default",
            ),
        ),
        ("channels", json!({}), None),
        ("auth", json!({}), None),
        ("session.defaultResetPolicy.idleMinutes", json!(0), None),
        (
            "session.defaultResetPolicy.atHour",
            json!(24),
            Some("Invalid value for session.defaultResetPolicy.atHour: a whole number from 0 to 23 is wanted"),
        ),
        ("session.mainKey", json!("Home_1"), None),
        (
            "session.mainKey",
            json!("dm:ana"),
            Some("Invalid value for session.mainKey: a name of 1 to 64 letters, digits, `_`, `-` and `.` is wanted"),
        ),
        ("model.thinkingLevel", json!("off"), None),
        ("model.thinkingLevel", json!("none"), None),
        ("skills.entries.tea.requires", json!({"bins": ["kettle"], "hostRoles": ["execution"]}), None),
        (
            "skills.entries.tea.requires",
            json!({"bins": "kettle"}),
            Some(
                "Invalid value for skills.entries.tea.requires.bins: an array of strings that are not empty is wanted",
            ),
        ),
        (
            "skills.entries.tea.requires",
            json!({"bins": [1]}),
            Some(
                "Invalid value for skills.entries.tea.requires.bins: an array of strings that are not empty is wanted",
            ),
        ),
        (
            "skills.entries.tea.requires",
            json!({"binz": ["kettle"]}),
            Some("Unknown setting: skills.entries.tea.requires.binz"),
        ),
        (
            "skills.entries.tea.requires",
            json!("kettle"),
            Some("Invalid value for skills.entries.tea.requires: an object is wanted"),
        ),
        ("userTimezone", Value::Null, None),
    ] {
        let mut tree = json!({});
        let refused = set_value(&mut tree, &path(at), &value).map_err(|fault| fault.message).err();
        assert_eq!(refused.as_deref(), want, "{at}");
        let is = get_value(&tree, &path(at)).cloned();
        assert_eq!(is, want.is_none().then_some(value).filter(|value| !value.is_null()), "{at}");
    }
}

#[test]
fn secrets_of_webhooks_sign_and_addresses_hold_none() {
    let path = |path: &str| SettingPath::from_text(path).unwrap();
    for (at, value, is_taken) in [
        ("channels.webhook.secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", true),
        ("channels.webhook.accounts.b.secret", "sixteen letters!", true),
        ("channels.webhook.secret", "hunter2", false),
        ("channels.webhook.secret", "whsec_MfKQ9r8GKYqrTwjUPD8=", false),
        ("channels.webhook.secret", "whsec_!!!!9r8GKYqrTwjUPD8ILPZIo2LaLaSw", false),
        ("channels.webhook.secret", "***", false),
        ("channels.webhook.url", "https://example.org/a@b?c=d@e", true),
        ("channels.webhook.url", "https://ana:pw@example.org/", false),
        ("channels.webhook.url", "ftp://example.org/", false),
    ] {
        let mut tree = json!({});
        assert_eq!(set_value(&mut tree, &path(at), &json!(value)).is_ok(), is_taken, "{at} {value}");
    }
}

#[test]
fn lists_of_agents_and_bindings_are_looked_at_item_by_item() {
    for (at, value, want) in [
        ("agents.list", json!([{"id": "a", "default": true, "model": {"id": "m"}, "heartbeat": {"every": 0}}]), None),
        ("agents.list", json!([{"default": true}]), Some("Invalid value for agents.list.0.id: it is missing")),
        (
            "agents.list",
            json!([{"id": "a"}, {"id": "a"}]),
            Some("Invalid value for agents.list.1.id: another one has it"),
        ),
        (
            "agents.list",
            json!([{"id": "a"}, {"id": "A"}]),
            Some("Invalid value for agents.list.1.id: another one has it"),
        ),
        ("agents.list", json!([{"id": "a", "apiKey": "k"}]), Some("Unknown setting: agents.list.0.apiKey")),
        ("agents.list", json!([1]), Some("Invalid value for agents.list: an array of objects is wanted")),
        (
            "agents",
            json!({"list": [{"id": 5}]}),
            Some("Invalid value for agents.list.0.id: a text that is not empty is wanted"),
        ),
        ("agents.list.0.id", json!("b"), Some("agents.list is set as a whole")),
        ("channels.x.allowFrom.0", json!("b"), Some("channels.x.allowFrom is set as a whole")),
        (
            "agents.bindings",
            json!([{"agentId": "a", "match": {"channel": "c", "peer": {"kind": "dm", "id": "1"}}}]),
            None,
        ),
        (
            "agents.bindings",
            json!([{"agentId": "a", "match": {"peer": {"kind": "crowd"}}}]),
            Some("Invalid value for agents.bindings.0.match.peer.kind: one of dm, group, channel, thread is wanted"),
        ),
    ] {
        let refused = GsvSettingChange::for_value(&SettingPath::from_text(at).unwrap(), &value)
            .map_err(|fault| fault.message)
            .err();
        assert_eq!(refused.as_deref(), want, "{at} {value}");
    }
}

#[test]
fn secrets_are_taken_out_of_what_is_set_wherever_they_stand_in_it() {
    let change = |at: &str, value: Value| GsvSettingChange::for_value(&SettingPath::from_text(at).unwrap(), &value);
    let secret = |at: &str, value: &str| (SettingPath::from_text(at).unwrap(), text(value));
    for (at, value, left, secrets) in [
        ("auth.token", json!("t"), None, vec![secret("auth.token", "t")]),
        ("auth", json!({"token": "t"}), Some(json!({})), vec![secret("auth.token", "t")]),
        ("auth.token", Value::Null, None, vec![]),
        ("apiKeys", json!({"a": "1", "b": null}), Some(json!({})), vec![secret("apiKeys.a", "1")]),
        ("cron", json!({"maxJobs": 3, "enabled": null}), Some(json!({"maxJobs": 3})), vec![]),
    ] {
        assert_eq!(change(at, value), Ok(GsvSettingChange { value: left, secrets }), "{at}");
    }
    for (at, value) in [("auth.token", json!("***")), ("apiKeys", json!({"a": "***"}))] {
        let refused = change(at, value).unwrap_err();
        assert!(refused.message.ends_with("*** stands for the secret, and is not the secret itself"), "{at}");
    }
    for wrong in ["", " t", "t\n", "a\u{7}b"] {
        assert!(change("auth.token", json!(wrong)).is_err(), "{wrong:?}");
    }
}

#[test]
fn the_defaults_are_settings_too() {
    let mut tree = json!({});
    for (name, value) in default_settings().as_object().unwrap() {
        set_value(&mut tree, &SettingPath::from_text(name).unwrap(), value).unwrap();
    }
    assert_eq!(tree, default_settings());
    let over = json!({"cron": {"maxJobs": 5}, "channels": {"discord": {"allowFrom": ["a"]}}});
    let all = merge_trees(&default_settings(), &over);
    let at = |path: &str| get_value(&all, &SettingPath::from_text(path).unwrap()).cloned();
    assert_eq!(at("cron.maxJobs"), Some(json!(5)));
    assert_eq!(at("cron.enabled"), Some(json!(true)));
    assert_eq!(at("channels.discord.dmPolicy"), Some(json!("open")));
    assert_eq!(at("channels.discord.allowFrom.0"), Some(json!("a")));
}

#[test]
fn secrets_are_masked_on_every_path() {
    let tree = json!({
        "apiKeys": {"anthropic": "sk-1"}, "auth": {"token": "t"},
        "channels": {"telegram": {"botToken": "b", "dmPolicy": "open"}}, "agents": {"list": [{"id": "a", "apiKey": "k"}]},
    });
    let of = |path: &str| get_masked(&tree, Some(&SettingPath::from_text(path).unwrap()));
    let one = |path: &str, value: Value| ConfigGetResult::One { path: text(path), value: Some(value) };
    let masked = json!({
        "apiKeys": {"anthropic": "***"}, "auth": {"token": "***"},
        "channels": {"telegram": {"botToken": "***", "dmPolicy": "open"}}, "agents": {"list": [{"id": "a", "apiKey": "***"}]},
    });
    assert_eq!(get_masked(&tree, None), ConfigGetResult::All { config: masked });
    assert_eq!(of("apiKeys.anthropic"), one("apiKeys.anthropic", json!("***")));
    assert_eq!(of("apiKeys"), one("apiKeys", json!({"anthropic": "***"})));
    assert_eq!(of("auth.token"), one("auth.token", json!("***")));
    assert_eq!(of("auth"), one("auth", json!({"token": "***"})));
    assert_eq!(of("channels.telegram.dmPolicy"), one("channels.telegram.dmPolicy", json!("open")));
    assert_eq!(of("agents.list.0.apiKey"), one("agents.list.0.apiKey", json!("***")));
    assert_eq!(of("apiKeys.openai"), ConfigGetResult::One { path: text("apiKeys.openai"), value: None });
}
