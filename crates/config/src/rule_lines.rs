//! Puts a rule into the text of a rules file, or takes one or a default out, and leaves everything else as it is, to the
//! letter.
//!
//! It must not know what rules mean. Text is only put in or cut out between lines, or before the bracket that closes a list.
//! The result is parsed again and must differ from the input by exactly that rule.

use std::ops::Range;

use countersign_core::policy::{Rule, RuleAction};
use serde_json::{Map, Value, json};

use crate::yaml::{
    YamlKind, YamlNode,
    edit::{end_of, is_silent, line_indent, split_comment, value_after_key},
};

const LIST: &str = "rules";
/// The lists of a file with entries that can be changed.
const LISTS: [&str; 2] = [LIST, "defaults"];

/// Returns a rule as one line of a rules file, without the dash: a mapping in braces, all of whose texts are in quotes.
///
/// It holds the rule's pattern, principal, action and description.
pub fn rule_line(rule: &Rule) -> String {
    let action = match rule.action {
        RuleAction::Allow => "allow",
        RuleAction::Ask => "ask",
        RuleAction::Deny => "deny",
    };
    let text = |name: &str, text: &Option<String>| text.as_ref().map(|text| format!("{name}: {}", quoted_text(text)));
    let parts = [
        text("pattern", &rule.pattern),
        text("principal", &rule.principal),
        Some(format!("action: {action}")),
        text("description", &rule.description),
    ];
    format!("{{ {} }}", parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

/// Returns a text in the double quotes of YAML, on one line whatever it holds. Invisible characters are written out.
fn quoted_text(text: &str) -> String {
    let mut out = String::new();
    for letter in Value::from(text).to_string().chars() {
        let code = u32::from(letter);
        match code {
            _ if letter.is_ascii_graphic() || letter == ' ' || letter.is_alphanumeric() => out.push(letter),
            0..=0xffff => out.push_str(&format!("\\u{code:04x}")),
            _ => out.push_str(&format!("\\U{code:08x}")),
        }
    }
    out
}

/// Returns `item` as an entry of a list whose dashes stand at column `indent`, each line followed by `end`.
pub fn list_entry(item: &str, indent: usize, end: &str) -> String {
    let pad = " ".repeat(indent);
    let mut lines = item.lines();
    let mut out = format!("{pad}- {}{end}", lines.next().unwrap_or_default());
    for line in lines {
        match line.is_empty() {
            true => out.push_str(end),
            false => out.push_str(&format!("{pad}  {line}{end}")),
        }
    }
    out
}

/// Returns the text of the rule or default that begins in line `at`, counted from 1: as written there, without its dash.
///
/// # Errors
/// The reason why nothing can be changed there.
pub fn rule_text(text: &str, at: u64) -> Result<String, String> {
    let found = find_rule(text, at)?;
    let mut lines = text[found.cut].lines();
    let first = lines.next().unwrap_or_default();
    let column = first.len() - first[found.indent + 1..].trim_start().len();
    let mut out = first[column..].to_owned();
    for line in lines {
        out.push('\n');
        out.push_str(&line[line_indent(line).min(column)..]);
    }
    let out = out.trim_end().to_owned();
    if parse_tree(&out).is_ok_and(|read| read == found.value) { Ok(out) } else { Err(UNKNOWN.to_owned()) }
}

/// Returns `text` with `item`, a rule as `line` or a person writes it, after the last of its rules.
///
/// # Errors
/// The reason why it cannot be put into the text.
pub fn with_rule(text: &str, item: &str) -> Result<String, String> {
    let mut want = parse_tree(text)?;
    let rule = parse_rule(item)?;
    list_of(&mut want, LIST)?.push(rule);
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let out = match insert_position(&lines, LIST)? {
        InsertPosition::Nowhere => {
            let gap = if text.is_empty() || text.ends_with('\n') { "" } else { end };
            format!("{text}{gap}{LIST}:{end}{}", list_entry(item, 2, end))
        }
        InsertPosition::Block { before, indent } => {
            let at = line_offset(text, before);
            let gap = if at == text.len() && !text.is_empty() && !text.ends_with('\n') { end } else { "" };
            format!("{}{gap}{}{}", &text[..at], list_entry(item, indent, end), &text[at..])
        }
        InsertPosition::Brackets { .. } if item.contains('\n') => {
            return Err("the rules are a list in brackets: write this rule on one line, in braces".to_owned());
        }
        InsertPosition::Brackets { line, column } => {
            let open = line_offset(text, line) + column;
            let at = last_of(text, open)?;
            let comma = match text[open + 1..at].trim_end().chars().last() {
                None => " ",
                Some(',') => " ",
                Some(_) => ", ",
            };
            let gap = if text[at..].starts_with(']') { " " } else { "" };
            format!("{}{comma}{item}{gap}{}", &text[..at], &text[at..])
        }
    };
    checked_text(out, want)
}

/// Returns `text` without the rule or default that begins in line `at`, counted from 1, or with `item` in its place, and the lines
/// that were cut out.
///
/// # Errors
/// The reason why nothing can be taken out there.
pub fn without_rule(text: &str, at: u64, item: Option<&str>) -> Result<(String, String), String> {
    let found = find_rule(text, at)?;
    let mut want = parse_tree(text)?;
    let fresh = item.map(parse_rule).transpose()?;
    list_of(&mut want, found.list)?.splice(found.index..=found.index, fresh);
    let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let fresh = item.map(|item| list_entry(item, found.indent, end)).unwrap_or_default();
    let out = format!("{}{fresh}{}", &text[..found.cut.start], &text[found.cut.end..]);
    Ok((checked_text(out, want)?, text[found.cut].trim_end().to_owned()))
}

/// A rule or default on lines of its own.
struct RuleLocation {
    list: &'static str,
    index: usize,
    value: Value,
    /// The column of its dash.
    indent: usize,
    /// Its lines.
    cut: Range<usize>,
}

fn find_rule(text: &str, at: u64) -> Result<RuleLocation, String> {
    let mut tree = parse_tree(text)?;
    let found = LISTS.iter().find_map(|list| Some((*list, rule_index(text, list, at)?)));
    let (list, index) = found.ok_or_else(|| format!("no rule starts on line {at}"))?;
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let refused = || format!("the rule on line {at} shares its lines with other content");
    let first = usize::try_from(at).ok().and_then(|at| at.checked_sub(1)).ok_or_else(refused)?;
    if !matches!(insert_position(&lines, list)?, InsertPosition::Block { .. })
        || !lines.get(first).is_some_and(|line| is_item(line))
    {
        return Err(refused());
    }
    let indent = line_indent(&lines[first]);
    let mut behind = first + 1;
    for (next, line) in lines.iter().enumerate().skip(first + 1) {
        if is_silent(line) {
            continue;
        }
        if line_indent(line) <= indent {
            break;
        }
        behind = next + 1;
    }
    let value = list_of(&mut tree, list)?.get_mut(index).map(Value::take).ok_or_else(refused)?;
    Ok(RuleLocation { list, index, value, indent, cut: line_offset(text, first)..line_offset(text, behind) })
}

/// Position at which a rule is inserted.
enum InsertPosition {
    /// No place: there is no list of rules.
    Nowhere,
    /// Before a line, counted from 0, at a column.
    Block { before: usize, indent: usize },
    /// Into the list in brackets that opens there.
    Brackets { line: usize, column: usize },
}

fn insert_position(lines: &[String], list: &str) -> Result<InsertPosition, String> {
    let found = lines.iter().enumerate().find_map(|(at, line)| Some((at, value_after_key(line, 0, list)?)));
    let Some((at, inline)) = found else { return Ok(InsertPosition::Nowhere) };
    let (content, _) = split_comment(inline);
    if content.starts_with('[') {
        let column = lines[at].find('[').unwrap_or_default();
        return Ok(InsertPosition::Brackets { line: at, column });
    }
    if !content.is_empty() {
        return Err(format!("`{list}` is not a list"));
    }
    let before = end_of(lines, at, lines.len(), 0);
    let first = lines[at + 1..before].iter().find(|line| !is_silent(line));
    match first {
        None => Ok(InsertPosition::Block { before: at + 1, indent: 2 }),
        Some(first) if is_item(first) => Ok(InsertPosition::Block { before, indent: line_indent(first) }),
        Some(_) => Err(format!("the rules under `{list}` do not start on lines of their own")),
    }
}

fn is_item(line: &str) -> bool {
    line.trim_start_matches(' ').starts_with("- ")
}

/// Returns the offset at which a line begins, counted from 0.
fn line_offset(text: &str, line: usize) -> usize {
    text.split_inclusive('\n').take(line).map(str::len).sum()
}

/// Returns the offset after the last item of the list in brackets that opens at `open`.
fn last_of(text: &str, open: usize) -> Result<usize, String> {
    let (mut level, mut last, mut before) = (0_usize, open + 1, ' ');
    let mut letters = text[open..].char_indices();
    while let Some((at, letter)) = letters.next() {
        let at = open + at;
        match letter {
            '[' | '{' => level += 1,
            ']' | '}' => {
                level = level.saturating_sub(1);
                if level == 0 {
                    return Ok(last);
                }
            }
            '#' if before.is_whitespace() => {
                letters.by_ref().find(|(_, letter)| *letter == '\n');
                before = '\n';
                continue;
            }
            '"' | '\'' if before.is_whitespace() || "[{,:".contains(before) => {
                let mut is_escaped = false;
                letters.by_ref().find(|(_, inner)| {
                    let closes = *inner == letter && !is_escaped;
                    is_escaped = letter == '"' && *inner == '\\' && !is_escaped;
                    closes
                });
                last = text.len() - letters.as_str().len();
                before = letter;
                continue;
            }
            _ => {}
        }
        if !letter.is_whitespace() && at > open {
            last = at + letter.len_utf8();
        }
        before = letter;
    }
    Err("the list of rules has no closing bracket".to_owned())
}

/// Returns the index of the list item that begins in line `at`.
fn rule_index(text: &str, list: &str, at: u64) -> Option<usize> {
    let YamlKind::Map(members) = YamlNode::parse(text).ok()??.kind else { return None };
    let (_, list) = members.into_iter().find(|(key, _)| key == list)?;
    let YamlKind::List(rules) = list.kind else { return None };
    let mut found = rules.iter().enumerate().filter(|(_, rule)| rule.line == at).map(|(index, _)| index);
    // Of two on one line it is not known which is meant.
    found.next().filter(|_| found.next().is_none())
}

fn parse_tree(text: &str) -> Result<Value, String> {
    let node = YamlNode::parse(text).map_err(|(line, message)| format!("line {line}: {message}"))?;
    Ok(node.map_or_else(|| Value::Object(Map::new()), |node| node.to_json()))
}

/// Parses a rule that a person wrote.
fn parse_rule(item: &str) -> Result<Value, String> {
    let read = YamlNode::parse(item).map_err(|(line, message)| format!("line {line} of the new rule: {message}"))?;
    let read = read.map(|node| node.to_json()).filter(Value::is_object);
    read.ok_or_else(|| "not a rule: expected a mapping with a pattern or a tool, and an action".to_owned())
}

/// Returns a list of the file, made if there is none.
fn list_of<'a>(tree: &'a mut Value, list: &str) -> Result<&'a mut Vec<Value>, String> {
    let Value::Object(members) = tree else { return Err("the file is not a mapping".to_owned()) };
    let found = members.entry(list.to_owned()).or_insert(Value::Null);
    if found.is_null() {
        *found = json!([]);
    }
    found.as_array_mut().ok_or_else(|| format!("`{list}` is not a list"))
}

fn checked_text(out: String, want: Value) -> Result<String, String> {
    let mut got = parse_tree(&out).map_err(|_| UNKNOWN.to_owned())?;
    for list in LISTS.iter().filter(|list| want.get(**list).is_some_and(Value::is_array)) {
        list_of(&mut got, list).map_err(|_| UNKNOWN.to_owned())?;
    }
    if got == want { Ok(out) } else { Err(UNKNOWN.to_owned()) }
}

const UNKNOWN: &str = "its YAML form cannot be edited here; edit the file by hand";

/// Returns the lines of `text` that `other` does not have at that place: those that were put in.
pub fn added_lines(text: &str, other: &str) -> Range<usize> {
    let (old, new): (Vec<&str>, Vec<&str>) = (text.lines().collect(), other.lines().collect());
    let first = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let most = old.len().min(new.len()) - first;
    let last = old.iter().rev().zip(new.iter().rev()).take(most).take_while(|(old, new)| old == new).count();
    first..new.len() - last
}

#[cfg(test)]
mod tests;
