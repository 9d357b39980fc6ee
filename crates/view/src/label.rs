//! The name of an argument, as people see it.

use serde_json::Value;

use super::{LineMode, escape};

/// Returns the name of an argument. One that is not plain is quoted, so that it cannot look like a name and a value, or like
/// another line of the text around it.
pub fn label(name: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
    if !name.is_empty() && name.chars().all(is_plain) {
        name.to_owned()
    } else {
        escape(&Value::from(name).to_string(), LineMode::One).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::label;

    #[test]
    fn a_name_looks_like_nothing_else() {
        for (name, want) in [
            ("entity_id", "entity_id"),
            ("order.total", "order.total"),
            ("asked by", "\"asked by\""),
            ("asked\u{3164}by", "\"asked\\u{3164}by\""),
            ("order id\": 7, \"x", r#""order id\": 7, \"x""#),
            ("na\u{ef}ve", "\"na\u{ef}ve\""),
            ("", "\"\""),
        ] {
            assert_eq!(label(name), want);
        }
    }
}
