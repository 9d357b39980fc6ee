//! Answers of the scripted model that has no shell of its own but the shells of other machines.
//!
//! It must not know events or usage.

use serde_json::json;

use super::script::{ScriptedAnswer, ToolOutcome, call, last_outcome, text_answer, text_parts};
use crate::{MessagePart, RequestMessage};

/// Suffix of the name of another machine's shell, after the machine's name.
const SHELL: &str = "__Bash";

/// Command with which it looks around there.
pub(super) const LOOK: &str = "uname -sn && ls";

/// Decides the next answer if among `tools` is no shell but one of another machine: the one that was named, else the first.
pub(super) fn next_answer(messages: &[RequestMessage], tools: &[String]) -> Option<ScriptedAnswer> {
    if tools.iter().any(|tool| tool == "bash") {
        return None;
    }
    let at = messages.iter().rposition(|message| matches!(message, RequestMessage::User(_)))?;
    let RequestMessage::User(prompt) = &messages[at] else { return None };
    let mut shells: Vec<&str> = tools.iter().filter_map(|tool| tool.strip_suffix(SHELL)).collect();
    shells.sort_unstable();
    let is_named = |shell: &&&str| text_parts(prompt).any(|text| text.contains(**shell));
    let machine = *shells.iter().find(is_named).or_else(|| shells.first())?;
    let since = &messages[at..];
    let called = since
        .iter()
        .any(|message| matches!(message, RequestMessage::Assistant(answer) if answer.parts.iter().any(is_call)));
    if !called {
        return Some(ScriptedAnswer {
            text: format!(
                "I am a scripted model: what I say is fixed, but the machines are real. I look at what {machine} is, and what is in its folder."
            ),
            calls: vec![call(&format!("{machine}{SHELL}"), json!({ "command": LOOK }))],
        });
    }
    Some(text_answer(match last_outcome(since) {
        ToolOutcome::Fine => format!("{machine} says: {}", printed_output(since)),
        ToolOutcome::Denied => format!("Understood: that was denied, so nothing ran on {machine}."),
        ToolOutcome::Failed(why) => format!("That did not work on {machine}: {}", why.trim()),
    }))
}

fn is_call(part: &MessagePart) -> bool {
    matches!(part, MessagePart::ToolCall { .. })
}

/// Returns the output of the machine, which its shell puts into `output` or `stdout` of an object.
fn printed_output(messages: &[RequestMessage]) -> String {
    let result = messages.iter().rev().find_map(|message| match message {
        RequestMessage::ToolResult { parts, .. } => text_parts(parts).next(),
        RequestMessage::User(_) | RequestMessage::Developer(_) | RequestMessage::Assistant(_) => None,
    });
    let result = result.unwrap_or_default();
    let object: Option<serde_json::Value> = serde_json::from_str(result).ok();
    let printed =
        object.as_ref().and_then(|object| ["output", "stdout"].into_iter().find_map(|key| object[key].as_str()));
    printed.unwrap_or(result).trim().to_owned()
}
