//! Arguments of a call that a shell reads, and the machine of that shell.
//!
//! A tool of our own is known by its name. Tools of others are judged by their description, and a doubt about them is kept. The effect
//! of a line is judged elsewhere.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Machine on which a shell runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShellMachine {
    /// Here, in the working folder.
    This,
    /// On a machine of which nothing is known: no folder, no home, none of the gateway's files, not even which shell it has.
    Other,
}

/// Parts of a call that a shell reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShellInput {
    /// Nothing.
    #[default]
    Nothing,
    /// One argument, which is a line.
    Line {
        /// Its name.
        argument: Cow<'static, str>,
        /// Machine of the shell.
        machine: ShellMachine,
    },
    /// Perhaps any text in it.
    Perhaps {
        /// Machine that the shell would be on.
        machine: ShellMachine,
    },
}

/// A tool that another program offers, as far as its description shows.
#[derive(Clone, Copy, Debug)]
pub struct ForeignTool<'a> {
    /// Name of the tool, by the program that offers it.
    pub name: &'a str,
    /// The JSON Schema of its arguments.
    pub schema: &'a Map<String, Value>,
    /// True if its description says that it needs a shell.
    pub needs_shell: bool,
    /// Machine on which it works.
    pub machine: ShellMachine,
}

/// The tool of our own that is a shell.
const OURS: &str = "bash";
/// Words in names of tools that are shells beyond doubt.
const SHELLS: [&str; 10] = ["bash", "sh", "zsh", "fish", "ksh", "dash", "shell", "powershell", "pwsh", "terminal"];
/// Words in names of tools that may be.
const DOUBTFUL: [&str; 10] =
    ["cmd", "command", "commands", "console", "exec", "execute", "process", "script", "ssh", "subprocess"];
/// The arguments that hold what a shell reads, the surest first.
const LINES: [&str; 8] =
    ["command", "cmd", "commandLine", "command_line", "shellCommand", "shell_command", "script", "commands"];

impl ShellInput {
    /// Returns the parts of a call of our own tool with this name that a shell reads.
    pub fn of_own(tool: &str) -> Self {
        match tool {
            OURS => Self::Line { argument: Cow::Borrowed("command"), machine: ShellMachine::This },
            _ => Self::Nothing,
        }
    }

    /// Returns the parts of a call of a foreign tool with these arguments that a shell reads.
    pub fn of_foreign(tool: &ForeignTool<'_>, arguments: &Map<String, Value>) -> Self {
        let machine = tool.machine;
        let is_shell = tool.needs_shell || name_words(tool.name).any(|word| SHELLS.contains(&word.as_str()));
        let properties = tool.schema.get("properties").and_then(Value::as_object);
        let declared = |name: &&&str| properties.and_then(|all| all.get(**name)).is_some_and(may_be_text);
        let given = |name: &&&str| arguments.get(**name).is_some_and(Value::is_string);
        let line = LINES.iter().find(declared).or_else(|| LINES.iter().find(given));
        if let Some(argument) = line.filter(|_| is_shell) {
            return Self::Line { argument: Cow::Borrowed(argument), machine };
        }
        let is_named =
            |name: &&str| arguments.contains_key(*name) || properties.is_some_and(|all| all.contains_key(*name));
        let is_doubtful = name_words(tool.name).any(|word| DOUBTFUL.contains(&word.as_str()));
        if is_shell || is_doubtful || LINES.iter().any(is_named) {
            return Self::Perhaps { machine };
        }
        Self::Nothing
    }
}

/// Reports whether a tool with this name in a rule is taken for a shell: ours, or one of a node, whose name follows its own.
pub fn is_shell_in_rules(tool: &str) -> bool {
    tool == OURS || tool.rsplit_once("__").is_some_and(|(_, own)| own.eq_ignore_ascii_case(OURS))
}

fn may_be_text(schema: &Value) -> bool {
    match schema.get("type") {
        None => true,
        Some(Value::String(one)) => one == "string",
        Some(Value::Array(several)) => several.iter().any(|one| one == "string"),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => false,
    }
}

/// Returns the words of a name in lower case, however they are joined: `runShell`, `run_shell`, `Run shell`.
fn name_words(name: &str) -> impl Iterator<Item = String> {
    let mut words = vec![String::new()];
    let mut was_small = false;
    for letter in name.chars() {
        if !letter.is_alphanumeric() || (was_small && letter.is_uppercase()) {
            words.push(String::new());
        }
        was_small = letter.is_lowercase();
        if let Some(word) = words.last_mut().filter(|_| letter.is_alphabetic()) {
            word.extend(letter.to_lowercase());
        }
    }
    words.into_iter().filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use serde_json::{Map, Value, json};

    use super::{ForeignTool, ShellInput, ShellMachine, is_shell_in_rules};

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn what_others_offer_is_a_shell_by_what_they_say_and_perhaps_one_in_doubt() {
        let machine = ShellMachine::Other;
        let line = |argument| ShellInput::Line { argument: Cow::Borrowed(argument), machine };
        let perhaps = ShellInput::Perhaps { machine };
        let text = |name: &str| json!({"properties": {name: {"type": "string"}}});
        let none = json!({});
        for (name, schema, needs_shell, arguments, want) in [
            ("Bash", text("command"), true, json!({"command": "ls"}), line("command")),
            ("Bash", text("command"), false, json!({}), line("command")),
            ("run_shell", text("cmd"), false, json!({}), line("cmd")),
            ("runShell", json!({"properties": {"script": {}}}), false, json!({}), line("script")),
            ("zsh5", none.clone(), false, json!({"command": "ls"}), line("command")),
            ("Do", text("command"), true, json!({}), line("command")),
            ("Bash", json!({"properties": {"command": {"type": "array"}}}), true, json!({}), perhaps.clone()),
            ("Process", text("data"), true, json!({}), perhaps.clone()),
            ("exec", text("argv"), false, json!({}), perhaps.clone()),
            ("run", text("command"), false, json!({}), perhaps.clone()),
            ("run", none.clone(), false, json!({"cmd": ["ls"]}), perhaps.clone()),
            ("Read", text("path"), false, json!({"path": "a"}), ShellInput::Nothing),
            ("executive_summary", text("text"), false, json!({}), ShellInput::Nothing),
            ("pushover", none, false, json!({"text": "ls; ls"}), ShellInput::Nothing),
        ] {
            let schema = map(schema);
            let foreign = ForeignTool { name, schema: &schema, needs_shell, machine };
            assert_eq!(ShellInput::of_foreign(&foreign, &map(arguments)), want, "{name} {schema:?}");
        }
    }

    #[test]
    fn rules_know_a_shell_by_its_name() {
        for (tool, want) in
            [("bash", true), ("mac__Bash", true), ("*__Bash", true), ("mac__Read", false), ("Bash", false), ("", false)]
        {
            assert_eq!(is_shell_in_rules(tool), want, "{tool}");
        }
    }
}
