//! Files that other programs run or obey later, in calls: a rule covers a change of one only if it names the file.
//!
//! It must not look at the disk, or know which files these are: their names show it.

pub use countersign_shell_analysis::obeyed_files::obeyed_by;
use countersign_shell_analysis::obeyed_files::{hidden_part, part_of_file};
use serde_json::{Map, Value};

use crate::{
    policy::{
        narrow::{NarrowPath, NarrowReason, PathBases, decode_percent},
        path,
        subject::{EffectReach, PolicySubject},
    },
    tool::{ShellInput, ToolEffect},
};

/// Arguments that hold text, not a path.
const TEXTS: [&str; 19] = [
    "content",
    "contents",
    "text",
    "old_text",
    "new_text",
    "oldtext",
    "newtext",
    "old_string",
    "new_string",
    "diff",
    "patch",
    "data",
    "body",
    "message",
    "prompt",
    "query",
    "pattern",
    "description",
    "title",
];

/// Tools of a node that only read, by the names that nodes have for them. Policy treats every call of a node as a change.
const LOOKING: [&str; 3] = ["Read", "Glob", "Grep"];

/// Maximum length of an argument's text that may be a path, in bytes.
const LONGEST_PATH: usize = 4_096;

/// Reports whether the argument `name` holds text, not a path.
fn is_text(name: &str) -> bool {
    TEXTS.iter().any(|text| name.eq_ignore_ascii_case(text))
}

/// Reports whether the argument `name` says that it holds a path.
fn names_file(name: &str) -> bool {
    let mut words = name.as_bytes().windows(4);
    words.any(|word| word.eq_ignore_ascii_case(b"path") || word.eq_ignore_ascii_case(b"file"))
}

/// Reports whether the argument `name` with the value `text` may be a path.
pub(super) fn may_be_path(name: &str, text: &str) -> bool {
    names_file(name) || !is_text(name) && text.len() <= LONGEST_PATH && !text.contains('\n')
}

/// Adds the texts in `value`, at any depth, with their argument names, except texts of files. An element has the name of its list.
fn collect_texts<'a>(name: &'a str, value: &'a Value, texts: &mut Vec<(&'a str, &'a str)>) {
    match value {
        Value::String(text) if !is_text(name) => texts.push((name, text)),
        Value::Array(items) => items.iter().for_each(|item| collect_texts(name, item, texts)),
        Value::Object(members) => members.iter().for_each(|(name, value)| collect_texts(name, value, texts)),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Text among the arguments of a call that may be a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathText<'a> {
    /// The text.
    pub text: &'a str,
    /// True if the name of its argument or its form says that it is a path.
    pub is_named: bool,
}

/// Returns the texts at any depth of `arguments` that may be paths. Those of the argument `except` are none.
pub fn path_texts<'a>(arguments: &'a Map<String, Value>, except: Option<&str>) -> Vec<PathText<'a>> {
    let mut texts = Vec::new();
    for (name, value) in arguments.iter().filter(|(name, _)| Some(name.as_str()) != except) {
        collect_texts(name, value, &mut texts);
    }
    let has_path_form = |text: &str| {
        ["/", "./", "../", "~/"].iter().any(|begin| text.starts_with(begin))
            || text.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("file:"))
    };
    texts
        .into_iter()
        .filter(|(name, text)| !text.trim().is_empty() && may_be_path(name, text))
        .map(|(name, text)| PathText { text, is_named: names_file(name) || has_path_form(text.trim_start()) })
        .collect()
}

/// Returns the paths that a text may name: white space around them, a scheme, and percent-encoded bytes do not hide one.
pub fn path_spellings(text: &str) -> Vec<String> {
    let text = text.trim();
    let scheme = text.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case("file:"));
    let Some(scheme) = scheme else {
        let plain = decode_percent(text);
        let plain = Some(plain).filter(|plain| plain != text);
        return std::iter::once(text.to_owned()).chain(plain).collect();
    };
    let address = &text[scheme.len()..];
    // The name of a machine, a query and a fragment are no parts of the path.
    let behind_machine = address.strip_prefix("//").and_then(|rest| rest.find('/').map(|begin| &rest[begin..]));
    let whole = [Some(address.trim_start_matches("//")), behind_machine].into_iter().flatten();
    let without_query = whole.clone().filter_map(|path| path.find(['?', '#']).map(|end| &path[..end]));
    let mut spellings: Vec<String> = Vec::new();
    for path in whole.chain(without_query) {
        let plain = decode_percent(path);
        // `file:///.git` is no absolute path for a reader that cuts the scheme and the slashes off.
        let cut = plain.trim_start_matches('/').to_owned();
        spellings.extend([path.to_owned(), plain, cut].into_iter().filter(|path| !path.is_empty()));
    }
    spellings.sort_unstable();
    spellings.dedup();
    spellings
}

/// Returns the obeyed files that `subject` may change, except those that a shell line names.
pub(super) fn of_subject(subject: &PolicySubject, home: Option<&str>) -> Vec<NarrowPath> {
    let tool = subject.tool.rsplit("__").next().unwrap_or(&subject.tool);
    let only_looks = subject.tool.contains("__") && LOOKING.contains(&tool);
    // For the own shell the line and the folder that it runs in are judged with the line.
    let is_own_shell = matches!(subject.shell, ShellInput::Line { .. }) && subject.reach == EffectReach::Files;
    if subject.effect != ToolEffect::Changes || only_looks || is_own_shell {
        return Vec::new();
    }
    let mut texts: Vec<(&str, &str)> = Vec::new();
    let line = subject.shell_line().map(|(argument, _)| argument);
    for (name, value) in subject.arguments.iter().filter(|(name, _)| Some(name.as_str()) != line) {
        match value {
            Value::String(text) if !is_text(name) => texts.push((name, text)),
            // Deeper values in a call of an own tool are text of files.
            value if subject.reach == EffectReach::Beyond => collect_texts(name, value, &mut texts),
            _ => {}
        }
    }
    let paths = subject.paths.iter().chain(&subject.leads_to).map(|path| (path.as_str(), true));
    let texts: Vec<(&str, bool)> =
        paths.chain(texts.into_iter().map(|(name, text)| (text, names_file(name)))).collect();
    if texts.is_empty() {
        return Vec::new();
    }
    // Without a working folder, a hidden folder above the file says nothing.
    let has_folder = subject.session_folder.is_some() || !subject.cwd.is_empty();
    let working = path::resolve("/", subject.session_folder.as_deref().unwrap_or(&subject.cwd));
    let home = home.map(|home| path::resolve("/", home));
    let viewpoint = PathBases::new([path::resolve("/", &subject.cwd)], home.as_deref(), &working);
    let mut found: Vec<NarrowPath> = Vec::new();
    // A path may have a line end in it, and any length. Other long texts are no paths.
    let is_path = |(text, is_file): &(&str, bool)| *is_file || text.len() <= LONGEST_PATH && !text.contains('\n');
    for (text, is_file) in texts.into_iter().filter(is_path) {
        for path in path_spellings(text).iter().flat_map(|text| viewpoint.reached_paths(text)) {
            let hidden = || hidden_part(&working, &path).filter(|_| is_file && has_folder);
            if let Some(obeyed) = part_of_file(&working, home.as_deref(), &path).or_else(hidden) {
                let narrow = NarrowPath::new(path, NarrowReason::Obeyed(obeyed), &viewpoint);
                if !found.contains(&narrow) {
                    found.push(narrow);
                }
            }
        }
    }
    found
}
