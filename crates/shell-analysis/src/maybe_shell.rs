//! Calls for which it is unknown whether, and in which argument, a shell reads a text.
//!
//! Each text is judged as if it were a line. While none of them would be more than one plain command, the call is what its signature says.

use serde_json::{Map, Value};

use super::{
    line::{LineAnalysis, Place},
    walk,
    word::quote_text,
};
use crate::action_class::ActionClass as Class;

/// Reason for the approval of a command that is no text.
pub const NO_COMMAND: &str = "has no command that can be judged";

/// Characters that make a text more than one plain command, to one shell or another.
const SIGNS: [char; 12] = [';', '&', '|', '$', '`', '(', ')', '{', '}', '<', '>', '^'];

/// Judges the texts in `arguments`. None if nothing in them could be more than one plain command or would destroy anything.
pub(super) fn judge_arguments(arguments: &Map<String, Value>, place: &Place) -> Option<LineAnalysis> {
    let mut texts = Vec::new();
    arguments.values().for_each(|value| collect_texts(value, &mut texts));
    let mut all = judge_each(&texts, place);
    let is_plain = |text: &String| !text.contains(|letter: char| SIGNS.contains(&letter) || letter.is_control());
    let is_narrow = all.commands.iter().any(|command| !command.narrow.is_empty());
    let harms = all.floor.is_some() || all.protected.is_some() || all.unreadable.is_some() || is_narrow;
    if texts.iter().all(is_plain) && !harms {
        return None;
    }
    all.note_opaque("a text that a shell may read");
    Some(all)
}

/// Judges `value`, which is in the place of a line and is no text: the receiver may run its texts, or the command whose words they
/// are. Rules that deny see all of these, and none that allows covers it. None if there is no text in it.
pub(super) fn judge_words(value: &Value, place: &Place) -> Option<LineAnalysis> {
    let mut texts = Vec::new();
    collect_texts(value, &mut texts);
    if texts.is_empty() {
        return None;
    }
    let mut all = judge_each(&texts, place);
    all.note_opaque("a command that is no text");
    all.note_floor(NO_COMMAND);
    all.classes.insert(Class::BashDestructive);
    Some(all)
}

fn judge_each(texts: &[String], place: &Place) -> LineAnalysis {
    let mut all = LineAnalysis::default();
    for text in texts {
        let line = walk::LineWalk::judge_line(text, place);
        all.commands.extend(line.commands);
        all.floor = all.floor.or(line.floor);
        all.protected = all.protected.or(line.protected);
        all.unreadable = all.unreadable.or(line.unreadable);
        all.redirected.extend(line.redirected);
        all.classes.extend(line.classes);
    }
    all
}

/// Adds the texts of `value`. A list is also the words of one command, each of which a shell may read as it is, or none.
fn collect_texts(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(items) => {
            let words: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            if words.len() > 1 {
                let as_one: Vec<String> = words.iter().map(|word| quote_text(word)).collect();
                let (as_one, unquoted) = (as_one.join(" "), words.join(" "));
                texts.extend((as_one != unquoted).then_some(unquoted));
                texts.push(as_one);
            }
            items.iter().for_each(|item| collect_texts(item, texts));
        }
        Value::Object(members) => members.values().for_each(|member| collect_texts(member, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
