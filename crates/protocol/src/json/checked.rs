//! Reads JSON for its errors alone.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// A value that was read as deep as any other and not kept. Kept, it may take forty times the room of its text.
pub(crate) struct ValidatedJson;

impl<'de> Deserialize<'de> for ValidatedJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValueVisitor)
    }
}

struct AnyValueVisitor;

macro_rules! visit_scalars {
    ($($visit:ident: $scalar:ty),+) => {
        $(fn $visit<E>(self, _: $scalar) -> Result<ValidatedJson, E> {
            Ok(ValidatedJson)
        })+
    };
}

impl<'de> Visitor<'de> for AnyValueVisitor {
    type Value = ValidatedJson;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    visit_scalars! { visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str }

    fn visit_unit<E>(self) -> Result<ValidatedJson, E> {
        Ok(ValidatedJson)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<ValidatedJson, A::Error> {
        while items.next_element::<ValidatedJson>()?.is_some() {}
        Ok(ValidatedJson)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<ValidatedJson, A::Error> {
        while members.next_entry::<ValidatedJson, ValidatedJson>()?.is_some() {}
        Ok(ValidatedJson)
    }
}
