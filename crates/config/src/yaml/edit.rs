//! Sets one key of a YAML file and leaves every other key, and the comments, as they are.
//!
//! It must not know any setting.
//!
//! The file is edited line by line. The result is parsed again and must differ from the input by exactly that
//! key. A mapping on the way that is written in braces is rewritten as a block, and loses the comments inside
//! the braces.

use std::{io, path::Path};

use countersign_files::replace::{FileAccess, replace_file};
use countersign_runtime::tools::regular;
use serde_json::{Map, Value};

use super::LARGEST;
use crate::yaml::YamlNode;

/// Why a key was not set. The file is as it was.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The file cannot be read or replaced.
    #[error("{file}: {source}", file = .file.display())]
    Io {
        /// The file.
        file: std::path::PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not YAML, or of a form in which the key cannot be set safely.
    #[error("{file}: cannot set {key}: {why}", file = .file.display())]
    Refused {
        /// The file.
        file: std::path::PathBuf,
        /// The whole key.
        key: String,
        /// The obstacle.
        why: String,
    },
}

/// Sets `key`, its levels from the outside, to a scalar in the file at `path`, which is made if it is not there.
///
/// # Errors
/// [`EditError`], with the file untouched.
pub fn set_key(path: &Path, key: &[&str], value: &Value) -> Result<(), EditError> {
    let io = |source| EditError::Io { file: path.to_owned(), source };
    let text = match regular::read_text(path, LARGEST) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(io(error)),
    };
    let edited = edited_text(&text, key, value).map_err(|why| EditError::Refused {
        file: path.to_owned(),
        key: key.join("."),
        why,
    })?;
    if edited == text { Ok(()) } else { replace_file(path, edited.as_bytes(), FileAccess::Private).map_err(io) }
}

/// Returns `text` with `key` set to `value`, or the reason why that cannot be done.
pub fn edited_text(text: &str, key: &[&str], value: &Value) -> Result<String, String> {
    let parse = |text: &str| {
        YamlNode::parse(text)
            .map(|node| node.map_or_else(|| Value::Object(Map::new()), |node| node.to_json()))
            .map_err(|(line, message)| format!("line {line}: {message}"))
    };
    let mut want = parse(text)?;
    if !want.is_object() {
        return Err("the file is not a mapping".to_owned());
    }
    insert_value(&mut want, key, value);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let all = 0..lines.len();
    set_in(&mut lines, all, 0, key, &want);
    let mut out = lines.join("\n");
    out.push('\n');
    if parse(&out)? == want {
        Ok(out)
    } else {
        Err("its YAML form cannot be edited here; edit the file by hand".to_owned())
    }
}

fn insert_value(tree: &mut Value, key: &[&str], value: &Value) {
    let Some((first, rest)) = key.split_first() else {
        *tree = value.clone();
        return;
    };
    if !tree.is_object() {
        *tree = Value::Object(Map::new());
    }
    if let Value::Object(members) = tree {
        insert_value(members.entry((*first).to_owned()).or_insert(Value::Null), rest, value);
    }
}

/// Writes `key` of `tree`, the mapping that the lines of `range` are to become; their keys stand at column `indent`.
fn set_in(lines: &mut Vec<String>, range: std::ops::Range<usize>, indent: usize, key: &[&str], tree: &Value) {
    let Some((first, rest)) = key.split_first() else { return };
    let subtree = &tree[*first];
    let Some(at) = range.clone().find(|at| value_after_key(&lines[*at], indent, first).is_some()) else {
        // After the last line that is not silent, so that comments at the end stay at the end.
        let behind = range.clone().rev().find(|at| !is_silent(&lines[*at])).map_or(range.start, |at| at + 1);
        let end_marker = lines[..behind].last().is_some_and(|line| line.trim_end() == "...");
        let behind = if end_marker { behind - 1 } else { behind };
        lines.splice(behind..behind, block_lines(first, subtree, indent));
        return;
    };
    let end = end_of(lines, at, range.end, indent);
    let inline = value_after_key(&lines[at], indent, first).unwrap_or_default().to_owned();
    let (content, comment) = split_comment(&inline);
    if !rest.is_empty() && content.is_empty() {
        let child = (at + 1..end).find(|line| !is_silent(&lines[*line])).map(|line| line_indent(&lines[line]));
        if let Some(child) = child.filter(|child| *child > indent) {
            set_in(lines, at + 1..end, child, rest, subtree);
            return;
        }
    }
    let mut fresh = block_lines(first, subtree, indent);
    if let Some(head) = fresh.first_mut().filter(|_| !comment.is_empty()) {
        head.push_str("  ");
        head.push_str(comment);
    }
    lines.splice(at..end, fresh);
}

/// Returns the text after `key:` if `line` starts with it at column `indent`.
pub fn value_after_key<'a>(line: &'a str, indent: usize, key: &str) -> Option<&'a str> {
    let rest = line.get(indent..).filter(|_| line_indent(line) == indent)?;
    let rest = [key.to_owned(), format!("\"{key}\""), format!("'{key}'")]
        .iter()
        .find_map(|form| rest.strip_prefix(form.as_str()))?;
    rest.trim_start().strip_prefix(':').filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t']))
}

/// Returns one past the last line that belongs to the key at line `at`: deeper lines, and the lines between them.
pub(crate) fn end_of(lines: &[String], at: usize, limit: usize, indent: usize) -> usize {
    let mut end = at + 1;
    for (next, line) in lines.iter().enumerate().take(limit).skip(at + 1) {
        // A list may stand at the column of its key.
        let belongs =
            line_indent(line) > indent || (line_indent(line) == indent && line.trim_start().starts_with("- "));
        let closes = line.trim_start().starts_with(['}', ']']);
        if is_silent(line) {
            continue;
        }
        if !belongs && !closes {
            break;
        }
        end = next + 1;
    }
    end
}

/// Reports whether a line is empty or nothing but a comment.
pub(crate) fn is_silent(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty() || line.starts_with('#')
}

/// Returns the column at which a line begins.
pub fn line_indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Parts a value from the comment after it; inside of quotes there is none.
pub(crate) fn split_comment(text: &str) -> (&str, &str) {
    let mut quote = None;
    let mut before = ' ';
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (None, '#') if before.is_whitespace() => return (text[..at].trim(), &text[at..]),
            (None, '"' | '\'') if before.is_whitespace() || "[{,:".contains(before) => quote = Some(letter),
            (Some(open), _) if open == letter => quote = None,
            (None | Some(_), _) => {}
        }
        before = letter;
    }
    (text.trim(), "")
}

fn block_lines(key: &str, value: &Value, indent: usize) -> Vec<String> {
    let pad = " ".repeat(indent);
    let key = scalar_text(&Value::from(key));
    match value {
        Value::Object(members) if !members.is_empty() => std::iter::once(format!("{pad}{key}:"))
            .chain(members.iter().flat_map(|(key, value)| block_lines(key, value, indent + 2)))
            .collect(),
        // JSON is YAML.
        Value::Object(_) | Value::Array(_) => vec![format!("{pad}{key}: {value}")],
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            vec![format!("{pad}{key}: {}", scalar_text(value))]
        }
    }
}

/// Returns a value that is no mapping and no list, as YAML.
pub(crate) fn scalar_text(value: &Value) -> String {
    /// Words that some reader of YAML takes for something else than text.
    const WORDS: [&str; 11] = ["true", "false", "yes", "no", "on", "off", "null", "y", "n", "inf", "nan"];
    match value {
        Value::String(text) => {
            let plain = text.starts_with(|first: char| first.is_ascii_alphabetic())
                && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-./".contains(letter))
                && !WORDS.contains(&text.to_ascii_lowercase().as_str());
            if plain { text.clone() } else { value.to_string() }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{EditError, edited_text, set_key};

    #[test]
    fn only_the_key_changes() {
        for (case, before, key, value, after) in [
            ("new file", "", "steeringMode", json!("all"), "steeringMode: all\n"),
            ("new file, deep", "", "retry.enabled", json!(false), "retry:\n  enabled: false\n"),
            ("same line", "# top\na: 1 # one\nb: 2\n", "a", json!(3), "# top\na: 3  # one\nb: 2\n"),
            (
                "nested",
                "retry:\n    # why\n    enabled: true\n    maxRetries: 3\nother: x\n",
                "retry.enabled",
                json!(false),
                "retry:\n    # why\n    enabled: false\n    maxRetries: 3\nother: x\n",
            ),
            (
                "nested and new",
                "retry:\n  enabled: true\n\n# about other\nother: x\n",
                "retry.maxRetries",
                json!(1),
                "retry:\n  enabled: true\n  maxRetries: 1\n\n# about other\nother: x\n",
            ),
            (
                "braces",
                "retry: { baseDelayMs: 150 } # fast\nx: [1,\n  2]\n",
                "retry.enabled",
                json!(true),
                "retry:  # fast\n  baseDelayMs: 150\n  enabled: true\nx: [1,\n  2]\n",
            ),
            (
                "braces over lines",
                "retry: {\n  baseDelayMs: 150\n}\nx: 1\n",
                "retry.enabled",
                json!(true),
                "retry:\n  baseDelayMs: 150\n  enabled: true\nx: 1\n",
            ),
            ("quoted key", "\"a\": 1\n", "a", json!("b c"), "a: \"b c\"\n"),
            ("word", "a: b\n", "a", json!("off"), "a: \"off\"\n"),
            ("null parent", "a:\nb: 1\n", "a.c", json!("p/m:high"), "a:\n  c: \"p/m:high\"\nb: 1\n"),
            ("list at the column of its key", "a:\n- 1\n- 2\nb: 1\n", "a", json!(5), "a: 5\nb: 1\n"),
            ("comments at the end", "a: 1\n# bye\n", "b", json!(2), "a: 1\nb: 2\n# bye\n"),
            ("similar name", "ab: 1\na: 2\n", "a", json!(3), "ab: 1\na: 3\n"),
            ("text block", "t: |\n  a: 1\n\n  b\na: 2\n", "a", json!(3), "t: |\n  a: 1\n\n  b\na: 3\n"),
            ("start marker", "---\na: 2\n", "a", json!(3), "---\na: 3\n"),
            ("scalar parent", "a: 1\nb: 2\n", "a.c", json!(3), "a:\n  c: 3\nb: 2\n"),
        ] {
            let key: Vec<&str> = key.split('.').collect();
            assert_eq!(edited_text(before, &key, &value), Ok(after.to_owned()), "{case}");
        }
    }

    #[test]
    fn what_cannot_be_edited_safely_is_refused_and_untouched() {
        for before in ["[1, 2]\n", "{ a: 1 }\n", "a: [\n", "? a\n: 1\n"] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("config.yml");
            std::fs::write(&file, before).unwrap();
            let result = set_key(&file, &["a"], &Value::from(2));
            assert!(matches!(result, Err(EditError::Refused { .. })), "{before}: {result:?}");
            assert_eq!(std::fs::read_to_string(&file).unwrap(), before);
        }
    }
}
