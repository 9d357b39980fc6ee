//! Writes JSON in the one form that hashes are taken over: RFC 8785.
//!
//! It must not know schemas. Keys are sorted by their UTF-16 code units, numbers have ECMAScript's form, and strings
//! are escaped no more than they must be.

use std::fmt::Write as _;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Writes `value` in canonical form.
pub fn canonical_json(value: &Value) -> String {
    let mut text = String::new();
    write_value(value, &mut text);
    text
}

/// Returns the SHA-256 of the canonical form as 64 lower-case hex digits.
pub fn canonical_hash(value: &Value) -> String {
    hex::encode(Sha256::digest(canonical_json(value).as_bytes()))
}

fn write_value(value: &Value, text: &mut String) {
    match value {
        Value::Object(members) => {
            let mut members: Vec<(&String, &Value)> = members.iter().collect();
            members.sort_by(|(left, _), (right, _)| left.encode_utf16().cmp(right.encode_utf16()));
            text.push('{');
            for (at, (name, value)) in members.into_iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                write_string(name, text);
                text.push(':');
                write_value(value, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                write_value(item, text);
            }
            text.push(']');
        }
        // JavaScript has no other numbers: larger ones become the value that it would read.
        Value::Number(number) => self::write_number(number.as_f64().unwrap_or(f64::NAN), text),
        Value::String(value) => write_string(value, text),
        Value::Bool(_) | Value::Null => {
            let _ = write!(text, "{value}");
        }
    }
}

fn write_string(value: &str, text: &mut String) {
    text.push_str(&serde_json::to_string(value).expect("a string always encodes"));
}

/// Writes a number as ECMAScript's `Number::toString` does.
fn write_number(number: f64, text: &mut String) {
    if number == 0.0 {
        return text.push('0');
    }
    if !number.is_finite() {
        return text.push_str("null");
    }
    if number < 0.0 {
        text.push('-');
    }
    // The shortest digits that read back as the same number, with the point after the first of them.
    let shortest = format!("{:e}", number.abs());
    let (mantissa, exponent) = shortest.split_once('e').expect("the form has an exponent");
    let digits = mantissa.replace('.', "");
    let point = exponent.parse::<i32>().expect("the exponent is a number") + 1;
    let count = i32::try_from(digits.len()).expect("17 digits at most");
    match point {
        1..=21 if count <= point => {
            text.push_str(&digits);
            text.extend(std::iter::repeat_n('0', usize::try_from(point - count).unwrap_or_default()));
        }
        1..=21 => {
            let (whole, fraction) = digits.split_at(usize::try_from(point).unwrap_or_default());
            let _ = write!(text, "{whole}.{fraction}");
        }
        -5..=0 => {
            text.push_str("0.");
            text.extend(std::iter::repeat_n('0', usize::try_from(-point).unwrap_or_default()));
            text.push_str(&digits);
        }
        _ => {
            let (first, rest) = digits.split_at(1);
            let dot = if rest.is_empty() { "" } else { "." };
            let _ = write!(text, "{first}{dot}{rest}e{:+}", point - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{canonical_hash, canonical_json};

    #[test]
    fn numbers_have_the_form_of_ecmascript() {
        for (given, want) in [
            ("1.0", "1"),
            ("-0", "0"),
            ("-0.0", "0"),
            ("1e21", "1e+21"),
            ("1e20", "100000000000000000000"),
            ("123456789012345680000", "123456789012345680000"),
            ("9007199254740993", "9007199254740992"),
            ("18446744073709551615", "18446744073709552000"),
            ("0.000001", "0.000001"),
            ("0.0000001", "1e-7"),
            ("1.5e-9", "1.5e-9"),
            ("-12.25", "-12.25"),
            ("5e-324", "5e-324"),
            ("1.7976931348623157e308", "1.7976931348623157e+308"),
            ("333333333.33333329", "333333333.3333333"),
        ] {
            assert_eq!(canonical_json(&serde_json::from_str(given).unwrap()), want, "{given}");
        }
    }

    #[test]
    fn keys_are_in_the_order_of_utf16_and_only_what_must_be_is_escaped() {
        // U+10000 is written with surrogates, which sort before U+FFFF.
        let value = json!({"\u{ffff}": 1, "\u{10000}": 2, "b": "é\u{2028}\u{7f}/", "a": "\"\\\u{8}\t\n\u{c}\r\u{1f}"});
        let want =
            "{\"a\":\"\\\"\\\\\\b\\t\\n\\f\\r\\u001f\",\"b\":\"é\u{2028}\u{7f}/\",\"\u{10000}\":2,\"\u{ffff}\":1}";
        assert_eq!(canonical_json(&value), want);
    }

    #[test]
    fn the_worked_examples_come_out() {
        for (value, want) in [
            (
                json!({"enum": ["approve", "request-changes", "reject"], "type": "string"}),
                "5df153fcccbedccee069e603e1c4636884eab44e4c6272b126479475ad126a24",
            ),
            (json!("approve"), "6ef4cbc4f3f0a1af3187e96c208a6b7737cfa1cdfe40d84822a94d8d5eea0ac3"),
            (json!({"decision": "approve"}), "2ddd116c830744f5435c7391895c584921c7e83c19313ba43a30582a5e94e4ea"),
            (
                json!({"other": false, "selected": ["A"]}),
                "235c23fbf5b803af65c42299759b59db6d34418450129e9dc05f73f8ba6443a2",
            ),
            (json!(true), "b5bea41b6c623f7c09f1bf24dcae58ebab3c0cdd90ad966bc43a45b44867e12b"),
            (json!(null), "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b"),
            (json!(1), "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"),
            (json!(1.0), "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"),
        ] {
            assert_eq!(canonical_hash(&value), want, "{value}");
        }
    }
}
