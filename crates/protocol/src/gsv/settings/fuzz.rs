//! The way in for a fuzz loop: any bytes are a setting.

use serde_json::Value;

use super::{
    ConfigGetResult, GsvSettingChange, SettingPath, default_settings, get_masked, get_value, put_value, set_value,
};

/// A secret that a fuzz loop puts where it can, in place of its own name.
const SECRET: &str = "hunter2-of-the-fuzz-loop";

/// Puts the secret into each text of `value`, but into no name of a member.
fn fill_secrets(value: &mut Value) {
    match value {
        Value::String(text) => *text = text.replace("SECRET", SECRET),
        Value::Array(items) => items.iter_mut().for_each(fill_secrets),
        Value::Object(members) => members.values_mut().for_each(fill_secrets),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Reads the first line of `bytes` as a path and the rest as the value to set there, and checks that a path reads back the same,
/// that a refusal changes nothing and gives a reason, that a set value is there, and that no secret is shown.
///
/// # Panics
/// If that does not hold: a finding.
pub fn fuzz(bytes: &[u8]) {
    // The name of a setting is no secret, and errors contain it: `fill` alone puts the secret in, as a value.
    let text = String::from_utf8_lossy(bytes).replace(SECRET, "SECRET");
    let (path, value) = text.split_once('\n').unwrap_or((&text, "null"));
    let Ok(path) = SettingPath::from_text(path) else { return };
    assert_eq!(SettingPath::from_text(&path.to_text()), Ok(path.clone()));
    let Ok(mut value) = serde_json::from_str::<Value>(value) else { return };
    fill_secrets(&mut value);
    let mut tree = default_settings();
    let before = tree.clone();
    if let Err(fault) = set_value(&mut tree, &path, &value) {
        assert_eq!(tree, before, "what is refused changes nothing");
        assert!(!fault.message.is_empty());
        assert!(!fault.message.contains(SECRET), "{}", fault.message);
        return;
    }
    assert_eq!(get_value(&tree, &path), Some(&value).filter(|value| !value.is_null()), "{path:?}");
    let change = GsvSettingChange::for_value(&path, &value).expect("it was set just now");
    // The tree as the gateway keeps it: without the secrets, which are stored elsewhere.
    let mut kept = before;
    put_value(&mut kept, &path, change.value.as_ref().unwrap_or(&Value::Null));
    for (place, secret) in &change.secrets {
        assert!(place.to_text().starts_with(&path.to_text()), "{place:?} is not within {path:?}");
        assert!(get_value(&kept, place).is_none(), "{place:?} is kept in the tree");
        put_value(&mut kept, place, &Value::from(secret.as_str()));
        for requested in [None, Some(&path), Some(place)] {
            let shown = match get_masked(&kept, requested) {
                ConfigGetResult::All { config } => config,
                ConfigGetResult::One { value, .. } => value.unwrap_or_default(),
            };
            let shown = requested
                .map_or_else(|| get_value(&shown, place).cloned(), |_| Some(shown.clone()))
                .unwrap_or_default();
            let is_hidden = secret.is_empty() || !shown.to_string().contains(&Value::from(secret.as_str()).to_string());
            assert!(is_hidden || secret.len() < 4, "{place:?} is shown to whoever asks for {requested:?}");
        }
    }
}
