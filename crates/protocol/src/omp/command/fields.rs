//! Takes the fields of a frame out of a line by name, with errors that name the field.
//!
//! It must not know any command.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::{Fault, Id, Malformed, StreamingBehavior};
use crate::{
    json::Json,
    omp::{message::ImageContent, todo::TodoPhase},
};

/// The members of one object, each still as its JSON text.
pub(crate) struct Fields<'line> {
    type_name: Option<String>,
    members: BTreeMap<String, &'line RawValue>,
}

/// A type that a field can have, and how an error calls it.
pub(crate) trait Field: Sized {
    const EXPECTED: &'static str;

    fn read(json: &str) -> Option<Self>;
}

impl<'line> Fields<'line> {
    pub(crate) fn of(line: &'line str) -> Result<Self, Malformed> {
        let members = serde_json::from_str(line).map_err(|error| match error.classify() {
            Category::Data => Malformed::NotAnObject,
            Category::Io | Category::Syntax | Category::Eof => Malformed::NotJson { reason: error.to_string() },
        })?;
        let mut fields = Self { type_name: None, members };
        fields.type_name = fields.present("type").map(|json| String::read(json).unwrap_or_else(|| json.to_owned()));
        Ok(fields)
    }

    pub(crate) fn type_name(&self) -> Option<&str> {
        self.type_name.as_deref()
    }

    pub(crate) fn id(&self) -> Option<Id> {
        // A number that is out of range is none in the original, which echoes null; hosts could not read it.
        let is_readable = |raw: &str| raw.starts_with('"') || serde_json::from_str::<serde_json::Value>(raw).is_ok();
        let raw = self.members.get("id").filter(|raw| raw.get() != "null" && is_readable(raw.get()))?;
        Some(Id((*raw).to_owned().into()))
    }

    pub(crate) fn required<T: Field>(&self, field: &'static str) -> Result<T, Malformed> {
        self.optional(field)?.ok_or_else(|| self.fault(field, Fault::Missing))
    }

    pub(crate) fn optional<T: Field>(&self, field: &'static str) -> Result<Option<T>, Malformed> {
        let Some(json) = self.present(field) else { return Ok(None) };
        T::read(json).map(Some).ok_or_else(|| self.fault(field, Fault::Expected(T::EXPECTED)))
    }

    /// The text of a member that may be null.
    pub(crate) fn raw(&self, field: &str) -> Option<&'line RawValue> {
        self.members.get(field).copied()
    }

    fn present(&self, field: &str) -> Option<&'line str> {
        self.raw(field).map(RawValue::get).filter(|json| *json != "null")
    }

    fn fault(&self, field: &'static str, fault: Fault) -> Malformed {
        let command = self.type_name.clone().unwrap_or_default();
        Malformed::Field { id: self.id(), command, field, fault }
    }
}

/// Reads a field that serde knows.
pub(crate) fn from_json<'de, T: Deserialize<'de>>(json: &'de str) -> Option<T> {
    serde_json::from_str(json).ok()
}

impl Field for String {
    const EXPECTED: &'static str = "a string";

    fn read(json: &str) -> Option<Self> {
        from_json(json)
    }
}

impl Field for bool {
    const EXPECTED: &'static str = "true or false";

    fn read(json: &str) -> Option<Self> {
        from_json(json)
    }
}

impl Field for StreamingBehavior {
    const EXPECTED: &'static str = "\"steer\" or \"followUp\"";

    fn read(json: &str) -> Option<Self> {
        from_json(json)
    }
}

impl Field for Vec<ImageContent> {
    const EXPECTED: &'static str = "an array of images, each with the strings `data` and `mimeType`";

    fn read(json: &str) -> Option<Self> {
        from_json(json)
    }
}

impl Field for Vec<String> {
    const EXPECTED: &'static str = "an array of strings";

    fn read(json: &str) -> Option<Self> {
        from_json(json)
    }
}

impl Field for Vec<Json> {
    const EXPECTED: &'static str = "an array";

    fn read(json: &str) -> Option<Self> {
        from_json(json)
    }
}

impl Field for Vec<TodoPhase> {
    const EXPECTED: &'static str = "an array of phases {name, tasks: [{content, status: pending, in_progress, completed or abandoned, notes?: [string]}]}";

    fn read(json: &str) -> Option<Self> {
        from_json(json)
    }
}

impl Field for u64 {
    const EXPECTED: &'static str = "a whole number that is not negative";

    fn read(json: &str) -> Option<Self> {
        from_json(json)
    }
}
