//! One field of a form: its question, its choices, and its value from an answer.
//!
//! It must not ask. A field that people could not see whole, or not answer, is refused.

use rmcp::model::{
    BooleanSchema, ConstTitle, EnumSchema, IntegerSchema, MultiSelectEnumSchema, NumberSchema,
    PrimitiveSchemaDefinition, SingleSelectEnumSchema, StringFormat, StringSchema,
};
use serde_json::{Number, Value};

use super::text_format;

/// Longest name, title or label, in bytes.
const LONGEST_LABEL: usize = 200;
/// Longest description, in bytes.
const LONGEST_DESCRIPTION: usize = 1000;
/// Most choices.
const MOST_CHOICES: usize = 100;
/// Label of the choice that leaves a field out.
const LEAVE_OUT: &str = "Leave it out";

/// One field of a form.
pub(super) struct FormField {
    pub(super) name: String,
    /// Title, description and rules for people.
    pub(super) question: String,
    kind: FieldKind,
    choices: Vec<FieldChoice>,
    /// Index of the choice that the server has as its default.
    pub(super) recommended: Option<usize>,
}

/// A choice and what the server gets for it; nothing if the field is left out.
struct FieldChoice {
    label: String,
    value: Option<Value>,
}

enum FieldKind {
    /// One of the choices.
    Choice,
    /// Several of the choices.
    Choices {
        least: u64,
        most: u64,
    },
    Text {
        least: u32,
        most: u32,
        format: Option<StringFormat>,
    },
    Integer {
        least: i64,
        most: i64,
    },
    Number {
        least: f64,
        most: f64,
    },
}

/// The parts of a field that depend on its type.
struct FieldParts {
    title: Option<String>,
    description: Option<String>,
    kind: FieldKind,
    /// Labels and values.
    choices: Vec<(String, Value)>,
    default: Option<Value>,
}

impl FormField {
    /// Reads a field. `show` escapes a text and cuts it.
    ///
    /// # Errors
    /// The flaw, which names the field.
    pub(super) fn from_schema(
        name: &str,
        schema: &PrimitiveSchemaDefinition,
        is_required: bool,
        show: &impl Fn(&str, usize) -> String,
    ) -> Result<Self, String> {
        let flaw = |what: &str| Err(format!("field {}: {what}", show(name, LONGEST_LABEL)));
        let Some(parts) = FieldParts::from_schema(schema) else { return flaw("its type is unknown") };
        let FieldParts { title, description, kind, choices, default } = parts;
        let is_long = |text: &Option<String>, limit| text.as_ref().is_some_and(|text| text.len() > limit);
        if name.len() > LONGEST_LABEL || is_long(&title, LONGEST_LABEL) || is_long(&description, LONGEST_DESCRIPTION) {
            return flaw("its texts are too long");
        }
        if choices.len() > MOST_CHOICES || choices.iter().any(|(label, _)| label.len() > LONGEST_LABEL) {
            return flaw("its choices are too many or too long");
        }
        let is_choice = matches!(kind, FieldKind::Choice | FieldKind::Choices { .. });
        if is_choice && choices.is_empty() {
            return flaw("it has no choices");
        }
        let mut choices: Vec<FieldChoice> = choices
            .into_iter()
            .map(|(label, value)| FieldChoice { label: show(&label, LONGEST_LABEL), value: Some(value) })
            .collect();
        let is_twice =
            |(at, choice): (usize, &FieldChoice)| choices[..at].iter().any(|other| other.label == choice.label);
        if choices.iter().enumerate().any(is_twice) || choices.iter().any(|choice| choice.label.is_empty()) {
            return flaw("two of its choices look the same, or one is empty");
        }
        let of_default = default.as_ref().and_then(|default| {
            let at = choices.iter().position(|choice| choice.value.as_ref() == Some(default));
            if at.is_some() || is_choice {
                return at;
            }
            let label = show(&default.as_str().map_or_else(|| default.to_string(), str::to_owned), LONGEST_LABEL);
            choices.push(FieldChoice { label, value: Some(default.clone()) });
            Some(choices.len() - 1)
        });
        if !is_required && !choices.iter().any(|choice| choice.label == LEAVE_OUT) {
            choices.push(FieldChoice { label: LEAVE_OUT.to_owned(), value: None });
        }
        let mut question = show(title.as_deref().filter(|title| !title.is_empty()).unwrap_or(name), LONGEST_LABEL);
        question.push_str(&format!(" ({}{})", kind.rule(), if is_required { ", required" } else { "" }));
        if let Some(description) = description.filter(|text| !text.trim().is_empty()) {
            question.push_str(&format!("\n> {}", show(&description, LONGEST_DESCRIPTION)));
        }
        if let (Some(Value::Array(defaults)), FieldKind::Choices { .. }) = (&default, &kind) {
            let of_value = |value: &Value| choices.iter().find(|choice| choice.value.as_ref() == Some(value));
            let labels: Vec<&str> = defaults.iter().filter_map(of_value).map(|choice| choice.label.as_str()).collect();
            question.push_str(&format!("\n> Default: {}", labels.join(", ")));
        }
        Ok(Self { name: name.to_owned(), question, kind, choices, recommended: of_default })
    }

    /// Returns the labels of its choices.
    pub(super) fn labels(&self) -> Vec<String> {
        self.choices.iter().map(|choice| choice.label.clone()).collect()
    }

    pub(super) const fn is_multi(&self) -> bool {
        matches!(self.kind, FieldKind::Choices { .. })
    }

    /// Returns true if only its choices answer it.
    pub(super) const fn is_closed(&self) -> bool {
        matches!(self.kind, FieldKind::Choice)
    }

    /// Reads its value from an answer; none if it is left out.
    ///
    /// # Errors
    /// The reason that the answer does not fit.
    pub(super) fn parse(&self, words: &[String]) -> Result<Option<Value>, String> {
        let labels = || self.choices.iter().map(|choice| choice.label.as_str());
        if let FieldKind::Choices { least, most } = self.kind {
            return self.parse_several(words, (least, most));
        }
        let is_free = !self.is_closed();
        // Free text is a choice only if it is exactly its label.
        let at = if is_free {
            labels().position(|label| [label] == words.iter().map(String::as_str).collect::<Vec<_>>()[..])
        } else {
            chosen_index(labels(), words)
        };
        if let Some(at) = at {
            return Ok(self.choices[at].value.clone());
        }
        let ([word], true) = (words, is_free) else { return Err(format!("expected {}", self.kind.rule())) };
        self.kind.parse_text(word).map(Some).ok_or_else(|| format!("expected {}", self.kind.rule()))
    }

    fn parse_several(&self, words: &[String], (least, most): (u64, u64)) -> Result<Option<Value>, String> {
        let labels = || self.choices.iter().map(|choice| choice.label.as_str());
        // Some surfaces send all of them as one text.
        let parts: Vec<String> = match words {
            [word] if chosen_index(labels(), words).is_none() => {
                word.split(',').map(|part| part.trim().to_owned()).collect()
            }
            words => words.to_vec(),
        };
        let mut chosen = Vec::new();
        for part in &parts {
            let Some(at) = chosen_index(labels(), std::slice::from_ref(part)) else {
                return Err(format!("{part:?} is none of its choices"));
            };
            match self.choices[at].value.clone() {
                None if parts.len() == 1 => return Ok(None),
                None => return Err(format!("{LEAVE_OUT:?} excludes the other choices")),
                Some(value) if chosen.contains(&value) => {}
                Some(value) => chosen.push(value),
            }
        }
        let count = u64::try_from(chosen.len()).unwrap_or(u64::MAX);
        if count < least || count > most {
            return Err(format!("expected {}", self.kind.rule()));
        }
        Ok(Some(chosen.into()))
    }
}

impl FieldParts {
    fn from_schema(schema: &PrimitiveSchemaDefinition) -> Option<Self> {
        let text = |text: &Option<std::borrow::Cow<'static, str>>| text.as_deref().map(str::to_owned);
        Some(match schema {
            PrimitiveSchemaDefinition::Enum(choice) => Self::from_enum(choice)?,
            PrimitiveSchemaDefinition::String(StringSchema {
                title,
                description,
                min_length,
                max_length,
                format,
                default,
                ..
            }) => Self {
                title: text(title),
                description: text(description),
                kind: FieldKind::Text {
                    least: min_length.unwrap_or(0),
                    most: max_length.unwrap_or(u32::MAX),
                    format: *format,
                },
                choices: Vec::new(),
                default: default.clone().filter(|default| !default.is_empty()).map(Value::from),
            },
            PrimitiveSchemaDefinition::Number(NumberSchema {
                title, description, minimum, maximum, default, ..
            }) => Self {
                title: text(title),
                description: text(description),
                kind: FieldKind::Number {
                    least: minimum.unwrap_or(f64::NEG_INFINITY),
                    most: maximum.unwrap_or(f64::INFINITY),
                },
                choices: Vec::new(),
                default: default.and_then(Number::from_f64).map(Value::Number),
            },
            PrimitiveSchemaDefinition::Integer(IntegerSchema {
                title, description, minimum, maximum, default, ..
            }) => Self {
                title: text(title),
                description: text(description),
                kind: FieldKind::Integer { least: minimum.unwrap_or(i64::MIN), most: maximum.unwrap_or(i64::MAX) },
                choices: Vec::new(),
                default: default.map(Value::from),
            },
            PrimitiveSchemaDefinition::Boolean(BooleanSchema { title, description, default, .. }) => Self {
                title: text(title),
                description: text(description),
                kind: FieldKind::Choice,
                choices: vec![("Yes".to_owned(), true.into()), ("No".to_owned(), false.into())],
                default: default.map(Value::from),
            },
            _ => return None,
        })
    }

    fn from_enum(schema: &EnumSchema) -> Option<Self> {
        let text = |text: &Option<std::borrow::Cow<'static, str>>| text.as_deref().map(str::to_owned);
        let plain =
            |values: &[String]| values.iter().map(|value| (value.clone(), Value::from(value.as_str()))).collect();
        let titled = |values: &[ConstTitle]| {
            values.iter().map(|one| (one.title.clone(), Value::from(one.const_.as_str()))).collect()
        };
        let several = |least: Option<u64>, most: Option<u64>| FieldKind::Choices {
            least: least.unwrap_or(0),
            most: most.unwrap_or(u64::MAX),
        };
        Some(match schema {
            EnumSchema::Single(SingleSelectEnumSchema::Untitled(one)) => Self {
                title: text(&one.title),
                description: text(&one.description),
                kind: FieldKind::Choice,
                choices: plain(&one.enum_),
                default: one.default.clone().map(Value::from),
            },
            EnumSchema::Single(SingleSelectEnumSchema::Titled(one)) => Self {
                title: text(&one.title),
                description: text(&one.description),
                kind: FieldKind::Choice,
                choices: titled(&one.one_of),
                default: one.default.clone().map(Value::from),
            },
            EnumSchema::Legacy(one) => {
                let names = one.enum_names.clone().filter(|names| names.len() == one.enum_.len());
                let names = names.unwrap_or_else(|| one.enum_.clone());
                Self {
                    title: text(&one.title),
                    description: text(&one.description),
                    kind: FieldKind::Choice,
                    choices: names.into_iter().zip(one.enum_.iter().map(|value| Value::from(value.as_str()))).collect(),
                    default: one.default.clone().map(Value::from),
                }
            }
            EnumSchema::Multi(MultiSelectEnumSchema::Untitled(one)) => Self {
                title: text(&one.title),
                description: text(&one.description),
                kind: several(one.min_items, one.max_items),
                choices: plain(&one.items.enum_),
                default: one.default.clone().map(Value::from),
            },
            EnumSchema::Multi(MultiSelectEnumSchema::Titled(one)) => Self {
                title: text(&one.title),
                description: text(&one.description),
                kind: several(one.min_items, one.max_items),
                choices: titled(&one.items.any_of),
                default: one.default.clone().map(Value::from),
            },
            _ => return None,
        })
    }
}

impl FieldKind {
    /// Returns what is expected, for people.
    fn rule(&self) -> String {
        let between = |least: Option<String>, most: Option<String>| match (least, most) {
            (Some(least), Some(most)) => format!(" from {least} to {most}"),
            (Some(least), None) => format!(" of at least {least}"),
            (None, Some(most)) => format!(" of at most {most}"),
            (None, None) => String::new(),
        };
        match self {
            Self::Choice => "one of the choices".to_owned(),
            Self::Choices { least, most } => {
                let most = (*most < u64::MAX).then(|| most.to_string());
                let bounds = between((*least > 0).then(|| least.to_string()), most);
                format!("choices{}", bounds.replacen(" of", ",", 1).replacen(" from", ",", 1))
            }
            Self::Text { least, most, format } => {
                let most = (*most < u32::MAX).then(|| most.to_string());
                let bounds = between((*least > 0).then(|| least.to_string()), most);
                let length = if bounds.is_empty() { bounds } else { format!(", length{bounds}") };
                format!("{}{length}", format.as_ref().map_or("text", text_format::name))
            }
            Self::Integer { least, most } => {
                let most = (*most < i64::MAX).then(|| most.to_string());
                format!("a whole number{}", between((*least > i64::MIN).then(|| least.to_string()), most))
            }
            Self::Number { least, most } => {
                let most = most.is_finite().then(|| most.to_string());
                format!("a number{}", between(least.is_finite().then(|| least.to_string()), most))
            }
        }
    }

    /// Reads a value from free text; none if it does not fit.
    fn parse_text(&self, text: &str) -> Option<Value> {
        match self {
            Self::Choice | Self::Choices { .. } => None,
            Self::Text { least, most, format } => {
                let length = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
                let fits = (*least..=*most).contains(&length);
                let fits = fits && format.as_ref().is_none_or(|format| text_format::fits(format, text));
                fits.then(|| text.into())
            }
            Self::Integer { least, most } => {
                text.trim().parse::<i64>().ok().filter(|number| (*least..=*most).contains(number)).map(Value::from)
            }
            Self::Number { least, most } => {
                let text = text.trim();
                let number = text.parse::<f64>().ok().filter(|number| (*least..=*most).contains(number))?;
                let whole = text.parse::<i64>().ok().map(Value::from);
                whole.or_else(|| Number::from_f64(number).map(Value::Number))
            }
        }
    }
}

/// Returns the index of the chosen label: by its text, by its number from 1, or by a unique beginning of it, as gates read them.
pub(super) fn chosen_index<'a>(labels: impl Iterator<Item = &'a str> + Clone, words: &[String]) -> Option<usize> {
    let [word] = words else { return None };
    if let Some(at) = labels.clone().position(|label| label == word) {
        return Some(at);
    }
    let needle = word.trim().to_lowercase();
    let number = needle.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    if let Some(at) = number.filter(|at| *at < labels.clone().count()) {
        return Some(at);
    }
    let mut fitting = labels.enumerate().filter(|(_, label)| label.to_lowercase().starts_with(&needle));
    let first = fitting.next().map(|(at, _)| at);
    first.filter(|_| !needle.is_empty() && fitting.next().is_none())
}
