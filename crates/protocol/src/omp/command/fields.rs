//! Takes the fields of a frame out of a line by name, with errors that name the field.
//!
//! It must not know any command.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::{FieldFault, OmpParseError, OmpRequestId, StreamingBehavior};
use crate::{
    json::RawJson,
    omp::{message::ImageContent, todo::TodoPhase},
};

/// The members of one object, each still as its JSON text.
pub(crate) struct CommandFields<'line> {
    type_name: Option<String>,
    members: BTreeMap<String, &'line RawValue>,
}

/// A type that a field can have, and how an error calls it.
pub(crate) trait FieldValue: Sized {
    const EXPECTED: &'static str;

    fn read_json(json: &str) -> Option<Self>;
}

impl<'line> CommandFields<'line> {
    pub(crate) fn from_line(line: &'line str) -> Result<Self, OmpParseError> {
        let members = serde_json::from_str(line).map_err(|error| match error.classify() {
            Category::Data => OmpParseError::NotAnObject,
            Category::Io | Category::Syntax | Category::Eof => OmpParseError::NotJson { reason: error.to_string() },
        })?;
        let mut fields = Self { type_name: None, members };
        fields.type_name =
            fields.present_text("type").map(|json| String::read_json(json).unwrap_or_else(|| json.to_owned()));
        Ok(fields)
    }

    pub(crate) fn type_name(&self) -> Option<&str> {
        self.type_name.as_deref()
    }

    pub(crate) fn id(&self) -> Option<OmpRequestId> {
        // A number that is out of range is none in the original, which echoes null; hosts could not read it.
        let is_readable = |raw: &str| raw.starts_with('"') || serde_json::from_str::<serde_json::Value>(raw).is_ok();
        let raw = self.members.get("id").filter(|raw| raw.get() != "null" && is_readable(raw.get()))?;
        Some(RawJson::from((*raw).to_owned()).into())
    }

    pub(crate) fn required_field<T: FieldValue>(&self, field: &'static str) -> Result<T, OmpParseError> {
        self.optional_field(field)?.ok_or_else(|| self.field_error(field, FieldFault::Missing))
    }

    pub(crate) fn optional_field<T: FieldValue>(&self, field: &'static str) -> Result<Option<T>, OmpParseError> {
        let Some(json) = self.present_text(field) else { return Ok(None) };
        T::read_json(json).map(Some).ok_or_else(|| self.field_error(field, FieldFault::Expected(T::EXPECTED)))
    }

    /// Returns the text of a member that may be null.
    pub(crate) fn raw_member(&self, field: &str) -> Option<&'line RawValue> {
        self.members.get(field).copied()
    }

    fn present_text(&self, field: &str) -> Option<&'line str> {
        self.raw_member(field).map(RawValue::get).filter(|json| *json != "null")
    }

    fn field_error(&self, field: &'static str, fault: FieldFault) -> OmpParseError {
        let command = self.type_name.clone().unwrap_or_default();
        OmpParseError::Field { id: self.id(), command, field, fault }
    }
}

/// Reads a field that serde knows.
pub(crate) fn from_json<'de, T: Deserialize<'de>>(json: &'de str) -> Option<T> {
    serde_json::from_str(json).ok()
}

/// Implements [`FieldValue`] for types that serde knows, each with what an error calls it.
macro_rules! field_values {
    ($($value:ty = $expected:literal,)+) => {
        $(impl $crate::omp::command::fields::FieldValue for $value {
            const EXPECTED: &'static str = $expected;

            fn read_json(json: &str) -> Option<Self> {
                $crate::omp::command::fields::from_json(json)
            }
        })+
    };
}
pub(super) use field_values;

field_values! {
    String = "a string",
    bool = "true or false",
    StreamingBehavior = "\"steer\" or \"followUp\"",
    Vec<ImageContent> = "an array of images, each with the strings `data` and `mimeType`",
    Vec<String> = "an array of strings",
    Vec<RawJson> = "an array",
    Vec<TodoPhase> = "an array of phases {name, tasks: [{content, status: pending, in_progress, completed or abandoned, notes?: [string]}]}",
    u64 = "a whole number that is not negative",
}
