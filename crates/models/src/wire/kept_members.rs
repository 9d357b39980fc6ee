//! Members of an answer without a reader here, put together from the pieces in which they came.
//!
//! It must not know what any of them means: a provider gave them and gets them back.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::unplaced::name_words;

/// Members that are kept.
#[derive(Debug, Default)]
pub(crate) struct KeptMembers {
    members: Map<String, Value>,
    size: usize,
}

impl KeptMembers {
    /// Adds members of one piece of the answer. Null says nothing.
    pub(crate) fn add_piece(&mut self, members: Map<String, Value>) {
        for (name, value) in members {
            self.size += merge_member(MergeRule::Piece, &mut self.members, name, value);
        }
    }

    /// Adds a piece of one thing, whose prose continues even if a piece is the same as the one before it.
    pub(crate) fn go_on(&mut self, members: Map<String, Value>) {
        for (name, value) in members {
            if !(LABELS.contains(&name.as_str()) && self.members.contains_key(&name)) {
                self.size += merge_member(MergeRule::Item, &mut self.members, name, value);
            }
        }
    }

    /// Adds members of the whole answer, of which pieces may have come before.
    pub(crate) fn add_whole(&mut self, members: Map<String, Value>) {
        for (name, value) in members {
            self.size += merge_member(MergeRule::Whole, &mut self.members, name, value);
        }
    }

    /// Reports whether the kept value, or the last item of a list in it, has ended with a seal.
    pub(crate) fn is_sealed(&self) -> bool {
        let ends = |items: &Vec<Value>| {
            let last = items.last().and_then(Value::as_object);
            last.is_some_and(|item| item.iter().any(|(name, value)| is_seal(name, value)))
        };
        self.members.iter().any(|(name, value)| is_seal(name, value) || value.as_array().is_some_and(ends))
    }

    /// Reports whether the kept value has a type, and another one than this.
    pub(crate) fn is_other_type(&self, kind: Option<&str>) -> bool {
        let known = self.members.get("type").and_then(Value::as_str);
        matches!((known, kind), (Some(known), Some(kind)) if known != kind)
    }

    /// Estimates the kept bytes.
    pub(crate) const fn size(&self) -> usize {
        self.size
    }

    /// Takes all members.
    pub(crate) fn take_members(&mut self) -> Map<String, Value> {
        self.size = 0;
        std::mem::take(&mut self.members)
    }

    /// Takes all members as the text of a JSON object. `None` if there is none.
    pub(crate) fn take_object(&mut self) -> Option<String> {
        let members = self.take_members();
        (!members.is_empty()).then(|| Value::from(members).to_string())
    }
}

/// Members that came for a part of an answer after that part had ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LateMembers {
    /// The part, if it is a call: its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) call: Option<String>,
    /// The part, if it is a text: its number among the texts of the answer that are not blank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<usize>,
    /// Goes back with it.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(crate) members: Map<String, Value>,
    /// Goes back in front of it, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) before: Vec<Value>,
}

/// Encodes the payload of an answer: the text of a JSON object. `None` if there is nothing to be in it.
pub(crate) fn encode_payload(members: Map<String, Value>, late: &[LateMembers]) -> Option<String> {
    let mut payload = Map::new();
    if !members.is_empty() {
        payload.insert(MEMBERS.to_owned(), members.into());
    }
    if let Some(late) = serde_json::to_value(late).ok().filter(|_| !late.is_empty()) {
        payload.insert(LATE.to_owned(), late);
    }
    (!payload.is_empty()).then(|| Value::from(payload).to_string())
}

/// Returns the members that came late for parts of an answer with this payload.
pub(crate) fn late_members(payload: Option<&str>) -> Vec<LateMembers> {
    let late = parse_object(payload).shift_remove(LATE);
    late.and_then(|late| serde_json::from_value(late).ok()).unwrap_or_default()
}

/// The member of a payload that holds late members.
const LATE: &str = "late";

/// The member of a payload under which the members of an answer are. Payloads of other programs in a session file have
/// other members.
const MEMBERS: &str = "members";

/// Returns the members of an answer that a payload holds.
pub(crate) fn payload_members(payload: Option<&str>) -> Map<String, Value> {
    match payload.and_then(|text| serde_json::from_str(text).ok()) {
        Some(Value::Object(mut payload)) => match payload.shift_remove(MEMBERS) {
            Some(Value::Object(members)) => members,
            Some(_) | None => Map::new(),
        },
        Some(_) | None => Map::new(),
    }
}

/// Returns the members of a signature that is a JSON object.
pub(crate) fn parse_object(signature: Option<&str>) -> Map<String, Value> {
    match signature.and_then(|text| serde_json::from_str(text).ok()) {
        Some(Value::Object(members)) => members,
        Some(_) | None => Map::new(),
    }
}

fn value_size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => 8 + text.len(),
        Value::Array(items) => 8 + items.iter().map(value_size).sum::<usize>(),
        Value::Object(members) => 8 + members.iter().map(|(name, value)| name.len() + value_size(value)).sum::<usize>(),
    }
}

/// Words of names whose members only the provider reads. Each comes whole, as it ends the value that it seals.
const SEALED: [&str; 6] = ["signature", "encrypted", "opaque", "redacted", "data", "seal"];

/// Last words of names whose members are prose, which comes in pieces.
const PROSE: [&str; 9] =
    ["text", "thinking", "thought", "reasoning", "content", "summary", "transcript", "argument", "delta"];

/// Names of members that identify an item and do not change from piece to piece.
const LABELS: [&str; 4] = ["index", "type", "id", "format"];

fn is_sealed(name: &str) -> bool {
    name_words(name).iter().any(|word| SEALED.contains(&word.as_str()))
}

fn is_prose(name: &str) -> bool {
    !is_sealed(name) && name_words(name).last().is_some_and(|word| PROSE.contains(&word.as_str()))
}

/// Rule by which two texts of one member become one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MergeRule {
    /// Both came in members of the answer: prose is pieces of one text, unless it is repeated as it is.
    Piece,
    /// Both came in an item of a list, whose prose continues even if a piece is the same as the one before it.
    Item,
    /// The second is of the whole answer: it repeats the whole value, or a part of it.
    Whole,
}

/// Adds more of a member; only prose grows, of anything else the last value counts. Objects are merged, and so are
/// items of lists that are pieces of one item. Returns by how many bytes it grew.
fn merge_values(rule: MergeRule, name: &str, into: &mut Value, more: Value) -> usize {
    match (into, more) {
        (_, Value::Null) => 0,
        (Value::String(text), Value::String(more)) => merge_text(rule, name, text, more),
        (Value::Object(members), Value::Object(more)) => {
            more.into_iter().map(|(name, value)| merge_member(rule, members, name, value)).sum()
        }
        (Value::Array(items), Value::Array(more)) => {
            let known = items.len();
            let mut grown = 0;
            for (at, item) in more.into_iter().enumerate() {
                let found = match rule {
                    MergeRule::Whole => items.iter().take(known).position(|known| is_whole_of(known, &item)),
                    MergeRule::Piece | MergeRule::Item => continued_item(items, &item, at == 0),
                };
                grown += match found {
                    Some(at) => merge_item(rule, &mut items[at], item),
                    None => {
                        let added = value_size(&item);
                        items.push(item);
                        added
                    }
                };
            }
            grown
        }
        (into, more) => {
            let grown = value_size(&more).saturating_sub(value_size(into));
            *into = more;
            grown
        }
    }
}

fn merge_text(rule: MergeRule, name: &str, text: &mut String, more: String) -> usize {
    let before = text.len();
    match rule {
        _ if more.is_empty() => {}
        MergeRule::Piece if *text == more => {}
        MergeRule::Piece | MergeRule::Item if is_prose(name) => text.push_str(&more),
        MergeRule::Whole if is_prose(name) && text.contains(more.trim()) => {}
        MergeRule::Piece | MergeRule::Item | MergeRule::Whole => *text = more,
    }
    text.len().saturating_sub(before)
}

fn merge_member(rule: MergeRule, members: &mut Map<String, Value>, name: String, value: Value) -> usize {
    match members.get_mut(&name) {
        _ if value.is_null() => 0,
        Some(into) => merge_values(rule, &name, into, value),
        None => {
            let grown = name.len() + value_size(&value);
            members.insert(name, value);
            grown
        }
    }
}

/// Adds more of an item. One that comes again with the same seal is repeated whole. Returns by how many bytes it grew.
fn merge_item(rule: MergeRule, item: &mut Value, more: Value) -> usize {
    let again = more.as_object().into_iter().flatten();
    let is_again = again.clone().any(|(name, value)| is_seal(name, value) && item.get(name) == Some(value));
    let rule = match rule {
        MergeRule::Piece | MergeRule::Item if !is_again => MergeRule::Item,
        MergeRule::Piece | MergeRule::Item | MergeRule::Whole => MergeRule::Whole,
    };
    let (Value::Object(members), Value::Object(more)) = (item, more) else { return 0 };
    let is_fixed = |name: &str, members: &Map<String, Value>| {
        LABELS.contains(&name) && members.get(name).is_some_and(|value| !value.is_null())
    };
    let mut grown = 0;
    for (name, value) in more {
        if !is_fixed(&name, members) {
            grown += merge_member(rule, members, name, value);
        }
    }
    grown
}

fn is_seal(name: &str, value: &Value) -> bool {
    is_sealed(name) && value.as_str().is_some_and(|text| !text.is_empty())
}

/// Returns the value of a label, unless it is null.
fn label_value<'a>(item: &'a Value, name: &str) -> Option<&'a Value> {
    item.get(name).filter(|value| !value.is_null())
}

/// Reports whether a label of one item says that it is not the other.
fn is_other(last: &Value, next: &Value, name: &str) -> bool {
    matches!((label_value(last, name), label_value(next, name)), (Some(last), Some(next)) if last != next)
}

/// Returns the item that `next` is another piece of: the one with the same `index`, and no other `type` or `id`. Without an index it
/// is the last one, as long as that is open: a sealed one has ended. Only the `first` of several that came together can
/// be a piece of one that came before.
fn continued_item(items: &[Value], next: &Value, first: bool) -> Option<usize> {
    let fits = |item: &Value| item.is_object() && !is_other(item, next, "type") && !is_other(item, next, "id");
    let index = label_value(next, "index");
    if index.is_some() {
        return items.iter().rposition(|item| label_value(item, "index") == index && fits(item));
    }
    let last = items.len().checked_sub(1).filter(|_| first)?;
    let item = &items[last];
    let has = |item: &Value, is: fn(&str, &Value) -> bool| {
        item.as_object().into_iter().flatten().any(|(name, value)| is(name, value))
    };
    let is_open = !has(item, is_seal) && label_value(item, "index").is_none();
    let is_piece = |name: &str, value: &Value| value.is_string() && (is_prose(name) || is_sealed(name));
    let goes_on = is_open && has(next, is_piece) && fits(item);
    let is_again = item == next && has(item, is_seal);
    (goes_on || is_again).then_some(last)
}

/// Reports whether `whole` is an item of the whole answer of which `item` came before.
fn is_whole_of(item: &Value, whole: &Value) -> bool {
    let (Value::Object(members), Value::Object(whole_members)) = (item, whole) else { return item == whole };
    if LABELS.iter().any(|name| is_other(item, whole, name)) {
        return false;
    }
    let texts =
        |(name, value): (&String, &Value)| Some((members.get(name)?.as_str()?.to_owned(), value.as_str()?.to_owned()));
    let same = |(one, other): &(String, String)| one.starts_with(other.as_str()) || other.starts_with(one.as_str());
    let is_named =
        ["index", "id"].iter().any(|name| label_value(item, name).is_some() && label_value(whole, name).is_some());
    let mut texts =
        whole_members.iter().filter(|(name, _)| !LABELS.contains(&name.as_str())).filter_map(texts).peekable();
    item == whole || is_named || (texts.peek().is_some() && texts.all(|pair| same(&pair)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{KeptMembers, parse_object, payload_members};

    fn kept(pieces: impl IntoIterator<Item = Value>) -> Option<Value> {
        let mut kept = KeptMembers::default();
        for piece in pieces {
            let Value::Object(members) = piece else { panic!("an object") };
            kept.add_piece(members);
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
            ("texts", vec![json!({"a_text": "x"}), json!({"a_text": "y"})], Some(json!({"a_text": "xy"}))),
            ("a text again", vec![json!({"a_text": "x"}), json!({"a_text": "x"})], Some(json!({"a_text": "x"}))),
            (
                "a state",
                vec![json!({"status": "in_progress"}), json!({"status": "completed"}), json!({"status": ""})],
                Some(json!({"status": "completed"})),
            ),
            (
                "a seal, which is whole each time",
                vec![
                    json!({"reasoning_opaque": "AB"}),
                    json!({"reasoning_opaque": "AB"}),
                    json!({"reasoning_opaque": "C"}),
                ],
                Some(json!({"reasoning_opaque": "C"})),
            ),
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
    fn pieces_of_items_become_the_items() {
        let thought = |text: &str, seal: Value| json!({"type": "thinking", "thinking": text, "signature": seal});
        let text = |text: &str| json!({"type": "reasoning.text", "text": text, "format": "f"});
        let sealed = |data: &str| json!({"type": "reasoning.encrypted", "index": 0, "id": "i", "data": data});
        let null = || Value::Null;
        for (case, pieces, want) in [
            (
                "without an index, closed by a signature",
                vec![thought("I ", null()), thought("look", null()), json!({"thinking": "", "signature": "SIG"})],
                vec![thought("I look", "SIG".into())],
            ),
            (
                "behind a signature",
                vec![thought("I ", "A".into()), thought("look", null()), thought("", "B".into())],
                vec![thought("I ", "A".into()), thought("look", "B".into())],
            ),
            (
                "details without an index",
                vec![text("I "), text("I "), text("look"), json!({"type": "reasoning.text", "signature": "S"})],
                vec![json!({"type": "reasoning.text", "text": "I I look", "format": "f", "signature": "S"})],
            ),
            (
                "another type",
                vec![text("I "), json!({"type": "reasoning.summary", "summary": "x"}), text("look")],
                vec![text("I "), json!({"type": "reasoning.summary", "summary": "x"}), text("look")],
            ),
            (
                "another id",
                vec![json!({"id": "a", "text": "I "}), json!({"id": "b", "text": "look"})],
                vec![json!({"id": "a", "text": "I "}), json!({"id": "b", "text": "look"})],
            ),
            ("the same again", vec![sealed("E"), sealed("E")], vec![sealed("E")]),
            (
                "the same again without an index",
                vec![
                    json!({"type": "redacted_thinking", "data": "E"}),
                    json!({"type": "redacted_thinking", "data": "E"}),
                ],
                vec![json!({"type": "redacted_thinking", "data": "E"})],
            ),
            (
                "the same again with a text",
                vec![
                    json!({"index": 0, "text": "a", "signature": "S"}),
                    json!({"index": 0, "text": "a", "signature": "S"}),
                ],
                vec![json!({"index": 0, "text": "a", "signature": "S"})],
            ),
            (
                "pieces of two items in turn",
                vec![
                    json!({"index": 0, "text": "a"}),
                    json!({"index": 1, "text": "b"}),
                    json!({"index": 0, "text": "c"}),
                ],
                vec![json!({"index": 0, "text": "ac"}), json!({"index": 1, "text": "b"})],
            ),
        ] {
            let pieces = pieces.into_iter().map(|item| json!({"list": [item]}));
            assert_eq!(kept(pieces), Some(json!({"list": want})), "{case}");
        }
        let both = json!({"list": [{"type": "t", "text": "a"}, {"type": "t", "text": "b"}]});
        assert_eq!(kept([both.clone()]), Some(both), "items that came together");
    }

    #[test]
    fn the_text_of_the_whole_answer_is_not_repeated() {
        let text = || json!({"type": "reasoning.text", "text": "I look", "signature": "S"});
        let sealed = || json!({"type": "reasoning.encrypted", "data": "E"});
        for (case, pieces, whole, want) in [
            ("nothing before", json!({}), json!({"l": [text()]}), json!({"l": [text()]})),
            (
                "the same",
                json!({"l": [text(), sealed()]}),
                json!({"l": [text(), sealed()]}),
                json!({"l": [text(), sealed()]}),
            ),
            ("more", json!({"l": [text()]}), json!({"l": [sealed()]}), json!({"l": [text(), sealed()]})),
            (
                "its end",
                json!({"l": [{"type": "reasoning.text", "text": "I ", "index": 0}]}),
                json!({"l": [text()]}),
                json!({"l": [{"type": "reasoning.text", "text": "I look", "index": 0, "signature": "S"}]}),
            ),
            ("a text", json!({"a_text": "I "}), json!({"a_text": "I look"}), json!({"a_text": "I look"})),
            ("less", json!({"a_text": "I look"}), json!({"a_text": "look"}), json!({"a_text": "I look"})),
            (
                "a seal",
                json!({"reasoning_opaque": "A"}),
                json!({"reasoning_opaque": "B"}),
                json!({"reasoning_opaque": "B"}),
            ),
        ] {
            let mut kept = KeptMembers::default();
            kept.add_piece(pieces.as_object().unwrap().clone());
            kept.add_whole(whole.as_object().unwrap().clone());
            assert_eq!(Value::from(kept.take_members()), want, "{case}");
        }
    }

    #[test]
    fn only_what_is_kept_has_a_size() {
        let mut kept = KeptMembers::default();
        let mut grows = |piece: Value| {
            let before = kept.size();
            kept.add_piece(piece.as_object().unwrap().clone());
            kept.size() > before
        };
        assert!(!grows(json!({"a": null})));
        assert!(grows(json!({"a": "x", "b": [{"index": 0, "data": ""}], "c": 1})));
        assert!(!grows(json!({"a": "x", "b": [{"index": 0, "data": ""}], "c": 2})), "nothing new");
        assert!(grows(json!({"b": [{"index": 0, "data": "y"}]})));
    }

    #[test]
    fn a_payload_of_another_program_holds_no_members() {
        assert_eq!(payload_members(Some(r#"{"members":{"a":1}}"#)), *json!({"a": 1}).as_object().unwrap());
        for other in [None, Some("no"), Some("[]"), Some(r#"{"type":"history"}"#), Some(r#"{"members":[1]}"#)] {
            assert!(payload_members(other).is_empty(), "{other:?}");
        }
        assert!(parse_object(Some("c2ln")).is_empty());
    }
}
