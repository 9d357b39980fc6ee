//! Card of a call for a person who decides about it, the same at every door.
//!
//! It must not know any wire, nor what is allowed: it shows the whole call, or reports how much is missing.

use countersign_core::{call::Pins, digest::Digest};
use serde_json::{Map, Value};

use super::{LineMode, escape, gate_request::CallRequest, label, server_request};

/// Input for a card.
#[derive(Clone, Copy, Debug)]
pub struct GateCardInput<'a> {
    /// The tool's name.
    pub tool: &'a str,
    /// The arguments that would be used, all of them.
    pub arguments: &'a Map<String, Value>,
    /// Signature that rules were matched against.
    pub signature: &'a str,
    /// Name of the asker.
    pub asker: &'a str,
    /// Reason for the question, such as the rule that requires it.
    pub reason: &'a str,
    /// Purpose of the call, as the asker gives it.
    pub intent: Option<&'a str>,
    /// The folder in which it would run.
    pub cwd: Option<&'a str>,
    /// Files that it would run from disk, as they were when it was judged.
    pub pins: Option<&'a Pins>,
    /// Possible answers, in the order in which they are offered.
    pub choices: &'a [&'a str],
}

impl<'a> GateCardInput<'a> {
    /// Creates the input for a call by `asker`, with the answers `choices`.
    pub const fn new(call: CallRequest<'a>, asker: &'a str, cwd: Option<&'a str>, choices: &'a [&'a str]) -> Self {
        Self {
            tool: call.tool,
            arguments: call.arguments,
            signature: call.signature,
            asker,
            reason: call.reason,
            intent: call.intent,
            cwd,
            pins: call.pins,
            choices,
        }
    }

    /// Creates what a card shows of a call of the agent, whose session is in `cwd`.
    pub fn of_agent(call: CallRequest<'a>, cwd: &'a str, choices: &'a [&'a str]) -> Self {
        // The session's shell may be somewhere else by now.
        let cwd = call.pins.map_or(cwd, |pins| &pins.folder.path);
        Self::new(call, "The agent", Some(cwd), choices)
    }
}

/// One named piece of what would run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardSection {
    /// The argument's name.
    pub label: String,
    /// Its whole value, escaped. May have more than one line.
    pub text: String,
}

/// A pending approval as it is shown. Every text in it is escaped; none is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateCard {
    /// One line: the tool and who wants it.
    pub title: String,
    /// One line: who wants it.
    pub asker: String,
    /// Reason for the question.
    pub reason: String,
    /// Purpose of the call in one line, as the asker gives it.
    pub intent: Option<String>,
    /// Signature that rules were matched against, in one line.
    pub signature: String,
    /// Content of the call: the arguments in the order of their importance.
    pub sections: Vec<CardSection>,
    /// Possible answers.
    pub choices: Vec<String>,
    /// Digest of the canonical arguments: an approval holds for this digest.
    pub digest: Digest,
}

/// Space of a door for a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CardFit {
    /// All of it: the text may be approved.
    Whole(String),
    /// Its beginning and end, its length and its digest: it may only be denied until it was shown whole elsewhere.
    Cut(String),
}

impl GateCard {
    /// Creates the card of `input`.
    pub fn new(input: &GateCardInput<'_>) -> Self {
        let line = |text: &str| escape(text, LineMode::One).into_owned();
        let mut sections = argument_sections(input.tool, input.arguments);
        if let Some(consequence) = server_request::consequence(input.tool) {
            // No argument has a label with a space.
            sections.insert(0, CardSection { label: "if allowed".to_owned(), text: consequence.to_owned() });
        }
        if let Some(cwd) = input.cwd {
            sections.push(CardSection { label: "in folder".to_owned(), text: line(cwd) });
        }
        let runs = input.pins.map(Pins::summary_lines).unwrap_or_default();
        if !runs.is_empty() {
            sections.push(CardSection {
                label: "runs".to_owned(),
                text: escape(&runs.join("\n"), LineMode::Many).into_owned(),
            });
        }
        Self {
            title: match server_request::title(input.tool, input.arguments) {
                Some(title) => line(&title),
                None => format!("{} wants to use {}", line(input.asker), line(input.tool)),
            },
            asker: line(input.asker),
            reason: escape(input.reason, LineMode::Many).into_owned(),
            intent: input.intent.map(line),
            signature: line(input.signature),
            sections,
            choices: input.choices.iter().map(|choice| line(choice)).collect(),
            digest: Digest::hash_bytes(
                countersign_core::digest::canonical_json(&Value::Object(input.arguments.clone())).as_bytes(),
            ),
        }
    }

    /// Returns the content of the call, and the reason for the question, as plain text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for CardSection { label, text: value } in &self.sections {
            // A value of several lines is set off, so that it cannot pretend to be the next label.
            if value.contains('\n') {
                text.push_str(&format!("{label}:\n"));
                for line in value.split('\n') {
                    text.push_str(&format!("  | {line}\n"));
                }
            } else {
                text.push_str(&format!("{label}: {value}\n"));
            }
        }
        if !self.reason.is_empty() {
            text.push_str(&format!("asked: {}\n", self.reason.replace('\n', "\n  | ")));
        }
        // After all that is sure: it is the asker's own claim.
        if let Some(intent) = &self.intent {
            text.push_str(&format!("the agent says: {intent}\n"));
        }
        text
    }

    /// Returns the number of characters of [`Self::text`].
    pub fn char_count(&self) -> usize {
        self.text().chars().count()
    }

    /// Returns the text for a door that can show `limit` characters.
    pub fn fit_within(&self, limit: usize) -> CardFit {
        let text = self.text();
        let length = text.chars().count();
        if length <= limit {
            return CardFit::Whole(text);
        }
        let notice = format!(
            "\n[… not shown whole: {length} characters, sha256 {}. View it whole before you allow it. …]\n",
            self.digest
        );
        let left = limit.saturating_sub(notice.chars().count());
        let (head, tail) = (left - left / 3, left / 3);
        let head: String = text.chars().take(head).collect();
        let tail: String = text.chars().skip(length - tail).collect();
        CardFit::Cut(format!("{head}{notice}{tail}"))
    }
}

/// Returns the arguments that matter most of the tools that we know; the rest follows by name.
fn argument_order(tool: &str) -> &'static [&'static str] {
    match tool {
        "bash" => &["command", "cwd", "env", "timeout"],
        "write" => &["path", "content"],
        "edit" => &["path", "old_text", "new_text", "all", "edits", "diff", "op", "rename", "move", "delete"],
        _ => &["path", "command", "url"],
    }
}

fn argument_sections(tool: &str, arguments: &Map<String, Value>) -> Vec<CardSection> {
    let first = argument_order(tool);
    let mut rest: Vec<&String> = arguments.keys().filter(|key| !first.contains(&key.as_str())).collect();
    rest.sort_unstable();
    first
        .iter()
        .copied()
        .filter(|key| arguments.contains_key(*key))
        .chain(rest.into_iter().map(String::as_str))
        .map(|key| CardSection { label: label(key), text: shown_value(&arguments[key]) })
        .collect()
}

fn shown_value(value: &Value) -> String {
    match value {
        Value::String(text) => escape(text, LineMode::Many).into_owned(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(_) | Value::Object(_) => {
            let text = serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string());
            escape(&text, LineMode::Many).into_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{CallRequest, CardFit, CardSection, GateCard, GateCardInput};

    fn card(tool: &str, arguments: Value) -> GateCard {
        let Value::Object(arguments) = arguments else { panic!("an object") };
        GateCard::new(&GateCardInput {
            tool,
            arguments: &arguments,
            signature: "bash(ls)",
            asker: "main",
            reason: "rule ask: bash(*)",
            intent: Some("look\naround"),
            cwd: Some("/work"),
            pins: None,
            choices: &["Allow once", "Deny"],
        })
    }

    #[test]
    fn a_request_for_a_server_says_what_it_is_about() {
        let arguments = json!({ "server": "files\nx", "command": "node" });
        let request = CallRequest {
            tool: "mcp_server",
            arguments: arguments.as_object().unwrap(),
            signature: "mcp_server(files)",
            intent: None,
            reason: "",
            pins: None,
        };
        let card = GateCard::new(&GateCardInput::new(request, "gateway", None, &[]));
        assert_eq!(card.title, "Use the MCP server files\\u{a}x?");
        assert!(card.text().starts_with("if allowed: the server starts, and agents get all tools that it lists\n"));
        let tools = CallRequest { tool: "mcp_tools", ..request };
        assert!(tools.server_title().unwrap().starts_with("Use the changed tools of the MCP server files"));
        assert_eq!(CallRequest { tool: "bash", ..request }.server_title(), None);
    }

    #[test]
    fn a_card_shows_all_that_would_run() {
        let card = card(
            "bash",
            json!({"timeout": 5, "env": {"A": "1"}, "command": "ls \u{202e}x\r\n\trm -rf /tmp/y", "zz": null}),
        );
        assert_eq!(card.title, "main wants to use bash");
        assert_eq!(
            card.text(),
            "command:\n  | ls \\u{202e}x\\u{d}\n  | \trm -rf /tmp/y\nenv:\n  | {\n  |   \"A\": \"1\"\n  | }\ntimeout: 5\nzz: null\n\
             in folder: /work\nasked: rule ask: bash(*)\nthe agent says: look\\u{a}around\n"
        );
        assert_eq!(card.choices, ["Allow once", "Deny"]);
    }

    #[test]
    fn a_value_cannot_pretend_to_be_another_argument() {
        let text = card("write", json!({"path": "a\npath: b", "content": "x\nin folder: /safe"})).text();
        assert_eq!(text.lines().filter(|line| line.starts_with("in folder:")).count(), 1);
        assert_eq!(text.lines().filter(|line| line.starts_with("path: ")).count(), 0);
        let text = card("write", json!({"path: /safe": "x"})).text();
        assert!(text.starts_with("\"path: /safe\": x\n"), "{text}");
    }

    #[test]
    fn the_order_is_that_of_what_matters() {
        let card =
            card("edit", json!({"all": true, "zeta": 1, "new_text": "n", "old_text": "o", "path": "p", "alpha": 2}));
        let labels: Vec<&str> = card.sections.iter().map(|CardSection { label, .. }| label.as_str()).collect();
        assert_eq!(labels, ["path", "old_text", "new_text", "all", "alpha", "zeta", "in folder"]);
    }

    #[test]
    fn what_does_not_fit_says_so_with_length_and_digest() {
        let card = card("bash", json!({"command": "x".repeat(5000)}));
        assert_eq!(card.fit_within(card.char_count()), CardFit::Whole(card.text()));
        let CardFit::Cut(text) = card.fit_within(1000) else { panic!("too long") };
        assert_eq!(text.chars().count(), 1000);
        assert!(text.starts_with("command: xxx") && text.ends_with("around\n"));
        assert!(text.contains(&format!("{} characters, sha256 {}", card.char_count(), card.digest)));
    }

    #[test]
    fn equal_arguments_have_one_digest() {
        let left = card("bash", json!({"a": 1, "b": 2}));
        let right = card("bash", json!({"b": 2, "a": 1}));
        assert_eq!(left.digest, right.digest);
        assert_ne!(left.digest, card("bash", Value::Object(Map::new())).digest);
    }
}
