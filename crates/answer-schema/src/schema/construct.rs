//! Reads a schema and refuses what would not be checked.
//!
//! It must not know answers.

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};

use super::{DEEPEST, LARGEST_SCHEMA, MOST_PROPERTIES, MOST_VALUES};
use crate::canonical::canonical_json;

/// The largest automaton of one `pattern`, in bytes.
const LARGEST_PATTERN: usize = 1 << 18;
/// Deepest nesting of groups in a pattern: its compiler recurses that deep.
const DEEPEST_PATTERN: u32 = 100;

/// Why a schema cannot be used. The code on the wire is `invalid_workflow_gate_schema`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// It has too many bytes.
    #[error("the schema has more than {LARGEST_SCHEMA} bytes")]
    TooLarge,
    /// It nests too deep.
    #[error("the schema nests deeper than {DEEPEST} at {0}")]
    TooDeep(String),
    /// It is no object.
    #[error("{0} must be an object")]
    NotAnObject(String),
    /// It has a keyword that is not checked.
    #[error("{at} has the keyword {keyword:?}, which is not supported")]
    Keyword {
        /// Path in the schema.
        at: String,
        /// Name of the keyword.
        keyword: String,
    },
    /// A keyword has a value that it cannot have.
    #[error("`{keyword}` at {at} must be {expected}")]
    Value {
        /// Path in the schema.
        at: String,
        /// Name of the keyword.
        keyword: &'static str,
        /// Expected kind of value.
        expected: &'static str,
    },
    /// A keyword has too many values.
    #[error("`{keyword}` at {at} has more than {most} values")]
    TooMany {
        /// Path in the schema.
        at: String,
        /// Name of the keyword.
        keyword: &'static str,
        /// Most entries that it may have.
        most: usize,
    },
}

impl SchemaError {
    /// The code on the wire.
    pub const CODE: &'static str = "invalid_workflow_gate_schema";
}

/// The types of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JsonType {
    String,
    Number,
    Integer,
    Boolean,
    Object,
    Array,
    Null,
}

/// Properties of which the schema does not speak.
#[derive(Clone, Debug)]
pub(super) enum AdditionalProperties {
    Anything,
    Nothing,
    Like(Box<SchemaNode>),
}

/// A value together with its canonical form, by which it is compared.
#[derive(Clone, Debug)]
pub(super) struct CanonicalValue {
    pub(super) value: Value,
    pub(super) canonical: String,
}

/// One node of a schema.
#[derive(Clone, Debug)]
pub(super) struct SchemaNode {
    pub(super) kind: Option<JsonType>,
    pub(super) values: Option<Vec<CanonicalValue>>,
    pub(super) constant: Option<CanonicalValue>,
    pub(super) properties: Vec<(String, SchemaNode)>,
    pub(super) required: Vec<String>,
    pub(super) additional: AdditionalProperties,
    pub(super) items: Option<Box<SchemaNode>>,
    pub(super) length: MinMax<u64>,
    pub(super) count: MinMax<u64>,
    pub(super) unique: bool,
    pub(super) range: MinMax<serde_json::Number>,
    pub(super) pattern: Option<Regex>,
    pub(super) one_of: Option<Vec<SchemaNode>>,
    pub(super) any_of: Option<Vec<SchemaNode>>,
}

/// The least and the most.
#[derive(Clone, Debug)]
pub(super) struct MinMax<T> {
    pub(super) least: Option<T>,
    pub(super) most: Option<T>,
}

const KEYWORDS: [&str; 19] = [
    "type",
    "enum",
    "const",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minimum",
    "maximum",
    "pattern",
    "title",
    "description",
    "oneOf",
    "anyOf",
];

impl JsonType {
    const ALL: [(&'static str, Self); 7] = [
        ("string", Self::String),
        ("number", Self::Number),
        ("integer", Self::Integer),
        ("boolean", Self::Boolean),
        ("object", Self::Object),
        ("array", Self::Array),
        ("null", Self::Null),
    ];

    pub(super) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, one)| *one == self).map_or("", |(name, _)| name)
    }
}

impl CanonicalValue {
    fn from_value(value: &Value) -> Self {
        Self { value: value.clone(), canonical: canonical_json(value) }
    }
}

impl SchemaNode {
    pub(super) fn from_json(schema: &Value, at: &str, depth: usize) -> Result<Self, SchemaError> {
        if depth > DEEPEST {
            return Err(SchemaError::TooDeep(at.to_owned()));
        }
        let members = schema.as_object().ok_or_else(|| SchemaError::NotAnObject(at.to_owned()))?;
        if let Some(keyword) = members.keys().find(|keyword| !KEYWORDS.contains(&keyword.as_str())) {
            return Err(SchemaError::Keyword { at: at.to_owned(), keyword: keyword.clone() });
        }
        let reader = NodeReader { members, at, depth };
        for meta in ["title", "description"] {
            reader.read_keyword(meta, "a string", |value| value.as_str().map(drop))?;
        }
        Ok(Self {
            kind: reader.read_keyword(
                "type",
                "one of string, number, integer, boolean, object, array, null",
                |value| JsonType::ALL.iter().find(|(name, _)| value == name).map(|(_, kind)| *kind),
            )?,
            values: reader
                .read_list("enum", "an array", MOST_VALUES, |value| Some(CanonicalValue::from_value(value)))?,
            constant: members.get("const").map(CanonicalValue::from_value),
            properties: reader.read_properties()?,
            required: reader
                .read_list("required", "an array of strings", MOST_PROPERTIES, |name| name.as_str().map(str::to_owned))?
                .unwrap_or_default(),
            additional: reader.read_additional()?,
            items: reader.read_subschema("items")?.map(Box::new),
            length: reader.read_bounds(
                "minLength",
                "maxLength",
                "a whole number that is not negative",
                whole_number,
            )?,
            count: reader.read_bounds("minItems", "maxItems", "a whole number that is not negative", whole_number)?,
            unique: reader.read_keyword("uniqueItems", "true or false", Value::as_bool)?.unwrap_or(false),
            range: reader.read_bounds("minimum", "maximum", "a number", |value| value.as_number().cloned())?,
            pattern: reader.read_keyword("pattern", "a regular expression", |value| {
                RegexBuilder::new(value.as_str()?).size_limit(LARGEST_PATTERN).nest_limit(DEEPEST_PATTERN).build().ok()
            })?,
            one_of: reader.read_branches("oneOf")?,
            any_of: reader.read_branches("anyOf")?,
        })
    }
}

fn whole_number(value: &Value) -> Option<u64> {
    let float = || value.as_f64().filter(|float| float.fract() == 0.0 && (0.0..9e15).contains(float));
    value.as_u64().or_else(|| float().map(|float| float as u64))
}

struct NodeReader<'a> {
    members: &'a Map<String, Value>,
    at: &'a str,
    depth: usize,
}

impl NodeReader<'_> {
    fn read_keyword<T>(
        &self,
        keyword: &'static str,
        expected: &'static str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, SchemaError> {
        let Some(value) = self.members.get(keyword) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| SchemaError::Value { at: self.at.to_owned(), keyword, expected })
    }

    fn read_list<T>(
        &self,
        keyword: &'static str,
        expected: &'static str,
        most: usize,
        read: impl FnMut(&Value) -> Option<T>,
    ) -> Result<Option<Vec<T>>, SchemaError> {
        if self.members.get(keyword).and_then(Value::as_array).is_some_and(|items| items.len() > most) {
            return Err(SchemaError::TooMany { at: self.at.to_owned(), keyword, most });
        }
        self.read_keyword(keyword, expected, |value| value.as_array()?.iter().map(read).collect())
    }

    fn read_bounds<T>(
        &self,
        least: &'static str,
        most: &'static str,
        expected: &'static str,
        read: fn(&Value) -> Option<T>,
    ) -> Result<MinMax<T>, SchemaError> {
        Ok(MinMax { least: self.read_keyword(least, expected, read)?, most: self.read_keyword(most, expected, read)? })
    }

    fn read_child(&self, schema: &Value, path: &str) -> Result<SchemaNode, SchemaError> {
        SchemaNode::from_json(schema, &format!("{}/{path}", self.at), self.depth + 1)
    }

    fn read_subschema(&self, keyword: &'static str) -> Result<Option<SchemaNode>, SchemaError> {
        self.members.get(keyword).map(|schema| self.read_child(schema, keyword)).transpose()
    }

    fn read_properties(&self) -> Result<Vec<(String, SchemaNode)>, SchemaError> {
        let keyword = "properties";
        let properties =
            self.read_keyword(keyword, "an object", |value| value.as_object().cloned())?.unwrap_or_default();
        if properties.len() > MOST_PROPERTIES {
            return Err(SchemaError::TooMany { at: self.at.to_owned(), keyword, most: MOST_PROPERTIES });
        }
        let read = |(name, schema): (String, Value)| {
            let node = self.read_child(&schema, &format!("properties/{name}"))?;
            Ok((name, node))
        };
        properties.into_iter().map(read).collect()
    }

    fn read_additional(&self) -> Result<AdditionalProperties, SchemaError> {
        let keyword = "additionalProperties";
        match self.members.get(keyword) {
            None | Some(Value::Bool(true)) => Ok(AdditionalProperties::Anything),
            Some(Value::Bool(false)) => Ok(AdditionalProperties::Nothing),
            Some(schema @ Value::Object(_)) => {
                Ok(AdditionalProperties::Like(Box::new(self.read_child(schema, keyword)?)))
            }
            Some(Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                Err(SchemaError::Value { at: self.at.to_owned(), keyword, expected: "true, false or a schema" })
            }
        }
    }

    fn read_branches(&self, keyword: &'static str) -> Result<Option<Vec<SchemaNode>>, SchemaError> {
        let expected = "an array of schemas with at least one";
        let branches =
            self.read_keyword(keyword, expected, |value| value.as_array().filter(|items| !items.is_empty()).cloned())?;
        let Some(branches) = branches else { return Ok(None) };
        let read = |(at, schema): (usize, &Value)| self.read_child(schema, &format!("{keyword}/{at}"));
        branches.iter().enumerate().map(read).collect::<Result<_, _>>().map(Some)
    }
}
