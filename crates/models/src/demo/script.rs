//! Next answer of the scripted model, decided by the conversation alone.
//!
//! It must not know events or usage.

use serde_json::{Value, json};

use super::{BUG, FIX, PROMPT, PUBLISH, TEST};
use crate::{MessagePart, RequestMessage};

/// A text and the calls after it.
#[derive(Debug, PartialEq)]
pub(super) struct ScriptedAnswer {
    pub(super) text: String,
    pub(super) calls: Vec<ScriptedCall>,
}

#[derive(Debug, PartialEq)]
pub(super) struct ScriptedCall {
    pub(super) tool: String,
    pub(super) arguments: Value,
}

/// Results of the calls of the last answer.
pub(super) enum ToolOutcome<'a> {
    Fine,
    Denied,
    Failed(&'a str),
}

/// Decides the next answer. The step of the task is the number of answers with calls since the task was given.
pub(super) fn next_answer(messages: &[RequestMessage]) -> ScriptedAnswer {
    let Some(task_at) = messages.iter().rposition(is_task) else {
        return text_answer(format!(
            "I am a scripted model: I cannot think, and I know only one task. Try this: {PROMPT}"
        ));
    };
    let mut step = 0_u32;
    let mut since = task_at;
    for (at, message) in messages.iter().enumerate().skip(task_at) {
        if let RequestMessage::Assistant(answer) = message {
            let calls = answer.parts.iter().any(|part| matches!(part, MessagePart::ToolCall { .. }));
            if !calls {
                return text_answer(
                    "I am a scripted model, and my script is over. Ask for the task again to see it once more."
                        .to_owned(),
                );
            }
            step += 1;
            since = at;
        }
    }
    match (step, last_outcome(&messages[since..])) {
        (0, _) => ScriptedAnswer {
            text: "I am a scripted model: what I say is fixed, but the tools that I call are real. First I read the script and its test.".to_owned(),
            calls: vec![
                call("read", json!({"path": "greet.sh", "_i": "Read the script"})),
                call("read", json!({"path": "test.sh", "_i": "Read its test"})),
            ],
        },
        (4.., ToolOutcome::Fine) => {
            text_answer("Done. The bug was a misspelt variable: greet.sh used $nmae instead of $name. It is fixed, the test passes, and the project is published in ../published, since the command was allowed.".to_owned())
        }
        (4.., ToolOutcome::Denied) => {
            text_answer("Understood: publishing was denied, so nothing outside this folder was changed. The bug in greet.sh is fixed and the test passes; the fix stays in this folder.".to_owned())
        }
        (4.., ToolOutcome::Failed(text)) => {
            text_answer(format!("The bug in greet.sh is fixed and the test passes, but publishing did not work: {}", shorten_text(text)))
        }
        (1..=3, ToolOutcome::Denied) => {
            text_answer("Understood: that was denied, and my script has no other step, so I stop here. Nothing was published.".to_owned())
        }
        (1..=3, ToolOutcome::Failed(text)) => {
            text_answer(format!("That did not work, and my script has no other step, so I stop here. Nothing was published. The tool returned: {}", shorten_text(text)))
        }
        (1, ToolOutcome::Fine) => ScriptedAnswer {
            text: "The last line of greet.sh misspells its variable: $nmae should be $name. I change that line.".to_owned(),
            calls: vec![call(
                "edit",
                json!({"path": "greet.sh", "old_text": BUG, "new_text": FIX, "_i": "Fix the misspelt variable"}),
            )],
        },
        (2, ToolOutcome::Fine) => ScriptedAnswer {
            text: "Now I run the test.".to_owned(),
            calls: vec![call("bash", json!({"command": TEST, "_i": "Run the test"}))],
        },
        (3, ToolOutcome::Fine) => ScriptedAnswer {
            text: "The test passes. Publishing replaces the folder ../published, which is outside of this one: a person has to approve that. Read the command, then decide.".to_owned(),
            calls: vec![call("bash", json!({"command": PUBLISH, "_i": "Publish the fixed project next to this folder"}))],
        },
    }
}

pub(super) fn text_answer(text: String) -> ScriptedAnswer {
    ScriptedAnswer { text, calls: Vec::new() }
}

pub(super) fn call(tool: &str, arguments: Value) -> ScriptedCall {
    ScriptedCall { tool: tool.to_owned(), arguments }
}

fn is_task(message: &RequestMessage) -> bool {
    match message {
        RequestMessage::User(parts) => text_parts(parts).any(|text| text.contains("greet.sh")),
        RequestMessage::Developer(_) | RequestMessage::Assistant(_) | RequestMessage::ToolResult { .. } => false,
    }
}

pub(super) fn last_outcome(messages: &[RequestMessage]) -> ToolOutcome<'_> {
    let failed = messages.iter().find_map(|message| match message {
        RequestMessage::ToolResult { parts, is_error: true, .. } => Some(text_parts(parts).next().unwrap_or_default()),
        RequestMessage::ToolResult { .. }
        | RequestMessage::User(_)
        | RequestMessage::Developer(_)
        | RequestMessage::Assistant(_) => None,
    });
    match failed {
        None => ToolOutcome::Fine,
        Some(text) => {
            let words = text.to_lowercase();
            let denied =
                ["denied", "denies", "not allowed", "rejected", "declined"].iter().any(|word| words.contains(word));
            // A denial of the operating system is no decision of a person.
            if denied && !words.contains("permission denied") { ToolOutcome::Denied } else { ToolOutcome::Failed(text) }
        }
    }
}

pub(super) fn text_parts(parts: &[MessagePart]) -> impl Iterator<Item = &str> {
    parts.iter().filter_map(|part| match part {
        MessagePart::Text { text, .. } => Some(text.as_str()),
        MessagePart::Thinking { .. }
        | MessagePart::Redacted { .. }
        | MessagePart::Image { .. }
        | MessagePart::ToolCall { .. } => None,
    })
}

fn shorten_text(text: &str) -> String {
    text.trim().chars().take(300).collect()
}
