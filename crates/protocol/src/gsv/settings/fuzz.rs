//! The way in for a fuzz loop: any bytes are a setting.

use serde_json::Value;

use super::{Change, Got, Path, defaults, get, got, put, set};

/// A secret that a fuzz loop puts where it can, in place of its own name.
const SECRET: &str = "hunter2-of-the-fuzz-loop";

/// Puts the secret into each text of `value`, but into no name of a member.
fn fill(value: &mut Value) {
    match value {
        Value::String(text) => *text = text.replace("SECRET", SECRET),
        Value::Array(items) => items.iter_mut().for_each(fill),
        Value::Object(members) => members.values_mut().for_each(fill),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Reads the first line of `bytes` as a path and the rest as what is set there, and checks that a path reads back the same, that a
/// refusal changes nothing and says why, that what was set is there, and that no secret is shown.
///
/// # Panics
/// Where that does not hold: a finding.
pub fn fuzz(bytes: &[u8]) {
    // What a setting is called is no secret, and a fault says it: the secret comes in where values are, by `fill` alone.
    let text = String::from_utf8_lossy(bytes).replace(SECRET, "SECRET");
    let (path, value) = text.split_once('\n').unwrap_or((&text, "null"));
    let Ok(path) = Path::read(path) else { return };
    assert_eq!(Path::read(&path.text()), Ok(path.clone()));
    let Ok(mut value) = serde_json::from_str::<Value>(value) else { return };
    fill(&mut value);
    let mut tree = defaults();
    let before = tree.clone();
    if let Err(fault) = set(&mut tree, &path, &value) {
        assert_eq!(tree, before, "what is refused changes nothing");
        assert!(!fault.message.is_empty());
        assert!(!fault.message.contains(SECRET), "{}", fault.message);
        return;
    }
    assert_eq!(get(&tree, &path), Some(&value).filter(|value| !value.is_null()), "{path:?}");
    let change = Change::of(&path, &value).expect("it was set just now");
    // What is kept in the tree, as the gateway keeps it: without the secrets, which lie elsewhere.
    let mut kept = before;
    put(&mut kept, &path, change.value.as_ref().unwrap_or(&Value::Null));
    for (place, secret) in &change.secrets {
        assert!(place.text().starts_with(&path.text()), "{place:?} is not within {path:?}");
        assert!(get(&kept, place).is_none(), "{place:?} is kept in the tree");
        put(&mut kept, place, &Value::from(secret.as_str()));
        for asked in [None, Some(&path), Some(place)] {
            let shown = match got(&kept, asked) {
                Got::All { config } => config,
                Got::One { value, .. } => value.unwrap_or_default(),
            };
            let shown = asked.map_or_else(|| get(&shown, place).cloned(), |_| Some(shown.clone())).unwrap_or_default();
            let is_hidden = secret.is_empty() || !shown.to_string().contains(&Value::from(secret.as_str()).to_string());
            assert!(is_hidden || secret.len() < 4, "{place:?} is shown to whoever asks for {asked:?}");
        }
    }
}
