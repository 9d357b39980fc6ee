//! Holds JSON that is passed on as it is, and turns frames into lines.
//!
//! It must not know any door: only JSON itself.

mod checked;
mod surrogates;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

pub(crate) use checked::ValidatedJson;
pub use surrogates::replace_lone_surrogates;

/// A value of one of our wires. Implementing it promises that encoding cannot fail: every key is a string, and no
/// member refuses to be serialised.
pub trait WireValue: Serialize {}

/// Implements [`WireValue`] for types of a module.
macro_rules! wire_values {
    ($($value:ty),+ $(,)?) => {
        $(impl $crate::json::WireValue for $value {})+
    };
}
pub(crate) use wire_values;

wire_values! { RawJson, Value, Map<String, Value>, str, String, () }
impl<T: WireValue + ?Sized> WireValue for &T {}
impl<T: WireValue> WireValue for Option<T> {}
impl<T: WireValue> WireValue for [T] {}
impl<T: WireValue> WireValue for Vec<T> {}

/// Encodes a frame as one line with its line break at the end, and none inside.
pub fn encode_line(frame: &(impl WireValue + ?Sized)) -> Bytes {
    let mut line = BytesMut::with_capacity(256).writer();
    serde_json::to_writer(&mut line, frame).expect("a wire value always encodes");
    let mut line = line.into_inner();
    line.put_u8(b'\n');
    line.freeze()
}

/// One JSON value as the text it was written in, shared by all its clones.
///
/// It holds no line break, so it can be embedded in any line. Two are equal if their texts are.
#[derive(Clone)]
pub struct RawJson(Arc<RawValue>);

impl RawJson {
    /// Encodes `value` once; every frame that embeds the result copies the text.
    pub fn from_wire(value: &(impl WireValue + ?Sized)) -> Self {
        to_raw_value(value).expect("a wire value always encodes").into()
    }

    /// Keeps `text` if it is one JSON value.
    ///
    /// # Errors
    /// Position and reason of the error.
    pub fn parse(text: String) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text).map(Self::from)
    }

    /// Returns the text of the value.
    pub fn as_text(&self) -> &str {
        self.0.get()
    }

    /// Reads the value as a `T`.
    ///
    /// # Errors
    /// If it has another shape.
    pub fn decode_as<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.as_text())
    }
}

impl From<Box<RawValue>> for RawJson {
    fn from(raw: Box<RawValue>) -> Self {
        // One after the other, which looks at many bytes at a time.
        if !raw.get().contains('\n') && !raw.get().contains('\r') {
            return Self(raw.into());
        }
        // In JSON a raw line break can only be white space between tokens.
        let text = raw.get().replace(['\n', '\r'], "");
        Self(RawValue::from_string(text).expect("white space between tokens is free").into())
    }
}

impl From<Value> for RawJson {
    fn from(value: Value) -> Self {
        Self::from_wire(&value)
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.as_text() == other.as_text()
    }
}

impl Eq for RawJson {}

impl Hash for RawJson {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_text().hash(state);
    }
}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_text())
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self::from)
    }
}

/// Unknown members of an object, written back as they came after the known ones.
///
/// The discriminators `type` and `role` are never among them: they belong to the type that holds this.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct ExtraMembers(Map<String, Value>);

impl ExtraMembers {
    /// Returns the member called `name`.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Sets the member called `name`.
    pub fn insert(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }

    pub(crate) fn without_members(mut self, names: &[&str]) -> Self {
        self.0.retain(|name, _| !names.contains(&name.as_str()));
        self
    }
}

impl<'de> Deserialize<'de> for ExtraMembers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Map::deserialize(deserializer).map(|members| Self(members).without_members(&["type", "role"]))
    }
}

/// A number of JavaScript. A whole one is written without a fraction; one that is not finite as null.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Deserialize)]
#[serde(transparent)]
pub struct JsNumber(pub f64);

impl From<f64> for JsNumber {
    fn from(number: f64) -> Self {
        Self(number)
    }
}

impl Serialize for JsNumber {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// Limit above which an `f64` no longer distinguishes every whole number from its neighbour.
        const LARGEST_EXACT: f64 = 9_007_199_254_740_992.0;
        if self.0.fract() == 0.0 && self.0.abs() < LARGEST_EXACT {
            serializer.serialize_i64(self.0 as i64)
        } else {
            serializer.serialize_f64(self.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_break_gets_into_a_line() {
        let json = RawJson::parse("{\r\n \"a\": [1,\n2],\n\t\"b\":\"x\\ny\"\n}".to_owned()).unwrap();
        assert_eq!(json.as_text(), "{ \"a\": [1,2],\t\"b\":\"x\\ny\"}");
        assert_eq!(encode_line(&json), "{ \"a\": [1,2],\t\"b\":\"x\\ny\"}\n");
    }

    #[test]
    fn whole_numbers_are_written_without_a_fraction() {
        for (number, want) in [(0.0, "0"), (-0.0, "0"), (3.0, "3"), (0.1, "0.1"), (1e300, "1e+300"), (f64::NAN, "null")]
        {
            assert_eq!(serde_json::to_string(&JsNumber(number)).unwrap(), want);
        }
    }
}
