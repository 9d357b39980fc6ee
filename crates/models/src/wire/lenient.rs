//! Members that servers write in several forms: counts, ids, and objects of figures.
//!
//! An answer is paid for. A figure about it that has an odd form is read as far as it can be and left out otherwise; it never
//! makes the answer malformed.

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};
use serde_json::{Number, Value};

/// Reads a count: a whole number, a number with a fraction, which is cut off, or either as text. Anything else is left out.
pub(super) fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(match Option::<Value>::deserialize(deserializer)? {
        Some(Value::Number(number)) => whole_number(&number),
        Some(Value::String(text)) => text.trim().parse().ok().as_ref().and_then(whole_number),
        _ => None,
    })
}

/// Reads the position of a part of the answer, in the forms of a count.
///
/// # Errors
/// Any other form: content whose place is unknown is not understood.
pub(super) fn index<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let Some(value) = Option::<Value>::deserialize(deserializer)? else { return Ok(None) };
    let index = count(&value).map_err(D::Error::custom)?;
    index.map_or_else(
        || Err(D::Error::custom(format!("invalid index {value}: expected a whole number"))),
        |index| Ok(Some(index)),
    )
}

/// Reads an id: a text, or a number, which counts as its text. Anything else is left out.
pub(super) fn id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(match Option::<Value>::deserialize(deserializer)? {
        Some(Value::String(text)) => Some(text),
        Some(Value::Number(number)) => Some(number.to_string()),
        _ => None,
    })
}

/// Reads an object of figures. Anything else is left out.
pub(super) fn object<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Option<T>, D::Error> {
    let value = Option::<Value>::deserialize(deserializer)?.filter(Value::is_object);
    Ok(value.and_then(|value| serde_json::from_value(value).ok()))
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "bounded before the cast; beyond 2^53 nothing counts tokens"
)]
fn whole_number(number: &Number) -> Option<u64> {
    const LARGEST: f64 = (1_u64 << 53) as f64;
    number
        .as_u64()
        .or_else(|| number.as_f64().filter(|number| (0.0..=LARGEST).contains(number)).map(|number| number as u64))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::{Value, json};

    #[derive(Debug, Deserialize, PartialEq)]
    struct Figures {
        #[serde(default, deserialize_with = "super::count")]
        count: Option<u64>,
        #[serde(default, deserialize_with = "super::index")]
        index: Option<u64>,
        #[serde(default, deserialize_with = "super::id")]
        id: Option<String>,
        #[serde(default, deserialize_with = "super::object")]
        inner: Option<Box<Self>>,
    }

    #[test]
    fn figures_of_an_odd_form_are_read_or_left_out() {
        let read = |value: Value| serde_json::from_value::<Figures>(value).unwrap();
        for (value, want) in [
            (json!(7), Some(7)),
            (json!(10.0), Some(10)),
            (json!(10.9), Some(10)),
            (json!("10"), Some(10)),
            (json!(" 10.5 "), Some(10)),
            (json!(-1), None),
            (json!("many"), None),
            (json!(1e300), None),
            (json!([1]), None),
            (json!({}), None),
            (json!(true), None),
            (Value::Null, None),
        ] {
            assert_eq!(read(json!({ "count": value })).count, want, "{value}");
        }
        for (value, want) in [(json!("a"), Some("a")), (json!(7), Some("7")), (json!({}), None), (Value::Null, None)] {
            assert_eq!(read(json!({ "id": value })).id.as_deref(), want, "{value}");
        }
        for value in [json!([]), json!("x"), json!(0), Value::Null] {
            assert_eq!(read(json!({ "inner": value })).inner, None, "{value}");
        }
        assert_eq!(read(json!({ "inner": { "count": 1 } })).inner.unwrap().count, Some(1));
        assert_eq!(read(json!({})), Figures { count: None, index: None, id: None, inner: None });
    }

    #[test]
    fn an_index_of_another_form_is_an_error() {
        let read = |value: Value| serde_json::from_value::<Figures>(json!({ "index": value })).map(|read| read.index);
        for (value, want) in [(json!(1), Some(1)), (json!("1"), Some(1)), (json!(1.0), Some(1)), (Value::Null, None)] {
            assert_eq!(read(value.clone()).unwrap(), want, "{value}");
        }
        for value in [json!(-1), json!("a"), json!({}), json!([1]), json!(false)] {
            assert!(read(value.clone()).unwrap_err().to_string().starts_with("invalid index "), "{value}");
        }
    }
}
