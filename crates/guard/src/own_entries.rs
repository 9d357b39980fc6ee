//! Recognises what a guard wrote into settings, also where somebody edited it or its receipt is lost.
//!
//! A hook is recognised by its command. It must not know how settings are laid out as text.

use std::path::Path;

use serde_json::Value;

use crate::program::{BLOCK, GuardedProgram};

/// Recognises the entries of the guard of one program.
#[derive(Clone, Debug)]
pub(crate) struct OwnEntries {
    program: GuardedProgram,
    /// Start of the command in the receipt, or the path of the plugin.
    command: Option<String>,
}

/// Keys of a hook that have its command.
const COMMAND_KEYS: [&str; 3] = ["command", "bash", "powershell"];
/// End of the path of the plugin for opencode.
const PLUGIN: &str = "/countersign.mjs";

impl OwnEntries {
    /// Recognises entries by the command of the receipt too, if there is one.
    pub(crate) fn new(program: GuardedProgram, command: Option<&str>) -> Self {
        // The options may have been edited.
        let start = command.map(|command| command.split(" --data ").next().unwrap_or(command).to_owned());
        Self { program, command: start }
    }

    /// Reports whether a shell command runs the hook of the program.
    pub(crate) fn is_command(&self, text: &str) -> bool {
        let name = self.program.name();
        let is_recorded = || self.command.as_ref().is_some_and(|command| text.contains(command.as_str()));
        let is_as_written = || text.contains(&format!(" hook {name} --data ")) && text.contains(BLOCK);
        runs_hook(text, name) || is_recorded() || is_as_written()
    }

    /// Reports whether an element of a list is a hook or a plugin of the guard.
    pub(crate) fn is_element(&self, value: &Value) -> bool {
        match value {
            Value::String(path) => self.is_plugin(path),
            // A plugin with options.
            Value::Array(items) => items.first().and_then(Value::as_str).is_some_and(|path| self.is_plugin(path)),
            Value::Object(members) => {
                let words = |value: &Value| match value {
                    Value::Array(words) => words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
                    other => other.as_str().unwrap_or_default().to_owned(),
                };
                let arguments = members.get("args").map(words).unwrap_or_default();
                let commands = COMMAND_KEYS.iter().filter_map(|key| members.get(*key).map(words));
                commands.into_iter().any(|command| self.is_command(&format!("{command} {arguments}")))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }

    fn is_plugin(&self, path: &str) -> bool {
        self.program == GuardedProgram::Opencode && (path.ends_with(PLUGIN) || self.command.as_deref() == Some(path))
    }

    /// Returns the keys of settings below which the hook or the plugin still is.
    pub(crate) fn find(&self, settings: &Value) -> Vec<String> {
        let mut found = Vec::new();
        for (event, entries) in settings["hooks"].as_object().into_iter().flatten() {
            if self.is_below(entries) {
                found.push(format!("hooks.{event}"));
            }
        }
        if settings["plugin"].as_array().is_some_and(|plugins| plugins.iter().any(|one| self.is_element(one))) {
            found.push("plugin".to_owned());
        }
        found
    }

    fn is_below(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.is_command(text),
            Value::Array(items) => items.iter().any(|item| self.is_below(item)),
            Value::Object(members) => self.is_element(value) || members.values().any(|member| self.is_below(member)),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }

    /// Returns the keys under which Codex keeps its trust in the hooks of the guard in these settings, the file at `path`.
    pub(crate) fn trust_keys(&self, path: &Path, settings: &Value) -> Vec<String> {
        let real = path.parent().and_then(|folder| folder.canonicalize().ok());
        let mut files = vec![path.to_owned()];
        files.extend(real.into_iter().zip(path.file_name()).map(|(folder, name)| folder.join(name)));
        files.dedup();
        let mut keys = Vec::new();
        for (event, groups) in settings["hooks"].as_object().into_iter().flatten() {
            for (group, entry) in groups.as_array().into_iter().flatten().enumerate() {
                for (hook, one) in entry["hooks"].as_array().into_iter().flatten().enumerate() {
                    if self.is_element(one) {
                        let place = format!("{}:{group}:{hook}", snake_case(event));
                        keys.extend(files.iter().map(|file| format!("{}:{place}", file.display())));
                    }
                }
            }
        }
        keys
    }
}

/// Reports whether a command has the words `…countersign hook NAME`, the first with any quotes.
fn runs_hook(command: &str, name: &str) -> bool {
    let words = format!(" hook {name}");
    command.match_indices(&words).any(|(at, _)| {
        let next = command[at + words.len()..].chars().next();
        let program = command[..at].trim_end_matches(['\'', '"']).strip_suffix("countersign");
        let is_whole = |letter: char| !(letter.is_alphanumeric() || "-_./".contains(letter));
        next.is_none_or(is_whole)
            && program.is_some_and(|rest| rest.chars().next_back().is_none_or(|last| last == '/' || is_whole(last)))
    })
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for (index, letter) in name.chars().enumerate() {
        if letter.is_uppercase() && index > 0 {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::OwnEntries;
    use crate::program::GuardedProgram;

    #[test]
    fn a_hook_is_recognised_by_its_command() {
        let own = OwnEntries::new(GuardedProgram::Claude, None);
        for (command, want) in [
            ("/usr/bin/countersign hook claude --data /d || exit 2", true),
            ("'/usr/bin/countersign' hook claude", true),
            ("\"/a b/countersign\" hook claude --data /d", true),
            ("RUST_LOG=debug /usr/bin/countersign hook claude --wait 60 || exit 2", true),
            ("countersign hook claude; true", true),
            ("/opt/countersign-1.0 hook claude --data /d || exit 2", true),
            ("/opt/countersign-1.0 hook claude", false),
            ("/usr/bin/countersign hook claude-x", false),
            ("/usr/bin/countersign hook codex --data /d || exit 2", false),
            ("/usr/bin/mycountersign hook claude", false),
            ("/usr/bin/other hook claude", false),
            ("countersign gates list", false),
            ("", false),
        ] {
            assert_eq!(own.is_command(command), want, "{command}");
        }
        let recorded = OwnEntries::new(GuardedProgram::Claude, Some("/opt/cs hook claude --data /d"));
        assert!(recorded.is_command("/opt/cs hook claude --data /other") && !recorded.is_command("/opt/cs hook"));
        assert!(own.is_element(&json!({"command": "/usr/bin/countersign", "args": ["hook", "claude"]})));
        assert!(!own.is_element(&json!({"note": "/usr/bin/countersign hook claude"})));
    }

    #[test]
    fn the_trust_of_codex_is_found_by_the_place_of_the_hook() {
        let own = OwnEntries::new(GuardedProgram::Codex, None);
        let (mine, other) = (json!({"command": "/bin/countersign hook codex"}), json!({"command": "x"}));
        let settings = json!({"hooks": {
            "PreToolUse": [{"hooks": [other]}, {"hooks": [other, mine]}], "Stop": [{"hooks": [other]}],
        }});
        let keys = own.trust_keys(Path::new("/none/hooks.json"), &settings);
        assert_eq!(keys, ["/none/hooks.json:pre_tool_use:1:1"]);
    }
}
