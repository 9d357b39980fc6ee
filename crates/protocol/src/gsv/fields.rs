//! Takes parameters out of a request by name, with errors that name what is wrong.
//!
//! Null counts as absent. Members that we do not know are ignored, except where [`ParamFields::reject_unknown`] refuses them.

use std::{collections::BTreeMap, fmt};

use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::{Map, Value, value::RawValue};

use super::GsvError;
use crate::json::{RawJson, ValidatedJson};

/// The members of an object, and that of this name apart.
struct RawMemberVisitor<'n>(&'n str);

impl<'de> Visitor<'de> for RawMemberVisitor<'_> {
    type Value = (Map<String, Value>, Option<Box<RawValue>>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
        let (mut members, mut apart) = (Map::new(), None);
        while let Some(name) = all.next_key::<String>()? {
            if name == self.0 {
                apart = Some(all.next_value()?);
            } else {
                members.insert(name, all.next_value()?);
            }
        }
        Ok((members, apart))
    }
}

/// The parameters of one request, or the members of one of them.
pub(super) struct ParamFields {
    members: Map<String, Value>,
    /// Prefix of member names in errors, such as `peer.`.
    within: String,
}

impl ParamFields {
    pub(super) fn from_params(params: Option<&RawJson>) -> Result<Self, GsvError> {
        match params.map(RawJson::decode_as::<Value>) {
            None | Some(Ok(Value::Null)) => Ok(Self::from(Map::new())),
            Some(Ok(Value::Object(members))) => Ok(Self::from(members)),
            Some(Ok(_)) => Err(GsvError::bad_request("params must be an object")),
            // Such as too deep a nesting.
            Some(Err(error)) => Err(GsvError::bad_request(format!("params cannot be read: {error}"))),
        }
    }

    /// Creates an empty set of parameters.
    pub(super) fn no_params() -> Self {
        Self::from(Map::new())
    }

    /// Reads the same as [`ParamFields::from_params`] with one member apart, as it was written. It is read for its errors and not
    /// kept otherwise.
    pub(super) fn with_raw_member(params: Option<&RawJson>, apart: &str) -> Result<(Self, Option<RawJson>), GsvError> {
        let Some(text) = params.map(RawJson::as_text).filter(|text| text.starts_with('{')) else {
            return Ok((Self::from_params(params)?, None));
        };
        let mut reader = serde_json::Deserializer::from_str(text);
        let read = reader.deserialize_map(RawMemberVisitor(apart)).and_then(|(members, raw)| {
            reader.end()?;
            raw.as_ref().map(|raw| serde_json::from_str::<ValidatedJson>(raw.get())).transpose()?;
            Ok((Self::from(members), raw.map(RawJson::from)))
        });
        read.map_err(|error| GsvError::bad_request(format!("params cannot be read: {error}")))
    }

    fn type_error(&self, name: &str, expected: &str) -> GsvError {
        GsvError::bad_request(format!("{}{name} must be {expected}", self.within))
    }

    pub(super) fn has_member(&self, name: &str) -> bool {
        self.members.contains_key(name)
    }

    /// Takes a value of any type. Null counts as absent.
    pub(super) fn take_value(&mut self, name: &str) -> Option<Value> {
        self.members.remove(name).filter(|value| !value.is_null())
    }

    /// Takes a value of any type, including null.
    pub(super) fn take_any(&mut self, name: &str) -> Option<Value> {
        self.members.remove(name)
    }

    pub(super) fn take_text(&mut self, name: &str) -> Result<Option<String>, GsvError> {
        match self.take_value(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.type_error(name, "a string")),
        }
    }

    /// Takes a text of at most so many bytes as JSON: it is recorded among facts, which have a limit.
    pub(super) fn take_text_within(&mut self, name: &str, most: usize) -> Result<Option<String>, GsvError> {
        let text = self.take_text(name)?;
        let size = text.as_ref().map_or(0, |text| Value::from(text.as_str()).to_string().len());
        if size > most {
            return Err(GsvError::bad_request(format!(
                "{}{name} has {size} bytes, at most {most} are taken",
                self.within
            )));
        }
        Ok(text)
    }

    /// Takes a text that must be there and not be empty; `missing` is the error otherwise.
    pub(super) fn require_text(&mut self, name: &str, missing: &str) -> Result<String, GsvError> {
        self.take_text(name)?.filter(|text| !text.is_empty()).ok_or_else(|| GsvError::bad_request(missing))
    }

    pub(super) fn take_flag(&mut self, name: &str) -> Result<Option<bool>, GsvError> {
        match self.take_value(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(_) => Err(self.type_error(name, "true or false")),
        }
    }

    pub(super) fn take_number(&mut self, name: &str) -> Result<Option<f64>, GsvError> {
        match self.take_value(name) {
            None => Ok(None),
            Some(value) => value.as_f64().map(Some).ok_or_else(|| self.type_error(name, "a number")),
        }
    }

    /// Takes a whole number from 0 up. `2.0` is one, as some languages write them so, and so is what floats make of one: 1.1
    /// minutes are 66000.00000000001 milliseconds to the original's page.
    pub(super) fn take_count(&mut self, name: &str) -> Result<Option<u64>, GsvError> {
        const NOISE: f64 = 1e-6;
        let Some(value) = self.take_value(name) else { return Ok(None) };
        let near = || value.as_f64().filter(|number| (number - number.round()).abs() < NOISE).map(f64::round);
        let count = value.as_u64().or_else(|| near().and_then(floor_number));
        count.map(Some).ok_or_else(|| self.type_error(name, "a whole number from 0 up"))
    }

    /// Takes a number from 0 up without its fraction, for the one parameter that the protocol defines so.
    pub(super) fn take_floored(&mut self, name: &str) -> Result<Option<u64>, GsvError> {
        let Some(value) = self.take_value(name) else { return Ok(None) };
        let count = value.as_u64().or_else(|| value.as_f64().and_then(floor_number));
        count.map(Some).ok_or_else(|| self.type_error(name, "a number from 0 up"))
    }

    /// Rejects the first member that was not taken, by its name. `takes` lists the accepted names. Null counts as absent.
    pub(super) fn reject_unknown(self, takes: &[&str]) -> Result<(), GsvError> {
        let left = self.members.iter().find(|(_, value)| !value.is_null()).map(|(name, _)| name.clone());
        left.map_or(Ok(()), |name| Err(self.unknown_setting(&name, takes)))
    }

    /// Does the same where null has a meaning: it removes a setting.
    pub(super) fn reject_unknown_and_null(self, takes: &[&str]) -> Result<(), GsvError> {
        let left = self.members.keys().next().cloned();
        left.map_or(Ok(()), |name| Err(self.unknown_setting(&name, takes)))
    }

    fn unknown_setting(&self, name: &str, takes: &[&str]) -> GsvError {
        GsvError::bad_request(format!("Unknown setting: {}{name}; accepted: {}", self.within, takes.join(", ")))
    }

    pub(super) fn take_object(&mut self, name: &str) -> Result<Option<Map<String, Value>>, GsvError> {
        match self.take_value(name) {
            None => Ok(None),
            Some(Value::Object(members)) => Ok(Some(members)),
            Some(_) => Err(self.type_error(name, "an object")),
        }
    }

    /// Takes an object whose members are read by name.
    pub(super) fn take_fields(&mut self, name: &str) -> Result<Option<Self>, GsvError> {
        let within = format!("{}{name}.", self.within);
        Ok(self.take_object(name)?.map(|members| Self { members, within }))
    }

    pub(super) fn take_list(&mut self, name: &str) -> Result<Option<Vec<Value>>, GsvError> {
        match self.take_value(name) {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(_) => Err(self.type_error(name, "an array")),
        }
    }

    pub(super) fn take_texts(&mut self, name: &str) -> Result<Option<Vec<String>>, GsvError> {
        let Some(items) = self.take_list(name)? else { return Ok(None) };
        let text = |item| match item {
            Value::String(text) => Some(text),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
        };
        let texts: Option<Vec<String>> = items.into_iter().map(text).collect();
        texts.map(Some).ok_or_else(|| self.type_error(name, "an array of strings"))
    }

    pub(super) fn take_flags(&mut self, name: &str) -> Result<Option<BTreeMap<String, bool>>, GsvError> {
        let Some(members) = self.take_object(name)? else { return Ok(None) };
        let flags: Option<_> =
            members.into_iter().map(|(name, flag)| flag.as_bool().map(|flag| (name, flag))).collect();
        flags.map(Some).ok_or_else(|| self.type_error(name, "an object of true and false"))
    }

    /// Takes one of a few words and returns its meaning.
    pub(super) fn take_choice<T: Copy>(&mut self, name: &str, words: &[(&str, T)]) -> Result<Option<T>, GsvError> {
        let Some(value) = self.take_value(name) else { return Ok(None) };
        let named = words.iter().find(|(word, _)| value.as_str() == Some(*word));
        named.map(|(_, meant)| Some(*meant)).ok_or_else(|| {
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.type_error(name, &format!("one of {}", words.join(", ")))
        })
    }
}

/// Returns a number from 0 up without its fraction, if it is one.
fn floor_number(number: f64) -> Option<u64> {
    /// The largest whole number that JavaScript distinguishes from its neighbour.
    const LARGEST: f64 = 9_007_199_254_740_991.0;
    (0.0..=LARGEST).contains(&number).then_some(number as u64)
}

impl From<Map<String, Value>> for ParamFields {
    fn from(members: Map<String, Value>) -> Self {
        Self { members, within: String::new() }
    }
}

impl ParamFields {
    /// Takes the members of an item of a list.
    pub(super) fn from_item(value: Value, within: &str) -> Result<Self, GsvError> {
        match value {
            Value::Object(members) => Ok(Self { members, within: format!("{within}.") }),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Err(GsvError::bad_request(format!("{within} must be an object")))
            }
        }
    }
}
