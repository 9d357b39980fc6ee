//! The way in for a fuzz loop: any bytes are a setting.

use serde_json::Value;

use super::{Change, Got, Path, defaults, get, got, put, set};

/// A secret that a fuzz loop puts where it can.
const SECRET: &str = "hunter2-of-the-fuzz-loop";

/// Reads the first line of `bytes` as a path and the rest as what is set there, and checks that a path reads back the same, that a
/// refusal changes nothing and says why, that what was set is there, and that no secret is shown.
///
/// # Panics
/// Where that does not hold: a finding.
pub fn fuzz(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (path, value) = text.split_once('\n').unwrap_or((&text, "null"));
    let Ok(path) = Path::read(path) else { return };
    assert_eq!(Path::read(&path.text()), Ok(path.clone()));
    let Ok(value) = serde_json::from_str::<Value>(&value.replace("SECRET", SECRET)) else { return };
    let mut tree = defaults();
    let before = tree.clone();
    if let Err(fault) = set(&mut tree, &path, &value) {
        assert_eq!(tree, before, "what is refused changes nothing");
        assert!(!fault.message.is_empty());
        // What is refused is named by its path, whatever stands in that.
        assert!(!fault.message.contains(SECRET) || path.text().contains(SECRET), "{}", fault.message);
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
