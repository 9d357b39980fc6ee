//! Reads parameters, so that a refusal names the field, its value and what is accepted.

use serde_json::{Map, Value};

use super::message::brief_json;

/// A parameter that is not accepted: the field, its value, and what is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Invalid params: {field}: {found}: {expected}")]
pub struct ParamFault {
    /// Path of the field, such as `prompt[1].type`.
    pub field: String,
    /// Its value, or `absent`.
    pub found: String,
    /// What is accepted, as "expected …".
    pub expected: String,
}

/// Field of the parameters.
#[derive(Clone, Debug)]
pub(super) struct ParamField<'a> {
    path: String,
    value: Option<&'a Value>,
}

impl<'a> ParamField<'a> {
    /// Returns the parameters themselves.
    pub(super) fn root(value: &'a Value) -> Self {
        Self { path: "params".to_owned(), value: Some(value) }
    }

    /// Returns a member. Null counts as absent.
    pub(super) fn at(&self, name: &str) -> ParamField<'a> {
        let value = self.value.and_then(|value| value.get(name)).filter(|value| !value.is_null());
        let path = if self.path == "params" { name.to_owned() } else { format!("{}.{name}", self.path) };
        ParamField { path, value }
    }

    /// Returns the value.
    pub(super) const fn value(&self) -> Option<&'a Value> {
        self.value
    }

    /// Reports whether there is none.
    pub(super) const fn is_absent(&self) -> bool {
        self.value.is_none()
    }

    /// Returns the error that something else was expected.
    pub(super) fn expected(&self, expected: &str) -> ParamFault {
        let found = self.value.map_or_else(|| "absent".to_owned(), brief_json);
        ParamFault { field: self.path.clone(), found, expected: format!("expected {expected}") }
    }

    /// Returns the object that it is.
    pub(super) fn object(&self) -> Result<&'a Map<String, Value>, ParamFault> {
        self.value.and_then(Value::as_object).ok_or_else(|| self.expected("an object"))
    }

    /// Returns the text that it is.
    pub(super) fn text(&self) -> Result<&'a str, ParamFault> {
        self.value.and_then(Value::as_str).ok_or_else(|| self.expected("a text"))
    }

    /// Returns the text that it is, if there is one.
    pub(super) fn optional_text(&self) -> Result<Option<&'a str>, ParamFault> {
        if self.is_absent() { Ok(None) } else { self.text().map(Some) }
    }

    /// Returns the text that it is, which is not empty.
    pub(super) fn filled_text(&self) -> Result<&'a str, ParamFault> {
        match self.text()? {
            "" => Err(self.expected("a text that is not empty")),
            text => Ok(text),
        }
    }

    /// Returns the items of the list that it is; none if there is no list.
    pub(super) fn items(&self) -> Result<Vec<ParamField<'a>>, ParamFault> {
        let Some(value) = self.value else { return Ok(Vec::new()) };
        let items = value.as_array().ok_or_else(|| self.expected("a list"))?;
        let item = |(at, value)| ParamField { path: format!("{}[{at}]", self.path), value: Some(value) };
        Ok(items.iter().enumerate().map(item).collect())
    }
}
