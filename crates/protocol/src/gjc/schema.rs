//! The schemas of answers to workflow gates: what they look like, and what answers to them mean.
//!
//! It must not know any gate. How an answer is checked is in `answer-schema`. Source: the RPC reference of gjc, Workflow gates;
//! docs/protocol/gjc.md, Answers.

pub mod meaning;
pub mod shapes;

pub use countersign_answer_schema::{AnswerSchema, SchemaError, SchemaMismatch, canonical_hash};

use crate::json::WireValue;

impl WireValue for SchemaMismatch {}
