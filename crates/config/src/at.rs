//! Reads values by key and collects everything that is wrong, so that one run shows all of it.
//!
//! It must not know any key.

use std::path::PathBuf;

use secrecy::SecretString;

use super::{
    notes::{Literal, Notes},
    problem::{ANY, Fault},
    value::{Form, Value, has_shell_variable},
};

/// The value under a key, or its absence.
#[derive(Clone, Debug)]
pub(super) struct At<'a> {
    pub(super) notes: &'a Notes,
    pub(super) key: String,
    pub(super) line: u64,
    value: Option<&'a Value>,
}

impl<'a> At<'a> {
    pub(super) fn root(notes: &'a Notes, value: Option<&'a Value>) -> Self {
        Self { notes, key: String::new(), line: value.map_or(0, |value| value.line), value }
    }

    fn form(&self) -> Option<&'a Form> {
        self.value.map(|value| &value.form).filter(|form| **form != Form::Null)
    }

    /// True if the key of a value is not here. One with nothing behind it is refused, whatever its reader makes of that.
    pub(super) fn has_no_value(&self) -> bool {
        self.not_empty(ANY);
        self.is_absent()
    }

    /// True if there is nothing here.
    pub(super) fn is_absent(&self) -> bool {
        self.form().is_none() && self.variable().is_none_or(str::is_empty)
    }

    /// Refuses a key with nothing behind it: its author meant something. What a variable holds may be empty.
    pub(super) fn not_empty(&self, expected: &'static str) {
        if self.is_written() && self.form().is_none() && self.variable().is_none() {
            self.refuse(Fault::Type { expected, found: "nothing" });
        }
    }

    /// True if the key stands in the file, whatever is behind it.
    fn is_written(&self) -> bool {
        self.value.is_some() && !self.key.is_empty()
    }

    /// True if a variable that is not set stands here.
    pub(super) fn is_unset(&self) -> bool {
        self.form() == Some(&Form::Unset)
    }

    fn variable(&self) -> Option<&'a str> {
        self.value.and_then(|value| value.variable.as_ref()).map(|variable| &*variable.text)
    }

    pub(super) fn refuse(&self, fault: Fault) {
        self.notes.fault(self.line, &self.key, fault);
    }

    pub(super) fn refused(&self, message: impl Into<String>) {
        self.refuse(Fault::Refused(message.into()));
    }

    pub(super) fn warn(&self, message: &str) {
        let warning = format!("{}:{}: {}: {message}", self.notes.file.display(), self.line, self.key);
        self.notes.warnings.borrow_mut().push(warning);
    }

    /// Says that something must be here, unless that was told already.
    pub(super) fn missing(&self) {
        if self.is_unset() {
            return;
        }
        let empty = self.value.and_then(|value| value.variable.as_ref()).filter(|variable| variable.text.is_empty());
        self.refuse(match empty {
            Some(variable) => Fault::Empty { key: self.key.clone(), variable: variable.name.clone() },
            None => Fault::Missing(self.key.clone()),
        });
    }

    fn mistyped(&self, expected: &'static str) {
        let found = match self.form() {
            Some(Form::Unset) => return,
            None | Some(Form::Null) => "nothing",
            Some(Form::Bool(_)) => "true or false",
            Some(Form::Number(_)) => "a number",
            Some(Form::Text(_)) => "text",
            Some(Form::List(_)) => "a list",
            Some(Form::Map(_)) => "a mapping",
        };
        self.refuse(Fault::Type { expected, found });
    }

    /// The value as it was written, for messages; never what a variable holds.
    pub(super) fn shown(&self) -> String {
        match (self.value, self.form()) {
            (Some(value), _) if value.from_environment => "(from the environment)".to_owned(),
            (_, Some(Form::Text(text))) => format!("'{text}'"),
            (_, Some(Form::Number(number))) => number.to_string(),
            (_, Some(Form::Bool(flag))) => flag.to_string(),
            (_, Some(Form::List(_))) => "a list".to_owned(),
            (_, Some(Form::Map(_))) => "a mapping".to_owned(),
            (_, None | Some(Form::Null | Form::Unset)) => "nothing".to_owned(),
        }
    }

    /// The value under `key`; absent where this is no mapping.
    pub(super) fn at(&self, key: &str) -> Self {
        let value = match self.form() {
            Some(Form::Map(members)) => members.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            None | Some(Form::Null | Form::Bool(_) | Form::Number(_) | Form::Text(_) | Form::List(_) | Form::Unset) => {
                None
            }
        };
        self.under(key, value)
    }

    fn under(&self, key: &str, value: Option<&'a Value>) -> Self {
        let whole = if self.key.is_empty() { key.to_owned() } else { format!("{}.{key}", self.key) };
        Self { notes: self.notes, key: whole, line: value.map_or(self.line, |value| value.line), value }
    }

    /// True if a mapping is here. Anything else that is here is refused, and so is every key but the `known`.
    pub(super) fn mapping(&self, known: &'static [&'static str]) -> bool {
        let Some(Form::Map(members)) = self.form() else { return self.members().is_some() };
        for (key, value) in members.iter().filter(|(key, _)| !known.contains(&key.as_str())) {
            self.under(key, Some(value)).refuse(Fault::UnknownKey(known));
        }
        true
    }

    /// True if a mapping is here that has this key, whatever stands behind it.
    pub(super) fn has(&self, key: &str) -> bool {
        matches!(self.form(), Some(Form::Map(members)) if members.iter().any(|(name, _)| name == key))
    }

    /// All values of a mapping in the order of the file; a key with nothing behind it is as good as absent, as a section is of which
    /// every line is commented out. Anything else that is here is refused.
    pub(super) fn members(&self) -> Option<Vec<(&'a str, Self)>> {
        match self.form() {
            None | Some(Form::Null) => None,
            Some(Form::Map(members)) => {
                Some(members.iter().map(|(key, value)| (key.as_str(), self.under(key, Some(value)))).collect())
            }
            Some(Form::Bool(_) | Form::Number(_) | Form::Text(_) | Form::List(_) | Form::Unset) => {
                self.mistyped("a mapping");
                None
            }
        }
    }

    /// True if a mapping is here.
    pub(super) fn is_mapping(&self) -> bool {
        matches!(self.form(), Some(Form::Map(_)))
    }

    /// All values of a list; none if it is absent. Anything else that is here is refused.
    pub(super) fn items(&self) -> Vec<Self> {
        self.not_empty("a list");
        self.items_or_nothing()
    }

    /// The same, where a key with nothing behind it is an empty list.
    pub(super) fn items_or_nothing(&self) -> Vec<Self> {
        self.list().unwrap_or_else(|| {
            if !self.is_absent() {
                self.mistyped("a list");
            }
            Vec::new()
        })
    }

    /// All values if a list is here.
    pub(super) fn list(&self) -> Option<Vec<Self>> {
        let Some(Form::List(items)) = self.form() else { return None };
        let item = |(at, value): (usize, &'a Value)| Self {
            notes: self.notes,
            key: format!("{}[{at}]", self.key),
            line: value.line,
            value: Some(value),
        };
        Some(items.iter().enumerate().map(item).collect())
    }

    /// Text. Anything else that is here is refused.
    pub(super) fn text(&self) -> Option<String> {
        self.not_empty("text");
        if let Some(text) = self.variable() {
            return Some(text.to_owned()).filter(|text| !text.is_empty());
        }
        match self.form() {
            None | Some(Form::Null | Form::Unset) => None,
            Some(Form::Text(text)) => Some(text.clone()),
            Some(Form::Bool(_) | Form::Number(_) | Form::List(_) | Form::Map(_)) => {
                self.mistyped("text (quote it if it looks like something else)");
                None
            }
        }
    }

    /// Text that must be here and not be empty.
    pub(super) fn needed_text(&self) -> Option<String> {
        let text = self.text().filter(|text| !text.is_empty());
        if text.is_none() && (self.is_absent() || matches!(self.form(), Some(Form::Text(_)))) {
            self.missing();
        }
        text
    }

    /// A credential. One that stands in the file as it is is noted.
    pub(super) fn secret(&self) -> Option<SecretString> {
        let text = self.text().filter(|text| !text.is_empty())?;
        self.note_literal();
        Some(SecretString::from(text))
    }

    /// A credential that must be here.
    pub(super) fn needed_secret(&self) -> Option<SecretString> {
        let text = self.needed_text()?;
        self.note_literal();
        Some(SecretString::from(text))
    }

    fn note_literal(&self) {
        let Some(value) = self.value else { return };
        // It would be a credential that everybody can guess who knows the name.
        if value.is_misspelt {
            return self.refused("a variable is written ${NAME}, its name in letters, digits and _; this is none");
        }
        if value.from_environment {
            return;
        }
        if matches!(self.form(), Some(Form::Text(text)) if has_shell_variable(text)) {
            self.warn("this is the credential itself, and no variable: one is written ${NAME}");
        }
        let literal = Literal { line: self.line, key: self.key.clone() };
        self.notes.literals.borrow_mut().push(literal);
    }

    /// The value without its lines; nothing where it is absent.
    pub(super) fn json(&self) -> Option<serde_json::Value> {
        self.not_empty(ANY);
        self.form().map(json)
    }

    /// `true` or `false`. Anything else that is here is refused.
    pub(super) fn flag(&self) -> Option<bool> {
        self.not_empty("true or false");
        match self.form() {
            None | Some(Form::Null | Form::Unset) => None,
            Some(Form::Bool(flag)) => Some(*flag),
            Some(Form::Number(_) | Form::Text(_) | Form::List(_) | Form::Map(_)) => {
                self.mistyped("true or false");
                None
            }
        }
    }

    /// A whole number, also one that is written as text. Anything else that is here is refused.
    pub(super) fn integer(&self) -> Option<i64> {
        self.not_empty("a whole number");
        let number = match self.form() {
            None | Some(Form::Null | Form::Unset) => return None,
            Some(Form::Number(number)) => whole(number),
            Some(Form::Text(text)) => text.trim().parse().ok(),
            Some(Form::Bool(_) | Form::List(_) | Form::Map(_)) => None,
        };
        if number.is_none() {
            self.refused(format!("Cannot convert {} to int: {}", self.key, self.shown()));
        }
        number
    }

    /// A whole number from `least` to `most`.
    pub(super) fn integer_in(&self, least: i64, most: i64) -> Option<i64> {
        let number = self.integer()?;
        if number < least || number > most {
            self.refused(format!("expected a whole number from {least} to {most}, got: {}", self.shown()));
            return None;
        }
        Some(number)
    }

    /// A number above zero that is no text.
    pub(super) fn above_zero(&self) -> Option<f64> {
        self.not_empty("a number above zero");
        match self.form() {
            None | Some(Form::Null | Form::Unset) => return None,
            Some(Form::Number(number)) => {
                // A year and more is nobody's time-out, and a size of that many bytes nobody's answer.
                if let Some(number) = number.as_f64().filter(|number| *number > 0.0 && *number <= 1e9) {
                    return Some(number);
                }
            }
            Some(Form::Bool(_) | Form::Text(_) | Form::List(_) | Form::Map(_)) => {}
        }
        self.refused(format!("expected a number above zero and at most 1000000000, got: {}", self.shown()));
        None
    }

    /// A number that is not negative and no text.
    pub(super) fn amount(&self) -> Option<f64> {
        self.not_empty("a number that is not negative");
        match self.form() {
            None | Some(Form::Null | Form::Unset) => return None,
            Some(Form::Number(number)) => {
                if let Some(number) = number.as_f64().filter(|number| *number >= 0.0) {
                    return Some(number);
                }
            }
            Some(Form::Bool(_) | Form::Text(_) | Form::List(_) | Form::Map(_)) => {}
        }
        self.refused(format!("expected a number that is not negative, got: {}", self.shown()));
        None
    }

    /// A whole number above zero that is no text, in agentpass' words.
    pub(super) fn positive_integer(&self) -> Option<u64> {
        self.not_empty("a whole number above zero");
        match self.form() {
            None | Some(Form::Null | Form::Unset) => return None,
            Some(Form::Number(number)) => {
                let number = number.as_u64().filter(|number| (1..=1_000_000_000).contains(number));
                if number.is_some() {
                    return number;
                }
            }
            Some(Form::Bool(_) | Form::Text(_) | Form::List(_) | Form::Map(_)) => {}
        }
        self.refused(format!("{} must be a positive integer, got: {}", self.key, self.shown()));
        None
    }

    /// A path; a relative one starts from the file's folder.
    pub(super) fn path(&self) -> Option<PathBuf> {
        self.text().filter(|text| !text.is_empty()).map(|text| self.notes.folder().join(text))
    }
}

fn json(form: &Form) -> serde_json::Value {
    match form {
        Form::Null | Form::Unset => serde_json::Value::Null,
        Form::Bool(flag) => (*flag).into(),
        Form::Number(number) => number.clone().into(),
        Form::Text(text) => text.clone().into(),
        Form::List(items) => items.iter().map(|item| json(&item.form)).collect(),
        Form::Map(members) => members.iter().map(|(key, value)| (key.clone(), json(&value.form))).collect(),
    }
}

/// A number without a part behind the point.
fn whole(number: &serde_json::Number) -> Option<i64> {
    let float = || number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0);
    #[expect(clippy::cast_possible_truncation, reason = "checked: whole and in range")]
    number.as_i64().or_else(|| float().map(|float| float as i64))
}
