//! Reads a schema and refuses what would not be checked.
//!
//! It must not know answers.

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};

use super::{DEEPEST, LARGEST_SCHEMA, MOST_PROPERTIES, MOST_VALUES};
use crate::canonical::canonical;

/// The largest automaton of one `pattern`, in bytes.
const LARGEST_PATTERN: usize = 1 << 18;
/// How deep the groups of one may nest: whoever compiles it recurses that deep.
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
        /// Where.
        at: String,
        /// Which.
        keyword: String,
    },
    /// A keyword has a value that it cannot have.
    #[error("`{keyword}` at {at} must be {expected}")]
    Value {
        /// Where.
        at: String,
        /// Which.
        keyword: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// A keyword has too many values.
    #[error("`{keyword}` at {at} has more than {most} values")]
    TooMany {
        /// Where.
        at: String,
        /// Which.
        keyword: &'static str,
        /// How many it may have.
        most: usize,
    },
}

impl SchemaError {
    /// The code on the wire.
    pub const CODE: &'static str = "invalid_workflow_gate_schema";
}

/// The types of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
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
pub(super) enum Additional {
    Anything,
    Nothing,
    Like(Box<Node>),
}

/// A value together with its canonical form, by which it is compared.
#[derive(Clone, Debug)]
pub(super) struct Literal {
    pub(super) value: Value,
    pub(super) canonical: String,
}

/// One node of a schema.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) kind: Option<Type>,
    pub(super) values: Option<Vec<Literal>>,
    pub(super) constant: Option<Literal>,
    pub(super) properties: Vec<(String, Node)>,
    pub(super) required: Vec<String>,
    pub(super) additional: Additional,
    pub(super) items: Option<Box<Node>>,
    pub(super) length: Bounds<u64>,
    pub(super) count: Bounds<u64>,
    pub(super) unique: bool,
    pub(super) range: Bounds<serde_json::Number>,
    pub(super) pattern: Option<Regex>,
    pub(super) one_of: Option<Vec<Node>>,
    pub(super) any_of: Option<Vec<Node>>,
}

/// The least and the most.
#[derive(Clone, Debug)]
pub(super) struct Bounds<T> {
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

impl Type {
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

impl Literal {
    fn of(value: &Value) -> Self {
        Self { value: value.clone(), canonical: canonical(value) }
    }
}

impl Node {
    pub(super) fn read(schema: &Value, at: &str, depth: usize) -> Result<Self, SchemaError> {
        if depth > DEEPEST {
            return Err(SchemaError::TooDeep(at.to_owned()));
        }
        let members = schema.as_object().ok_or_else(|| SchemaError::NotAnObject(at.to_owned()))?;
        if let Some(keyword) = members.keys().find(|keyword| !KEYWORDS.contains(&keyword.as_str())) {
            return Err(SchemaError::Keyword { at: at.to_owned(), keyword: keyword.clone() });
        }
        let reader = Reader { members, at, depth };
        for meta in ["title", "description"] {
            reader.read(meta, "a string", |value| value.as_str().map(drop))?;
        }
        Ok(Self {
            kind: reader.read("type", "one of string, number, integer, boolean, object, array, null", |value| {
                Type::ALL.iter().find(|(name, _)| value == name).map(|(_, kind)| *kind)
            })?,
            values: reader.list("enum", "an array", MOST_VALUES, |value| Some(Literal::of(value)))?,
            constant: members.get("const").map(Literal::of),
            properties: reader.properties()?,
            required: reader
                .list("required", "an array of strings", MOST_PROPERTIES, |name| name.as_str().map(str::to_owned))?
                .unwrap_or_default(),
            additional: reader.additional()?,
            items: reader.node("items")?.map(Box::new),
            length: reader.bounds("minLength", "maxLength", "a whole number that is not negative", whole)?,
            count: reader.bounds("minItems", "maxItems", "a whole number that is not negative", whole)?,
            unique: reader.read("uniqueItems", "true or false", Value::as_bool)?.unwrap_or(false),
            range: reader.bounds("minimum", "maximum", "a number", |value| value.as_number().cloned())?,
            pattern: reader.read("pattern", "a regular expression", |value| {
                RegexBuilder::new(value.as_str()?).size_limit(LARGEST_PATTERN).nest_limit(DEEPEST_PATTERN).build().ok()
            })?,
            one_of: reader.branches("oneOf")?,
            any_of: reader.branches("anyOf")?,
        })
    }
}

fn whole(value: &Value) -> Option<u64> {
    let float = || value.as_f64().filter(|float| float.fract() == 0.0 && (0.0..9e15).contains(float));
    value.as_u64().or_else(|| float().map(|float| float as u64))
}

struct Reader<'a> {
    members: &'a Map<String, Value>,
    at: &'a str,
    depth: usize,
}

impl Reader<'_> {
    fn read<T>(
        &self,
        keyword: &'static str,
        expected: &'static str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, SchemaError> {
        let Some(value) = self.members.get(keyword) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| SchemaError::Value { at: self.at.to_owned(), keyword, expected })
    }

    fn list<T>(
        &self,
        keyword: &'static str,
        expected: &'static str,
        most: usize,
        read: impl FnMut(&Value) -> Option<T>,
    ) -> Result<Option<Vec<T>>, SchemaError> {
        if self.members.get(keyword).and_then(Value::as_array).is_some_and(|items| items.len() > most) {
            return Err(SchemaError::TooMany { at: self.at.to_owned(), keyword, most });
        }
        self.read(keyword, expected, |value| value.as_array()?.iter().map(read).collect())
    }

    fn bounds<T>(
        &self,
        least: &'static str,
        most: &'static str,
        expected: &'static str,
        read: fn(&Value) -> Option<T>,
    ) -> Result<Bounds<T>, SchemaError> {
        Ok(Bounds { least: self.read(least, expected, read)?, most: self.read(most, expected, read)? })
    }

    fn below(&self, schema: &Value, path: &str) -> Result<Node, SchemaError> {
        Node::read(schema, &format!("{}/{path}", self.at), self.depth + 1)
    }

    fn node(&self, keyword: &'static str) -> Result<Option<Node>, SchemaError> {
        self.members.get(keyword).map(|schema| self.below(schema, keyword)).transpose()
    }

    fn properties(&self) -> Result<Vec<(String, Node)>, SchemaError> {
        let keyword = "properties";
        let properties = self.read(keyword, "an object", |value| value.as_object().cloned())?.unwrap_or_default();
        if properties.len() > MOST_PROPERTIES {
            return Err(SchemaError::TooMany { at: self.at.to_owned(), keyword, most: MOST_PROPERTIES });
        }
        let read = |(name, schema): (String, Value)| {
            let node = self.below(&schema, &format!("properties/{name}"))?;
            Ok((name, node))
        };
        properties.into_iter().map(read).collect()
    }

    fn additional(&self) -> Result<Additional, SchemaError> {
        let keyword = "additionalProperties";
        match self.members.get(keyword) {
            None | Some(Value::Bool(true)) => Ok(Additional::Anything),
            Some(Value::Bool(false)) => Ok(Additional::Nothing),
            Some(schema @ Value::Object(_)) => Ok(Additional::Like(Box::new(self.below(schema, keyword)?))),
            Some(Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                Err(SchemaError::Value { at: self.at.to_owned(), keyword, expected: "true, false or a schema" })
            }
        }
    }

    fn branches(&self, keyword: &'static str) -> Result<Option<Vec<Node>>, SchemaError> {
        let expected = "an array of schemas with at least one";
        let branches =
            self.read(keyword, expected, |value| value.as_array().filter(|items| !items.is_empty()).cloned())?;
        let Some(branches) = branches else { return Ok(None) };
        let read = |(at, schema): (usize, &Value)| self.below(schema, &format!("{keyword}/{at}"));
        branches.iter().enumerate().map(read).collect::<Result<_, _>>().map(Some)
    }
}
