//! Checks answers against the subset of JSON Schema that gates use, and writes JSON in the form that hashes are taken over.
//!
//! It must not know any gate or wire. A schema is checked when it is made, so that none is ever sent that would not be checked
//! in full.
#![warn(missing_docs)]

mod canonical;
mod schema;

pub use canonical::{canonical_hash, canonical_json};
#[cfg(feature = "fuzzing")]
pub use schema::fuzz;
pub use schema::{AnswerSchema, LARGEST_ANSWER, LARGEST_SCHEMA, SchemaError, SchemaMismatch};
