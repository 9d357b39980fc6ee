//! A file's values with the variables of the environment put in.
//!
//! It must not know any key. A variable is replaced in values only, never in comments or keys, and its value is
//! never read as more of the file: at most as one value of its own.

use std::{io, path::Path};

use countersign_runtime::tools::regular;
use serde_json::Number;

use super::{diagnostics::FileDiagnostics, problem::ConfigFault};
use crate::yaml::{LARGEST, YamlKind, YamlNode};

/// Gives the value of a variable.
pub(super) type VariableLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Returns the text of the file; one that cannot be read is noted and empty.
pub(super) fn config_text(path: Option<&Path>, notes: &FileDiagnostics) -> String {
    match path.map(|path| regular::read_text(path, LARGEST)) {
        None => String::new(),
        Some(Ok(text)) => text,
        Some(Err(error)) => {
            let fault = match error.kind() {
                io::ErrorKind::NotFound => ConfigFault::Io("file not found".to_owned()),
                _ => ConfigFault::Io(error.to_string()),
            };
            notes.add_fault(0, "", fault);
            String::new()
        }
    }
}

/// One value of a file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ConfigValue {
    /// Counted from 1.
    pub(super) line: u64,
    pub(super) form: ValueForm,
    /// The variable, if the value is nothing but one.
    pub(super) variable: Option<EnvironmentVariable>,
    /// Name of a variable that is empty or blank and is a part of the text. A value that is nothing but such variables is reported already.
    pub(super) empty_variable: Option<String>,
    /// True if any part of the value comes from the environment.
    pub(super) from_environment: bool,
    /// True if the file has a text that was meant as a variable and is none.
    pub(super) is_misspelt: bool,
}

impl ConfigValue {
    /// Returns a value that is written in the file itself.
    fn new(line: u64, form: ValueForm) -> Self {
        Self { line, form, variable: None, empty_variable: None, from_environment: false, is_misspelt: false }
    }
}

/// The value of a variable of the environment.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EnvironmentVariable {
    /// Never blank.
    pub(super) text: String,
}

/// Form of a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ValueForm {
    /// Nothing, which counts as absent.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A finite number.
    Number(Number),
    /// Text.
    Text(String),
    /// A sequence.
    List(Vec<ConfigValue>),
    /// A mapping, in the order of the file.
    Map(Vec<(String, ConfigValue)>),
    /// A variable that is not set or is empty, which was reported already.
    Unset,
}

/// Reads `text`; `environment` gives a variable's value. Nothing is left of a file that is not well-formed.
pub(super) fn read_value(
    text: &str,
    notes: &FileDiagnostics,
    environment: Option<VariableLookup<'_>>,
) -> Option<ConfigValue> {
    let mark = free_mark(text).filter(|_| environment.is_some());
    let marked = mark.map_or_else(|| text.to_owned(), |mark| mark_variables(text, mark));
    match YamlNode::parse_untagged(&marked) {
        Ok(node) => node.map(|node| VariableResolver { mark, environment, notes }.resolve_node(node, "")),
        Err((line, message)) => {
            notes.add_fault(line, "", ConfigFault::Syntax(plain_message(&restore_variables(&message, mark))));
            None
        }
    }
}

/// Returns the parser's message without its advice to programmers.
fn plain_message(message: &str) -> String {
    let message = message.split_once(" at line ").map_or(message, |(message, _)| message);
    match message.strip_prefix("duplicate mapping key: ") {
        Some(rest) => {
            let key = rest.rsplit_once(", set ").map_or(rest, |(key, _)| key);
            format!("duplicate key {key}")
        }
        None => message.to_owned(),
    }
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Returns a letter that `text` does not have. It stands instead of braces, so that `[${A}]` is a list of one variable and not a
/// mapping inside a list.
pub(super) fn free_mark(text: &str) -> Option<char> {
    ('\u{e000}'..='\u{f8ff}').find(|mark| !text.contains(*mark))
}

/// Returns `text` with every `${NAME}` as the name between two marks.
pub(super) fn mark_variables(text: &str, mark: char) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("${") {
        result.push_str(before);
        let name = &behind[..behind.find(|letter| !is_word(letter)).unwrap_or(behind.len())];
        if !name.is_empty() && behind[name.len()..].starts_with('}') {
            result.extend([mark]);
            result.push_str(name);
            result.extend([mark]);
            rest = &behind[name.len() + 1..];
        } else {
            result.push_str("${");
            rest = behind;
        }
    }
    result + rest
}

/// Reports whether a variable was meant and not written: `${NAME }`, `${NAME`.
fn is_misspelt_variable(text: &str) -> bool {
    let is_whole = |behind: &str| {
        let name = &behind[..behind.find(|letter| !is_word(letter)).unwrap_or(behind.len())];
        !name.is_empty() && behind[name.len()..].starts_with('}')
    };
    text.split("${").skip(1).any(|behind| !is_whole(behind))
}

/// Reports whether a text consists of references to secrets of the gateway, after the scheme of a header if it has one.
pub(super) fn is_secret_reference(text: &str) -> bool {
    let schemes = ["Bearer ", "Basic ", "Token "];
    let mut rest = schemes.iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text).trim();
    let is_empty = rest.is_empty();
    while let Some((name, after)) = rest.strip_prefix("{{secret:").and_then(|rest| rest.split_once("}}")) {
        if name.is_empty() || name.contains(['{', ' ']) {
            return false;
        }
        rest = after;
    }
    rest.is_empty() && !is_empty
}

/// Returns the form of the first word that looks like a variable of a shell, for example of `Bearer $NAME` or `%NAME%`. Here
/// such a word is plain text. The form has a placeholder for the name, because the word may be a credential.
pub(super) fn shell_variable_form(text: &str) -> Option<&'static str> {
    let is_name = |name: &str| {
        name.starts_with(|letter: char| letter.is_ascii_uppercase())
            && name.chars().all(|letter| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_')
    };
    let form = |word: &str| {
        let of_windows = word.strip_prefix('%').and_then(|rest| rest.strip_suffix('%'));
        match (word.strip_prefix('$'), of_windows) {
            (Some(name), _) if is_name(name) => Some("$NAME"),
            (_, Some(name)) if is_name(name) => Some("%NAME%"),
            _ => None,
        }
    };
    text.split_whitespace().find_map(form)
}

/// Returns the text as it was before it was marked.
pub(super) fn restore_variables(text: &str, mark: Option<char>) -> String {
    let Some(mark) = mark else { return text.to_owned() };
    let mut result = String::with_capacity(text.len());
    for (at, part) in text.split(mark).enumerate() {
        match at % 2 {
            1 => {
                result.push_str("${");
                result.push_str(part);
                result.push('}');
            }
            _ => result.push_str(part),
        }
    }
    result
}

struct VariableResolver<'a> {
    mark: Option<char>,
    environment: Option<VariableLookup<'a>>,
    notes: &'a FileDiagnostics,
}

impl VariableResolver<'_> {
    fn resolve_node(&self, node: YamlNode, key: &str) -> ConfigValue {
        let line = node.line;
        let plain = |form| ConfigValue::new(line, form);
        match node.kind {
            YamlKind::Null => plain(ValueForm::Null),
            YamlKind::Bool(flag) => plain(ValueForm::Bool(flag)),
            YamlKind::Number(number) => plain(ValueForm::Number(number)),
            YamlKind::Text(text) => self.resolve_text(&text, line, key),
            YamlKind::List(items) => {
                let item = |(at, item)| self.resolve_node(item, &format!("{key}[{at}]"));
                plain(ValueForm::List(items.into_iter().enumerate().map(item).collect()))
            }
            YamlKind::Map(members) => {
                let member = |(name, node): (String, YamlNode)| {
                    let name = restore_variables(&name, self.mark);
                    let whole = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                    let value = self.resolve_node(node, &whole);
                    (name, value)
                };
                plain(ValueForm::Map(members.into_iter().map(member).collect()))
            }
        }
    }

    /// Returns the value of a text. A variable that is not set is reported, and so is an empty or blank one if nothing else is left: its
    /// author meant a value, and the default would replace it unnoticed.
    fn resolve_text(&self, text: &str, line: u64, key: &str) -> ConfigValue {
        let (Some(mark), Some(environment)) = (self.mark, self.environment) else {
            let value = ConfigValue::new(line, ValueForm::Text(text.to_owned()));
            return ConfigValue { is_misspelt: is_misspelt_variable(text), ..value };
        };
        let parts: Vec<&str> = text.split(mark).collect();
        let mut result = String::new();
        let mut unset = false;
        let mut empty: Option<&str> = None;
        for (at, part) in parts.iter().enumerate() {
            if at % 2 == 0 {
                result.push_str(part);
            } else if let Some(value) = environment(part) {
                if value.trim().is_empty() {
                    empty = empty.or(Some(part));
                }
                result.push_str(&value);
            } else {
                self.notes.add_fault(line, key, ConfigFault::Variable((*part).to_owned()));
                unset = true;
            }
        }
        if let Some(variable) = empty.filter(|_| !unset && result.trim().is_empty()) {
            self.notes.add_fault(line, key, ConfigFault::Empty { variable: variable.to_owned() });
            unset = true;
        }
        let value = ConfigValue {
            empty_variable: empty.map(str::to_owned),
            from_environment: parts.len() > 1,
            // Values of variables are not looked at. Anything else that looks like one was none when the file was read.
            is_misspelt: parts.iter().step_by(2).any(|part| part.contains("${")),
            ..ConfigValue::new(line, ValueForm::Unset)
        };
        if unset {
            return value;
        }
        let ["", _, ""] = parts[..] else { return ConfigValue { form: ValueForm::Text(result), ..value } };
        let form = match YamlNode::parse_untagged(&result) {
            // A comment or `~` is no empty value: it would be taken for the absence of the key.
            Ok(Some(YamlNode { kind: YamlKind::Null, .. }) | None) | Err(_) => ValueForm::Text(result.clone()),
            Ok(Some(node)) => variable_value(node, line).form,
        };
        ConfigValue { form, variable: Some(EnvironmentVariable { text: result }), ..value }
    }
}

/// Returns the value of a variable: nothing in it is replaced again.
fn variable_value(node: YamlNode, line: u64) -> ConfigValue {
    let form = match node.kind {
        YamlKind::Null => ValueForm::Null,
        YamlKind::Bool(flag) => ValueForm::Bool(flag),
        YamlKind::Number(number) => ValueForm::Number(number),
        YamlKind::Text(text) => ValueForm::Text(text),
        YamlKind::List(items) => ValueForm::List(items.into_iter().map(|item| variable_value(item, line)).collect()),
        YamlKind::Map(members) => {
            ValueForm::Map(members.into_iter().map(|(name, value)| (name, variable_value(value, line))).collect())
        }
    };
    ConfigValue { from_environment: true, ..ConfigValue::new(line, form) }
}
