//! Calls of which nobody can tell whether, and in which argument, a shell reads a text.
//!
//! Each text is judged as if it were a line. While none of them would be more than one plain command, the call is what its signature says.

use serde_json::{Map, Value};

use super::line::{Line, Place};

/// What makes a text more than one plain command, to one shell or another.
const SIGNS: [char; 12] = [';', '&', '|', '$', '`', '(', ')', '{', '}', '<', '>', '^'];

/// Judges the texts in `arguments`. None if nothing in them could be more than one plain command or would destroy anything.
pub(super) fn judge(arguments: &Map<String, Value>, place: &Place) -> Option<Line> {
    let mut texts = Vec::new();
    arguments.values().for_each(|value| add(value, &mut texts));
    let mut all = Line::default();
    for text in &texts {
        let line = super::judge(text, place);
        all.commands.extend(line.commands);
        all.floor = all.floor.or(line.floor);
        all.protected = all.protected.or(line.protected);
        all.unreadable = all.unreadable.or(line.unreadable);
        all.redirected.extend(line.redirected);
        all.classes.extend(line.classes);
    }
    let is_plain = |text: &&str| !text.contains(|letter: char| SIGNS.contains(&letter) || letter.is_control());
    let is_narrow = all.commands.iter().any(|command| !command.narrow.is_empty());
    let harms = all.floor.is_some() || all.protected.is_some() || all.unreadable.is_some() || is_narrow;
    if texts.iter().all(is_plain) && !harms {
        return None;
    }
    all.note_opaque("a text that a shell may read");
    Some(all)
}

fn add<'a>(value: &'a Value, texts: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(items) => items.iter().for_each(|item| add(item, texts)),
        Value::Object(members) => members.values().for_each(|member| add(member, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
