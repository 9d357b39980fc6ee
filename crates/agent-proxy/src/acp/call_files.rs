//! Files that a tool call names: in its input at any depth, in its locations, and in its diffs.

use std::path::{Component, Path, PathBuf};

use serde_json::{Map, Value};

use crate::unknown_members::is_blank;

/// Names of the one file of an input.
pub(super) const PATHS: [&str; 11] = [
    "path",
    "file_path",
    "filePath",
    "filepath",
    "absolute_path",
    "abs_path",
    "target_file",
    "filename",
    "fileName",
    "notebook_path",
    "file",
];
/// Members with the text of a file, or of a part of one.
const CONTENTS: [&str; 22] = [
    "content",
    "contents",
    "text",
    "file_text",
    "insert_text",
    "new_source",
    "newFileContents",
    "old_text",
    "new_text",
    "oldText",
    "newText",
    "old_string",
    "new_string",
    "oldString",
    "newString",
    "old_str",
    "new_str",
    "diff",
    "patch",
    "unified_diff",
    "edits",
    "changes",
];
/// Members that are words for people.
pub(super) const WORDS: [&str; 6] = ["description", "justification", "reason", "note", "intention", "explanation"];
/// Members that say how a file is read or changed, in one word.
const FORMS: [&str; 5] = ["type", "encoding", "cell_id", "cell_type", "edit_mode"];
/// Member whose own members are named after files.
const CHANGES: &str = "changes";
/// Beginnings of lines of a patch that name a file.
const PATCH_LINES: [&str; 4] = ["*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "];

/// Files of an input.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct InputFiles {
    /// Paths as the input has them.
    pub(super) paths: Vec<String>,
    /// True if it has a member whose meaning for the call is not known.
    pub(super) has_unknown: bool,
}

impl InputFiles {
    /// Reads an input.
    pub(super) fn from_input(input: &Value) -> Self {
        let mut files = Self::default();
        match input {
            Value::Object(members) => files.read_members(members),
            input => files.has_unknown = !is_blank(input),
        }
        files
    }

    fn read_members(&mut self, members: &Map<String, Value>) {
        members.iter().for_each(|(name, value)| self.read_member(name, value));
    }

    fn read_member(&mut self, name: &str, value: &Value) {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
            Value::String(text) => self.read_text(name, text),
            Value::Array(items) => items.iter().for_each(|item| match item {
                Value::Object(members) => self.read_object(members),
                item => self.read_member(name, item),
            }),
            Value::Object(members) if name == CHANGES => {
                self.paths.extend(members.keys().cloned());
                members.values().filter_map(Value::as_object).for_each(|change| self.read_members(change));
            }
            Value::Object(members) => self.read_object(members),
        }
    }

    fn read_object(&mut self, members: &Map<String, Value>) {
        self.paths.extend(members.keys().filter(|name| is_path(name)).cloned());
        self.read_members(members);
    }

    fn read_text(&mut self, name: &str, text: &str) {
        if text.is_empty() {
            return;
        }
        if is_content(name) || WORDS.contains(&name) {
            let named = text.lines().filter_map(|line| {
                PATCH_LINES.iter().find_map(|begin| line.trim_start().strip_prefix(begin)).map(str::trim)
            });
            return self.paths.extend(named.map(str::to_owned));
        }
        let is_file = names_file(name);
        if is_file || is_path(text) {
            self.paths.push(text.to_owned());
        }
        self.has_unknown |= !is_file && (!FORMS.contains(&name) || is_path(text));
    }
}

/// Reports whether a member has the text of a file.
pub(super) fn is_content(name: &str) -> bool {
    CONTENTS.contains(&name)
}

fn names_file(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    lower.contains("path") || lower.contains("file")
}

/// Reports whether a text has the form of a path.
fn is_path(text: &str) -> bool {
    text.contains('/') || text.starts_with('~') || text == ".."
}

/// Returns the files of locations.
pub(super) fn locations(described: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let locations = described.get("locations").and_then(Value::as_array).into_iter().flatten();
    locations.filter_map(|location| location.get("path").and_then(Value::as_str))
}

fn diffs(described: &Map<String, Value>) -> impl Iterator<Item = &Map<String, Value>> {
    let content = described.get("content").and_then(Value::as_array).into_iter().flatten();
    content.filter_map(Value::as_object).filter(|part| part.get("type").and_then(Value::as_str) == Some("diff"))
}

/// Returns the diff of a file.
pub(super) fn diff_of<'a>(path: &str, described: &'a Map<String, Value>) -> Option<&'a Map<String, Value>> {
    diffs(described).find(|diff| diff.get("path").and_then(Value::as_str) == Some(path))
}

/// Returns every file that a tool call names, each once.
pub(super) fn files_of(cwd: &str, described: &Map<String, Value>, named: Vec<String>) -> Vec<String> {
    let mut files: Vec<String> = Vec::new();
    let shown = diffs(described).filter_map(|diff| diff.get("path").and_then(Value::as_str)).map(str::to_owned);
    let located = locations(described).map(str::to_owned);
    for path in named.into_iter().chain(shown).chain(located).filter(|path| !path.is_empty()) {
        let whole = absolute(cwd, &path);
        if !files.iter().any(|known| absolute(cwd, known) == whole) {
            files.push(path);
        }
    }
    files
}

/// Returns a path as seen from a folder, without `.` and `..`.
pub(super) fn absolute(cwd: &str, path: &str) -> PathBuf {
    let mut whole = PathBuf::new();
    for part in Path::new(cwd).join(path).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(whole.pop()),
            part => whole.push(part),
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::InputFiles;

    #[test]
    fn an_input_names_its_files_at_any_depth() {
        for (input, paths, has_unknown) in [
            (json!({"path": "a", "offset": 3, "replace_all": true, "limit": null}), vec!["a"], false),
            (json!({"path": "a", "paths": ["/etc/shadow", "b"]}), vec!["a", "/etc/shadow", "b"], false),
            (json!({"path": "a", "options": {"also": [{"file": "/b"}]}}), vec!["a", "/b"], false),
            (json!({"path": "a", "source": "/b"}), vec!["a", "/b"], true),
            (json!({"path": "a", "source": "b"}), vec!["a"], true),
            (json!({"path": "a", "command": "rm x"}), vec!["a"], true),
            (json!({"path": "a", "type": "/b"}), vec!["a", "/b"], true),
            (json!({"path": "a", "more": {"/b": 1}}), vec!["a", "/b"], false),
            (json!({"path": "a", "content": "/etc/shadow", "description": "/b"}), vec!["a"], false),
            (json!({"path": "a", "edits": [{"old_string": "/x", "new_string": "/y"}]}), vec!["a"], false),
            (json!({"patch": "*** Begin Patch\n*** Update File: /b\n*** Move to: c\n"}), vec!["/b", "c"], false),
            (
                json!({"changes": {"a": {"type": "update", "unified_diff": "@@", "move_path": "/b"}}}),
                vec!["a", "/b"],
                false,
            ),
            (json!({"changes": [{"path": "/b", "diff": "x"}, {"file": "c"}]}), vec!["/b", "c"], false),
            (json!("rm x"), vec![], true),
            (json!(["/a"]), vec![], true),
            (json!({}), vec![], false),
        ] {
            let want = InputFiles { paths: paths.into_iter().map(str::to_owned).collect(), has_unknown };
            assert_eq!(InputFiles::from_input(&input), want, "{input}");
        }
    }
}
