//! Members of an answer that nobody here reads, put together from the pieces in which they came.
//!
//! It must not know what any of them means: a provider gave them and gets them back.

use serde_json::{Map, Value};

/// Members that are kept.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    members: Map<String, Value>,
    size: usize,
}

impl Kept {
    /// Adds members of one piece of the answer. Null says nothing.
    pub(crate) fn add(&mut self, members: Map<String, Value>) {
        for (name, value) in members {
            self.size += merge_member(&mut self.members, name, value);
        }
    }

    /// About how many bytes are kept.
    pub(crate) const fn size(&self) -> usize {
        self.size
    }

    /// Takes all of it as the text of a JSON object with one member, `members`. `None` if there is nothing.
    pub(crate) fn take(&mut self) -> Option<String> {
        let members = std::mem::take(&mut self.members);
        self.size = 0;
        (!members.is_empty()).then(|| Value::from(Map::from_iter([(MEMBERS.to_owned(), members.into())])).to_string())
    }

    /// Takes all of it as the text of a JSON object. `None` if there is nothing.
    pub(crate) fn take_object(&mut self) -> Option<String> {
        let members = std::mem::take(&mut self.members);
        self.size = 0;
        (!members.is_empty()).then(|| Value::from(members).to_string())
    }
}

/// The member of a payload under which the members of an answer are. Payloads of other programs in a session file have
/// other members.
const MEMBERS: &str = "members";

/// The members of an answer that a payload holds.
pub(crate) fn members(payload: Option<&str>) -> Map<String, Value> {
    match payload.and_then(|text| serde_json::from_str(text).ok()) {
        Some(Value::Object(mut payload)) => match payload.shift_remove(MEMBERS) {
            Some(Value::Object(members)) => members,
            Some(_) | None => Map::new(),
        },
        Some(_) | None => Map::new(),
    }
}

/// The members of a signature that is a JSON object.
pub(crate) fn object(signature: Option<&str>) -> Map<String, Value> {
    match signature.and_then(|text| serde_json::from_str(text).ok()) {
        Some(Value::Object(members)) => members,
        Some(_) | None => Map::new(),
    }
}

fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => 8 + text.len(),
        Value::Array(items) => 8 + items.iter().map(size).sum::<usize>(),
        Value::Object(members) => 8 + members.iter().map(|(name, value)| name.len() + size(value)).sum::<usize>(),
    }
}

/// Adds another piece of a member. Texts are pieces of one text, unless a text is repeated as it is; objects are merged;
/// items of lists are pieces of one item if they have the same `index`. Returns by how many bytes it grew.
fn merge(into: &mut Value, more: Value) -> usize {
    match (into, more) {
        (_, Value::Null) => 0,
        (Value::String(text), Value::String(more)) if *text == more => 0,
        (Value::String(text), Value::String(more)) => {
            text.push_str(&more);
            more.len()
        }
        (Value::Object(members), Value::Object(more)) => {
            more.into_iter().map(|(name, value)| merge_member(members, name, value)).sum()
        }
        (Value::Array(items), Value::Array(more)) => {
            let add = |item| match items.last_mut().filter(|last| is_continued_by(last, &item)) {
                Some(last) => continue_item(last, item),
                None => {
                    let grown = size(&item);
                    items.push(item);
                    grown
                }
            };
            more.into_iter().map(add).sum()
        }
        (into, more) => {
            let grown = size(&more).saturating_sub(size(into));
            *into = more;
            grown
        }
    }
}

fn merge_member(members: &mut Map<String, Value>, name: String, value: Value) -> usize {
    match members.get_mut(&name) {
        _ if value.is_null() => 0,
        Some(into) => merge(into, value),
        None => {
            let grown = name.len() + size(&value);
            members.insert(name, value);
            grown
        }
    }
}

/// Names what an item is and does not change from piece to piece.
const LABELS: [&str; 4] = ["index", "type", "id", "format"];

/// Adds another piece of an item. Its texts go on even if a piece is the same as what came before. Returns by how many
/// bytes it grew.
fn continue_item(item: &mut Value, more: Value) -> usize {
    let (Value::Object(members), Value::Object(more)) = (item, more) else { return 0 };
    let add = |(name, value): (String, Value)| match (members.get_mut(&name), value) {
        (Some(_), _) if LABELS.contains(&name.as_str()) => 0,
        (Some(Value::String(text)), Value::String(more)) => {
            text.push_str(&more);
            more.len()
        }
        (_, value) => merge_member(members, name, value),
    };
    more.into_iter().map(add).sum()
}

/// Whether `next` is another piece of `last`: an object with the same `index`, and no other `type` or `id`.
fn is_continued_by(last: &Value, next: &Value) -> bool {
    let index = next.get("index").filter(|index| !index.is_null());
    let is_other = |name: &str| match (last.get(name), next.get(name)) {
        (Some(Value::String(last)), Some(Value::String(next))) => last != next,
        _ => false,
    };
    index.is_some() && last.get("index") == index && !is_other("type") && !is_other("id")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Kept, members, object};

    fn kept(pieces: impl IntoIterator<Item = Value>) -> Option<Value> {
        let mut kept = Kept::default();
        for piece in pieces {
            let Value::Object(members) = piece else { panic!("an object") };
            kept.add(members);
        }
        kept.take_object().map(|text| serde_json::from_str(&text).unwrap())
    }

    #[test]
    fn pieces_become_what_they_are_pieces_of() {
        let detail = |index: u64, kind: &str, text: &str| json!({"reasoning_details": [{"index": index, "type": kind, "text": text, "format": "f"}]});
        for (case, pieces, want) in [
            ("nothing", vec![json!({})], None),
            ("null", vec![json!({"a": null})], None),
            ("null behind a value", vec![json!({"a": 1}), json!({"a": null})], Some(json!({"a": 1}))),
            ("texts", vec![json!({"a": "x"}), json!({"a": "y"})], Some(json!({"a": "xy"}))),
            ("a text again", vec![json!({"a": "x"}), json!({"a": "x"})], Some(json!({"a": "x"}))),
            ("numbers", vec![json!({"a": 1}), json!({"a": 2})], Some(json!({"a": 2}))),
            ("objects", vec![json!({"a": {"b": "x"}}), json!({"a": {"c": 1}})], Some(json!({"a": {"b": "x", "c": 1}}))),
            (
                "items of one index",
                vec![detail(0, "t", "a"), detail(0, "t", "a"), detail(1, "t", "c"), detail(1, "u", "d")],
                Some(json!({"reasoning_details": [
                    {"index": 0, "type": "t", "text": "aa", "format": "f"},
                    {"index": 1, "type": "t", "text": "c", "format": "f"},
                    {"index": 1, "type": "u", "text": "d", "format": "f"},
                ]})),
            ),
            (
                "items without an index",
                vec![json!({"a": [{"b": 1}]}), json!({"a": [{"b": 1}]})],
                Some(json!({"a": [{"b": 1}, {"b": 1}]})),
            ),
        ] {
            assert_eq!(kept(pieces), want, "{case}");
        }
    }

    #[test]
    fn only_what_is_kept_has_a_size() {
        let mut kept = Kept::default();
        let mut grows = |piece: Value| {
            let before = kept.size();
            kept.add(piece.as_object().unwrap().clone());
            kept.size() > before
        };
        assert!(!grows(json!({"a": null})));
        assert!(grows(json!({"a": "x", "b": [{"index": 0, "data": ""}], "c": 1})));
        assert!(!grows(json!({"a": "x", "b": [{"index": 0, "data": ""}], "c": 2})), "nothing new");
        assert!(grows(json!({"b": [{"index": 0, "data": "y"}]})));
    }

    #[test]
    fn a_payload_of_another_program_holds_no_members() {
        assert_eq!(members(Some(r#"{"members":{"a":1}}"#)), *json!({"a": 1}).as_object().unwrap());
        for other in [None, Some("no"), Some("[]"), Some(r#"{"type":"history"}"#), Some(r#"{"members":[1]}"#)] {
            assert!(members(other).is_empty(), "{other:?}");
        }
        assert!(object(Some("c2ln")).is_empty());
    }
}
