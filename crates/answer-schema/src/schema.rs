//! A schema of an answer, and what is wrong with an answer to it.
//!
//! It must not know any gate. Source: the RPC reference of gjc, Workflow gates; docs/protocol/gjc.md, Answers.

mod check;
mod construct;
#[cfg(feature = "fuzzing")]
mod fuzz;

use serde::Serialize;
use serde_json::Value;

pub use self::construct::SchemaError;
use self::construct::SchemaNode;
#[cfg(feature = "fuzzing")]
pub use self::fuzz::fuzz;
use crate::canonical::{canonical_hash, canonical_json};

/// The most bytes of a schema, in canonical form.
pub const LARGEST_SCHEMA: usize = 64 * 1024;

/// The most bytes of an answer, in canonical form.
pub const LARGEST_ANSWER: usize = 256 * 1024;

/// Most mismatches that one answer is reported with.
const MAX_MISMATCHES: usize = 256;

/// Deepest nesting of a schema.
const DEEPEST: usize = 16;

/// The most properties of one node.
const MOST_PROPERTIES: usize = 256;

/// The most values of one `enum`.
const MOST_VALUES: usize = 512;

/// A schema of which every keyword is checked.
///
/// # Example
///
/// ```
/// use countersign_answer_schema::AnswerSchema;
/// use serde_json::json;
///
/// let schema = AnswerSchema::new(json!({
///     "type": "object",
///     "required": ["room"],
///     "properties": { "room": { "enum": ["kitchen", "cellar"] } },
/// }))?;
/// assert!(schema.check_answer(&json!({ "room": "kitchen" })).is_empty());
///
/// let mismatches = schema.check_answer(&json!({ "room": "attic" }));
/// assert_eq!((mismatches[0].path.as_str(), mismatches[0].keyword), ("#/room", "enum"));
///
/// // A keyword that would not be checked is refused, so that no schema promises more than it checks.
/// assert!(AnswerSchema::new(json!({ "type": "string", "format": "email" })).is_err());
/// # Ok::<(), countersign_answer_schema::SchemaError>(())
/// ```
#[derive(Clone, Debug)]
pub struct AnswerSchema {
    root: SchemaNode,
    json: Value,
    hash: String,
}

/// One thing that is wrong with an answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SchemaMismatch {
    /// Path in the answer: `#`, `#/name`, `#/name/0`.
    pub path: String,
    /// The keyword that it does not meet.
    pub keyword: &'static str,
    /// Description of the mismatch.
    pub message: String,
    /// Value in the schema, for keywords that hold a value to compare with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<Value>,
}

impl AnswerSchema {
    /// Reads a schema.
    ///
    /// # Errors
    /// [`SchemaError`] for a keyword or a value that would not be checked, and for one that is too large.
    pub fn new(schema: Value) -> Result<Self, SchemaError> {
        let text = canonical_json(&schema);
        if text.len() > LARGEST_SCHEMA {
            return Err(SchemaError::TooLarge);
        }
        let root = SchemaNode::from_json(&schema, "#", 0)?;
        Ok(Self { root, hash: canonical_hash(&schema), json: schema })
    }

    /// Returns the schema as it was given.
    pub fn as_json(&self) -> &Value {
        &self.json
    }

    /// Returns the hash that clients see: of the schema alone.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Returns all mismatches of `answer`; none if it may count.
    pub fn check_answer(&self, answer: &Value) -> Vec<SchemaMismatch> {
        if canonical_json(answer).len() > LARGEST_ANSWER {
            return vec![SchemaMismatch {
                path: "#".to_owned(),
                keyword: "maxAnswerBytes",
                message: "answer too large".to_owned(),
                expected: None,
            }];
        }
        let mut found = Vec::new();
        check::check_node(&self.root, answer, "#", &mut found);
        found.truncate(MAX_MISMATCHES);
        found
    }
}

#[cfg(test)]
mod tests;
