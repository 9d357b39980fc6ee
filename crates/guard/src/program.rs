//! Programs that can be guarded: their files, the entries of their hooks, and what gets past each guard.
//!
//! Source: docs/protocol/hooks.md, Programs. The facts were measured with the versions here.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::{error::GuardError, json_syntax::JsonSyntax, places::GuardPlaces};

/// Program that a guard can be installed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardedProgram {
    /// Claude Code.
    Claude,
    /// Codex.
    Codex,
    /// Gemini CLI.
    Gemini,
    /// Copilot CLI.
    Copilot,
    /// opencode.
    Opencode,
}

/// Settings in which a guard is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardScope {
    /// Those of the user.
    User,
    /// Those of the machine, which its administrator owns.
    Managed,
}

/// Strength of a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardGrade {
    /// The user and the program cannot switch it off.
    Enforced,
    /// A setting of a repository, a flag or the agent itself can switch it off.
    Cooperative,
}

/// Version of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProgramVersion(pub [u32; 3]);

/// Entry that a guard adds: a value at the end of the list at these keys, or the value itself if `is_list_element` is false.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SettingsEntry {
    pub(crate) keys: Vec<&'static str>,
    pub(crate) value: Value,
    pub(crate) is_list_element: bool,
}

/// Time limit of a hook in its program, in seconds. The hook's own is shorter.
pub(crate) const HOOK_LIMIT: u64 = 600;

/// End of the shell command of a hook, with which one that was killed blocks the call.
pub(crate) const BLOCK: &str = " || exit 2";

/// Events of Codex at which it asks, or that tell what ran.
pub(crate) const CODEX_EVENTS: [&str; 3] = ["PreToolUse", "PermissionRequest", "PostToolUse"];

impl GuardedProgram {
    /// All programs.
    pub const ALL: [Self; 5] = [Self::Claude, Self::Codex, Self::Gemini, Self::Copilot, Self::Opencode];

    /// Returns its name, which is also that of its command.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Copilot => "copilot",
            Self::Opencode => "opencode",
        }
    }

    /// Returns its name for people.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Claude => "Claude Code",
            Self::Codex => "Codex",
            Self::Gemini => "Gemini CLI",
            Self::Copilot => "Copilot CLI",
            Self::Opencode => "opencode",
        }
    }

    /// Returns the program of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|program| program.name() == name)
    }

    /// Returns the first version in which the guard blocks calls as documented. Older ones were not measured, or let calls run when the
    /// hook fails.
    pub const fn first_version(self) -> ProgramVersion {
        match self {
            // `onFailure: block` of hooks.
            Self::Claude => ProgramVersion([2, 1, 295]),
            Self::Codex => ProgramVersion([0, 171, 0]),
            Self::Gemini => ProgramVersion([0, 61, 0]),
            Self::Copilot => ProgramVersion([1, 0, 102]),
            Self::Opencode => ProgramVersion([1, 18, 33]),
        }
    }

    /// Returns the grade of its guard.
    pub const fn grade(self, scope: GuardScope) -> GuardGrade {
        match (self, scope) {
            (Self::Claude | Self::Codex | Self::Opencode, GuardScope::Managed) => GuardGrade::Enforced,
            (_, GuardScope::User) | (Self::Gemini | Self::Copilot, GuardScope::Managed) => GuardGrade::Cooperative,
        }
    }

    /// Returns what gets past the guard, a line each.
    pub const fn gaps(self, scope: GuardScope) -> &'static [&'static str] {
        match (self, scope) {
            (Self::Claude, GuardScope::Managed) => &[
                "a process that can write the managed file, such as a command with root's rights",
                "another managed hook that rewrites a call after the decision; the gateway reports such a call",
            ],
            (Self::Claude, GuardScope::User) => &[
                "`disableAllHooks` in the settings of a repository, also of one that is not trusted, with `claude -p`",
                "the flags --settings, --bare, --safe-mode and --setting-sources",
                "another invalid entry in the same file: `claude -p` then drops the whole file without a message",
                "another hook that rewrites a call after the decision; the gateway reports such a call",
                "the agent itself, if a rule lets it write this file",
            ],
            (Self::Codex, GuardScope::Managed) => &[
                "a hook that is killed together with its shell: Codex then runs the call",
                "`write_stdin` into a program that still runs: Codex runs no hook for it. `countersign codex` decides that too",
                "a process that can write the managed file, such as a command with root's rights",
            ],
            (Self::Codex, GuardScope::User) => &[
                "`write_stdin` into a program that still runs: Codex runs no hook for it. `countersign codex` decides that too",
                "a hook that is killed together with its shell: Codex then runs the call",
                "`--disable hooks`, `features.hooks = false`, and another CODEX_HOME",
                "an edit of the hook: Codex skips a hook that is not as it was trusted, without a message",
                "another hook that rewrites a call after the decision; the gateway reports such a call",
                "the agent itself, if a rule lets it write these files",
            ],
            (Self::Opencode, GuardScope::Managed) => &[
                "`opencode --auto` and `--dangerously-skip-permissions`: they answer the questions of the managed rules themselves",
                "another client of `opencode serve` that answers first",
                "a process that can write the managed file, such as a command with root's rights",
            ],
            (Self::Opencode, GuardScope::User) => &[
                "`opencode --pure`: it loads no plugin",
                "a plugin file that is missing or cannot be loaded: opencode starts without it, without a message",
                "another plugin that rewrites a call after the decision; the gateway reports such a call",
                "`\"permission\": \"allow\"` in the settings of a repository: the plugin still asks, the rules of opencode do not",
                "the agent itself, if a rule lets it write these files",
            ],
            (Self::Gemini, _) => &[
                "`gemini --acp`: it runs no hooks",
                "`hooksConfig.enabled: false` in the settings of a repository",
                "a hook that is killed together with its shell",
                "the agent itself, if a rule lets it write this file",
            ],
            (Self::Copilot, _) => &[
                "a hook that takes longer than its limit, for example because the machine was suspended",
                "the agent itself, if a rule lets it write this file",
            ],
        }
    }

    /// Returns the file in which the guard is installed.
    pub(crate) fn settings_path(self, scope: GuardScope, places: &GuardPlaces) -> Result<PathBuf, GuardError> {
        Ok(match (self, scope) {
            (Self::Claude, GuardScope::User) => places.claude_folder().join("settings.json"),
            (Self::Claude, GuardScope::Managed) => {
                places.system.join("claude-code/managed-settings.d/50-countersign.json")
            }
            (Self::Codex, GuardScope::User) => places.codex_folder().join("hooks.json"),
            (Self::Codex, GuardScope::Managed) => places.system.join("codex/requirements.toml"),
            (Self::Opencode, GuardScope::User) => places.opencode_folder().join("opencode.json"),
            (Self::Opencode, GuardScope::Managed) => places.system.join("opencode/opencode.json"),
            (Self::Gemini, GuardScope::User) => places.home.join(".gemini/settings.json"),
            (Self::Copilot, GuardScope::User) => places.home.join(".copilot/hooks/countersign.json"),
            (Self::Gemini | Self::Copilot, GuardScope::Managed) => {
                return Err(GuardError::NoManagedSettings { program: self.name() });
            }
        })
    }

    /// Returns a file beside the settings that the program reads after them.
    pub(crate) fn later_settings(self, settings: &Path) -> Option<PathBuf> {
        (self == Self::Opencode).then(|| settings.with_extension("jsonc"))
    }

    /// Reports whether the settings are TOML.
    pub(crate) fn has_toml_settings(self, scope: GuardScope) -> bool {
        self == Self::Codex && scope == GuardScope::Managed
    }

    /// Returns the shell command of a hook that blocks the call if the hook itself is killed.
    pub fn blocking_command(command: &str) -> String {
        format!("{command}{BLOCK}")
    }

    /// Reports whether the file of the settings has nothing in it but the guard.
    pub(crate) const fn is_settings_file_own(self, scope: GuardScope) -> bool {
        matches!((self, scope), (Self::Copilot, GuardScope::User) | (Self::Claude, GuardScope::Managed))
    }

    /// Returns the syntax of its settings.
    pub(crate) const fn syntax(self) -> JsonSyntax {
        match self {
            Self::Opencode => JsonSyntax::Comments,
            Self::Claude | Self::Codex | Self::Gemini | Self::Copilot => JsonSyntax::Plain,
        }
    }

    /// Reads the text of settings in JSON. An empty file is an empty object.
    pub(crate) fn parse_settings(self, text: &str) -> Result<Value, String> {
        let value = self.syntax().parse_value(text);
        value.map_err(|error| format!("is not JSON as {} reads it: {error}", self.title()))
    }

    /// Returns the entries of the guard. `plain_command` is the shell command of the hook, without what blocks a failed one, or for
    /// opencode the path of the plugin.
    pub(crate) fn entries(self, scope: GuardScope, plain_command: &str) -> Vec<SettingsEntry> {
        let command = Self::blocking_command(plain_command);
        let element =
            |keys: [&'static str; 2], value: Value| SettingsEntry { keys: keys.to_vec(), value, is_list_element: true };
        match self {
            Self::Claude => {
                let hook =
                    json!({ "type": "command", "command": command, "timeout": HOOK_LIMIT, "onFailure": "block" });
                let entry = json!({ "matcher": "*", "hooks": [hook] });
                let mut entries: Vec<SettingsEntry> =
                    ["PreToolUse", "PermissionRequest", "PostToolUse", "PostToolUseFailure"]
                        .map(|event| element(["hooks", event], entry.clone()))
                        .to_vec();
                if scope == GuardScope::Managed {
                    let keys = vec!["allowManagedHooksOnly"];
                    entries.push(SettingsEntry { keys, value: json!(true), is_list_element: false });
                }
                entries
            }
            Self::Codex => {
                let hook = json!({ "type": "command", "command": command, "timeout": HOOK_LIMIT });
                let entry = json!({ "matcher": "*", "hooks": [hook] });
                CODEX_EVENTS.map(|event| element(["hooks", event], entry.clone())).to_vec()
            }
            Self::Opencode => {
                let mut entries =
                    vec![SettingsEntry { keys: vec!["permission", "*"], value: json!("ask"), is_list_element: false }];
                if scope == GuardScope::User {
                    entries.push(SettingsEntry {
                        keys: vec!["plugin"],
                        value: json!(plain_command),
                        is_list_element: true,
                    });
                }
                entries
            }
            Self::Gemini => {
                // In milliseconds.
                let hook = json!({
                    "type": "command", "name": "countersign", "command": command, "timeout": HOOK_LIMIT * 1000,
                });
                let entry = json!({ "matcher": "*", "hooks": [hook] });
                ["BeforeTool", "AfterTool"].map(|event| element(["hooks", event], entry.clone())).to_vec()
            }
            Self::Copilot => {
                let hook = json!({ "type": "command", "bash": command, "timeoutSec": HOOK_LIMIT });
                vec![
                    SettingsEntry { keys: vec!["version"], value: json!(1), is_list_element: false },
                    element(["hooks", "preToolUse"], hook.clone()),
                    element(["hooks", "postToolUse"], hook),
                ]
            }
        }
    }

    /// Returns why the program would ignore these settings, if it would.
    pub(crate) fn settings_problem(self, settings: &Value) -> Option<String> {
        if !settings.is_object() {
            return Some("expected a JSON object".to_owned());
        }
        if let Some(hooks) = settings.get("hooks") {
            let events = match hooks.as_object() {
                Some(events) => events,
                None => return Some("hooks: expected an object".to_owned()),
            };
            for (event, entries) in events {
                let Some(entries) = entries.as_array() else {
                    // Gemini CLI keeps switches of its hooks there.
                    if self == Self::Gemini {
                        continue;
                    }
                    return Some(format!("hooks.{event}: expected a list"));
                };
                let has_hooks =
                    |entry: &Value| entry["hooks"].as_array().is_some_and(|hooks| hooks.iter().all(Value::is_object));
                if self != Self::Copilot && !entries.iter().all(has_hooks) {
                    return Some(format!("hooks.{event}: expected entries with a list of hooks"));
                }
            }
        }
        if settings["disableAllHooks"] == Value::Bool(true) {
            return Some("disableAllHooks: expected false, or no such entry".to_owned());
        }
        let switches = &settings["hooksConfig"];
        let is_disabled =
            switches["disabled"].as_array().is_some_and(|names| names.iter().any(|name| name == "countersign"));
        if switches["enabled"] == Value::Bool(false) || is_disabled {
            return Some("hooksConfig: expected hooks that are switched on".to_owned());
        }
        if self == Self::Claude {
            for list in ["allow", "deny", "ask"] {
                let rules = &settings["permissions"][list];
                let is_valid =
                    rules.is_null() || rules.as_array().is_some_and(|rules| rules.iter().all(Value::is_string));
                if !is_valid {
                    return Some(format!("permissions.{list}: expected a list of texts"));
                }
            }
        }
        None
    }

    /// Returns rules in the program's own settings that allow calls as soon as the hook is off.
    pub(crate) fn own_allowances(self, settings: &Value) -> Vec<String> {
        match self {
            Self::Claude => {
                let rules = settings["permissions"]["allow"].as_array().into_iter().flatten();
                rules.filter_map(Value::as_str).map(str::to_owned).collect()
            }
            Self::Opencode => {
                let rules = settings["permission"].as_object().into_iter().flatten();
                let is_allowed = |value: &Value| value.to_string().contains("\"allow\"");
                rules.filter(|(_, value)| is_allowed(value)).map(|(name, value)| format!("{name}: {value}")).collect()
            }
            Self::Codex | Self::Gemini | Self::Copilot => Vec::new(),
        }
    }
}

impl SettingsEntry {
    /// Reports whether settings have the entry as it was added.
    pub(crate) fn is_in(&self, settings: &Value) -> bool {
        let found = self.keys.iter().try_fold(settings, |value, key| value.get(key));
        match found {
            Some(Value::Array(elements)) if self.is_list_element => elements.contains(&self.value),
            Some(value) => *value == self.value,
            None => self.is_short(settings),
        }
    }

    /// Reports whether settings have the entry in a short form: one word for all permissions of opencode.
    pub(crate) fn is_short(&self, settings: &Value) -> bool {
        let short = self.keys.split_last().filter(|(last, above)| **last == "*" && !above.is_empty());
        short
            .is_some_and(|(_, above)| above.iter().try_fold(settings, |value, key| value.get(key)) == Some(&self.value))
    }
}

impl ProgramVersion {
    /// Reads the first version number in the output of `PROGRAM --version`.
    pub fn parse(output: &str) -> Option<Self> {
        let numbers = |word: &str| {
            let mut parts = word.trim_start_matches('v').splitn(3, '.');
            let mut next = || {
                let part = parts.next()?;
                let end = part.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(part.len());
                part[..end].parse().ok()
            };
            Some(Self([next()?, next()?, next()?]))
        };
        output.split_whitespace().find_map(numbers)
    }
}

impl std::fmt::Display for ProgramVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{GuardedProgram, ProgramVersion};

    #[test]
    fn a_version_is_the_first_one_in_the_output() {
        for (output, want) in [
            ("2.1.332 (Claude Code)", Some([2, 1, 332])),
            ("0.61.0", Some([0, 61, 0])),
            ("GitHub Copilot CLI v1.0.102-3\n", Some([1, 0, 102])),
            ("2.1", None),
            ("no version", None),
            ("", None),
        ] {
            assert_eq!(ProgramVersion::parse(output), want.map(ProgramVersion), "{output}");
        }
        assert!(ProgramVersion([2, 1, 294]) < GuardedProgram::Claude.first_version());
        assert!(ProgramVersion([3, 0, 0]) > GuardedProgram::Claude.first_version());
    }

    #[test]
    fn settings_that_the_program_would_drop_are_named() {
        let claude = GuardedProgram::Claude;
        for (settings, want) in [
            (json!({}), None),
            (json!({"hooks": {"PreToolUse": [{"matcher": "*", "hooks": [{"type": "command"}]}]}}), None),
            (json!({"permissions": {"allow": ["Bash(ls)"], "defaultMode": "plan"}}), None),
            (json!([]), Some("expected a JSON object")),
            (json!({"hooks": []}), Some("hooks: expected an object")),
            (json!({"hooks": {"PreToolUse": {}}}), Some("hooks.PreToolUse: expected a list")),
            (json!({"hooks": {"Stop": [{}]}}), Some("hooks.Stop: expected entries with a list of hooks")),
            (json!({"permissions": {"allow": "Bash"}}), Some("permissions.allow: expected a list of texts")),
            (json!({"permissions": {"deny": [1]}}), Some("permissions.deny: expected a list of texts")),
        ] {
            assert_eq!(claude.settings_problem(&settings).as_deref(), want, "{settings}");
        }
        assert_eq!(GuardedProgram::Gemini.settings_problem(&json!({"hooks": {"enabled": true}})), None);
    }
}
