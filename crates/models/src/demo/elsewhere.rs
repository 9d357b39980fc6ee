//! What the scripted model says where it has no shell of its own and the shells of other machines.
//!
//! It must not know events or usage.

use serde_json::json;

use super::script::{Answer, Outcome, call, outcome, say, text};
use crate::{Message, Part};

/// How the shell of another machine is called, behind the machine's name.
const SHELL: &str = "__Bash";

/// What it looks for there.
pub(super) const LOOK: &str = "uname -sn && ls";

/// Decides the next answer if among `tools` is no shell but one of another machine: the one that was named, else the first.
pub(super) fn answer(messages: &[Message], tools: &[String]) -> Option<Answer> {
    if tools.iter().any(|tool| tool == "bash") {
        return None;
    }
    let at = messages.iter().rposition(|message| matches!(message, Message::User(_)))?;
    let Message::User(asked) = &messages[at] else { return None };
    let mut shells: Vec<&str> = tools.iter().filter_map(|tool| tool.strip_suffix(SHELL)).collect();
    shells.sort_unstable();
    let is_named = |shell: &&&str| text(asked).any(|text| text.contains(**shell));
    let machine = *shells.iter().find(is_named).or_else(|| shells.first())?;
    let since = &messages[at..];
    let called =
        since.iter().any(|message| matches!(message, Message::Assistant(said) if said.parts.iter().any(is_call)));
    if !called {
        return Some(Answer {
            text: format!(
                "I am a scripted model: what I say is fixed, but the machines are real. I look at what {machine} is, and what is in its folder."
            ),
            calls: vec![call(&format!("{machine}{SHELL}"), json!({ "command": LOOK }))],
        });
    }
    Some(say(match outcome(since) {
        Outcome::Fine => format!("{machine} says: {}", said(since)),
        Outcome::Denied => format!("Understood: that was denied, so nothing ran on {machine}."),
        Outcome::Failed(why) => format!("That did not work on {machine}: {}", why.trim()),
    }))
}

fn is_call(part: &Part) -> bool {
    matches!(part, Part::ToolCall { .. })
}

/// What the machine printed, which its shell puts into `output` or `stdout` of an object.
fn said(messages: &[Message]) -> String {
    let result = messages.iter().rev().find_map(|message| match message {
        Message::ToolResult { parts, .. } => text(parts).next(),
        Message::User(_) | Message::Developer(_) | Message::Assistant(_) => None,
    });
    let result = result.unwrap_or_default();
    let object: Option<serde_json::Value> = serde_json::from_str(result).ok();
    let printed =
        object.as_ref().and_then(|object| ["output", "stdout"].into_iter().find_map(|key| object[key].as_str()));
    printed.unwrap_or(result).trim().to_owned()
}
