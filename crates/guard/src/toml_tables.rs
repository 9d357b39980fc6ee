//! Tables of a guard in TOML files that were edited since, or whose receipt is lost: found by their header, and removed only if each
//! line in them is understood.
//!
//! It must not know the whole grammar: a table that it does not understand stays.

use std::ops::Range;

use serde_json::Value;

use crate::own_entries::OwnEntries;

/// Command in the comment of the guard.
const COMMAND: &str = "`countersign guard codex`";

/// Table of a TOML text, or the keys in front of the first one.
struct TomlTable<'a> {
    /// Its header line without spaces around it; empty for the keys in front of the first.
    header: &'a str,
    /// Everything from the guard's comment above it or its header up to the next table.
    range: Range<usize>,
    /// Everything after the header line.
    body: &'a str,
}

/// Returns a text without the tables of Codex's trust under these keys, and whether it had any.
pub(crate) fn remove_trust(text: &str, keys: &[String]) -> (String, bool) {
    let is_simple = |line: &str| matches!(key_of(line), Some("trusted_hash" | "enabled"));
    let is_own = |table: &TomlTable<'_>| {
        keys.iter().any(|key| trust_headers(key).contains(&table.header.to_owned()))
            && lines_of(table.body).all(is_simple)
    };
    remove(text, is_own)
}

/// Reports whether a text still has trust under one of these keys.
pub(crate) fn has_trust(text: &str, keys: &[String]) -> bool {
    keys.iter().any(|key| text.contains(&Value::from(key.as_str()).to_string()) || text.contains(&format!("'{key}'")))
}

/// Returns the keys of the trust in a block that was added.
pub(crate) fn trust_keys(block: &str) -> Vec<String> {
    let headers = block.lines().filter_map(|line| line.strip_prefix("[hooks.state.")?.strip_suffix(']'));
    headers.filter_map(|key| serde_json::from_str(key).ok()).collect()
}

/// Returns the keys of the trust below the comment of the guard.
pub(crate) fn commented_keys(text: &str) -> Vec<String> {
    let all = tables(text);
    let from = all.iter().position(|table| {
        text[table.range.clone()].lines().next().is_some_and(|line| line.starts_with('#') && line.contains(COMMAND))
    });
    let below = from.map_or(&[][..], |from| &all[from..]);
    below.iter().map_while(|table| trust_keys(table.header).pop()).collect()
}

fn trust_headers(key: &str) -> [String; 2] {
    [format!("[hooks.state.{}]", Value::from(key)), format!("[hooks.state.'{key}']")]
}

/// Returns managed requirements without the hooks of the guard and the switches that belong to them, and whether there were any.
pub(crate) fn remove_requirements(text: &str, own: &OwnEntries) -> (String, bool) {
    let is_hook = |table: &TomlTable<'_>| {
        let command = lines_of(table.body).find(|line| key_of(line) == Some("command")).and_then(text_of);
        event_of(table.header).is_some()
            && lines_of(table.body).all(|line| key_of(line).is_some())
            && command.is_some_and(|command| own.is_command(&command))
    };
    let all = tables(text);
    let events: Vec<&str> =
        all.iter().filter(|table| is_hook(table)).filter_map(|table| event_of(table.header)).collect();
    let (left, has_hooks) = remove(text, is_hook);
    if !has_hooks {
        return (left, false);
    }
    // Groups without hooks, and the switches that a guard adds only to a file without hooks.
    let after = tables(&left);
    let has_members = |event: &str| after.iter().any(|table| event_of(table.header) == Some(event));
    let empty: Vec<String> =
        events.into_iter().filter(|event| !has_members(event)).map(|event| format!("[[hooks.{event}]]")).collect();
    let (mut left, _) = remove(&left, |table| empty.contains(&table.header.to_owned()));
    if !tables(&left).iter().any(|table| table.header.starts_with("[[hooks.")) {
        (left, _) = remove(&left, |table| {
            table.header == "[features]" && lines_of(table.body).all(|line| is_switch(line, "hooks"))
        });
        let end = tables(&left).first().map_or(0, |table| table.range.end);
        let first: String =
            left[..end].split_inclusive('\n').filter(|line| !is_switch(line, "allow_managed_hooks_only")).collect();
        left.replace_range(..end, &first);
    }
    let left = if left.trim().is_empty() { String::new() } else { left };
    (left, true)
}

/// Reports whether requirements have a hook of the guard.
pub(crate) fn has_requirements(text: &str, own: &OwnEntries) -> bool {
    let commands = lines_of(text).filter(|line| key_of(line) == Some("command")).filter_map(text_of);
    commands.into_iter().any(|command| own.is_command(&command))
}

/// Returns the event of a table with one hook.
fn event_of(header: &str) -> Option<&str> {
    header.strip_prefix("[[hooks.")?.strip_suffix(".hooks]]")
}

fn is_switch(line: &str, key: &str) -> bool {
    key_of(line) == Some(key) && line.split_once('=').is_some_and(|(_, value)| value.trim() == "true")
}

/// Returns the key of a line with a whole value.
fn key_of(line: &str) -> Option<&str> {
    let (key, value) = line.split_once('=')?;
    let (key, value) = (key.trim(), value.trim());
    let is_bare = !key.is_empty() && key.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-".contains(letter));
    let goes_on = value.is_empty()
        || ["\"\"\"", "'''"].iter().any(|quotes| value.contains(quotes))
        || ['[', '{'].iter().any(|open| value.starts_with(*open));
    (is_bare && !goes_on).then_some(key)
}

/// Returns the text that is the value of a line.
fn text_of(line: &str) -> Option<String> {
    let value = line.split_once('=')?.1.trim();
    match value.strip_prefix('\'').and_then(|value| value.strip_suffix('\'')) {
        Some(literal) => Some(literal.to_owned()),
        // Texts of TOML have the escapes of JSON. A comment may follow.
        None => serde_json::Deserializer::from_str(value).into_iter::<String>().next()?.ok(),
    }
}

/// Returns the lines that are neither empty nor a comment.
fn lines_of(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Removes tables, with the empty lines after them. Comments after their last key stay.
fn remove(text: &str, is_own: impl Fn(&TomlTable<'_>) -> bool) -> (String, bool) {
    let mut left = text.to_owned();
    let mut is_changed = false;
    for table in tables(text).iter().rev().filter(|table| !table.header.is_empty() && is_own(table)) {
        left.replace_range(table.range.start..table.keys_end(), "");
        is_changed = true;
    }
    (left, is_changed)
}

impl TomlTable<'_> {
    /// Returns the position after its last key and the empty lines that follow.
    fn keys_end(&self) -> usize {
        let mut at = self.range.end - self.body.len();
        let (mut end, mut is_key_last) = (at, true);
        for line in self.body.split_inclusive('\n') {
            at += line.len();
            is_key_last = match line.trim() {
                "" => is_key_last,
                line => !line.starts_with('#'),
            };
            if is_key_last {
                end = at;
            }
        }
        end
    }
}

fn tables(text: &str) -> Vec<TomlTable<'_>> {
    let mut tables = vec![TomlTable { header: "", range: 0..0, body: text }];
    let (mut at, mut quotes, mut comment) = (0, None, None);
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim();
        match quotes {
            Some(open) if trimmed.matches(open).count() % 2 == 1 => quotes = None,
            Some(_) => {}
            None if trimmed.starts_with('[') && trimmed.ends_with(']') => {
                let start = comment.take().unwrap_or(at);
                tables.push(TomlTable { header: trimmed, range: start..start, body: &text[at + line.len()..] });
            }
            None => {
                // The comment of the guard belongs to the table below it.
                comment = (trimmed.starts_with('#') && trimmed.contains(COMMAND)).then_some(at);
                if !trimmed.starts_with('#') {
                    quotes = ["\"\"\"", "'''"].into_iter().find(|quotes| trimmed.matches(quotes).count() % 2 == 1);
                }
            }
        }
        at += line.len();
    }
    let mut end = text.len();
    for table in tables.iter_mut().rev() {
        table.body = &table.body[..table.body.len() - (text.len() - end)];
        table.range.end = end;
        end = table.range.start;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::{commented_keys, has_requirements, has_trust, remove_requirements, remove_trust, trust_keys};
    use crate::{
        own_entries::OwnEntries,
        program::{CODEX_EVENTS, GuardedProgram},
        text_blocks::{self, HookTrust},
    };

    const KEY: &str = "/home/ana/.codex/hooks.json:pre_tool_use:0:0";
    const COMMAND: &str = "/usr/bin/countersign hook codex --data /d || exit 2";

    fn keys() -> Vec<String> {
        vec![KEY.to_owned()]
    }

    #[test]
    fn trust_is_removed_also_where_codex_has_edited_its_table() {
        let trust = [HookTrust { key: KEY.to_owned(), hash: "sha256:11".to_owned() }];
        let (added, block) = text_blocks::add_trust("model = \"x\"\n", &trust).unwrap();
        assert_eq!(trust_keys(&block), keys());
        assert_eq!(commented_keys(&format!("{added}\n[projects]\nx = 1\n")), keys());
        for (from, to) in [
            ("sha256:11", "sha256:12"),
            ("trusted_hash", "enabled = true\ntrusted_hash"),
            ("trusted_hash", "# mine\n  trusted_hash"),
            ("[hooks.state.", "\n\n[hooks.state."),
            ("# Trust", "# My trust"),
        ] {
            let edited = added.replace(from, to);
            let (left, is_changed) = remove_trust(&format!("{edited}\n# my projects\n[projects]\n"), &keys());
            assert!(is_changed && !has_trust(&left, &keys()), "{left}");
            assert!(left.starts_with("model = \"x\"\n") && left.ends_with("# my projects\n[projects]\n"), "{left}");
        }
        for kept in [
            added.replace("trusted_hash", "other = 1\ntrusted_hash"),
            format!("hooks.state.'{KEY}'.enabled = false\n"),
            format!("text = \"\"\"\n[hooks.state.\"{KEY}\"]\n\"\"\"\n"),
        ] {
            assert_eq!(remove_trust(&kept, &keys()), (kept.clone(), false));
            assert!(has_trust(&kept, &keys()));
        }
    }

    #[test]
    fn requirements_are_removed_also_where_they_were_edited() {
        let own = OwnEntries::new(GuardedProgram::Codex, None);
        for text in ["", "# mine\nallowed_sandbox_modes = [\n  \"read-only\"\n]\n", "[rules]\nx = 1\n"] {
            let (added, _) = text_blocks::add_requirements(text, &CODEX_EVENTS, COMMAND, 600).unwrap();
            for (from, to) in [
                ("", ""),
                ("timeout = 600", "timeout = 60"),
                ("matcher = \"*\"", "matcher = \"Bash\""),
                ("--data /d", "--data /other"),
                ("type = \"command\"", "type = \"command\" # mine"),
            ] {
                let edited = if from.is_empty() { added.clone() } else { added.replace(from, to) };
                assert!(has_requirements(&edited, &own));
                let (left, is_changed) = remove_requirements(&edited, &own);
                assert!(is_changed && left.trim() == text.trim(), "{left}");
            }
            let more =
                format!("{added}\n[[hooks.Stop]]\n\n[[hooks.Stop.hooks]]\ntype = \"command\"\ncommand = \"mine\"\n");
            let (left, is_changed) = remove_requirements(&more, &own);
            assert!(is_changed && left.contains("command = \"mine\"") && !left.contains("countersign"), "{left}");
            assert!(left.starts_with("allow_managed_hooks_only = true\n") && left.contains("[features]"), "{left}");
        }
        let other = "[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ncommand = \"mine\"\n";
        assert_eq!(remove_requirements(other, &own), (other.to_owned(), false));
    }
}
