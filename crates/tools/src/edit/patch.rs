//! The form of `edit` that applies a diff: hunks found by what they hold, not by their line numbers.
//!
//! It must not apply a hunk whose place is in doubt.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{EditPlan, content::FileText, nearest};
use crate::{outcome::CallFailure, tool::ToolContext};

pub(super) const DESCRIPTION: &str = "Applies a diff to a file. op: update (default), create or delete. diff for update: hunks that begin with @@, optionally with the text of a \
    line above the change, then lines that begin with a space (kept), - (removed) or + (added); for create: the whole content. A hunk must fit exactly one place \
    after the one before. rename gives the file another path.";

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PatchOp {
    Create,
    #[default]
    Update,
    Delete,
}

#[derive(Deserialize)]
pub(super) struct PatchArguments {
    path: String,
    #[serde(default)]
    op: PatchOp,
    rename: Option<String>,
    diff: Option<String>,
}

pub(super) fn arguments_schema() -> Value {
    json!({"type": "object", "required": ["path"], "properties": {
        "path": {"type": "string", "description": "File, absolute or relative to the working folder"},
        "op": {"type": "string", "enum": ["create", "update", "delete"], "description": "Default: update"},
        "rename": {"type": "string", "description": "New path of the file"},
        "diff": {"type": "string", "description": "Hunks, or for create the content"},
    }})
}

pub(super) fn plan_edit(arguments: &PatchArguments, cx: &ToolContext) -> Result<EditPlan, CallFailure> {
    let PatchArguments { path, op, rename, diff } = arguments;
    let diff = diff.as_deref().unwrap_or_default().replace("\r\n", "\n");
    let plan = |old, new| EditPlan { path: path.clone(), old, new, rename: rename.clone() };
    match op {
        PatchOp::Delete => Ok(EditPlan { rename: None, ..plan(Some(FileText::read_existing(path, cx)?), None) }),
        PatchOp::Create => match FileText::read_if_exists(path, cx)? {
            Some(_) => Err(CallFailure::Failed(format!("{path} exists already; use op update"))),
            None => Ok(plan(None, Some(created_content(&diff)))),
        },
        PatchOp::Update => {
            let content = FileText::read_existing(path, cx)?;
            let hunks = parse_hunks(&diff)?;
            if hunks.is_empty() && rename.is_none() {
                return Err(CallFailure::Failed("diff has no hunk: nothing to change".to_owned()));
            }
            let new = apply_hunks(path, &content, &hunks)?;
            Ok(plan(Some(content), Some(new)))
        }
    }
}

/// Returns the content of a new file; a + before every line is removed.
fn created_content(diff: &str) -> String {
    let body: Vec<&str> = diff.lines().collect();
    if !body.is_empty() && body.iter().all(|line| line.starts_with('+')) {
        return body.iter().map(|line| format!("{}\n", &line[1..])).collect();
    }
    if diff.is_empty() || diff.ends_with('\n') { diff.to_owned() } else { format!("{diff}\n") }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Hunk {
    /// A line above the change, from the header.
    above: Option<String>,
    old: Vec<String>,
    new: Vec<String>,
}

fn parse_hunks(diff: &str) -> Result<Vec<Hunk>, CallFailure> {
    let mut hunks: Vec<Hunk> = Vec::new();
    for (at, line) in diff.lines().enumerate() {
        if hunks.is_empty() && (line.starts_with("--- ") || line.starts_with("+++ ") || line.trim().is_empty()) {
            continue;
        }
        if line.starts_with("*** ") || line.starts_with("\\ No newline") {
            continue;
        }
        if let Some(header) = line.strip_prefix("@@") {
            hunks.push(Hunk { above: header_context(header), ..Hunk::default() });
            continue;
        }
        if hunks.is_empty() {
            hunks.push(Hunk::default());
        }
        let Some(hunk) = hunks.last_mut() else { continue };
        match (line.chars().next(), line.get(1..)) {
            (Some(' '), Some(rest)) => {
                hunk.old.push(rest.to_owned());
                hunk.new.push(rest.to_owned());
            }
            (Some('-'), Some(rest)) => hunk.old.push(rest.to_owned()),
            (Some('+'), Some(rest)) => hunk.new.push(rest.to_owned()),
            // An empty line whose leading space got lost.
            (None, _) => {
                hunk.old.push(String::new());
                hunk.new.push(String::new());
            }
            (Some(_), _) => {
                return Err(CallFailure::Failed(format!(
                    "line {} of the diff begins with neither space, - nor +: {line}",
                    at + 1
                )));
            }
        }
    }
    hunks.retain(|hunk| hunk.old != hunk.new);
    Ok(hunks)
}

/// Returns the text after `@@`, without the line numbers that a unified diff has there.
fn header_context(header: &str) -> Option<String> {
    let rest = match header.split_once("@@") {
        Some((numbers, rest)) if numbers.trim_start().starts_with('-') => rest,
        Some(_) | None => header,
    };
    let rest = rest.trim();
    let numbers = rest.starts_with('-') && rest.split_whitespace().nth(1).is_some_and(|word| word.starts_with('+'));
    (!rest.is_empty() && !numbers).then(|| rest.to_owned())
}

fn apply_hunks(path: &str, content: &FileText, hunks: &[Hunk]) -> Result<String, CallFailure> {
    let starts = content.line_starts();
    let lines: Vec<&str> =
        starts.windows(2).map(|ends| content.normalised_text()[ends[0]..ends[1]].trim_end_matches('\n')).collect();
    let mut edits = Vec::new();
    let mut from = 0;
    for (number, hunk) in hunks.iter().enumerate() {
        let refuse = |why: String| CallFailure::Failed(format!("hunk {} does not match {path}: {why}", number + 1));
        let start = match &hunk.above {
            None => from,
            Some(above) => {
                let found = lines.iter().skip(from).position(|line| line.trim() == above);
                from + found.ok_or_else(|| refuse(format!("no line {above:?} after line {from}")))?
            }
        };
        let at = match find_position(&lines, start, hunk) {
            HunkPosition::At(at) => at,
            HunkPosition::Several(at) => {
                let named: Vec<String> = at.iter().take(20).map(|at| (at + 1).to_string()).collect();
                return Err(refuse(format!("it matches at lines {}; add lines around it", named.join(", "))));
            }
            HunkPosition::Nowhere => {
                let nearest =
                    nearest::describe_nearest(content.normalised_text(), &hunk.old.join("\n")).unwrap_or_default();
                return Err(refuse(format!("its lines were not found. {nearest}").trim_end().to_owned()));
            }
        };
        let end = at + hunk.old.len();
        let (first, last) = (starts[at], starts[end]);
        let mut new: String = hunk.new.iter().map(|line| format!("{line}\n")).collect();
        if last == content.normalised_text().len()
            && !content.normalised_text().is_empty()
            && !content.normalised_text().ends_with('\n')
        {
            if first == last && !new.is_empty() {
                new.insert(0, '\n');
            }
            new.truncate(new.trim_end_matches('\n').len());
        }
        edits.push((first..last, new));
        from = end;
    }
    Ok(content.splice(&edits))
}

enum HunkPosition {
    At(usize),
    Several(Vec<usize>),
    Nowhere,
}

/// Finds a hunk's old lines from `from` on: exactly, else but for white space at line ends.
fn find_position(lines: &[&str], from: usize, hunk: &Hunk) -> HunkPosition {
    let count = hunk.old.len();
    if count == 0 {
        // Only additions: below the line of the header, else at the end.
        return HunkPosition::At(if hunk.above.is_some() { from + 1 } else { lines.len() });
    }
    let find = |same: fn(&str, &str) -> bool| -> Vec<usize> {
        let last = lines.len().checked_sub(count);
        let fits = |at: &usize| lines[*at..*at + count].iter().zip(&hunk.old).all(|(line, old)| same(line, old));
        last.map_or_else(Vec::new, |last| (from..=last).filter(fits).collect())
    };
    let mut found = find(|line, old| line == old);
    if found.is_empty() {
        found = find(|line, old| line.trim_end() == old.trim_end());
    }
    match found.as_slice() {
        [] => HunkPosition::Nowhere,
        [at] => HunkPosition::At(*at),
        [first, ..] if hunk.above.is_some() => HunkPosition::At(*first),
        _ => HunkPosition::Several(found),
    }
}
