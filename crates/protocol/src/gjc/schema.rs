//! The schemas of answers to workflow gates: their shapes, and the meaning of answers to them.
//!
//! It must not know any gate. `answer-schema` checks an answer. Source: the RPC reference of gjc, Workflow gates;
//! docs/protocol/gjc.md, Answers.

pub mod meaning;
pub mod shapes;

pub use countersign_answer_schema::{AnswerSchema, SchemaError, SchemaMismatch, canonical_hash};

use crate::json::WireValue;

impl WireValue for SchemaMismatch {}
