//! Reads values by key and collects all problems, so that one run shows all of them.
//!
//! It must not know any key.

use std::path::PathBuf;

use secrecy::SecretString;

use super::{
    diagnostics::{FileDiagnostics, LiteralCredential},
    problem::{ANY, ConfigFault},
    value::{ConfigValue, ValueForm, is_secret_reference, shell_variable_form},
};

/// Handling of a credential that is written as an empty or blank text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BlankSecret {
    Refused,
    Accepted,
}

/// The value under a key, or its absence.
#[derive(Clone, Debug)]
pub(super) struct ConfigField<'a> {
    pub(super) notes: &'a FileDiagnostics,
    pub(super) key: String,
    pub(super) line: u64,
    value: Option<&'a ConfigValue>,
}

impl<'a> ConfigField<'a> {
    pub(super) fn root(notes: &'a FileDiagnostics, value: Option<&'a ConfigValue>) -> Self {
        Self { notes, key: String::new(), line: value.map_or(0, |value| value.line), value }
    }

    fn value_form(&self) -> Option<&'a ValueForm> {
        self.value.map(|value| &value.form).filter(|form| **form != ValueForm::Null)
    }

    /// Returns true if the key of a value is not here. One with nothing after it is refused, for any reader.
    pub(super) fn has_no_value(&self) -> bool {
        self.not_empty(ANY);
        self.is_absent()
    }

    /// Returns true if there is nothing here.
    pub(super) fn is_absent(&self) -> bool {
        self.value_form().is_none()
    }

    /// Refuses a key with nothing after it: its author meant something.
    pub(super) fn not_empty(&self, expected: &'static str) {
        if self.is_written() && self.is_absent() {
            self.report_fault(ConfigFault::Type { expected, found: "nothing" });
        }
    }

    /// Returns true if the file has the key, with any value.
    fn is_written(&self) -> bool {
        self.value.is_some() && !self.key.is_empty()
    }

    /// Returns true if the value is a variable that is not set or is empty, which was reported already.
    pub(super) fn is_unset(&self) -> bool {
        self.value_form() == Some(&ValueForm::Unset)
    }

    fn variable_text(&self) -> Option<&'a str> {
        self.value.and_then(|value| value.variable.as_ref()).map(|variable| &*variable.text)
    }

    pub(super) fn report_fault(&self, fault: ConfigFault) {
        self.notes.add_fault(self.line, &self.key, fault);
    }

    pub(super) fn report_refusal(&self, message: impl Into<String>) {
        self.report_fault(ConfigFault::Refused(message.into()));
    }

    pub(super) fn report_warning(&self, message: &str) {
        let warning = format!("{}:{}: {}: {message}", self.notes.file.display(), self.line, self.key);
        self.notes.warnings.borrow_mut().push(warning);
    }

    /// Reports that a value must be here, unless that was reported already.
    pub(super) fn report_missing(&self) {
        self.report_missing_as(ConfigFault::Missing(self.key.clone()));
    }

    fn report_missing_as(&self, missing: ConfigFault) {
        if !self.is_unset() {
            self.report_fault(missing);
        }
    }

    fn report_type(&self, expected: &'static str) {
        let found = match self.value_form() {
            Some(ValueForm::Unset) => return,
            None | Some(ValueForm::Null) => "nothing",
            Some(ValueForm::Bool(_)) => "true or false",
            Some(ValueForm::Number(_)) => "a number",
            Some(ValueForm::Text(_)) => "text",
            Some(ValueForm::List(_)) => "a list",
            Some(ValueForm::Map(_)) => "a mapping",
        };
        self.report_fault(ConfigFault::Type { expected, found });
    }

    /// Returns the value as it was written, for messages; never the value of a variable.
    pub(super) fn shown_value(&self) -> String {
        match (self.value, self.value_form()) {
            (Some(value), _) if value.from_environment => "(from the environment)".to_owned(),
            (_, Some(ValueForm::Text(text))) => format!("'{text}'"),
            (_, Some(ValueForm::Number(number))) => number.to_string(),
            (_, Some(ValueForm::Bool(flag))) => flag.to_string(),
            (_, Some(ValueForm::List(_))) => "a list".to_owned(),
            (_, Some(ValueForm::Map(_))) => "a mapping".to_owned(),
            (_, None | Some(ValueForm::Null | ValueForm::Unset)) => "nothing".to_owned(),
        }
    }

    /// Returns the value under `key`; absent where this is no mapping.
    pub(super) fn at(&self, key: &str) -> Self {
        let value = match self.value_form() {
            Some(ValueForm::Map(members)) => members.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            None
            | Some(
                ValueForm::Null
                | ValueForm::Bool(_)
                | ValueForm::Number(_)
                | ValueForm::Text(_)
                | ValueForm::List(_)
                | ValueForm::Unset,
            ) => None,
        };
        self.child_field(key, value)
    }

    fn child_field(&self, key: &str, value: Option<&'a ConfigValue>) -> Self {
        let whole = if self.key.is_empty() { key.to_owned() } else { format!("{}.{key}", self.key) };
        Self { notes: self.notes, key: whole, line: value.map_or(self.line, |value| value.line), value }
    }

    /// Returns true if a mapping is here. Anything else that is here is refused, and so is every key but the `known`.
    pub(super) fn check_mapping(&self, known: &'static [&'static str]) -> bool {
        let Some(ValueForm::Map(members)) = self.value_form() else { return self.members().is_some() };
        for (key, value) in members.iter().filter(|(key, _)| !known.contains(&key.as_str())) {
            self.child_field(key, Some(value)).report_fault(ConfigFault::UnknownKey(known));
        }
        true
    }

    /// Returns true if an item of a list is a mapping, as [`Self::check_mapping`] does. An item without a value is refused too: it would be
    /// left out of the list.
    pub(super) fn check_item(&self, known: &'static [&'static str]) -> bool {
        let is_mapping = self.check_mapping(known);
        if !is_mapping && self.is_absent() {
            self.report_missing();
        }
        is_mapping
    }

    /// Returns true if a mapping is here that has this key, with any value.
    pub(super) fn has_key(&self, key: &str) -> bool {
        matches!(self.value_form(), Some(ValueForm::Map(members)) if members.iter().any(|(name, _)| name == key))
    }

    /// Returns all values of a mapping in the order of the file; a key with nothing after it is as good as absent, as a section is of which
    /// every line is commented out. Anything else that is here is refused.
    pub(super) fn members(&self) -> Option<Vec<(&'a str, Self)>> {
        match self.value_form() {
            None | Some(ValueForm::Null) => None,
            Some(ValueForm::Map(members)) => {
                Some(members.iter().map(|(key, value)| (key.as_str(), self.child_field(key, Some(value)))).collect())
            }
            Some(
                ValueForm::Bool(_) | ValueForm::Number(_) | ValueForm::Text(_) | ValueForm::List(_) | ValueForm::Unset,
            ) => {
                self.report_type("a mapping");
                None
            }
        }
    }

    /// Returns true if a mapping is here.
    pub(super) fn is_mapping(&self) -> bool {
        matches!(self.value_form(), Some(ValueForm::Map(_)))
    }

    /// Returns all values of a list; none if it is absent. Anything else that is here is refused.
    pub(super) fn items(&self) -> Vec<Self> {
        self.not_empty("a list");
        self.items_or_nothing()
    }

    /// Returns the same, with an empty list for a key with nothing after it.
    pub(super) fn items_or_nothing(&self) -> Vec<Self> {
        self.list_items().unwrap_or_else(|| {
            if !self.is_absent() {
                self.report_type("a list");
            }
            Vec::new()
        })
    }

    /// Returns all values if a list is here.
    pub(super) fn list_items(&self) -> Option<Vec<Self>> {
        let Some(ValueForm::List(items)) = self.value_form() else { return None };
        let item = |(at, value): (usize, &'a ConfigValue)| Self {
            notes: self.notes,
            key: format!("{}[{at}]", self.key),
            line: value.line,
            value: Some(value),
        };
        Some(items.iter().enumerate().map(item).collect())
    }

    /// Returns text. Anything else that is here is refused.
    pub(super) fn text(&self) -> Option<String> {
        self.not_empty("text");
        if let Some(text) = self.variable_text() {
            return Some(text.to_owned());
        }
        match self.value_form() {
            None | Some(ValueForm::Null | ValueForm::Unset) => None,
            Some(ValueForm::Text(text)) => Some(text.clone()),
            Some(ValueForm::Bool(_) | ValueForm::Number(_) | ValueForm::List(_) | ValueForm::Map(_)) => {
                self.report_type("text (quote it if it looks like something else)");
                None
            }
        }
    }

    /// Returns text. An empty or blank one is refused.
    pub(super) fn filled_text(&self) -> Option<String> {
        let text = self.text()?;
        if text.trim().is_empty() {
            self.report_refusal("expected a value, found an empty text");
            return None;
        }
        Some(text)
    }

    /// Returns text that must be here and not be empty.
    pub(super) fn needed_text(&self) -> Option<String> {
        self.needed_text_or(ConfigFault::Missing(self.key.clone()))
    }

    /// Returns text that must be here and not be empty. The report of a missing one says what is `accepted`.
    pub(super) fn needed_choice(&self, accepted: &'static str) -> Option<String> {
        self.needed_text_or(ConfigFault::MissingChoice { key: self.key.clone(), accepted })
    }

    fn needed_text_or(&self, missing: ConfigFault) -> Option<String> {
        let text = self.text().filter(|text| !text.is_empty());
        if text.is_none() && (self.is_absent() || matches!(self.value_form(), Some(ValueForm::Text(_)))) {
            self.report_missing_as(missing);
        }
        text
    }

    /// Returns a credential. An empty or blank one is refused; one that is written in the file itself is noted.
    pub(super) fn secret(&self) -> Option<SecretString> {
        let text = self.text()?;
        self.check_secret(text, BlankSecret::Refused)
    }

    /// Returns a credential that must be here.
    pub(super) fn needed_secret(&self) -> Option<SecretString> {
        let text = self.needed_text()?;
        self.check_secret(text, BlankSecret::Refused)
    }

    /// Returns text that names secrets of the gateway, such as `{{secret:NAME}}`, if there is nothing else in it: it holds no credential.
    pub(super) fn secret_reference(&self) -> Option<SecretString> {
        match self.value_form() {
            Some(ValueForm::Text(text)) if is_secret_reference(text) => Some(SecretString::from(text.as_str())),
            _ => None,
        }
    }

    /// Returns a credential that must be here and may be empty text.
    pub(super) fn written_secret(&self) -> Option<SecretString> {
        let text = self.text();
        if text.is_none() && self.is_absent() {
            self.report_missing();
        }
        self.check_secret(text?, BlankSecret::Accepted)
    }

    /// Returns `text` as a credential. A text in which a variable is empty is reported and refused, and so is a blank one if `blank` says so.
    fn check_secret(&self, text: String, blank: BlankSecret) -> Option<SecretString> {
        if let Some(variable) = self.value.and_then(|value| value.empty_variable.clone()) {
            self.report_fault(ConfigFault::Empty { variable });
            return None;
        }
        if text.trim().is_empty() {
            if blank == BlankSecret::Refused {
                self.report_refusal("the credential is empty");
                return None;
            }
        } else {
            self.note_literal();
        }
        Some(SecretString::from(text))
    }

    /// Returns true if any part of the value comes from the environment.
    pub(super) fn is_from_environment(&self) -> bool {
        self.value.is_some_and(|value| value.from_environment)
    }

    fn note_literal(&self) {
        let Some(value) = self.value else { return };
        // It would be a credential that everybody can guess who knows the name.
        if value.is_misspelt {
            return self.report_refusal("invalid variable: expected ${NAME} with letters, digits and _ in its name");
        }
        if value.from_environment {
            return;
        }
        let form = match self.value_form() {
            Some(ValueForm::Text(text)) => shell_variable_form(text),
            _ => None,
        };
        if let Some(form) = form {
            self.report_warning(&format!(
                "`{form}` is taken as the credential itself: write ${{NAME}} for an environment variable"
            ));
        }
        let literal = LiteralCredential { line: self.line, key: self.key.clone() };
        self.notes.literals.borrow_mut().push(literal);
    }

    /// Returns the value without its lines; nothing where it is absent.
    pub(super) fn to_json(&self) -> Option<serde_json::Value> {
        self.not_empty(ANY);
        self.value_form().map(form_to_json)
    }

    /// Returns `true` or `false`. Anything else that is here is refused.
    pub(super) fn flag(&self) -> Option<bool> {
        self.not_empty("true or false");
        match self.value_form() {
            None | Some(ValueForm::Null | ValueForm::Unset) => None,
            Some(ValueForm::Bool(flag)) => Some(*flag),
            Some(ValueForm::Number(_) | ValueForm::Text(_) | ValueForm::List(_) | ValueForm::Map(_)) => {
                self.report_type("true or false");
                None
            }
        }
    }

    /// Returns a whole number, also one that is written as text. Anything else that is here is refused.
    pub(super) fn integer(&self) -> Option<i64> {
        self.integer_as("a whole number")
    }

    /// Returns a whole number; an error names what is `expected`.
    fn integer_as(&self, expected: &str) -> Option<i64> {
        self.not_empty("a whole number");
        let number = match self.value_form() {
            None | Some(ValueForm::Null | ValueForm::Unset) => return None,
            Some(ValueForm::Number(number)) => whole_number(number),
            Some(ValueForm::Text(text)) => text.trim().parse().ok(),
            Some(ValueForm::Bool(_) | ValueForm::List(_) | ValueForm::Map(_)) => None,
        };
        if number.is_none() {
            self.report_refusal(format!("expected {expected}, found {}", self.shown_value()));
        }
        number
    }

    /// Returns a whole number from `least` to `most`.
    pub(super) fn integer_in(&self, least: i64, most: i64) -> Option<i64> {
        let expected = format!("a whole number from {least} to {most}");
        let number = self.integer_as(&expected)?;
        if number < least || number > most {
            self.report_refusal(format!("expected {expected}, found {}", self.shown_value()));
            return None;
        }
        Some(number)
    }

    /// Returns a number above zero that is no text.
    pub(super) fn above_zero(&self) -> Option<f64> {
        self.not_empty("a number above zero");
        match self.value_form() {
            None | Some(ValueForm::Null | ValueForm::Unset) => return None,
            Some(ValueForm::Number(number)) => {
                // No time-out is a year or more, and no answer has that many bytes.
                if let Some(number) = number.as_f64().filter(|number| *number > 0.0 && *number <= 1e9) {
                    return Some(number);
                }
            }
            Some(ValueForm::Bool(_) | ValueForm::Text(_) | ValueForm::List(_) | ValueForm::Map(_)) => {}
        }
        self.report_refusal(format!(
            "expected a number above zero and at most 1000000000, found {}",
            self.shown_value()
        ));
        None
    }

    /// Returns a number that is not negative and no text.
    pub(super) fn non_negative(&self) -> Option<f64> {
        self.not_empty("a number that is not negative");
        match self.value_form() {
            None | Some(ValueForm::Null | ValueForm::Unset) => return None,
            Some(ValueForm::Number(number)) => {
                if let Some(number) = number.as_f64().filter(|number| *number >= 0.0) {
                    return Some(number);
                }
            }
            Some(ValueForm::Bool(_) | ValueForm::Text(_) | ValueForm::List(_) | ValueForm::Map(_)) => {}
        }
        self.report_refusal(format!("expected a number that is not negative, found {}", self.shown_value()));
        None
    }

    /// Returns a whole number above zero that is no text.
    pub(super) fn positive_integer(&self) -> Option<u64> {
        self.not_empty("a whole number above zero");
        match self.value_form() {
            None | Some(ValueForm::Null | ValueForm::Unset) => return None,
            Some(ValueForm::Number(number)) => {
                let number = number.as_u64().filter(|number| (1..=1_000_000_000).contains(number));
                if number.is_some() {
                    return number;
                }
            }
            Some(ValueForm::Bool(_) | ValueForm::Text(_) | ValueForm::List(_) | ValueForm::Map(_)) => {}
        }
        self.report_refusal(format!("expected a whole number from 1 to 1000000000, found {}", self.shown_value()));
        None
    }

    /// Returns a path; a relative one starts from the file's folder. An empty one is refused.
    pub(super) fn path(&self) -> Option<PathBuf> {
        self.filled_text().map(|text| self.notes.folder().join(text))
    }
}

fn form_to_json(form: &ValueForm) -> serde_json::Value {
    match form {
        ValueForm::Null | ValueForm::Unset => serde_json::Value::Null,
        ValueForm::Bool(flag) => (*flag).into(),
        ValueForm::Number(number) => number.clone().into(),
        ValueForm::Text(text) => text.clone().into(),
        ValueForm::List(items) => items.iter().map(|item| form_to_json(&item.form)).collect(),
        ValueForm::Map(members) => {
            members.iter().map(|(key, value)| (key.clone(), form_to_json(&value.form))).collect()
        }
    }
}

/// Returns a number without a fraction.
fn whole_number(number: &serde_json::Number) -> Option<i64> {
    let float = || number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0);
    #[expect(clippy::cast_possible_truncation, reason = "checked: whole and in range")]
    number.as_i64().or_else(|| float().map(|float| float as i64))
}
