//! What the scripted model says next, decided by the conversation alone.
//!
//! It must not know events or usage.

use serde_json::{Value, json};

use super::{BUG, FIX, PROMPT, PUBLISH, TEST};
use crate::{Message, Part};

/// A text and the calls behind it.
#[derive(Debug, PartialEq)]
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) calls: Vec<Call>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Call {
    pub(super) tool: String,
    pub(super) arguments: Value,
}

/// How the calls of the last answer came out.
pub(super) enum Outcome<'a> {
    Fine,
    Denied,
    Failed(&'a str),
}

/// Decides the next answer. The step of the task is the number of answers with calls since it was asked for.
pub(super) fn answer(messages: &[Message]) -> Answer {
    let Some(asked) = messages.iter().rposition(is_task) else {
        return say(format!("I am a scripted model: I cannot think, and I know one task only. Try this: {PROMPT}"));
    };
    let mut step = 0_u32;
    let mut since = asked;
    for (at, message) in messages.iter().enumerate().skip(asked) {
        if let Message::Assistant(said) = message {
            let calls = said.parts.iter().any(|part| matches!(part, Part::ToolCall { .. }));
            if !calls {
                return say(
                    "I am a scripted model, and my script is over. Ask for the task again to see it once more."
                        .to_owned(),
                );
            }
            step += 1;
            since = at;
        }
    }
    match (step, outcome(&messages[since..])) {
        (0, _) => Answer {
            text: "I am a scripted model: what I say is fixed, but the tools that I call are real. First I read the script and its test.".to_owned(),
            calls: vec![
                call("read", json!({"path": "greet.sh", "_i": "Read the script"})),
                call("read", json!({"path": "test.sh", "_i": "Read its test"})),
            ],
        },
        (4.., Outcome::Fine) => {
            say("Done. The bug was a misspelt variable: greet.sh said $nmae where it meant $name. It is fixed, the test passes, and the project is published in ../published, since the command was allowed.".to_owned())
        }
        (4.., Outcome::Denied) => {
            say("Understood: publishing was denied, so nothing outside this folder was changed. The bug in greet.sh is fixed and the test passes; the fix stays in this folder.".to_owned())
        }
        (4.., Outcome::Failed(text)) => {
            say(format!("The bug in greet.sh is fixed and the test passes, but publishing did not work: {}", short(text)))
        }
        (1..=3, Outcome::Denied) => {
            say("Understood: that was denied, and my script has no other way, so I stop here. Nothing was published.".to_owned())
        }
        (1..=3, Outcome::Failed(text)) => {
            say(format!("That did not work, and my script has no other way, so I stop here. Nothing was published. The tool said: {}", short(text)))
        }
        (1, Outcome::Fine) => Answer {
            text: "The last line of greet.sh misspells its variable: $nmae should be $name. I change that line.".to_owned(),
            calls: vec![call(
                "edit",
                json!({"path": "greet.sh", "old_text": BUG, "new_text": FIX, "_i": "Fix the misspelt variable"}),
            )],
        },
        (2, Outcome::Fine) => Answer {
            text: "Now I run the test.".to_owned(),
            calls: vec![call("bash", json!({"command": TEST, "_i": "Run the test"}))],
        },
        (3, Outcome::Fine) => Answer {
            text: "The test passes. Publishing replaces the folder ../published, which is outside of this one: a person has to approve that. Read the command, then decide.".to_owned(),
            calls: vec![call("bash", json!({"command": PUBLISH, "_i": "Publish the fixed project beside this folder"}))],
        },
    }
}

pub(super) fn say(text: String) -> Answer {
    Answer { text, calls: Vec::new() }
}

pub(super) fn call(tool: &str, arguments: Value) -> Call {
    Call { tool: tool.to_owned(), arguments }
}

fn is_task(message: &Message) -> bool {
    match message {
        Message::User(parts) => text(parts).any(|text| text.contains("greet.sh")),
        Message::Developer(_) | Message::Assistant(_) | Message::ToolResult { .. } => false,
    }
}

pub(super) fn outcome(messages: &[Message]) -> Outcome<'_> {
    let failed = messages.iter().find_map(|message| match message {
        Message::ToolResult { parts, is_error: true, .. } => Some(text(parts).next().unwrap_or_default()),
        Message::ToolResult { .. } | Message::User(_) | Message::Developer(_) | Message::Assistant(_) => None,
    });
    match failed {
        None => Outcome::Fine,
        Some(text) => {
            let words = text.to_lowercase();
            let denied =
                ["denied", "denies", "not allowed", "rejected", "declined"].iter().any(|word| words.contains(word));
            // What the operating system denies is no decision of a person.
            if denied && !words.contains("permission denied") { Outcome::Denied } else { Outcome::Failed(text) }
        }
    }
}

pub(super) fn text(parts: &[Part]) -> impl Iterator<Item = &str> {
    parts.iter().filter_map(|part| match part {
        Part::Text { text, .. } => Some(text.as_str()),
        Part::Thinking { .. } | Part::Redacted { .. } | Part::Image { .. } | Part::ToolCall { .. } => None,
    })
}

fn short(text: &str) -> String {
    text.trim().chars().take(300).collect()
}
