//! Reads and changes the list of agents, in the configuration file, and leaves everything else in it as it is.
//!
//! It must not know any other section. The file is edited line by line; the result is parsed again and must differ
//! from the input by exactly the change. Variables stay names: none of them needs to be set.

use std::{
    fs::{self, Metadata, Permissions},
    io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use countersign_files::replace::{FileAccess, replace_file};
use countersign_runtime::tools::regular;
use serde_json::{Value, json};

use super::{
    exposure::is_for_its_group,
    value::{free_mark, mark_variables, restore_variables},
};
use crate::yaml::{
    LARGEST, YamlNode,
    edit::{edited_text as set, end_of, is_silent, line_indent, scalar_text, split_comment, value_after_key},
};

/// The agent of the section `agent`.
const DEFAULT: &str = "default";

/// An agent as the file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedAgent {
    /// Its name.
    pub id: String,
    /// Source of its token.
    pub token: TokenSource,
}

/// Source of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenSource {
    /// Variable of the environment that holds it.
    Variable(String),
    /// The file itself holds it.
    File,
}

/// Change of an agent. Tokens are as the file should have them, such as `${NAME}`.
#[derive(Clone, Copy, Debug)]
pub enum AgentChange<'a> {
    /// A new one, after those that are there.
    Add {
        /// Its name.
        id: &'a str,
        /// Its token.
        token: &'a str,
    },
    /// Another token.
    Rotate {
        /// Its name.
        id: &'a str,
        /// Its new token.
        token: &'a str,
    },
    /// Removal of an agent.
    Remove {
        /// Its name.
        id: &'a str,
    },
}

/// Why agents were not listed or changed. The file is as it was.
#[derive(Debug, thiserror::Error)]
pub enum AgentsError {
    /// The file cannot be read or replaced.
    #[error("cannot {action} {}: {source}", file.display())]
    Io {
        /// Failed action: `read` or `write`.
        action: &'static str,
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not well-formed, or written in a way that cannot be changed safely.
    #[error("{}: {why}", file.display())]
    Form {
        /// The file.
        file: PathBuf,
        /// The obstacle.
        why: String,
    },
    /// The agent exists already.
    #[error("agent {0} already exists; replace its token with `countersign agents rotate {0}`")]
    Known(String),
    /// The agent does not exist.
    #[error("agent {0} does not exist; list agents with `countersign agents list`")]
    Unknown(String),
    /// The name cannot be used.
    #[error("invalid agent name {0:?}: expected 1 to 64 letters, digits, -, _ or .")]
    Name(String),
    /// The system gives no random bytes.
    #[error("cannot generate a token: the system gave no random bytes: {0}")]
    Dice(String),
}

/// Returns a new token of 256 random bits, of letters, digits, `-` and `_`.
///
/// # Errors
/// [`AgentsError::Dice`].
pub fn new_token() -> Result<String, AgentsError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| AgentsError::Dice(error.to_string()))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Lists the agents of the file at `path`, in its order; `default` first.
///
/// # Errors
/// [`AgentsError::Io`], [`AgentsError::Form`].
pub fn list_agents(path: &Path) -> Result<Vec<ListedAgent>, AgentsError> {
    let text = read_agents_text(path)?;
    let mark = free_mark(&text).unwrap_or('\0');
    let tree =
        parse_tree(&mark_variables(&text, mark)).map_err(|why| AgentsError::Form { file: path.to_owned(), why })?;
    let listed = |id: &str, token: &Value| {
        let token = token.as_str().map_or_else(|| token.to_string(), str::to_owned);
        let variable = token.strip_prefix(mark).and_then(|rest| rest.strip_suffix(mark));
        let token = match variable.filter(|name| !name.contains(mark)) {
            Some(name) => TokenSource::Variable(name.to_owned()),
            None => TokenSource::File,
        };
        ListedAgent { id: restore_variables(id, Some(mark)), token }
    };
    let first = tree["agent"].is_object().then(|| listed(DEFAULT, &tree["agent"]["token"]));
    let more = tree["agents"].as_array().into_iter().flatten();
    let more = more.filter_map(|agent| Some(listed(agent["id"].as_str()?, &agent["token"])));
    Ok(first.into_iter().chain(more).collect())
}

/// Makes `change` in the file at `path`. If the file gets a token to hold, only its owner can read it from then on, and the
/// group of a file that root gave to one; true if others could before. Only [`AgentChange::Add`] makes a file that is not there.
///
/// # Errors
/// [`AgentsError`], with the file as it was.
pub fn change_agents(path: &Path, change: AgentChange<'_>) -> Result<bool, AgentsError> {
    let io = |source| AgentsError::Io { action: "write", file: path.to_owned(), source };
    if let Some(parent) = path.parent().filter(|parent| parent.is_file()) {
        return Err(AgentsError::Form { file: parent.to_owned(), why: "it is a file, not a folder".to_owned() });
    }
    let is_new = !path.exists() && matches!(change, AgentChange::Add { .. });
    let text = if is_new { String::new() } else { read_agents_text(path)? };
    let known = if is_new { Vec::new() } else { list_agents(path)? };
    let is_known = |id: &str| known.iter().any(|agent| agent.id == id);
    let holds = match change {
        AgentChange::Add { id, .. } if is_known(id) => return Err(AgentsError::Known(id.to_owned())),
        AgentChange::Add { id, .. } if !is_name(id) => return Err(AgentsError::Name(id.to_owned())),
        AgentChange::Rotate { id, .. } | AgentChange::Remove { id } if !is_known(id) => {
            return Err(AgentsError::Unknown(id.to_owned()));
        }
        AgentChange::Add { token, .. } | AgentChange::Rotate { token, .. } => !token.starts_with("${"),
        AgentChange::Remove { .. } => false,
    };
    let edited = edited_agents(&text, change).map_err(|why| AgentsError::Form { file: path.to_owned(), why })?;
    let before = fs::metadata(path).ok().filter(|_| holds);
    let shut = |found: &Metadata| if is_for_its_group(found) { found.mode() & 0o640 | 0o600 } else { 0o600 };
    let open = before.filter(|found| found.mode() & 0o077 & !shut(found) != 0);
    if let Some(found) = &open {
        // Before there is a secret in it.
        fs::set_permissions(path, Permissions::from_mode(shut(found))).map_err(io)?;
    }
    let replaced = replace_file(path, edited.as_bytes(), FileAccess::Private);
    if let (Err(_), Some(before)) = (&replaced, &open) {
        fs::set_permissions(path, before.permissions()).map_err(io)?;
    }
    replaced.map_err(io)?;
    Ok(open.is_some())
}

fn is_name(id: &str) -> bool {
    let letter = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    (1..=64).contains(&id.len())
        && id.chars().all(letter)
        && id.starts_with(|first: char| first.is_ascii_alphanumeric())
}

fn read_agents_text(path: &Path) -> Result<String, AgentsError> {
    let failed = |source| AgentsError::Io { action: "read", file: path.to_owned(), source };
    regular::read_text(path, LARGEST).map_err(failed)
}

fn parse_tree(text: &str) -> Result<Value, String> {
    let node = YamlNode::parse_untagged(text).map_err(|(line, message)| format!("line {line}: {message}"))?;
    let tree = node.map_or_else(|| json!({}), |node| node.to_json());
    if tree.is_object() { Ok(tree) } else { Err("the file is not a mapping".to_owned()) }
}

/// Returns `text` with the change, or the reason why that cannot be made.
fn edited_agents(text: &str, change: AgentChange<'_>) -> Result<String, String> {
    let mark = free_mark(text).ok_or("it uses every character that could mark a variable; edit the file by hand")?;
    let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let before = mark_variables(&text.replace("\r\n", "\n"), mark);
    let token = |token: &str| Value::from(mark_variables(token, mark));
    let out = match change {
        AgentChange::Add { id: DEFAULT, token: new } | AgentChange::Rotate { id: DEFAULT, token: new }
            if is_section(&before, change)? =>
        {
            set(&before, &["agent", "token"], &token(new))?
        }
        AgentChange::Remove { id: DEFAULT } if is_section(&before, change)? => without_section(&before, "agent")?,
        AgentChange::Add { id, token: new } => in_list(&before, None, Some((id, &token(new))))?,
        AgentChange::Rotate { id, token: new } => in_list(&before, Some(id), Some((id, &token(new))))?,
        AgentChange::Remove { id } => in_list(&before, Some(id), None)?,
    };
    Ok(restore_variables(&out, Some(mark)).replace('\n', end))
}

/// Reports whether a change of `default` is one of the section `agent`; it may stand in the list too.
fn is_section(text: &str, change: AgentChange<'_>) -> Result<bool, String> {
    Ok(matches!(change, AgentChange::Add { .. }) || parse_tree(text)?["agent"].is_object())
}

/// Returns `text` without the section `key`.
fn without_section(text: &str, key: &str) -> Result<String, String> {
    let mut want = parse_tree(text)?;
    if let Value::Object(members) = &mut want {
        members.remove(key);
    }
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    cut_section(&mut lines, key);
    checked_text(&lines, &want)
}

/// Removes the lines of a section, but not the comment at its key.
fn cut_section(lines: &mut Vec<String>, key: &str) {
    let Some(at) = lines.iter().position(|line| value_after_key(line, 0, key).is_some()) else { return };
    let end = end_of(lines, at, lines.len(), 0);
    let kept = lines[at..end].iter().filter_map(|line| comment_of(line)).collect::<Vec<_>>();
    lines.splice(at..end, kept);
}

/// Returns a comment of a line of YAML.
fn comment_of(line: &str) -> Option<String> {
    let (_, comment) = split_comment(line);
    (!comment.is_empty()).then(|| comment.to_owned())
}

/// Returns `lines` as text, if it means `want`.
fn checked_text(lines: &[String], want: &Value) -> Result<String, String> {
    let mut out = lines.join("\n");
    out.push('\n');
    if parse_tree(&out)? == *want {
        Ok(out)
    } else {
        Err("its YAML form cannot be edited here; edit the file by hand".to_owned())
    }
}

/// Returns `text` with the item of `agents` named `old` replaced by `new`: without `old` appended, without `new` taken out.
fn in_list(text: &str, old: Option<&str>, new: Option<(&str, &Value)>) -> Result<String, String> {
    let mut want = parse_tree(text)?;
    let before: Vec<Value> = want["agents"].as_array().cloned().unwrap_or_default();
    let at = old.and_then(|id| before.iter().position(|agent| agent["id"] == id));
    let mut after = before.clone();
    match (at, new) {
        (Some(at), Some((_, token))) => after[at]["token"] = token.clone(),
        (Some(at), None) => drop(after.remove(at)),
        (None, Some((id, token))) => after.push(json!({ "id": id, "token": token })),
        (None, None) => return Err("the agent does not exist".to_owned()),
    }
    let is_empty = after.is_empty();
    if is_empty {
        want.as_object_mut().map(|members| members.remove("agents"));
    } else {
        want["agents"] = Value::Array(after);
    }
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if is_empty {
        cut_section(&mut lines, "agents");
        return checked_text(&lines, &want);
    }
    let key = block_of(&mut lines, &before)?;
    let end = end_of(&lines, key, lines.len(), 0);
    let starts = item_starts(&lines, key, end);
    match (at, new) {
        (Some(at), new) => {
            let (Some(start), next) = (starts.get(at).copied(), starts.get(at + 1).copied().unwrap_or(end)) else {
                return Err("its list of agents cannot be edited here; edit the file by hand".to_owned());
            };
            // Comments before the next item belong to the next item.
            let next = (start..next).rev().find(|line| !is_silent(&lines[*line])).map_or(next, |last| last + 1);
            match new {
                Some((id, token)) => rotate_token(&mut lines, start..next, id, token),
                None => drop(lines.drain(start..next)),
            }
        }
        (None, Some((id, token))) => {
            let pad = " ".repeat(starts.first().map_or(2, |first| line_indent(&lines[*first])));
            let is_flow = starts.last().is_none_or(|last| lines[*last].trim_start().starts_with("- {"));
            let fresh = if is_flow {
                vec![flow_item(&pad, id, token)]
            } else {
                vec![format!("{pad}- id: {}", scalar_text(&id.into())), format!("{pad}  token: {}", scalar_text(token))]
            };
            lines.splice(end..end, fresh);
        }
        (None, None) => {}
    }
    checked_text(&lines, &want)
}

fn flow_item(pad: &str, id: &str, token: &Value) -> String {
    format!("{pad}- {{ id: {}, token: {} }}", scalar_text(&id.into()), scalar_text(token))
}

/// Returns the line of `agents:`, with the list below it in lines of its own. It is made if it is not there.
fn block_of(lines: &mut Vec<String>, before: &[Value]) -> Result<usize, String> {
    let Some(at) = lines.iter().position(|line| value_after_key(line, 0, "agents").is_some()) else {
        let behind = lines.iter().rposition(|line| !is_silent(line)).map_or(lines.len(), |last| last + 1);
        lines.insert(behind, "agents:".to_owned());
        return Ok(behind);
    };
    let inline = value_after_key(&lines[at], 0, "agents").unwrap_or_default().to_owned();
    let (content, _) = split_comment(&inline);
    if content.is_empty() {
        return Ok(at);
    }
    if !content.starts_with('[') {
        return Err("its list of agents cannot be edited here; edit the file by hand".to_owned());
    }
    // A list in brackets becomes one of lines; comments in it stand above them.
    let end = end_of(lines, at, lines.len(), 0);
    let comments = lines[at..end].iter().filter_map(|line| comment_of(line)).map(|comment| format!("  {comment}"));
    let items = before.iter().map(|agent| flow_item("  ", agent["id"].as_str().unwrap_or_default(), &agent["token"]));
    let fresh: Vec<String> = std::iter::once("agents:".to_owned()).chain(comments).chain(items).collect();
    lines.splice(at..end, fresh);
    Ok(at)
}

/// Returns the first lines of the items of the list below line `key`.
fn item_starts(lines: &[String], key: usize, end: usize) -> Vec<usize> {
    let Some(first) = (key + 1..end).find(|at| !is_silent(&lines[*at])) else { return Vec::new() };
    let column = line_indent(&lines[first]);
    let begins =
        |line: &str| line_indent(line) == column && (line.trim() == "-" || line.trim_start().starts_with("- "));
    (first..end).filter(|at| begins(&lines[*at])).collect()
}

/// Writes another token into the item of the lines of `range`.
fn rotate_token(lines: &mut Vec<String>, range: std::ops::Range<usize>, id: &str, token: &Value) {
    let pad = " ".repeat(line_indent(&lines[range.start]));
    if lines[range.start].trim_start().starts_with("- {") {
        let comment = lines[range.clone()].iter().filter_map(|line| comment_of(line)).collect::<Vec<_>>().join(" ");
        let gap = if comment.is_empty() { "" } else { "  " };
        lines.splice(range, [format!("{}{gap}{comment}", flow_item(&pad, id, token))]);
        return;
    }
    for line in &mut lines[range] {
        // The dash is as good as a blank for the text after it.
        let bare = line.replacen("- ", "  ", 1);
        let Some(value) = value_after_key(&bare, line_indent(&bare), "token") else { continue };
        let (_, comment) = split_comment(value);
        let gap = if comment.is_empty() { "" } else { "  " };
        let head = &line[..line.len() - value.len()];
        *line = format!("{head} {}{gap}{comment}", scalar_text(token));
        return;
    }
}

#[cfg(test)]
mod tests;
